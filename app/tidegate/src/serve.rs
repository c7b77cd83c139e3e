//! Building everything, keeping it running, taking it down.
//!
//! The main thread takes what was handed over to it, binds the rest, drops privileges, gives up what
//! it needs no more, starts the workers, and then waits for what happens: signals, changed lists, and
//! workers that end. A worker that ends by itself takes the process down, because half a tracker would
//! look alive to whoever watches it.

mod confine;
mod listeners;
mod log;
mod outbound;
mod reload;
mod state;
mod supervisor;
mod upgrade;
mod workers;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use admin::{Api, Command, Records, Service};
use anyhow::{Context, Result, bail};
use front::Clock;
use net::process::{self, Identity, Inherited, Launcher};
use net::tls::{Certificates, TlsConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracker::counters::MetricsRegistry;
use tracker::{Options, Secrets, StoreOptions, Tracker};

use crate::access::{self, FileKeys};
use crate::acme::{self, CertStore};
use crate::certificates;
use crate::config::{AcmeConfig, Config, Settings, Transport};
use listeners::{BoundListeners, bind};
use log::Log;
use reload::{PendingReplies, ReadOutcome, ReadState, Reloader};
use supervisor::Supervisor;
use upgrade::{HandoffState, OldProcess, Upgrader};
use workers::{ThreadExit, Workers};

/// How often files are looked at for changes.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// How long the main thread sleeps while it waits for nothing else than the records.
const SHORT_SLEEP: Duration = Duration::from_millis(10);
/// How long threads may take to stop beyond the time that answers have to leave.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// What wakes the main thread.
enum Event {
    Signal(i32),
    /// Files were read again.
    Read(ReadOutcome),
    /// The process that is to take over serves, and this is its id; or why it does not.
    NewProcess(Result<u32, String>),
    ThreadExit(ThreadExit),
    /// Somebody asks for something by the management API.
    Command(Command),
}

/// Serves until a signal says stop. `file` is where `settings` came from, for reloads.
pub(crate) fn serve(
    file: Option<PathBuf>,
    mut settings: Settings,
    mut config: Config,
) -> Result<()> {
    let mut log = Log::start(&config);
    // Before anything else is opened: what was handed over is known only by its numbers.
    let mut inherited = Inherited::from_environment(listeners::SOCKET_NAMES)?;
    if let Err(error) = process::raise_descriptor_limit() {
        warn!("the limit of open files stays where it is: {error}");
    }
    // Before any thread is there, and any right gone.
    let launcher = Launcher::split_off();
    let supervisor = Supervisor::from_environment();
    let mut old_process = OldProcess::from_inherited(&mut inherited);
    let handoff = old_process.as_mut().map_or_else(HandoffState::fresh, OldProcess::handoff)?;
    // These may come early, and must not end the process. One that ends it may, until it serves.
    let signals = Signals::new([SIGHUP, SIGUSR2]).context("cannot listen to signals")?;
    config.warnings().iter().for_each(|doubt| warn!("{doubt}"));
    let watcher = access::FileWatcher::new(&config);
    let tracker = Arc::new(new_tracker(&config, &handoff)?);
    let mut file_keys = FileKeys::default();
    reload::apply(&config, &tracker, &mut file_keys)?;
    let certificates = read_certificates(&config)?;
    let bound = bind(&config, &mut inherited)?;
    check_leftover(inherited, old_process.is_some())?;
    let lines = bound.startup_text(&config);
    become_user(&config)?;
    acme::load(&config, &certificates)?;
    let (records, writer) = state::open(&config)?;
    let overrides = state::settings(&writer)?;
    if reload::apply_overrides(&overrides, &mut settings, &mut config) {
        reload::apply(&config, &tracker, &mut file_keys)?;
        log.configure(&config.log);
    }
    let sandbox = confine::confine(&config, file.as_deref()).map(Arc::new);
    let upgrader = Upgrader::new(launcher, bound.descriptors()?, handoff);
    let (events, event_receiver) = channel();
    listen_to_signals(signals, events.clone())?;
    let clock = Clock::after(process::monotonic().saturating_sub(handoff.epoch));
    state::fill(&config, &tracker, &writer, clock)?;
    let state = (Arc::clone(&records), writer);
    let shared = (&tracker, &certificates, clock);
    let (mut workers, api, token) = start_workers(bound, &config, shared, state, events.clone())?;
    let acme = start_acme(&mut workers, &config, &certificates)?;
    let reloader = Reloader {
        file,
        settings,
        config,
        tracker,
        file_keys,
        watcher,
        certificates,
        acme,
        log,
        sandbox,
        reading: ReadState::default(),
        overrides,
        pending: PendingReplies::default(),
        hub: Arc::clone(api.hub()),
    };
    print(&(lines + &token_line(token.as_deref())))?;
    workers.metric_sources().status.ready.store(true, Ordering::Relaxed);
    old_process.map_or(Ok(()), OldProcess::take_over)?;
    supervisor.ready();
    Serving { workers, reloader, upgrader, supervisor, records, events }.run(&event_receiver)
}

/// What was handed over and belongs to no listener. A process that hands its sockets over has an
/// older configuration; whoever else does means them to be served.
fn check_leftover(inherited: Inherited, is_upgrade: bool) -> Result<()> {
    let left = inherited.leave();
    if left.is_empty() {
        return Ok(());
    }
    let left = left.join(", ");
    if is_upgrade {
        info!("not listened on any more: {left}");
        return Ok(());
    }
    bail!(
        "no listener of the configuration is for {left}, which was handed over: give the socket \
         unit and the configuration the same addresses"
    )
}

/// All that is wrong with `config` on this machine, without serving.
pub(crate) fn check(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(error) = access::read(config) {
        problems.push(format!("{error:#}"));
    }
    match certificates::read(config) {
        Ok(read) => problems.extend(certificates::warnings(config, &read)),
        Err(error) => problems.push(format!("{error:#}")),
    }
    problems.extend(acme::check(config));
    problems.extend(state::check(config));
    if let Err(error) = bind(config, &mut Inherited::default()) {
        problems.push(format!("{error:#}"));
    }
    if !config.user.is_empty()
        && let Err(error) = Identity::find(&config.user, &config.group)
    {
        problems.push(format!("process.user: {error}"));
    }
    problems
}

/// Hands signals to the main thread. A second one to stop does not wait for anything.
fn listen_to_signals(mut signals: Signals, events: Sender<Event>) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        signals.add_signal(signal).context("cannot listen to signals")?;
    }
    let thread = std::thread::Builder::new().name("signals".into());
    let forward = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let stops = signal == SIGTERM || signal == SIGINT;
            if stops && std::mem::replace(&mut stopping, true) {
                std::process::exit(1);
            }
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread.spawn(forward).context("cannot start a thread")?;
    Ok(())
}

