//! Putting a changed configuration in force, all of it or nothing.
//!
//! Files are read by a thread of their own: a list of millions of hashes takes seconds, in which the
//! main thread has signals to obey.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use admin::{EventHub, EventKind, MetricSources, ReloadOutcome, Setting};
use anyhow::{Result, anyhow};
use net::process::{Sandbox, lower_priority};
use net::tls::{Certificate, Certificates};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tracing::{error, info, warn};
use tracker::Tracker;

use super::log::Log;
use super::{Event, confine};
use crate::access::{self, AccessFiles, FileKeys};
use crate::acme;
use crate::certificates;
use crate::config::{self, AcmeConfig, Config, Problem, Settings};

/// What is in force, and how to replace it.
pub(super) struct Reloader {
    pub(super) file: Option<PathBuf>,
    pub(super) settings: Settings,
    pub(super) config: Config,
    pub(super) tracker: Arc<Tracker>,
    /// The keys of the file that are in force.
    pub(super) file_keys: FileKeys,
    pub(super) watcher: access::FileWatcher,
    pub(super) certificates: Arc<Certificates>,
    /// Tells the thread that obtains certificates what to obtain.
    pub(super) acme: watch::Sender<Option<AcmeConfig>>,
    pub(super) log: Log,
    pub(super) sandbox: Option<Arc<Sandbox>>,
    pub(super) reading: ReadState,
    /// What the API has set.
    pub(super) overrides: Vec<(String, Value)>,
    /// Who waits for what comes of it.
    pub(super) pending: PendingReplies,
    /// Where it is told.
    pub(super) hub: Arc<EventHub>,
}

/// What a reload has come to, or the sentences that say why to nothing.
type ReloadResult = Result<ReloadOutcome, Vec<String>>;

/// Those who wait for a reload.
#[derive(Default)]
pub(super) struct PendingReplies {
    now: Vec<Reply>,
    /// For the one after that, since files may have changed in between.
    later: Vec<Reply>,
}

type Reply = Box<dyn FnOnce(&ReloadResult) + Send>;

impl PendingReplies {
    /// A way to answer. Who has given up waiting does not hear it.
    pub(super) fn to(reply: oneshot::Sender<ReloadResult>) -> Reply {
        Box::new(move |done| drop(reply.send(done.clone())))
    }

    /// The same for somebody who wants to know only whether it was done.
    pub(super) fn to_result(reply: oneshot::Sender<Result<(), Vec<String>>>) -> Reply {
        Box::new(move |done| drop(reply.send(done.clone().map(|_| ()))))
    }
}

/// Whether files are being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadState {
    #[default]
    Idle,
    Running,
    /// Now, and then from the start, because they may have changed in between.
    RunningStale,
}

/// What was read, or why not.
pub(super) enum ReadOutcome {
    /// All there is.
    Everything(Result<Box<NewConfig>, Vec<String>>),
    /// The files that the configuration names.
    ReadFiles(ReadFiles),
}

/// Each of these is put in force if it is good by itself.
pub(super) struct ReadFiles {
    access: Result<AccessFiles>,
    certificates: Result<Vec<Certificate>>,
}

/// A configuration with its lists and certificates.
pub(super) struct NewConfig {
    /// What the file says.
    settings: Settings,
    /// What of it can be in force now.
    running: Settings,
    /// What is made of the file, with the doors that are in force.
    config: Config,
    watcher: access::FileWatcher,
    access: AccessFiles,
    certificates: Vec<Certificate>,
}

impl Reloader {
    /// What is configured.
    pub(super) fn list(&self) -> Vec<Setting> {
        config::list(&self.settings)
    }

    /// Reads everything again, and answers.
    pub(super) fn reload_and_reply(&mut self, events: &Sender<Event>, reply: Reply) {
        self.enqueue(reply);
        if !self.reload(events) {
            self.reply_all(&Err(vec!["cannot start a thread".into()]));
        }
    }

    /// Reads lists and certificates again, and answers.
    pub(super) fn reload_files_and_reply(&mut self, events: &Sender<Event>, reply: Reply) {
        self.enqueue(reply);
        if self.reading != ReadState::Idle {
            self.reading = ReadState::RunningStale;
            return;
        }
        self.read_files(events);
        if self.reading == ReadState::Idle {
            self.reply_all(&Err(vec!["cannot start a thread".into()]));
        }
    }

