//! Putting a changed configuration in force, all of it or nothing.
//!
//! Files are read by a thread of their own: a list of millions of hashes takes seconds, in which the
//! main thread has signals to obey.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use admin::Figures;
use anyhow::{Result, anyhow};
use net::process::Sandbox;
use net::tls::{Certificate, Certificates};
use tokio::sync::watch;
use tracing::{Level, error, info, warn};
use tracker::Tracker;

use super::{Happening, confine};
use crate::access::{self, Access, Users};
use crate::acme;
use crate::certificates;
use crate::config::{self, AcmeConfig, Config, Problem, Settings};

/// Sets the level of the log.
pub(super) type LogLevel = Box<dyn Fn(Level)>;

/// What is in force, and how to replace it.
pub(super) struct Reloader {
    pub(super) file: Option<PathBuf>,
    pub(super) settings: Settings,
    pub(super) config: Config,
    pub(super) tracker: Arc<Tracker>,
    /// The keys of the file that are in force.
    pub(super) users: Users,
    pub(super) watch: access::Watch,
    pub(super) certificates: Arc<Certificates>,
    /// Tells the thread that obtains certificates what to obtain.
    pub(super) acme: watch::Sender<Option<AcmeConfig>>,
    pub(super) log: LogLevel,
    pub(super) sandbox: Option<Arc<Sandbox>>,
    pub(super) reading: Reading,
}

/// Whether files are being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reading {
    #[default]
    Not,
    Now,
    /// Now, and then from the start, because they may have changed in between.
    NowAndAgain,
}

/// What was read, or why not.
pub(super) enum Outcome {
    /// All there is.
    All(Result<Box<Fresh>, Vec<String>>),
    /// The files that the configuration names.
    Files(Files),
}

/// Each of these is put in force if it is good by itself.
pub(super) struct Files {
    access: Result<Access>,
    certificates: Result<Vec<Certificate>>,
}

/// A configuration with its lists and certificates.
pub(super) struct Fresh {
    /// What the file says.
    settings: Settings,
    /// What of it can be in force now.
    in_force: Settings,
    /// What is made of the file, with the doors that are in force.
    config: Config,
    watch: access::Watch,
    access: Access,
    certificates: Vec<Certificate>,
}

impl Reloader {
    /// Reads the configuration, lists and certificates again. What becomes of it happens as [`Happening::Read`];
    /// gives whether anything will.
    pub(super) fn reload(&mut self, happen: &Sender<Happening>) -> bool {
        if self.reading != Reading::Not {
            self.reading = Reading::NowAndAgain;
            return true;
        }
        let (file, sandbox) = (self.file.clone(), self.sandbox.clone());
        let in_force = self.settings.clone();
        let read = move || {
            let read = || read_all(file.as_deref(), in_force, sandbox.as_deref());
            // Nothing that a panic left half done is used again.
            let read = catch_unwind(AssertUnwindSafe(read));
            Outcome::All(read.unwrap_or_else(|_| Err(vec![PANICKED.into()])))
        };
        self.read(happen, read);
        self.reading != Reading::Not
    }

    /// Reads lists and certificates again if a file has changed.
    pub(super) fn follow_files(&mut self, happen: &Sender<Happening>) {
        if self.reading != Reading::Not || !self.watch.has_changed() {
            return;
        }
        let config = self.config.clone();
        let read = move || {
            let access = catch_unwind(AssertUnwindSafe(|| access::read(&config)));
            let certificates = catch_unwind(AssertUnwindSafe(|| certificates::read(&config)));
            Outcome::Files(Files {
                access: access.unwrap_or_else(|_| Err(anyhow!(PANICKED))),
                certificates: certificates.unwrap_or_else(|_| Err(anyhow!(PANICKED))),
            })
        };
        self.read(happen, read);
    }

    fn read(
        &mut self,
        happen: &Sender<Happening>,
        read: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        let happen = happen.clone();
        let work = move || {
            // Nobody listens any more once the process is going down.
            let _ = happen.send(Happening::Read(read()));
        };
        match std::thread::Builder::new().name("reload".into()).spawn(work) {
            Ok(_) => self.reading = Reading::Now,
            Err(error) => error!("not reloaded: cannot start a thread: {error}"),
        }
    }

