//! Building everything, keeping it running, taking it down.
//!
//! The main thread takes what was handed over to it, binds the rest, drops privileges, gives up what
//! it needs no more, starts the workers, and then waits for what happens: signals, changed lists, and
//! workers that end. A worker that ends by itself takes the process down, because half a tracker would
//! look alive to whoever watches it.

mod confine;
mod courier;
mod listeners;
mod log;
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

use crate::access::{self, Users};
use crate::acme::{self, Shelf};
use crate::certificates;
use crate::config::{AcmeConfig, Config, Settings, Transport};
use listeners::{Bound, bind};
use log::Log;
use reload::{Asked, Outcome, Reading, Reloader};
use supervisor::Supervisor;
use upgrade::{Legacy, Predecessor, Upgrader};
use workers::{Ended, Workers};

/// How often files are looked at for changes.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// How long the main thread sleeps while it waits for nothing else than the records.
const SHORT_REST: Duration = Duration::from_millis(10);
/// How long threads may take to stop beyond the time that answers have to leave.
const STOP_TIME: Duration = Duration::from_secs(3);

/// What wakes the main thread.
enum Happening {
    Signal(i32),
    /// Files were read again.
    Read(Outcome),
    /// The process that is to take over serves, and this is its id; or why it does not.
    Successor(Result<u32, String>),
    Ended(Ended),
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
    let mut inherited = Inherited::from_environment(listeners::NAMES)?;
    if let Err(error) = process::raise_descriptor_limit() {
        warn!("the limit of open files stays where it is: {error}");
    }
    // Before any thread is there, and any right gone.
    let launcher = Launcher::split_off();
    let supervisor = Supervisor::from_environment();
    let mut predecessor = Predecessor::among(&mut inherited);
    let legacy = predecessor.as_mut().map_or_else(Legacy::fresh, Predecessor::legacy)?;
    // These may come early, and must not end the process. One that ends it may, until it serves.
    let signals = Signals::new([SIGHUP, SIGUSR2]).context("cannot listen to signals")?;
    config.warnings().iter().for_each(|doubt| warn!("{doubt}"));
    let watch = access::Watch::new(&config);
    let tracker = Arc::new(new_tracker(&config, &legacy)?);
    let mut users = Users::default();
    reload::apply(&config, &tracker, &mut users)?;
    let certificates = read_certificates(&config)?;
    let bound = bind(&config, &mut inherited)?;
    leave(inherited, predecessor.is_some())?;
    let lines = bound.lines(&config);
    become_user(&config)?;
    acme::load(&config, &certificates)?;
    let (records, writer) = state::open(&config)?;
    let overrides = state::settings(&writer)?;
    if reload::apply_overrides(&overrides, &mut settings, &mut config) {
        reload::apply(&config, &tracker, &mut users)?;
        log.configure(&config.log);
    }
    let sandbox = confine::confine(&config, file.as_deref()).map(Arc::new);
    let upgrader = Upgrader::new(launcher, bound.descriptors()?, legacy);
    let (happen, happenings) = channel();
    listen_to_signals(signals, happen.clone())?;
    let clock = Clock::after(process::monotonic().saturating_sub(legacy.epoch));
    state::fill(&config, &tracker, &writer, clock)?;
    let state = (Arc::clone(&records), writer);
    let shared = (&tracker, &certificates, clock);
    let (mut workers, api, token) = start_workers(bound, &config, shared, state, happen.clone())?;
    let acme = start_acme(&mut workers, &config, &certificates)?;
    let reloader = Reloader {
        file,
        settings,
        config,
        tracker,
        users,
        watch,
        certificates,
        acme,
        log,
        sandbox,
        reading: Reading::default(),
        overrides,
        asked: Asked::default(),
        hub: Arc::clone(api.hub()),
    };
    print(&(lines + &first_token(token.as_deref())))?;
    workers.figures().status.ready.store(true, Ordering::Relaxed);
    predecessor.map_or(Ok(()), Predecessor::relieve)?;
    supervisor.ready();
    Serving { workers, reloader, upgrader, supervisor, records, happen }.run(&happenings)
}