    /// Sees whether the configuration would be good with these values of the API.
    pub(super) fn validate(
        &self,
        values: Vec<(String, Value)>,
        reply: oneshot::Sender<ReloadResult>,
    ) {
        let (file, sandbox) = (self.file.clone(), self.sandbox.clone());
        let running = self.settings.clone();
        let work = move || {
            // Where that is not permitted, the start has said so.
            let _ = lower_priority();
            let read = || read_all(file.as_deref(), &values, running, sandbox.as_deref());
            let read = catch_unwind(AssertUnwindSafe(read));
            let read = read.unwrap_or_else(|_| Err(vec![PANICKED.into()]));
            drop(reply.send(read.map(|_| ReloadOutcome::default())));
        };
        // Without a thread the answer's channel closes, which says so.
        let _ = std::thread::Builder::new().name("reload".into()).spawn(work);
    }

    fn enqueue(&mut self, reply: Reply) {
        let pending = &mut self.pending;
        if self.reading == ReadState::Idle { &mut pending.now } else { &mut pending.later }
            .push(reply);
    }

    fn reply_all(&mut self, done: &ReloadResult) {
        std::mem::take(&mut self.pending.now).into_iter().for_each(|reply| reply(done));
        self.pending.now = std::mem::take(&mut self.pending.later);
    }

    /// Reads the configuration, lists and certificates again. What becomes of it happens as [`Event::Read`];
    /// gives whether anything will.
    pub(super) fn reload(&mut self, events: &Sender<Event>) -> bool {
        if self.reading != ReadState::Idle {
            self.reading = ReadState::RunningStale;
            return true;
        }
        let (file, sandbox) = (self.file.clone(), self.sandbox.clone());
        let (running, overrides) = (self.settings.clone(), self.overrides.clone());
        let read = move || {
            let read = || read_all(file.as_deref(), &overrides, running, sandbox.as_deref());
            // Nothing that a panic left half done is used again.
            let read = catch_unwind(AssertUnwindSafe(read));
            ReadOutcome::Everything(read.unwrap_or_else(|_| Err(vec![PANICKED.into()])))
        };
        self.read(events, read);
        self.reading != ReadState::Idle
    }

    /// Reads lists and certificates again if a file has changed.
    pub(super) fn reload_changed_files(&mut self, events: &Sender<Event>) {
        if self.reading != ReadState::Idle || !self.watcher.has_changed() {
            return;
        }
        self.read_files(events);
    }

    fn read_files(&mut self, events: &Sender<Event>) {
        let config = self.config.clone();
        let read = move || {
            let access = catch_unwind(AssertUnwindSafe(|| access::read(&config)));
            let certificates = catch_unwind(AssertUnwindSafe(|| certificates::read(&config)));
            ReadOutcome::ReadFiles(ReadFiles {
                access: access.unwrap_or_else(|_| Err(anyhow!(PANICKED))),
                certificates: certificates.unwrap_or_else(|_| Err(anyhow!(PANICKED))),
            })
        };
        self.read(events, read);
    }

    fn read(
        &mut self,
        events: &Sender<Event>,
        read: impl FnOnce() -> ReadOutcome + Send + 'static,
    ) {
        let events = events.clone();
        let work = move || {
            let _ = lower_priority();
            // Nobody listens any more once the process is going down.
            let _ = events.send(Event::Read(read()));
        };
        match std::thread::Builder::new().name("reload".into()).spawn(work) {
            Ok(_) => self.reading = ReadState::Running,
            Err(error) => error!("not reloaded: cannot start a thread: {error}"),
        }
    }

    /// Puts in force what was read; any mistake leaves everything as it is. Gives whether the
    /// files are to be read again.
    pub(super) fn finish(&mut self, outcome: ReadOutcome, metric_sources: &MetricSources) -> bool {
        let done = match outcome {
            ReadOutcome::Everything(Ok(read)) => Ok(self.replace(*read)),
            ReadOutcome::Everything(Err(problems)) => {
                problems.iter().for_each(|problem| error!("not reloaded: {problem}"));
                Err(problems)
            }
            ReadOutcome::ReadFiles(files) => self.replace_files(files),
        };
        let status = &metric_sources.status;
        let count = if done.is_ok() { &status.reloads } else { &status.reload_failures };
        count.fetch_add(1, Ordering::Relaxed);
        let data = match &done {
            Ok(reloaded) => {
                json!({ "changed": reloaded.changed, "needs_restart": reloaded.needs_restart })
            }
            Err(problems) => json!({ "problems": problems }),
        };
        self.hub.publish(EventKind::Reload, data);
        self.reply_all(&done);
        std::mem::take(&mut self.reading) == ReadState::RunningStale
    }

