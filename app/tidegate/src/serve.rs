//! Builds the tracker, keeps it running, and shuts it down.
//!
//! The main thread takes over inherited sockets, binds the others, drops privileges, gives up the rights
//! it no longer needs, starts the workers, and then waits for events: signals, changed files, commands
//! of the API, and workers that end. A worker that ends unasked takes the process down, because half a
//! tracker would look alive to its supervisor.

mod approval;
mod build;
mod check;
mod cluster;
mod commands;
mod confine;
mod draining;
mod geo;
mod handoff;
mod listeners;
mod log;
mod outbound;
mod overrides;
mod places;
mod program;
mod reload;
mod secret;
mod signals;
mod startup;
mod state;
mod supervisor;
mod swarms;
mod time;
mod tokens;
mod transfer;
mod upgrade;
mod workers;
mod xdp;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ::xdp::InheritedXdp;
use admin::{AnnotationKind, AnnounceUrl, Api, Command, Records, Service, TorrentNames};
use anyhow::{Context, Result, bail};
use front::Clock;
use net::process::{self, InheritedSockets, Launcher};
use net::tls::{Certificates, TlsConfig};
use replication::Feed;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracker::Tracker;

use crate::ConfigSource;
use crate::access::{self, AccessState};
use crate::acme::{self, CertStore};
use crate::site::OpenSite;
use build::{check_leftover, new_tracker, read_certificates};
pub(crate) use check::{Findings, check};
use cluster::{ClusterInputs, ClusterState, OpenCluster};
use config::{Config, Settings, Transport};
use handoff::HandoffState;
use listeners::{BoundListeners, bind};
use log::Log;
use reload::{PendingReplies, ReadOutcome, ReadState, Reloader};
use signals::listen_to_signals;
use startup::{LocalHosts, print};
use supervisor::Supervisor;
use swarms::{JournalInputs, OpenJournal, Swarms};
use time::{unix_ms, unix_offset_s};
use tokens::FirstToken;
use transfer::{SwarmSender, SwarmSource, SwarmTarget};
use upgrade::{OldProcess, Upgrader};
use workers::{ThreadExit, Workers};
use xdp::{OpenXdp, SharedRules};

/// How often files are checked for changes.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// How long the main thread sleeps while it waits for records to be written.
const SHORT_SLEEP: Duration = Duration::from_millis(10);
/// How long threads have to stop, in addition to the time that responses have to be sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// What wakes the main thread.
enum Event {
    Signal(i32),
    /// A reload has read its files.
    Read(ReadOutcome),
    /// The id of the new process, which serves now; or why it does not.
    NewProcess(Result<u32, String>),
    ThreadExit(ThreadExit),
    /// A request from the management API.
    Command(Command),
    /// All swarms that there were are restored.
    SwarmsRestored,
    /// A folder has other torrents than before.
    TorrentsChanged,
}