/// What was handed over and belongs to no listener. A process that hands its sockets over has an
/// older configuration; whoever else does means them to be served.
fn leave(inherited: Inherited, is_upgrade: bool) -> Result<()> {
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
fn listen_to_signals(mut signals: Signals, happen: Sender<Happening>) -> Result<()> {
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
            if happen.send(Happening::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread.spawn(forward).context("cannot start a thread")?;
    Ok(())
}

fn new_tracker(config: &Config, legacy: &Legacy) -> Result<Tracker> {
    let mut secrets = [[0; 16]; 3];
    getrandom::fill(secrets.as_flattened_mut()).context("the system gives no random numbers")?;
    let [hash_key, offers, limits] = secrets;
    let workers = workers::count(config.udp_workers) + workers::count(config.http_workers);
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
    let keys = Secrets { connection_ids: legacy.connection_ids, offers, limits };
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
    bound: Bound,
    config: &Config,
    (tracker, certificates, clock): (&Arc<Tracker>, &Arc<Certificates>, Clock),
    state: (Arc<Records>, admin::records::Writer),
    happen: Sender<Happening>,
) -> Result<(Workers, Arc<Api>, Option<String>)> {
    let board = Arc::new(MetricsRegistry::default());
    let end = happen.clone();
    let ended = move |ended| {
        // Nobody listens any more once the process is going down.
        let _ = end.send(Happening::Ended(ended));
    };
    let mut workers = Workers::new(tracker, &board, certificates, clock, ended);
    let (api, token) = state::start(&mut workers, config, state, clock, happen)?;
    let tls = TlsConfig::new(certificates);
    workers.start_admin(
        bound.admin,
        Service {
            sources: workers.shared_figures(),
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
fn first_token(token: Option<&str>) -> String {
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
        let shelf = Shelf { certificates: Arc::clone(certificates), challenges };
        workers.start_acme(shelf, configs)?;
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
    happen: Sender<Happening>,
}

/// Why serving ends.
enum End {
    /// Somebody wants it to.
    Signal(i32),
    /// This process serves instead.
    HandedOver(u32),
    /// Something that should not have.
    Failed(Ended),
}

impl Serving {
    /// Waits for what happens until something ends it.
    fn run(mut self, happenings: &Receiver<Happening>) -> Result<()> {
        let mut looked = Instant::now();
        let end = loop {
            // What waits will be acknowledged, so the new process must find it.
            if self.upgrader.is_wanted() && self.records.is_idle() {
                self.upgrade();
            } else if self.upgrader.is_overdue() {
                error!("not upgraded: the disk of the records does not answer");
                self.upgrader.give_up();
                self.records.pause(false);
            }
            self.supervisor.watch(|| self.workers.publish_counts());
            let rest = if self.upgrader.is_wanted() { SHORT_REST } else { self.supervisor.rest() };
            if let Ok(happening) = happenings.recv_timeout(rest)
                && let Some(end) = self.meet(happening)
            {
                break end;
            }
            if looked.elapsed() >= WATCH_PERIOD {
                self.reloader.follow_files(&self.happen);
                self.reloader.log.report_omitted(false);
                looked = Instant::now();
            }
        };
        self.stop(end)
    }

    /// Does what is due when something happens. Gives the end, if it is one.
    fn meet(&mut self, happening: Happening) -> Option<End> {
        match happening {
            Happening::Signal(SIGHUP) => {
                if self.reloader.reload(&self.happen) {
                    self.supervisor.reloading();
                }
            }
            Happening::Signal(SIGUSR2) => {
                // What is acknowledged from now on the new process would not know.
                self.records.pause(true);
                if !self.upgrader.want() {
                    warn!("SIGUSR2: an upgrade is under way already");
                } else if !self.records.is_idle() {
                    info!("SIGUSR2: changes that wait are recorded before the upgrade");
                }
            }
            Happening::Signal(signal) => return Some(End::Signal(signal)),
            Happening::Read(outcome) => {
                let again = self.reloader.finish(outcome, self.workers.figures());
                if !(again && self.reloader.reload(&self.happen)) {
                    self.supervisor.ready();
                }
            }
            Happening::Successor(Ok(pid)) => {
                // In this order: what the new process says to whoever watches counts only then.
                self.supervisor.handed_over(pid);
                self.upgrader.hand_over();
                return Some(End::HandedOver(pid));
            }
            Happening::Successor(Err(reason)) => {
                error!("not upgraded, serving on: {reason}");
                self.records.pause(false);
                self.upgrader.give_up();
            }
            Happening::Ended(ended) => return Some(End::Failed(ended)),
            Happening::Command(command) => self.obey(command),
        }
        None
    }

    fn upgrade(&mut self) {
        if let Err(error) = self.upgrader.begin(&self.happen) {
            error!("not upgraded: {error:#}");
            self.records.pause(false);
        }
    }

    fn obey(&mut self, command: Command) {
        let happen = &self.happen;
        match command {
            // Who has given up waiting needs no answer, here and below.
            Command::Settings(reply) => drop(reply.send(self.reloader.list())),
            Command::Reload(reply) => self.reloader.reload_for(happen, Asked::to(reply)),
            Command::SetOverrides { values, dry_run: true, reply } => {
                self.reloader.try_out(values, reply);
            }
            Command::SetOverrides { values, dry_run: false, reply } => {
                self.reloader.overrides = values;
                self.reloader.reload_for(happen, Asked::to(reply));
            }
            Command::ReloadFiles(reply) => {
                self.reloader.reload_files_for(happen, Asked::to_know(reply));
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
                self.workers.figures().status.ready.store(false, Ordering::Relaxed);
                self.supervisor.stopping();
            }
        }
        if let End::Signal(signal) = end {
            info!("{}: stopping", if signal == SIGINT { "SIGINT" } else { "SIGTERM" });
        }
        self.upgrader.give_up();
        // With it go its copies of the sockets: what nobody serves must not take connections.
        drop(self.upgrader);
        let shutdown_timeout_s = u64::from(self.reloader.config.shutdown_timeout_s);
        let time = Duration::from_secs(shutdown_timeout_s) + STOP_TIME;
        let left = self.workers.stop(Instant::now() + time);
        state::close(&self.records, Instant::now() + STOP_TIME);
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