    /// Puts in force what is good of the files, and says what is not.
    fn replace_files(&mut self, files: ReadFiles) -> ReloadResult {
        let ReadFiles { access, certificates } = files;
        let mut problems = Vec::new();
        match access {
            Ok(access) => {
                info!("access lists: {}", access.summary());
                access.apply(&self.tracker, &mut self.file_keys);
            }
            Err(error) => {
                error!("the access lists in force stay: {error:#}");
                problems.push(format!("{error:#}"));
            }
        }
        match certificates {
            Ok(certificates) => self.replace_certificates(certificates),
            Err(error) => {
                error!("the certificates in force stay: {error:#}");
                problems.push(format!("{error:#}"));
            }
        }
        if problems.is_empty() { Ok(ReloadOutcome::default()) } else { Err(problems) }
    }

    fn replace_certificates(&self, certificates: Vec<Certificate>) {
        if !certificates.is_empty() {
            info!("certificates: {} in force", certificates.len());
        }
        certificates::warnings(&self.config, &certificates)
            .iter()
            .for_each(|doubt| warn!("{doubt}"));
        self.certificates.replace(certificates);
    }

    fn replace(&mut self, new: NewConfig) -> ReloadOutcome {
        let NewConfig { settings, running, config, watcher, access, certificates } = new;
        let (live, fixed) = config::changes(&self.settings, &settings);
        let lists = access.summary();
        self.tracker.reconfigure(&config.policy);
        self.tracker.limiter().replace(config.limits.clone());
        self.tracker.bans().set_rules(config.bans);
        access.apply(&self.tracker, &mut self.file_keys);
        self.acme.send_if_modified(|acme| {
            let is_other = *acme != config.acme;
            acme.clone_from(&config.acme);
            is_other
        });
        self.log.configure(&config.log);
        let list =
            |names: &[String]| if names.is_empty() { "nothing".into() } else { names.join(", ") };
        info!("reloaded; changed: {}; lists: {lists}", list(&live));
        if !fixed.is_empty() {
            warn!("changed, but only a restart puts it in force: {}", list(&fixed));
        }
        // What needs a restart is compared with what is really in force next time, too.
        self.settings = running;
        self.config = config;
        self.watcher = watcher;
        self.replace_certificates(certificates);
        ReloadOutcome { changed: live, needs_restart: fixed }
    }
}

/// Puts what the API has set into a configuration that the start has read, if it is still good; gives
/// whether anything is different now.
pub(super) fn apply_overrides(
    overrides: &[(String, Value)],
    settings: &mut Settings,
    config: &mut Config,
) -> bool {
    if overrides.is_empty() {
        return false;
    }
    let mut with = settings.clone();
    let mut problems = with.apply_overrides(overrides);
    match Config::from_settings(&with) {
        Ok(mut made) => {
            // Listeners are bound already, and know these.
            made.challenges = Arc::clone(&config.challenges);
            (*settings, *config) = (with, made);
        }
        Err(more) => problems.extend(more),
    }
    problems.iter().for_each(|problem| warn!("what the API has set is left out: {problem}"));
    true
}

/// Puts in force at the start what can change while serving.
pub(super) fn apply(config: &Config, tracker: &Tracker, file_keys: &mut FileKeys) -> Result<()> {
    tracker.reconfigure(&config.policy);
    tracker.limiter().replace(config.limits.clone());
    tracker.bans().set_rules(config.bans);
    access::read(config)?.apply(tracker, file_keys);
    Ok(())
}

const PANICKED: &str = "reading panicked; the message stands above";

/// Reads everything, of which as much as can be is to go over what is `running`.
fn read_all(
    file: Option<&Path>,
    overrides: &[(String, Value)],
    mut running: Settings,
    sandbox: Option<&Sandbox>,
) -> Result<Box<NewConfig>, Vec<String>> {
    let (settings, mut config) = crate::load_with(file, overrides)?;
    running.take_reloadable(&settings);
    // Listeners come and go only with a restart, and each has a door. What is good by itself may still
    // contradict those that are there.
    let as_it_is = |problem: &Problem| format!("{problem} (as long as there is no restart)");
    let listener_policies = config::listener_policies(&running);
    config.listener_policies =
        listener_policies.map_err(|all| all.iter().map(as_it_is).collect::<Vec<_>>())?;
    if let Some(reload_conflict) = confine::reload_conflict(sandbox, &config) {
        return Err(vec![reload_conflict]);
    }
    let watcher = access::FileWatcher::new(&config);
    let problem = |error| vec![format!("{error:#}")];
    let access = access::read(&config).map_err(problem)?;
    let certificates = certificates::read(&config).map_err(problem)?;
    acme::prepare(&config).map_err(problem)?;
    Ok(Box::new(NewConfig { settings, running, config, watcher, access, certificates }))
}
