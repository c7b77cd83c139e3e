//! The main thread of a process that serves: it starts the rest, handles events, and stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use admin::{AnnotationKind, Api, Command, EventKind, ReloadFailure};
use anyhow::{Result, anyhow, bail};
use net::tls::TlsConfig;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use tracing::{error, info, warn};

use super::listeners::BoundListeners;
use super::module::{Module, Notice, Notify, Running, Shared};
use super::modules::Modules;
use super::reload::{ReadOutcome, Reloader};
use super::state;
use super::supervisor::Supervisor;
use super::transfer::SwarmSender;
use super::upgrade::{OldProcess, Upgrader};
use super::workers::{ThreadExit, Workers};
use crate::cli::{self, UsageError};

const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// The sleep of the main thread while it waits for records to be written.
const SHORT_SLEEP: Duration = Duration::from_millis(10);
/// The time that threads have to stop, in addition to the time that responses have to be sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) enum Event {
    Signal(i32),
    Read(ReadOutcome),
    /// The id of the new process, which serves now; or why it does not.
    NewProcess(Result<u32, String>),
    ThreadExit(ThreadExit),
    Command(Command),
    Notice(Notice),
}

pub(super) struct Serving {
    pub(super) shared: Shared,
    pub(super) node: Option<u8>,
    pub(super) modules: Modules,
    pub(super) workers: Workers,
    pub(super) reloader: Reloader,
    pub(super) upgrader: Upgrader,
    pub(super) supervisor: Supervisor,
    pub(super) api: Arc<Api>,
    pub(super) events: Sender<Event>,
}

/// The rest of the start, when swarms are restored.
pub(super) struct Start {
    pub(super) bound: BoundListeners,
    pub(super) startup_text: String,
    pub(super) old_process: Option<OldProcess>,
}

enum End {
    Signal(i32),
    Drained,
    HandedOver(u32),
    Failed(ThreadExit),
}

impl Serving {
    /// Starts to serve when swarms are restored, and handles events until one ends the process.
    pub(super) fn run(mut self, start: Start, event_receiver: &Receiver<Event>) -> Result<()> {
        self.advance(|module, running| module.start(running))?;
        let mut is_restored = true;
        if let Some(end) = self.await_swarms(event_receiver, &mut is_restored) {
            return self.stop(end);
        }
        self.start(start)?;
        // Otherwise later: what the log of the cluster says is younger than the journal.
        if is_restored {
            self.advance(|module, running| module.settle(running))?;
        }
        let mut checked_at = Instant::now();
        let end = loop {
            // Waiting changes will be acknowledged, so they must be recorded before the new process starts.
            if self.upgrader.is_requested() && self.shared.records.is_idle() {
                self.upgrade();
            } else if self.upgrader.is_overdue() {
                error!(
                    "upgrade failed: waiting changes cannot be recorded; check the disk of state.dir"
                );
                self.cancel_upgrade();
            }
            self.supervisor.ping_watchdog(|| self.workers.progress());
            let wait = if self.upgrader.is_requested() {
                SHORT_SLEEP
            } else {
                self.supervisor.sleep_time()
            };
            if let Ok(event) = event_receiver.recv_timeout(wait)
                && let Some(end) = self.handle(event)
            {
                break end;
            }
            if checked_at.elapsed() >= WATCH_PERIOD {
                self.reloader.reload_changed_files(&self.events);
                self.reloader.log.report_omitted(false);
                self.modules.iter_mut().for_each(|module| module.tick());
                checked_at = Instant::now();
                if self.workers.is_drained() {
                    break End::Drained;
                }
            }
        };
        self.stop(end)
    }