/// Serves until a signal stops the process. `source` is where `settings` came from, for reloads.
pub(crate) fn serve(
    source: ConfigSource,
    mut settings: Settings,
    mut config: Config,
) -> Result<()> {
    let mut log = Log::start(&config);
    places::check(&config, source.file.as_deref())?;
    // Before anything else is opened: inherited sockets are known only by their numbers.
    let mut inherited = InheritedSockets::from_environment(listeners::SOCKET_NAMES)?;
    if let Err(error) = process::raise_descriptor_limit() {
        warn!(%error, "cannot raise the open-file limit");
    }
    // Before any thread is started and any right is given up.
    let launcher = Launcher::spawn(::xdp::exchange_program);
    let supervisor = Supervisor::from_environment();
    let mut old_process = OldProcess::from_inherited(&mut inherited);
    let mut handoff = old_process.as_mut().map_or_else(HandoffState::fresh, OldProcess::handoff)?;
    let cluster = OpenCluster::open(&config)?;
    let join = cluster.as_ref().map(OpenCluster::join);
    let shared_secrets = join.map(|join| join.secret().keys());
    if let (Some(join), Some(shared)) = (join, shared_secrets) {
        handoff.connection_ids = shared.connection_ids;
        handoff.sessions = join.session_key();
    } else {
        handoff.sessions = secret::session_key(&config, handoff.sessions)?;
    }
    // These may arrive early, and must not end the process. SIGTERM and SIGINT may, until it serves.
    let signals = Signals::new([SIGHUP, SIGUSR2]).context("cannot listen to signals")?;
    config.warnings().iter().for_each(|warning| warn!("{warning}"));
    let watcher = access::FileWatcher::new(&config);
    let tracker = Arc::new(new_tracker(&config, &handoff, shared_secrets)?);
    cluster.iter().for_each(|cluster| cluster.attach(&tracker));
    let mut access = AccessState::new(&config);
    reload::apply(&config, &tracker, &mut access)?;
    let certificates = read_certificates(&config)?;
    let bound = bind(&config, &mut inherited)?;
    let of_xdp = InheritedXdp::from_inherited(&mut inherited);
    let site = OpenSite::open(&config, bound.site.as_ref(), join.map(|join| join.node), &tracker)?;
    let (xdp, udp_fallback) = xdp::open(&mut config, &bound, of_xdp)?;
    check_leftover(inherited, old_process.is_some())?;
    confine::become_user(&config)?;
    cluster.as_ref().map_or(Ok(()), OpenCluster::check_readable)?;
    acme::load(&config, &certificates)?;
    let (records, writer) = state::open(&config)?;
    let overrides = state::settings(&writer)?;
    if overrides::apply(&overrides, &mut settings, &mut config, source.file.as_deref())? {
        reload::apply(&config, &tracker, &mut access)?;
        log.configure(&config.log);
    }
    let journal = OpenJournal::open(&config, old_process.is_some());
    if let Some(elapsed) = journal.as_ref().and_then(OpenJournal::elapsed) {
        handoff.set_clock(elapsed);
    }
    let opened = Opened {
        config_source: source,
        settings,
        config,
        log,
        launcher,
        supervisor,
        old_process,
        handoff,
        signals,
        watcher,
        tracker,
        access,
        certificates,
        bound,
        xdp,
        udp_fallback,
        records,
        writer,
        overrides,
        journal,
        cluster,
        site,
    };
    opened.serve()
}

/// What is opened before the sandbox.
struct Opened {
    config_source: ConfigSource,
    settings: Settings,
    config: Config,
    log: Log,
    launcher: io::Result<Launcher>,
    supervisor: Supervisor,
    old_process: Option<OldProcess>,
    handoff: HandoffState,
    signals: Signals,
    watcher: access::FileWatcher,
    tracker: Arc<Tracker>,
    access: AccessState,
    certificates: Arc<Certificates>,
    bound: BoundListeners,
    xdp: Option<OpenXdp>,
    /// Why UDP has another engine than the configured one, if so.
    udp_fallback: Option<String>,
    records: Arc<Records>,
    writer: admin::records::Writer,
    overrides: Vec<(String, Value)>,
    journal: Option<OpenJournal>,
    cluster: Option<OpenCluster>,
    site: Option<OpenSite>,
}

