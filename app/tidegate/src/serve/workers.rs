//! The threads.

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admin::{AcmeAttempts, Figures, Process, Service, Status};
use anyhow::{Context, Result};
use front::Clock;
use front::http::{HttpListener, HttpWorker};
use front::udp::{UdpFront, UdpListener};
use front::web::Place;
use net::UdpSocket;
use net::process::{cores, lower_priority, pin_to_core, raise_priority, usage};
use net::tls::{Certificates, TlsConfig};
use tokio::sync::watch;
use tracing::{info, warn};
use tracker::Tracker;
use tracker::counters::{Listener, MetricsRegistry, Protocol};

use super::listeners::Open;
use crate::acme::{self, Shelf};
use crate::config::{AcmeConfig, Config, Group, Transport};

/// A thread that ended before it was told to.
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) reason: String,
}

/// All threads, and what they share.
pub(super) struct Workers {
    tracker: Arc<Tracker>,
    board: Arc<MetricsRegistry>,
    figures: Arc<Figures>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    stop_async: watch::Sender<bool>,
    /// Steps that the sweep has made.
    sweeps: Arc<AtomicU64>,
    threads: Vec<(String, JoinHandle<()>)>,
    ended: Arc<dyn Fn(Ended) + Send + Sync>,
}

/// How many workers a setting means: 0 is one for each core.
pub(super) fn count(setting: usize) -> usize {
    if setting == 0 { cores().len().max(1) } else { setting }
}

/// How often a step of the sweep is made.
const SWEEP_PERIOD: Duration = Duration::from_millis(100);
/// Seconds in which the sweep goes once round everything, unless peers live shorter.
const SWEEP_PASS_S: u32 = 60;

impl Workers {
    pub(super) fn new(
        tracker: &Arc<Tracker>,
        board: &Arc<MetricsRegistry>,
        certificates: &Arc<Certificates>,
        clock: Clock,
        ended: impl Fn(Ended) + Send + Sync + 'static,
    ) -> Self {
        let certificates = Arc::clone(certificates);
        let figures = Figures {
            tracker: Arc::clone(tracker),
            board: Arc::clone(board),
            status: Status::default(),
            process,
            clock: Box::new(move || clock.now()),
            certificates: Box::new(move || certificates.expiries()),
            acme: AcmeAttempts::default(),
            version: env!("CARGO_PKG_VERSION"),
        };
        // Uptime counts from here, whatever the tracker's own clock says.
        START.get_or_init(Clock::start);
        Self {
            tracker: Arc::clone(tracker),
            board: Arc::clone(board),
            figures: Arc::new(figures),
            clock,
            stop: Arc::default(),
            stop_async: watch::Sender::new(false),
            sweeps: Arc::default(),
            threads: Vec::new(),
            ended: Arc::new(ended),
        }
    }

    /// What the admin listener shows.
    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The same, to keep.
    pub(super) fn shared_figures(&self) -> Arc<Figures> {
        Arc::clone(&self.figures)
    }

    /// How far each worker has come, by the name of what it does. What stands still is stuck.
    pub(super) fn publish_counts(&self) -> Vec<(String, u64)> {
        let name = |listener: Listener| {
            format!("a worker of {} {}", listener.protocol.label(), listener.address)
        };
        let workers = self.board.publish_counts().into_iter();
        let sweeps = self.sweeps.load(Ordering::Relaxed);
        workers
            .map(|(listener, beat)| (name(listener), beat))
            .chain([(String::from("the sweep"), sweeps)])
            .collect()
    }

