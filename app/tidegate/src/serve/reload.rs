//! Reloads: applies a changed configuration, completely or not at all.
//!
//! A separate thread reads the files: a list of millions of hashes takes seconds, in which the main
//! thread must handle signals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use admin::ReloadOutcome;
use anyhow::{Result, anyhow};
use net::process::Sandbox;
use net::tls::{Certificate, Certificates};
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::{error, info, warn};
use tracker::Tracker;

use super::log::Log;
use super::modules::{Modules, modules};
use super::serving::Event;
use super::workers::give_way;
use super::{confine, overrides, places};
use crate::ConfigSource;
use crate::access::{self, AccessFiles, AccessState, FileWatcher, TorrentFolders};
use crate::certificates;
use config::{Config, Problem, Settings};

/// The configuration in use, and everything that a reload changes.
pub(super) struct Reloader {
    pub(super) source: ConfigSource,
    pub(super) settings: Settings,
    /// The settings as they were read last. Where they differ, a restart applies them.
    configured: Settings,
    pub(super) config: Config,
    pub(super) tracker: Arc<Tracker>,
    /// State of the access files in use, which decide which clients and torrents are served.
    pub(super) access: AccessState,
    watcher: FileWatcher,
    pub(super) certificates: Arc<Certificates>,
    pub(super) log: Log,
    /// From when the process is in it.
    pub(super) sandbox: Option<Arc<Sandbox>>,
    reading: ReadState,
    pub(super) overrides: Vec<(String, Value)>,
    pending: PendingReplies,
}

/// Result of reading files: their contents, or the reasons why they could not be read.
pub(super) enum ReadOutcome {
    Everything(Result<Box<NewConfig>, Vec<String>>),
    ReadFiles(Box<ReadFiles>),
}

/// Each is applied if it was read without a mistake.
pub(super) struct ReadFiles {
    access: Result<AccessFiles>,
    certificates: Result<Vec<Certificate>>,
}

pub(super) struct NewConfig {
    settings: Settings,
    /// The settings in use after the reload: the old ones with the reloadable new ones.
    running: Settings,
    /// Made from the settings as read, with the listener policies of those in use.
    config: Config,
    watcher: FileWatcher,
    access: AccessFiles,
    certificates: Vec<Certificate>,
}

pub(super) type ReloadResult = Result<ReloadOutcome, Vec<String>>;

#[derive(Default)]
struct PendingReplies {
    now: Vec<Reply>,
    /// Those of the next reload: files may have changed since the current one read them.
    later: Vec<Reply>,
}

type Reply = oneshot::Sender<ReloadResult>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadState {
    #[default]
    Idle,
    Running,
    /// Running, and the files must be read again, because they may have changed since.
    RunningStale,
}

impl Reloader {
    /// Applies a configuration at startup. `settings` and `config` were read from `source`.
    pub(super) fn new(
        source: ConfigSource,
        settings: Settings,
        config: Config,
        log: Log,
        tracker: Arc<Tracker>,
    ) -> Result<Self> {
        let watcher = FileWatcher::new(&config);
        let mut access = AccessState::new(&config);
        apply(&config, &tracker);
        access::read(&config, &access.folders)?.apply(&tracker, &mut access);
        let certificates = Arc::<Certificates>::default();
        certificates::install(&config, &certificates, certificates::read(&config)?);
        Ok(Self {
            source,
            configured: settings.clone(),
            settings,
            certificates,
            config,
            tracker,
            access,
            watcher,
            log,
            sandbox: None,
            reading: ReadState::default(),
            overrides: Vec::new(),
            pending: PendingReplies::default(),
        })
    }

    pub(super) fn override_settings(&mut self, values: Vec<(String, Value)>) -> Result<()> {
        let file = self.source.file.as_deref();
        if overrides::apply(&values, &mut self.settings, &mut self.config, file)? {
            apply(&self.config, &self.tracker);
            let read = access::read(&self.config, &self.access.folders)?;
            read.apply(&self.tracker, &mut self.access);
            self.log.configure(&self.config.log);
        }
        self.configured.clone_from(&self.settings);
        self.overrides = values;
        Ok(())
    }

    pub(super) fn list(&self) -> admin::Settings {
        config::list(&self.settings, &self.configured)
    }

    pub(super) fn reload_and_reply(&mut self, events: &Sender<Event>, reply: Reply) {
        self.enqueue(reply);
        self.reload(events);
    }

    pub(super) fn reload_files_and_reply(&mut self, events: &Sender<Event>, reply: Reply) {
        self.enqueue(reply);
        match self.reading {
            ReadState::Idle => self.read_files(events),
            ReadState::Running | ReadState::RunningStale => self.reading = ReadState::RunningStale,
        }
    }