    /// Puts in force what was read; any mistake leaves everything as it is. Gives whether the
    /// files are to be read again.
    pub(super) fn finish(&mut self, outcome: Outcome, figures: &Figures) -> bool {
        let is_done = match outcome {
            Outcome::All(Ok(read)) => {
                self.replace(*read);
                true
            }
            Outcome::All(Err(problems)) => {
                problems.iter().for_each(|problem| error!("not reloaded: {problem}"));
                false
            }
            Outcome::Files(files) => self.replace_files(files),
        };
        let status = &figures.status;
        let count = if is_done { &status.reloads } else { &status.reload_failures };
        count.fetch_add(1, Ordering::Relaxed);
        std::mem::take(&mut self.reading) == Reading::NowAndAgain
    }

    /// Puts in force what is good of the files, and gives whether all is.
    fn replace_files(&mut self, files: Files) -> bool {
        let Files { access, certificates } = files;
        let is_good = access.is_ok() && certificates.is_ok();
        match access {
            Ok(access) => {
                info!("access lists: {}", access.summary());
                access.apply(&self.tracker, &mut self.users);
            }
            Err(error) => error!("the access lists in force stay: {error:#}"),
        }
        match certificates {
            Ok(certificates) => self.replace_certificates(certificates),
            Err(error) => error!("the certificates in force stay: {error:#}"),
        }
        is_good
    }

    fn replace_certificates(&self, certificates: Vec<Certificate>) {
        if !certificates.is_empty() {
            info!("certificates: {} in force", certificates.len());
        }
        certificates::doubts(&self.config, &certificates).iter().for_each(|doubt| warn!("{doubt}"));
        self.certificates.replace(certificates);
    }

    fn replace(&mut self, fresh: Fresh) {
        let Fresh { settings, in_force, config, watch, access, certificates } = fresh;
        let (live, fixed) = config::changes(&self.settings, &settings);
        let lists = access.summary();
        self.tracker.reconfigure(&config.policy);
        self.tracker.limiter().replace(config.limits.clone());
        self.tracker.bans().set_rules(config.bans);
        access.apply(&self.tracker, &mut self.users);
        self.acme.send_if_modified(|acme| {
            let is_other = *acme != config.acme;
            acme.clone_from(&config.acme);
            is_other
        });
        (self.log)(config.log_level);
        let list =
            |names: &[String]| if names.is_empty() { "nothing".into() } else { names.join(", ") };
        info!("reloaded; changed: {}; lists: {lists}", list(&live));
        if !fixed.is_empty() {
            warn!("changed, but only a restart puts it in force: {}", list(&fixed));
        }
        // What needs a restart is compared with what is really in force next time, too.
        self.settings = in_force;
        self.config = config;
        self.watch = watch;
        self.replace_certificates(certificates);
    }
}

const PANICKED: &str = "reading panicked; the message stands above";

/// Reads everything, of which as much as can be is to go over what is `in_force`.
fn read_all(
    file: Option<&Path>,
    mut in_force: Settings,
    sandbox: Option<&Sandbox>,
) -> Result<Box<Fresh>, Vec<String>> {
    let (settings, mut config) = crate::load(file)?;
    in_force.take_live(&settings);
    // Listeners come and go only with a restart, and each has a door. What is good by itself may still
    // contradict those that are there.
    let as_it_is = |problem: &Problem| format!("{problem} (as long as there is no restart)");
    let doors = config::doors(&in_force);
    config.doors = doors.map_err(|all| all.iter().map(as_it_is).collect::<Vec<_>>())?;
    if let Some(objection) = confine::objection(sandbox, &config) {
        return Err(vec![objection]);
    }
    let watch = access::Watch::new(&config);
    let problem = |error| vec![format!("{error:#}")];
    let access = access::read(&config).map_err(problem)?;
    let certificates = certificates::read(&config).map_err(problem)?;
    acme::prepare(&config).map_err(problem)?;
    Ok(Box::new(Fresh { settings, in_force, config, watch, access, certificates }))
}