    /// A worker for each set of sockets: the first of every listener, the second of every …
    pub(super) fn start_udp(
        &mut self,
        listeners: Vec<Open<UdpSocket>>,
        config: &Config,
    ) -> Result<()> {
        let places = cores();
        for (number, opened) in deal(listeners, count(config.udp_workers)).into_iter().enumerate() {
            let known = |(socket, group): &(UdpSocket, Group)| {
                let address = socket.local_addr();
                let listener = Listener {
                    protocol: Protocol::Udp,
                    address,
                    listener_policy: group.listener_policy,
                };
                let metrics = self.board.register(listener);
                UdpListener {
                    metrics,
                    listener_policy: group.listener_policy,
                    proxies: group.simple_proxies.clone(),
                }
            };
            let known = opened.iter().map(known).collect();
            let sockets: Vec<_> = opened.into_iter().map(|(socket, _)| socket).collect();
            let mut front = UdpFront::new(Arc::clone(&self.tracker), known, self.clock, seed()?);
            let stop = Arc::clone(&self.stop);
            let engine = config.engine;
            let place =
                config.pin_cores.then(|| places.get(number % places.len().max(1))).flatten();
            let place = place.copied();
            self.start(format!("udp-{number}"), raise_priority, move || {
                if let Some(Err(error)) = place.map(pin_to_core) {
                    warn!("udp-{number} is not kept on a core: {error}");
                }
                Ok(net::run_udp(sockets, engine, &mut front, &stop)?)
            })?;
        }
        Ok(())
    }

    /// The same. `tls` is for those listeners that speak it.
    pub(super) fn start_http(
        &mut self,
        listeners: Vec<Open<TcpListener>>,
        tls: &TlsConfig,
        config: &Config,
    ) -> Result<()> {
        let workers = deal(listeners, count(config.http_workers));
        let places = Place::for_workers(workers.len());
        for (number, (opened, place)) in workers.into_iter().zip(places).enumerate() {
            let listener = |(socket, group): (TcpListener, Group)| {
                let (address, listener_policy) = (socket.local_addr()?, group.listener_policy);
                let tls = (group.transport == Transport::Tls).then(|| tls.clone());
                let protocols = match tls {
                    None => [Protocol::Http, Protocol::Ws],
                    Some(_) => [Protocol::Https, Protocol::Wss],
                };
                let [http, web] = protocols.map(|protocol| {
                    self.board.register(Listener { protocol, address, listener_policy })
                });
                anyhow::Ok(HttpListener { socket, tls, options: group.http, http, web })
            };
            let worker = HttpWorker {
                tracker: Arc::clone(&self.tracker),
                listeners: opened.into_iter().map(listener).collect::<Result<_>>()?,
                clock: self.clock,
                seed: seed()?,
                place,
            };
            let stop = self.stop_async.subscribe();
            self.start(format!("http-{number}"), raise_priority, move || {
                Ok(front::http::serve(worker, stop)?)
            })?;
        }
        Ok(())
    }

    pub(super) fn start_admin(
        &mut self,
        listeners: Vec<TcpListener>,
        service: Service,
    ) -> Result<()> {
        if listeners.is_empty() {
            return Ok(());
        }
        let stop = self.stop_async.subscribe();
        self.start("admin".into(), raise_priority, move || {
            Ok(admin::serve(listeners, &service, stop)?)
        })
    }

    /// The thread that writes records. It is told to end by itself, after all others. It neither goes first nor
    /// steps back: who changes something by the API waits for it.
    pub(super) fn start_records(&mut self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.start(
            "records".into(),
            || Ok(()),
            move || {
                work();
                Ok(())
            },
        )?;
        // It is not waited for among the rest.
        self.threads.pop();
        Ok(())
    }

    /// The thread that obtains certificates and renews them, as the latest of `configs` asks.
    pub(super) fn start_acme(
        &mut self,
        shelf: Shelf,
        configs: watch::Receiver<Option<AcmeConfig>>,
    ) -> Result<()> {
        let figures = Arc::clone(&self.figures);
        let stop = self.stop_async.subscribe();
        self.start("acme".into(), lower_priority, move || {
            acme::serve(&shelf, &figures, configs, stop)
        })
    }

