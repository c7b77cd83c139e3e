//! Building everything, keeping it running, taking it down.
//!
//! The main thread binds, drops privileges, starts the workers, and then waits for what happens:
//! signals, changed lists, and workers that end. A worker that ends by itself takes the process down,
//! because half a tracker would look alive to whoever watches it.

mod listeners;
mod reload;
mod workers;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use net::process::{self, Identity};
use net::tls::{Certificates, TlsConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::watch;
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use tracker::counters::Board;
use tracker::{Keys, Options, StoreOptions, Tracker};

use crate::access;
use crate::acme::{self, Shelf};
use crate::certificates;
use crate::config::{AcmeConfig, Config, Settings};
use listeners::{Bound, bind};
use reload::Reloader;
use workers::{Ended, Workers};

/// How often files are looked at for changes.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// How long everything may take to stop.
const STOP_TIME: Duration = Duration::from_secs(8);

/// What wakes the main thread.
enum Happening {
    Signal(i32),
    Ended(Ended),
}

/// Serves until a signal says stop. `file` is where `settings` came from, for reloads.
pub(crate) fn serve(file: Option<PathBuf>, settings: Settings, config: Config) -> Result<()> {
    let log = start_log(&config);
    let (happen, happenings) = channel();
    listen_to_signals(happen.clone())?;
    if let Err(error) = process::raise_descriptor_limit() {
        warn!("the limit of open files stays where it is: {error}");
    }
    config.doubts().iter().for_each(|doubt| warn!("{doubt}"));
    let watch = access::Watch::new(&config);
    let lists = access::read(&config)?;
    let tracker = Arc::new(new_tracker(&config)?);
    tracker.access().replace(lists);
    let certificates = Arc::new(Certificates::default());
    let certificate_watch = certificates::watch(&config);
    let read = certificates::read(&config)?;
    certificates::doubts(&config, &read).iter().for_each(|doubt| warn!("{doubt}"));
    certificates.replace(read);
    tracker.limiter().replace(config.limits.clone());
    let bound = bind(&config)?;
    let lines = bound.lines(&config);
    acme::prepare(&config)?;
    become_user(&config)?;
    acme::load(&config, &certificates)?;
    let mut workers = start_workers(bound, &config, &tracker, &certificates, happen)?;
    let acme = start_acme(&mut workers, &config, &certificates)?;
    let reloader = Reloader {
        file,
        settings,
        config,
        tracker,
        watch,
        certificates,
        certificate_watch,
        acme,
        log,
    };
    print(&lines)?;
    workers.figures().status.ready.store(true, Ordering::Relaxed);
    run(workers, reloader, &happenings)
}

/// All that is wrong with `config` on this machine, without serving.
pub(crate) fn check(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(error) = access::read(config) {
        problems.push(format!("{error:#}"));
    }
    match certificates::read(config) {
        Ok(read) => problems.extend(certificates::doubts(config, &read)),
        Err(error) => problems.push(format!("{error:#}")),
    }
    problems.extend(acme::check(config));
    if let Err(error) = bind(config) {
        problems.push(format!("{error:#}"));
    }
    if !config.user.is_empty()
        && let Err(error) = Identity::find(&config.user, &config.group)
    {
        problems.push(format!("process.user: {error}"));
    }
    problems
}

fn start_log(config: &Config) -> reload::LogLevel {
    let level = LevelFilter::from_level(config.log_level);
    let (filter, handle) = tracing_subscriber::reload::Layer::new(level);
    let output = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if config.log_json {
        registry.with(output.json()).init();
    } else {
        let colours = io::stderr().is_terminal();
        registry.with(output.with_target(false).with_ansi(colours)).init();
    }
    Box::new(move |level| {
        // Fails only once the subscriber is gone, with the process.
        let _ = handle.reload(LevelFilter::from_level(level));
    })
}

/// Hands signals to the main thread. A second one to stop does not wait for anything.
fn listen_to_signals(happen: Sender<Happening>) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .context("cannot listen to signals")?;
    let thread = std::thread::Builder::new().name("signals".into());
    let forward = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if signal != SIGHUP && std::mem::replace(&mut stopping, true) {
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

fn new_tracker(config: &Config) -> Result<Tracker> {
    let mut secrets = [[0; 16]; 4];
    getrandom::fill(secrets.as_flattened_mut()).context("the system gives no random numbers")?;
    let [hash_key, connection_ids, offers, limits] = secrets;
    let workers = workers::count(config.udp_workers) + workers::count(config.http_workers);
    let store = StoreOptions {
        // One for each thread that announces: two seldom want the same, and the jobs of a batch that
        // share a shard wait for memory together.
        shards: workers,
        hash_key,
        peer_lifetime_s: config.policy.peer_lifetime_s,
        web_lifetime_s: config.policy.web_lifetime_s(),
        keep_peer_ids: config.http.dict_model,
        memory_budget: config.memory_budget,
    };
    let keys = Keys { connection_ids, offers, limits };
    Ok(Tracker::new(&Options { policy: config.policy, store }, &keys))
}

fn become_user(config: &Config) -> Result<()> {
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
    tracker: &Arc<Tracker>,
    certificates: &Arc<Certificates>,
    happen: Sender<Happening>,
) -> Result<Workers> {
    let board = Arc::new(Board::default());
    let mut workers = Workers::new(tracker, &board, certificates, move |ended| {
        // Nobody listens any more once the process is going down.
        let _ = happen.send(Happening::Ended(ended));
    });
    workers.start_admin(bound.admin)?;
    workers.start_udp(bound.udp, config)?;
    let mut tcp: Vec<_> = bound.http.into_iter().map(|sockets| (sockets, None)).collect();
    if !bound.tls.is_empty() {
        let tls = TlsConfig::new(certificates);
        tcp.extend(bound.tls.into_iter().map(|sockets| (sockets, Some(tls.clone()))));
    }
    workers.start_http(tcp, config)?;
    workers.start_sweep()?;
    Ok(workers)
}

/// Gives the way to tell it of another configuration.
fn start_acme(
    workers: &mut Workers,
    config: &Config,
    certificates: &Arc<Certificates>,
) -> Result<watch::Sender<Option<AcmeConfig>>> {
    let (sender, configs) = watch::channel(config.acme.clone());
    // A reload may ask for certificates that the start did not, but opens no listener for them.
    if !config.tls_listen.addresses.is_empty() {
        let challenges = Arc::clone(&config.http.challenges);
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

/// Waits for what happens until something ends it.
fn run(workers: Workers, mut reloader: Reloader, happenings: &Receiver<Happening>) -> Result<()> {
    let failure = loop {
        match happenings.recv_timeout(WATCH_PERIOD) {
            Ok(Happening::Signal(SIGHUP)) => reloader.reload(workers.figures()),
            Ok(Happening::Signal(signal)) => {
                let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                info!("{name}: stopping");
                break None;
            }
            Ok(Happening::Ended(ended)) => break Some(ended),
            Err(RecvTimeoutError::Timeout) => reloader.follow_files(workers.figures()),
            Err(RecvTimeoutError::Disconnected) => bail!("the signal thread is gone"),
        }
    };
    workers.figures().status.ready.store(false, Ordering::Relaxed);
    let left = workers.stop(Instant::now() + STOP_TIME);
    if !left.is_empty() {
        warn!("stopping without {}, still busy after {} s", left.join(", "), STOP_TIME.as_secs());
    }
    match failure {
        Some(ended) => bail!("{} ended by itself: {}", ended.name, ended.reason),
        None => Ok(()),
    }
}