fn new_tracker(config: &Config, handoff: &HandoffState) -> Result<Tracker> {
    let mut secrets = [[0; 16]; 3];
    getrandom::fill(secrets.as_flattened_mut()).context("the system gives no random numbers")?;
    let [hash_key, offers, limits] = secrets;
    let workers =
        listeners::worker_count(config.udp_workers) + listeners::worker_count(config.http_workers);
    let store = StoreOptions {
        // One for each thread that announces: two seldom want the same, and the jobs of a batch that
        // share a shard wait for memory together.
        shards: workers,
        hash_key,
        peer_lifetime_s: config.policy.peer_lifetime_s,
        web_lifetime_s: config.policy.web_lifetime_s(),
        keep_peer_ids: config.keep_peer_ids,
        memory_budget: config.memory_budget,
    };
    let keys = Secrets { connection_ids: handoff.connection_ids, offers, limits };
    Ok(Tracker::new(&Options { policy: config.policy, store }, &keys))
}

fn read_certificates(config: &Config) -> Result<Arc<Certificates>> {
    let certificates = Arc::new(Certificates::default());
    let read = certificates::read(config)?;
    certificates::warnings(config, &read).iter().for_each(|doubt| warn!("{doubt}"));
    certificates.replace(read);
    Ok(certificates)
}