impl Opened {
    /// Enters the sandbox, starts threads, and serves until a signal stops the process.
    fn serve(self) -> Result<()> {
        let Self { config, tracker, certificates, mut bound, mut writer, mut handoff, .. } = self;
        let (records, journal, mut old_process) = (self.records, self.journal, self.old_process);
        let began_ms = unix_ms();
        // Before the sandbox, which may not ask for the machine's addresses.
        let urls = bound.announce_urls(&LocalHosts::of_machine(&config, &certificates));
        let engine = xdp::engine_text(&config, self.xdp.as_ref());
        let startup = bound.startup_text(&config, &engine, &urls);
        let sandbox = confine::confine(&config, self.config_source.file.as_deref(), &self.cluster)
            .map(Arc::new);
        if config.cluster.is_some() {
            handoff.align_clock(began_ms);
        }
        let clock = handoff.clock();
        state::fill(&config, &tracker, &writer, clock)?;
        self.cluster.as_ref().map_or(Ok(()), |cluster| cluster.replicate(&mut writer))?;
        let feed = Arc::<Feed>::default();
        let target = SwarmTarget::new(&tracker, clock, journal.is_some());
        let (upgrade_stats, reception) = (Arc::clone(&target.stats), Arc::clone(&target.reception));
        let has_swarms = upgrade::receive_swarms(old_process.as_mut(), target, handoff.swarms)?;
        let source = SwarmSource::new(&tracker, &feed, clock);
        let parts = xdp::hand_over_parts(&bound, self.xdp.as_ref())?;
        let (events, event_receiver) = channel();
        listen_to_signals(self.signals, events.clone())?;
        let state = (Arc::clone(&records), writer, urls);
        let shared = Shared {
            tracker: &tracker,
            certificates: &certificates,
            clock,
            journal: journal.as_ref(),
            names: self.access.folders.names(),
            old_dashboard: old_process.as_mut().map(OldProcess::take_dashboard),
        };
        let (mut workers, api, first_token) =
            start_management(&mut bound, &config, &shared, state, events.clone())?;
        state::annotate_start(&api, old_process.is_some());
        let upgrader = Upgrader::new(self.launcher, parts, handoff, source, Arc::clone(&api));
        workers.set_status(engine, self.udp_fallback, upgrade_stats);
        self.site.as_ref().map_or(Ok(()), |site| start_site(site, &tracker, clock, &workers))?;
        // Without the swarms of the old process, a node of a cluster reads all of the log.
        let newest_round_ms = journal.as_ref().and_then(OpenJournal::newest_round_ms);
        let restored_ms = has_swarms.then_some(began_ms).or(newest_round_ms);
        let of_cluster = || ClusterInputs::new(&tracker, clock, &feed, &records, restored_ms);
        let cluster = self.cluster.map(|it| it.prepare(&workers, of_cluster())).unwrap_or_default();
        let inputs = JournalInputs { feed, reception, clock, events: events.clone() };
        let swarms = journal.map(|it| it.start(&mut workers, &tracker, inputs)).transpose()?;
        let reloader = Reloader {
            xdp_rules: SharedRules::new(&config),
            source: self.config_source,
            configured: self.settings.clone(),
            settings: self.settings,
            followers: watch::Sender::new(Arc::new(config.clone())),
            acme: watch::Sender::new(config.acme.clone()),
            config,
            tracker,
            access: self.access,
            watcher: self.watcher,
            certificates,
            log: self.log,
            sandbox,
            reading: ReadState::default(),
            overrides: self.overrides,
            pending: PendingReplies::default(),
            hub: Arc::clone(api.hub()),
            pace: swarms.as_ref().map(|swarms| swarms.pace.clone()),
            site: self.site,
        };
        let startup_text = startup.with(&first_token);
        let start = Start { bound, xdp: self.xdp, startup_text, old_process };
        let supervisor = self.supervisor;
        let serving =
            Serving { workers, reloader, upgrader, supervisor, records, swarms, cluster, events };
        serving.run(start, &event_receiver)
    }
}

/// Starts the threads of the site, and shows what they do.
fn start_site(
    site: &OpenSite,
    tracker: &Arc<Tracker>,
    clock: Clock,
    workers: &Workers,
) -> Result<()> {
    site.start(tracker, unix_offset_s(clock))?;
    // Set once.
    let _ = workers.metric_sources().site.set(site.source());
    Ok(())
}

/// What threads share.
struct Shared<'a> {
    tracker: &'a Arc<Tracker>,
    certificates: &'a Arc<Certificates>,
    clock: Clock,
    journal: Option<&'a OpenJournal>,
    /// The names of torrents.
    names: &'a Arc<TorrentNames>,
    /// The sessions and figures that the old process's dashboard hands over in an upgrade.
    old_dashboard: Option<String>,
}