    pub(super) fn validate(
        &self,
        values: Vec<(String, Value)>,
        reply: oneshot::Sender<ReloadResult>,
    ) {
        // Constants that an earlier version has recorded are ignored. New ones would have no effect.
        let is_new = |one: &&(String, Value)| !self.overrides.contains(one);
        let constant = |(name, _): &(String, Value)| {
            self.settings.is_constant(name).then(|| format!("{name} is no longer a setting"))
        };
        let refused: Vec<_> = values.iter().filter(is_new).filter_map(constant).collect();
        if !refused.is_empty() {
            drop(reply.send(Err(refused)));
            return;
        }
        let before = self.settings.clone();
        // The folders in use are not touched.
        let read = self.reader(values, TorrentFolders::default());
        let work = move || {
            give_way();
            let outcome = |new: Box<NewConfig>| {
                let (changed, needs_restart) = config::changes(&before, &new.settings);
                ReloadOutcome { changed, needs_restart }
            };
            drop(reply.send(read().map(outcome)));
        };
        // Without a thread, the reply's channel closes, which the requester sees.
        let _ = std::thread::Builder::new().name("reload".into()).spawn(work);
    }

    /// Returns what reads everything, with these settings of the API.
    fn reader(
        &self,
        overrides: Vec<(String, Value)>,
        folders: TorrentFolders,
    ) -> impl FnOnce() -> Result<Box<NewConfig>, Vec<String>> + Send + use<> {
        let (source, sandbox) = (self.source.clone(), self.sandbox.clone());
        let running = self.settings.clone();
        move || {
            let read = || read_all(&source, sandbox.as_deref(), &folders, &overrides, running);
            // No state that a panic left inconsistent is used again.
            let read = catch_unwind(AssertUnwindSafe(read));
            read.unwrap_or_else(|_| Err(vec![PANICKED.into()]))
        }
    }

    fn enqueue(&mut self, reply: Reply) {
        let pending = &mut self.pending;
        if self.reading == ReadState::Idle { &mut pending.now } else { &mut pending.later }
            .push(reply);
    }

    /// Ends a reload: replies to those who wait for it. Returns whether the files must be read again.
    pub(super) fn end(&mut self, done: &ReloadResult) -> bool {
        self.reply_all(done);
        std::mem::take(&mut self.reading) == ReadState::RunningStale
    }

    fn reply_all(&mut self, done: &ReloadResult) {
        for reply in std::mem::take(&mut self.pending.now) {
            let _ = reply.send(done.clone());
        }
        self.pending.now = std::mem::take(&mut self.pending.later);
    }

    /// Starts to read everything; [`Event::Read`] has the result. Returns false if that is not possible.
    pub(super) fn reload(&mut self, events: &Sender<Event>) -> bool {
        if self.reading != ReadState::Idle {
            self.reading = ReadState::RunningStale;
            return true;
        }
        let read = self.reader(self.overrides.clone(), self.access.folders.clone());
        self.read(events, move || ReadOutcome::Everything(read()));
        self.reading != ReadState::Idle
    }

    pub(super) fn reload_changed_files(&mut self, events: &Sender<Event>) {
        if self.reading != ReadState::Idle || !self.watcher.has_changed() {
            return;
        }
        self.read_files(events);
    }

    fn read_files(&mut self, events: &Sender<Event>) {
        let (config, folders) = (self.config.clone(), self.access.folders.clone());
        let read = move || {
            let access = catch_unwind(AssertUnwindSafe(|| access::read(&config, &folders)));
            let certificates = catch_unwind(AssertUnwindSafe(|| certificates::read(&config)));
            ReadOutcome::ReadFiles(Box::new(ReadFiles {
                access: access.unwrap_or_else(|_| Err(anyhow!(PANICKED))),
                certificates: certificates.unwrap_or_else(|_| Err(anyhow!(PANICKED))),
            }))
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
            give_way();
            let _ = events.send(Event::Read(read()));
        };
        match std::thread::Builder::new().name("reload".into()).spawn(work) {
            Ok(_) => self.reading = ReadState::Running,
            Err(error) => {
                error!(%error, "reload failed: cannot start a thread");
                self.reply_all(&Err(vec!["cannot start a thread to read the files".into()]));
            }
        }
    }

    pub(super) fn apply_read(
        &mut self,
        outcome: ReadOutcome,
        modules: &mut Modules,
    ) -> ReloadResult {
        match outcome {
            ReadOutcome::Everything(Ok(read)) => Ok(self.replace(*read, modules)),
            ReadOutcome::Everything(Err(problems)) => {
                problems.iter().for_each(|problem| error!("reload failed: {problem}"));
                Err(problems)
            }
            ReadOutcome::ReadFiles(files) => self.replace_files(*files),
        }
    }