/// Makes the folders that it will write to, and becomes whoever the configuration names.
fn become_user(config: &Config) -> Result<()> {
    acme::prepare(config)?;
    state::prepare(config)?;
    if config.user.is_empty() {
        return Ok(());
    }
    let identity = Identity::find(&config.user, &config.group).context("process.user")?;
    if !process::is_root() {
        warn!("process.user is {}, but only root can become another user", config.user);
        return Ok(());
    }
    process::drop_privileges(identity).context("process.user")?;
    info!("running as {}", config.user);
    Ok(())
}

fn start_workers(
    bound: BoundListeners,
    config: &Config,
    (tracker, certificates, clock): (&Arc<Tracker>, &Arc<Certificates>, Clock),
    state: (Arc<Records>, admin::records::Writer),
    events: Sender<Event>,
) -> Result<(Workers, Arc<Api>, Option<String>)> {
    let registry = Arc::new(MetricsRegistry::default());
    let end = events.clone();
    let ended = move |ended| {
        // Nobody listens any more once the process is going down.
        let _ = end.send(Event::ThreadExit(ended));
    };
    let mut workers = Workers::new(tracker, &registry, certificates, clock, ended);
    let (api, token) = state::start(&mut workers, config, state, clock, events)?;
    let tls = TlsConfig::new(certificates);
    workers.start_admin(
        bound.admin,
        Service {
            sources: workers.shared_metric_sources(),
            api: Some(Arc::clone(&api)),
            tls: config.admin_tls.then(|| tls.server_config()),
            lower_priority: || {
                // Where that is not permitted, the start has said so.
                let _ = process::lower_priority();
            },
        },
    )?;
    workers.start_udp(bound.udp, config)?;
    workers.start_http(bound.tcp, &tls, config)?;
    workers.start_sweep()?;
    Ok((workers, api, token))
}

/// What the start prints of a token that was made just now.
fn token_line(token: Option<&str>) -> String {
    let hint = "for /api/v1, which may do everything; shown this once";
    token.map(|token| format!("  token  {token}  ({hint})\n")).unwrap_or_default()
}

/// Gives the way to tell it of another configuration.
fn start_acme(
    workers: &mut Workers,
    config: &Config,
    certificates: &Arc<Certificates>,
) -> Result<watch::Sender<Option<AcmeConfig>>> {
    let (sender, configs) = watch::channel(config.acme.clone());
    // A reload may ask for certificates that the start did not, but opens no listener for them.
    if config.listens(Transport::Tls) {
        let challenges = Arc::clone(&config.challenges);
        let store = CertStore { certificates: Arc::clone(certificates), challenges };
        workers.start_acme(store, configs)?;
    }
    Ok(sender)
}