/// Starts the records and the admin listeners, which are served while swarms are restored.
fn start_management(
    bound: &mut BoundListeners,
    config: &Config,
    shared: &Shared<'_>,
    state: (Arc<Records>, admin::records::Writer, Vec<AnnounceUrl>),
    events: Sender<Event>,
) -> Result<(Workers, Arc<Api>, FirstToken)> {
    let end = events.clone();
    let ended = move |ended| {
        // Fails only while the process is going down.
        let _ = end.send(Event::ThreadExit(ended));
    };
    let mut workers = Workers::new(shared, ended);
    workers.count_losses(&bound.udp);
    let (api, first_token) = state::start(&mut workers, config, state, shared.clock, events)?;
    // Before it is served, which takes samples.
    if let Some(text) = shared.old_dashboard.as_deref().filter(|text| !text.is_empty()) {
        api.take_over(text);
    }
    workers.start_admin(
        std::mem::take(&mut bound.admin),
        Service {
            sources: workers.shared_metric_sources(),
            api: Some(Arc::clone(&api)),
            hosts: config.admin_hosts.clone(),
            metrics_token: config.metrics_token,
            tls: config.admin_tls.then(|| TlsConfig::new(shared.certificates).server_config()),
            lower_priority: || {
                // A failure has been logged at startup.
                let _ = process::lower_priority();
            },
        },
    )?;
    Ok((workers, api, first_token))
}

/// A process that serves.
struct Serving {
    workers: Workers,
    reloader: Reloader,
    upgrader: Upgrader,
    supervisor: Supervisor,
    records: Arc<Records>,
    swarms: Option<Swarms>,
    cluster: ClusterState,
    events: Sender<Event>,
}

/// What starts when swarms are restored.
struct Start {
    bound: BoundListeners,
    xdp: Option<OpenXdp>,
    /// What the start prints.
    startup_text: String,
    old_process: Option<OldProcess>,
}

/// Why serving ends.
enum End {
    /// A signal to stop.
    Signal(i32),
    /// Clients have moved to other nodes.
    Drained,
    /// The process with this id serves instead.
    HandedOver(u32),
    /// A thread ended unasked.
    Failed(ThreadExit),
}