    /// Waits until swarms are restored, for a limited time. Returns the end of serving if an event ends it
    /// before it begins. Other events are handled later.
    fn await_swarms(
        &self,
        event_receiver: &Receiver<Event>,
        is_restored: &mut bool,
    ) -> Option<End> {
        let swarms = self.reloader.config.swarms.as_ref()?;
        let deadline = Instant::now() + swarms.restore_wait;
        let mut later = Vec::new();
        let end = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match event_receiver.recv_timeout(left) {
                Ok(Event::Notice(Notice::SwarmsRestored)) => break None,
                Ok(Event::Signal(signal @ (SIGTERM | SIGINT))) => break Some(End::Signal(signal)),
                Ok(Event::ThreadExit(ended)) => break Some(End::Failed(ended)),
                Ok(event) => later.push(event),
                Err(_) => {
                    info!("serving while swarms are still being restored");
                    *is_restored = false;
                    break None;
                }
            }
        };
        later.into_iter().for_each(|event| drop(self.events.send(event)));
        end
    }

    fn advance(
        &mut self,
        phase: fn(&mut dyn Module, &mut Running<'_>) -> Result<()>,
    ) -> Result<()> {
        let events = self.events.clone();
        let notify: Notify = Arc::new(move |notice| {
            let _ = events.send(Event::Notice(notice));
        });
        let mut running = Running {
            shared: &self.shared,
            config: &self.reloader.config,
            access: &self.reloader.access,
            workers: &mut self.workers,
            upgrader: &mut self.upgrader,
            notify: &notify,
        };
        for module in &mut self.modules {
            phase(module.as_mut(), &mut running)?;
        }
        Ok(())
    }

    fn start(&mut self, start: Start) -> Result<()> {
        let Start { bound, startup_text, old_process } = start;
        let config = &self.reloader.config;
        let tls = TlsConfig::new(&self.shared.certificates);
        self.workers.start_sweep(self.node.is_some())?;
        let site = self.workers.site(bound.public_urls(), config, self.node, &self.api);
        let modules = &mut self.modules;
        self.workers.start_udp(bound.udp, config, |number, worker| {
            let equipped = modules.iter_mut().filter_map(|module| module.equip(number, worker));
            equipped.last().unwrap_or_default()
        })?;
        self.workers.start_http(bound.tcp, &tls, &site, config, self.node)?;
        self.advance(|module, running| module.serve(running))?;
        cli::print(&startup_text).map_err(|UsageError(why)| anyhow!(why))?;
        self.workers.metric_sources().status.ready.store(true, Ordering::Relaxed);
        old_process.map_or(Ok(()), OldProcess::take_over)?;
        self.modules.iter_mut().for_each(|module| module.take_over(&mut self.upgrader));
        self.supervisor.ready();
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Signal(SIGHUP) => {
                self.modules.iter_mut().for_each(|module| module.refresh());
                if self.reloader.reload(&self.events) {
                    self.supervisor.reloading();
                }
            }
            Event::Signal(SIGUSR2) => {
                if !self.request_upgrade() {
                    warn!("SIGUSR2 ignored: an upgrade is already in progress");
                }
            }
            Event::Signal(signal) => return Some(End::Signal(signal)),
            Event::Read(outcome) => {
                let again = self.finish_reload(outcome);
                if !(again && self.reloader.reload(&self.events)) {
                    self.supervisor.ready();
                }
            }
            Event::NewProcess(Ok(pid)) => {
                let left = self.modules.iter_mut().try_for_each(|module| module.hand_over());
                if let Err(error) = left {
                    error!("upgrade failed; this process continues to serve: {error}");
                    self.cancel_upgrade();
                    return None;
                }
                // In this order: the supervisor heeds the new process only after MAINPID.
                self.supervisor.handed_over(pid);
                self.upgrader.confirm();
                return Some(End::HandedOver(pid));
            }
            Event::NewProcess(Err(reason)) => {
                error!(reason, "upgrade failed; this process continues to serve");
                self.cancel_upgrade();
            }
            Event::ThreadExit(ended) => return Some(End::Failed(ended)),
            Event::Command(command) => self.execute(command),
            Event::Notice(Notice::TorrentsChanged) => self.reloader.replace_torrents(),
            Event::Notice(Notice::SwarmsRestored) => {
                if let Err(error) = self.advance(|module, running| module.settle(running)) {
                    error!("{error:#}");
                }
            }
        }
        None
    }

    /// Applies what a reload has read, and shows the result. Returns whether the files must be read again.
    fn finish_reload(&mut self, outcome: ReadOutcome) -> bool {
        let reloader = &mut self.reloader;
        let done = reloader.apply_read(outcome, &mut self.modules);
        let status = &self.workers.metric_sources().status;
        let count = if done.is_ok() { &status.reloads } else { &status.reload_failures };
        count.fetch_add(1, Ordering::Relaxed);
        let failure = done.as_ref().err().map(|problems| ReloadFailure {
            file: reloader.source.file.clone(),
            error: problems.first().cloned().unwrap_or_default(),
        });
        status.set_reload_failure(failure);
        let data = match &done {
            Ok(reloaded) => {
                json!({ "changed": reloaded.changed, "needs_restart": reloaded.needs_restart })
            }
            Err(problems) => json!({ "problems": problems }),
        };
        self.api.hub().publish(EventKind::Reload, data);
        reloader.end(&done)
    }

    fn execute(&mut self, mut command: Command) {
        for module in &mut self.modules {
            let Some(other) = module.execute(command) else { return };
            command = other;
        }
        let events = &self.events;
        match command {
            Command::Settings(reply) => drop(reply.send(self.reloader.list())),
            Command::Reload(reply) => self.reloader.reload_and_reply(events, reply),
            Command::SetOverrides { values, dry_run: true, reply } => {
                self.reloader.validate(values, reply);
            }
            Command::SetOverrides { values, dry_run: false, reply } => {
                self.reloader.overrides = values;
                self.reloader.reload_and_reply(events, reply);
            }
            Command::ReloadFiles(reply) => {
                self.reloader.reload_files_and_reply(events, reply);
            }
            Command::Drain { for_s, reply } => {
                self.workers.drain(Duration::from_secs(for_s.into()));
                let _ = reply.send(());
            }
            // Outside clusters nothing is recorded, and the API refuses a change.
            Command::NodeIgnored { .. }
            | Command::ChangeSecret { .. }
            | Command::SecretsRecorded(_) => {}
            Command::Upgrade(reply) => {
                let outcome = match self.upgrader.obstacle() {
                    Some(obstacle) => Err(obstacle),
                    None if self.request_upgrade() => Ok(()),
                    None => Err("an upgrade is already in progress".into()),
                };
                drop(reply.send(outcome));
            }
            Command::LogLevels(levels, reply) => {
                let log = &mut self.reloader.log;
                levels.into_iter().for_each(|levels| log.set_levels(levels));
                drop(reply.send(log.levels().clone()));
            }
        }
    }

    /// Requests an upgrade. Returns false if one is already in progress.
    fn request_upgrade(&mut self) -> bool {
        // The new process would not know of changes acknowledged from now on.
        self.shared.records.pause(true);
        let is_new = self.upgrader.request();
        if is_new && !self.shared.records.is_idle() {
            info!("upgrade: recording waiting changes first");
        }
        is_new
    }

    fn upgrade(&mut self) {
        let events = self.events.clone();
        let done = move |outcome| {
            let _ = events.send(Event::NewProcess(outcome));
        };
        if let Err(error) = self.upgrader.start(done) {
            error!("upgrade failed: {error:#}");
            self.cancel_upgrade();
        }
    }

    fn cancel_upgrade(&mut self) {
        self.upgrader.cancel();
        self.shared.records.pause(false);
        self.supervisor.upgrade_failed();
    }

    fn stop(mut self, end: End) -> Result<()> {
        match &end {
            End::HandedOver(pid) => info!("process {pid} has taken over; stopping"),
            End::Signal(_) | End::Drained | End::Failed(_) => {
                self.workers.metric_sources().status.ready.store(false, Ordering::Relaxed);
                self.supervisor.stopping();
            }
        }
        if let End::Signal(signal) = end {
            let signal = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            info!(signal, "stopping");
            self.api.hub().annotate(AnnotationKind::Stop, format!("Stopped by {signal}"));
        }
        if let End::Drained = end {
            info!("drained; stopping");
            self.api.hub().annotate(AnnotationKind::Stop, "Stopped after it was drained");
        }
        let is_handed_over = matches!(end, End::HandedOver(_));
        if !is_handed_over {
            self.upgrader.cancel();
        }
        let sender = self.upgrader.into_sender();
        let responses_s = u64::from(self.reloader.config.shutdown_timeout_s);
        let time = Duration::from_secs(responses_s) + STOP_TIMEOUT;
        let left = self.workers.stop(is_handed_over, Instant::now() + time);
        sender.into_iter().for_each(SwarmSender::finish);
        for module in self.modules.iter_mut().rev() {
            module.stop(Instant::now() + STOP_TIMEOUT);
        }
        state::close(&self.shared.records, Instant::now() + STOP_TIMEOUT);
        if !left.is_empty() {
            let (threads, seconds) = (left.join(", "), time.as_secs());
            warn!(threads, seconds, "threads did not stop in time; stopping without them");
        }
        self.reloader.log.report_omitted(true);
        match end {
            End::Failed(ended) => bail!("{} {}", ended.name, ended.reason),
            End::Signal(_) | End::Drained | End::HandedOver(_) => Ok(()),
        }
    }
}