fn print(lines: &str) -> Result<()> {
    let mut out = io::stdout();
    match out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A process that serves.
struct Serving {
    workers: Workers,
    reloader: Reloader,
    upgrader: Upgrader,
    supervisor: Supervisor,
    records: Arc<Records>,
    events: Sender<Event>,
}

/// Why serving ends.
enum End {
    /// Somebody wants it to.
    Signal(i32),
    /// This process serves instead.
    HandedOver(u32),
    /// Something that should not have.
    Failed(ThreadExit),
}

impl Serving {
    /// Waits for what happens until something ends it.
    fn run(mut self, event_receiver: &Receiver<Event>) -> Result<()> {
        let mut looked = Instant::now();
        let end = loop {
            // What waits will be acknowledged, so the new process must find it.
            if self.upgrader.is_requested() && self.records.is_idle() {
                self.upgrade();
            } else if self.upgrader.is_overdue() {
                error!("not upgraded: the disk of the records does not answer");
                self.upgrader.cancel();
                self.records.pause(false);
            }
            self.supervisor.ping_watchdog(|| self.workers.progress());
            let rest = if self.upgrader.is_requested() {
                SHORT_SLEEP
            } else {
                self.supervisor.sleep_time()
            };
            if let Ok(event) = event_receiver.recv_timeout(rest)
                && let Some(end) = self.handle(event)
            {
                break end;
            }
            if looked.elapsed() >= WATCH_PERIOD {
                self.reloader.reload_changed_files(&self.events);
                self.reloader.log.report_omitted(false);
                looked = Instant::now();
            }
        };
        self.stop(end)
    }

    /// Does what is due when something happens. Gives the end, if it is one.
    fn handle(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Signal(SIGHUP) => {
                if self.reloader.reload(&self.events) {
                    self.supervisor.reloading();
                }
            }
            Event::Signal(SIGUSR2) => {
                // What is acknowledged from now on the new process would not know.
                self.records.pause(true);
                if !self.upgrader.request() {
                    warn!("SIGUSR2: an upgrade is under way already");
                } else if !self.records.is_idle() {
                    info!("SIGUSR2: changes that wait are recorded before the upgrade");
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
                // In this order: what the new process says to whoever watches counts only then.
                self.supervisor.handed_over(pid);
                self.upgrader.confirm();
                return Some(End::HandedOver(pid));
            }
            Event::NewProcess(Err(reason)) => {
                error!("not upgraded, serving on: {reason}");
                self.records.pause(false);
                self.upgrader.cancel();
            }
            Event::ThreadExit(ended) => return Some(End::Failed(ended)),
            Event::Command(command) => self.execute(command),
        }
        None
    }

    fn upgrade(&mut self) {
        if let Err(error) = self.upgrader.start(&self.events) {
            error!("not upgraded: {error:#}");
            self.records.pause(false);
        }
    }

    fn execute(&mut self, command: Command) {
        let events = &self.events;
        match command {
            // Who has given up waiting needs no answer, here and below.
            Command::Settings(reply) => drop(reply.send(self.reloader.list())),
            Command::Reload(reply) => {
                self.reloader.reload_and_reply(events, PendingReplies::to(reply))
            }
            Command::SetOverrides { values, dry_run: true, reply } => {
                self.reloader.validate(values, reply);
            }
            Command::SetOverrides { values, dry_run: false, reply } => {
                self.reloader.overrides = values;
                self.reloader.reload_and_reply(events, PendingReplies::to(reply));
            }
            Command::ReloadFiles(reply) => {
                self.reloader.reload_files_and_reply(events, PendingReplies::to_result(reply));
            }
            Command::LogLevels(levels, reply) => {
                let log = &mut self.reloader.log;
                levels.into_iter().for_each(|levels| log.set_levels(levels));
                drop(reply.send(log.levels().clone()));
            }
        }
    }

    fn stop(mut self, end: End) -> Result<()> {
        match &end {
            // The tracker as a whole stays ready.
            End::HandedOver(pid) => info!("process {pid} has taken over: stopping"),
            End::Signal(_) | End::Failed(_) => {
                self.workers.metric_sources().status.ready.store(false, Ordering::Relaxed);
                self.supervisor.stopping();
            }
        }
        if let End::Signal(signal) = end {
            info!("{}: stopping", if signal == SIGINT { "SIGINT" } else { "SIGTERM" });
        }
        self.upgrader.cancel();
        // With it go its copies of the sockets: what nobody serves must not take connections.
        drop(self.upgrader);
        let shutdown_timeout_s = u64::from(self.reloader.config.shutdown_timeout_s);
        let time = Duration::from_secs(shutdown_timeout_s) + STOP_TIMEOUT;
        let left = self.workers.stop(Instant::now() + time);
        state::close(&self.records, Instant::now() + STOP_TIMEOUT);
        if !left.is_empty() {
            warn!("stopping without {}, still busy after {} s", left.join(", "), time.as_secs());
        }
        self.reloader.log.report_omitted(true);
        match end {
            End::Failed(ended) => bail!("{} ended by itself: {}", ended.name, ended.reason),
            End::Signal(_) | End::HandedOver(_) => Ok(()),
        }
    }
}