impl Serving {
    /// Starts to serve when swarms are restored, and handles events until one ends the process.
    fn run(mut self, start: Start, event_receiver: &Receiver<Event>) -> Result<()> {
        let mut is_restored = true;
        if let Some(end) = self.await_swarms(event_receiver, &mut is_restored) {
            return self.stop(end);
        }
        self.start(start)?;
        // Otherwise later: what the log of the cluster says is younger than the journal.
        if is_restored {
            self.cluster.start(&mut self.workers)?;
        }
        let mut checked_at = Instant::now();
        let end = loop {
            // Waiting changes will be acknowledged, so they must be recorded before the new process starts.
            if self.upgrader.is_requested() && self.records.is_idle() {
                self.upgrade();
            } else if self.upgrader.is_overdue() {
                error!(
                    "upgrade failed: waiting changes cannot be recorded; check the disk of state.dir"
                );
                self.upgrader.cancel();
                self.records.pause(false);
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
                self.cluster.secrets().inspect(|secrets| secrets.expire());
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
        let deadline = Instant::now() + self.swarms.as_ref()?.restore_wait;
        let mut later = Vec::new();
        let end = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match event_receiver.recv_timeout(left) {
                Ok(Event::SwarmsRestored) => break None,
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
        // Does not fail, because the receiver is here.
        later.into_iter().for_each(|event| drop(self.events.send(event)));
        end
    }

    fn start(&mut self, start: Start) -> Result<()> {
        let Start { bound, mut xdp, startup_text, old_process } = start;
        let Reloader { config, certificates, xdp_rules, access, followers, acme, .. } =
            &self.reloader;
        let tls = TlsConfig::new(certificates);
        let take_over = xdp.as_mut().map(OpenXdp::take_over).unwrap_or_default();
        self.workers.start_followers(followers.subscribe(), access, self.events.clone())?;
        self.workers.start_sweep(config.cluster.is_some())?;
        let node = self.cluster.node();
        let site = self.workers.site(bound.public_urls(), config, node);
        self.workers.start_udp(bound.udp, config, xdp.as_mut())?;
        xdp.map_or(Ok(()), |xdp| self.workers.start_xdp(xdp, xdp_rules.clone()))?;
        self.workers.start_http(bound.tcp, &tls, &site, config, node)?;
        // A reload may add certificates, but cannot open a listener for them.
        if config.listens(Transport::Tls) {
            let challenges = Arc::clone(&config.challenges);
            let store = CertStore { certificates: Arc::clone(certificates), challenges };
            self.workers.start_acme(store, acme.subscribe())?;
        }
        print(&startup_text)?;
        self.workers.metric_sources().status.ready.store(true, Ordering::Relaxed);
        old_process.map_or(Ok(()), OldProcess::take_over)?;
        self.upgrader.complete(take_over);
        self.supervisor.ready();
        Ok(())
    }

    /// Handles an event. Returns the end of serving if it is one.
    fn handle(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Signal(SIGHUP) => {
                self.reloader.site.iter().for_each(OpenSite::reload);
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
                let again = self.reloader.finish(outcome, self.workers.metric_sources());
                if !(again && self.reloader.reload(&self.events)) {
                    self.supervisor.ready();
                }
            }
            Event::NewProcess(Ok(pid)) => {
                if let Err(error) = self.upgrader.hand_over_queues() {
                    error!("upgrade failed; this process continues to serve: {error}");
                    self.records.pause(false);
                    self.upgrader.cancel();
                    return None;
                }
                // In this order: the supervisor heeds the new process only after MAINPID.
                self.supervisor.handed_over(pid);
                self.upgrader.confirm();
                return Some(End::HandedOver(pid));
            }
            Event::NewProcess(Err(reason)) => {
                error!(reason, "upgrade failed; this process continues to serve");
                self.records.pause(false);
                self.upgrader.cancel();
            }
            Event::ThreadExit(ended) => return Some(End::Failed(ended)),
            Event::Command(command) => self.execute(command),
            Event::TorrentsChanged => self.reloader.replace_torrents(),
            // It took longer than the start waited.
            Event::SwarmsRestored => {
                if let Err(error) = self.cluster.start(&mut self.workers) {
                    error!("{error:#}");
                }
            }
        }
        None
    }

    /// Requests an upgrade. Returns false if one is already in progress.
    fn request_upgrade(&mut self) -> bool {
        // The new process would not know of changes acknowledged from now on.
        self.records.pause(true);
        let is_new = self.upgrader.request();
        if is_new && !self.records.is_idle() {
            info!("upgrade: recording waiting changes first");
        }
        is_new
    }

    fn upgrade(&mut self) {
        if let Err(error) = self.upgrader.start(&self.events) {
            error!("upgrade failed: {error:#}");
            self.records.pause(false);
        }
    }

    fn stop(mut self, end: End) -> Result<()> {
        match &end {
            // The new process is ready instead.
            End::HandedOver(pid) => info!("process {pid} has taken over; stopping"),
            End::Signal(_) | End::Drained | End::Failed(_) => {
                self.workers.metric_sources().status.ready.store(false, Ordering::Relaxed);
                self.supervisor.stopping();
            }
        }
        if let End::Signal(signal) = end {
            let signal = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            info!(signal, "stopping");
            self.reloader.hub.annotate(AnnotationKind::Stop, format!("Stopped by {signal}"));
        }
        if let End::Drained = end {
            info!("drained; stopping");
            self.reloader.hub.annotate(AnnotationKind::Stop, "Stopped after it was drained");
        }
        let is_handed_over = matches!(end, End::HandedOver(_));
        if is_handed_over {
            self.cluster.hand_over();
        } else {
            self.upgrader.cancel();
        }
        let sender = self.upgrader.into_sender();
        let shutdown_timeout_s = u64::from(self.reloader.config.shutdown_timeout_s);
        let time = Duration::from_secs(shutdown_timeout_s) + STOP_TIMEOUT;
        let left = self.workers.stop(is_handed_over, Instant::now() + time);
        // Nothing changes any more.
        sender.into_iter().for_each(SwarmSender::finish);
        if let Some(swarms) = &self.swarms {
            swarms.close(Instant::now() + STOP_TIMEOUT);
        }
        self.cluster.close(Instant::now() + STOP_TIMEOUT);
        self.reloader.site.iter().for_each(OpenSite::stop);
        state::close(&self.records, Instant::now() + STOP_TIMEOUT);
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