    /// Applies what was read without a mistake, and reports the rest.
    fn replace_files(&mut self, files: ReadFiles) -> ReloadResult {
        let ReadFiles { access, certificates } = files;
        let mut problems = Vec::new();
        match access {
            Ok(access) => {
                info!(lists = access.summary(), "reloaded access lists");
                access.apply(&self.tracker, &mut self.access);
            }
            Err(error) => {
                error!("access lists not reloaded; the previous ones stay in use: {error:#}");
                problems.push(format!("{error:#}"));
            }
        }
        match certificates {
            Ok(certificates) => self.replace_certificates(certificates),
            Err(error) => {
                error!("certificates not reloaded; the previous ones stay in use: {error:#}");
                problems.push(format!("{error:#}"));
            }
        }
        if problems.is_empty() { Ok(ReloadOutcome::default()) } else { Err(problems) }
    }

    pub(super) fn replace_torrents(&self) {
        access::apply_folders(&self.config, &self.access, &self.tracker);
    }

    fn replace_certificates(&self, certificates: Vec<Certificate>) {
        if !certificates.is_empty() {
            info!(count = certificates.len(), "loaded certificates");
        }
        certificates::install(&self.config, &self.certificates, certificates);
    }

    fn replace(&mut self, new: NewConfig, modules: &mut Modules) -> ReloadOutcome {
        let NewConfig { settings, running, config, watcher, access, certificates } = new;
        let (reloadable, fixed) = config::changes(&self.settings, &settings);
        let lists = access.summary();
        apply(&config, &self.tracker);
        access.apply(&self.tracker, &mut self.access);
        modules.iter_mut().for_each(|module| module.configure(&config));
        self.log.configure(&config.log);
        let list =
            |names: &[String]| if names.is_empty() { "nothing".into() } else { names.join(", ") };
        info!(changed = list(&reloadable), lists, "reloaded the configuration");
        if !fixed.is_empty() {
            warn!(changes = list(&fixed), "some changes need a restart");
        }
        // Keys that need a restart keep their old values here, so that the next reload reports them, too.
        self.settings = running;
        self.configured = settings;
        self.config = config;
        self.watcher = watcher;
        self.replace_certificates(certificates);
        ReloadOutcome { changed: reloadable, needs_restart: fixed }
    }
}

/// Applies what a reload can change of the tracker, apart from what files say.
fn apply(config: &Config, tracker: &Tracker) {
    tracker.reconfigure(&config.policy);
    tracker.set_quiet(config.quiet);
    tracker.limiter().replace(config.limits.clone());
    tracker.bans().set_rules(config.bans);
}

const PANICKED: &str = "reading the files panicked (see the message above)";

/// Reads everything. `running` are the settings in use, which get the reloadable new values.
fn read_all(
    source: &ConfigSource,
    sandbox: Option<&Sandbox>,
    folders: &TorrentFolders,
    overrides: &[(String, Value)],
    mut running: Settings,
) -> Result<Box<NewConfig>, Vec<String>> {
    let (settings, mut config) = crate::load_with(source, overrides)?;
    let kinds = config::access_kinds(&running);
    running.take_reloadable(&settings);
    let new_kinds = config::access_kinds(&running);
    if config.cluster.is_some() && kinds != new_kinds {
        return Err(vec![format!(
            "the kind of listeners would change from {kinds} to {new_kinds}, but nodes of a cluster must agree on it: \
             restart this node instead"
        )]);
    }
    // Listeners are added and removed only by a restart. A valid new configuration may contradict the
    // listeners there are.
    let as_it_is = |problem: &Problem| {
        format!("{problem} (with the listeners that serve until the next restart)")
    };
    let listener_policies = config::listener_policies(&running);
    config.listener_policies =
        listener_policies.map_err(|all| all.iter().map(as_it_is).collect::<Vec<_>>())?;
    let problem = |error| vec![format!("{error:#}")];
    places::check(&config, source.file.as_deref()).map_err(problem)?;
    if let Some(reload_conflict) = confine::reload_conflict(sandbox, &config) {
        return Err(vec![reload_conflict]);
    }
    let watcher = FileWatcher::new(&config);
    let access = access::read(&config, folders).map_err(problem)?;
    let certificates = certificates::read(&config).map_err(problem)?;
    for module in modules() {
        module.prepare(&config).map_err(problem)?;
    }
    Ok(Box::new(NewConfig { settings, running, config, watcher, access, certificates }))
}