    /// The thread that forgets peers, a little at a time.
    pub(super) fn start_sweep(&mut self) -> Result<()> {
        let tracker = Arc::clone(&self.tracker);
        let (clock, stop) = (self.clock, Arc::clone(&self.stop));
        let sweeps = Arc::clone(&self.sweeps);
        self.start("sweep".into(), lower_priority, move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(SWEEP_PERIOD);
                let pass_s = (tracker.peer_lifetime_min_s() / 4).clamp(1, SWEEP_PASS_S);
                let steps_s = (1000 / SWEEP_PERIOD.as_millis()) as u32;
                tracker.sweep(clock.now(), pass_s * steps_s);
                sweeps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Tells all threads to end and waits for them until `deadline`. Gives the names of those that
    /// have not ended by then.
    pub(super) fn stop(self, deadline: Instant) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.stop_async.send_replace(true);
        let mut left = self.threads;
        while !left.is_empty() && Instant::now() < deadline {
            left.retain(|(_, thread)| !thread.is_finished());
            thread::sleep(Duration::from_millis(5));
        }
        left.into_iter().map(|(name, _)| name).collect()
    }

    /// Starts a thread, which takes its place before or behind the others, and reports if it ends, by an
    /// error, a panic or otherwise, unasked.
    fn start(
        &mut self,
        name: String,
        take_place: fn() -> io::Result<()>,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (stop, ended) = (Arc::clone(&self.stop), Arc::clone(&self.ended));
        let own_name = name.clone();
        let body = move || {
            if let Err(error) = take_place() {
                info!("{own_name} competes for cores as any thread does: {error}");
            }
            // The thread ends either way: nothing that the panic left half done is used again.
            let reason = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => String::from("nothing was left to do"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => String::from("it panicked; the message stands above"),
            };
            if !stop.load(Ordering::Relaxed) {
                ended(Ended { name: own_name, reason });
            }
        };
        let thread = thread::Builder::new().name(name.clone()).spawn(body);
        self.threads.push((name, thread.context("cannot start a thread")?));
        Ok(())
    }
}

static START: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();

fn process() -> Process {
    let usage = usage();
    Process {
        uptime_s: f64::from(START.get_or_init(Clock::start).now().0),
        cpu_s: usage.user_s + usage.system_s,
        resident_bytes: usage.resident_bytes,
        descriptors: usage.descriptors,
    }
}

fn seed() -> Result<u64> {
    getrandom::u64().context("the system gives no random numbers")
}

/// From a list for each listener to a list for each of at most `count` workers. A listener may have
/// more sockets than there are workers, or fewer, if they were handed over.
fn deal<S>(listeners: Vec<Open<S>>, count: usize) -> Vec<Vec<(S, Group)>> {
    let mut workers: Vec<Vec<(S, Group)>> = Vec::new();
    workers.resize_with(count, Vec::new);
    for Open { sockets, group } in listeners {
        for (number, socket) in sockets.into_iter().enumerate() {
            workers[number % count].push((socket, group.clone()));
        }
    }
    workers.retain(|sockets| !sockets.is_empty());
    workers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn every_worker_gets_a_socket_of_every_listener() {
        let config = Config::from_settings(&Settings::default()).unwrap();
        let dealt = |listeners: &[&[u32]], count| -> Vec<Vec<u32>> {
            let open = |sockets: &&[u32]| Open {
                sockets: sockets.to_vec(),
                group: config.groups[0].clone(),
            };
            let workers = deal(listeners.iter().map(open).collect(), count);
            workers
                .into_iter()
                .map(|all| all.into_iter().map(|(socket, _)| socket).collect())
                .collect()
        };
        assert_eq!(dealt(&[&[1, 2], &[3, 4]], 2), [[1, 3], [2, 4]]);
        assert_eq!(dealt(&[&[1, 2, 3], &[4]], 2), [vec![1, 3, 4], vec![2]]);
        assert_eq!(dealt(&[&[1]], 4), [[1]]);
        assert!(dealt(&[], 3).is_empty());
        assert!(count(0) >= 1 && count(3) == 3);
    }
}
