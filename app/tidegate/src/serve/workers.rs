//! The threads.

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admin::{AcmeAttempts, MetricSources, ProcessStats, Service, Status};
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

use super::listeners::{BoundListener, worker_count};
use crate::acme::{self, CertStore};
use crate::config::{AcmeConfig, Config, ListenerGroup, Transport};

/// A thread that ended before it was told to.
pub(super) struct ThreadExit {
    pub(super) name: String,
    pub(super) reason: String,
}

/// All threads, and what they share.
pub(super) struct Workers {
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    metric_sources: Arc<MetricSources>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    stop_async: watch::Sender<bool>,
    /// Steps that the sweep has made.
    sweeps: Arc<AtomicU64>,
    threads: Vec<(String, JoinHandle<()>)>,
    on_exit: Arc<dyn Fn(ThreadExit) + Send + Sync>,
}

/// How often a step of the sweep is made.
const SWEEP_PERIOD: Duration = Duration::from_millis(100);
/// Seconds in which the sweep goes once round everything, unless peers live shorter.
const SWEEP_PASS_S: u32 = 60;

impl Workers {
    pub(super) fn new(
        tracker: &Arc<Tracker>,
        registry: &Arc<MetricsRegistry>,
        certificates: &Arc<Certificates>,
        clock: Clock,
        on_exit: impl Fn(ThreadExit) + Send + Sync + 'static,
    ) -> Self {
        let certificates = Arc::clone(certificates);
        let metric_sources = MetricSources {
            tracker: Arc::clone(tracker),
            registry: Arc::clone(registry),
            status: Status::default(),
            process,
            certificates: Box::new(move || certificates.expiries()),
            acme: AcmeAttempts::default(),
            version: env!("CARGO_PKG_VERSION"),
        };
        // Uptime counts from here, whatever the tracker's own clock says.
        START.get_or_init(Clock::start);
        Self {
            tracker: Arc::clone(tracker),
            registry: Arc::clone(registry),
            metric_sources: Arc::new(metric_sources),
            clock,
            stop: Arc::default(),
            stop_async: watch::Sender::new(false),
            sweeps: Arc::default(),
            threads: Vec::new(),
            on_exit: Arc::new(on_exit),
        }
    }

    /// What the admin listener shows.
    pub(super) fn metric_sources(&self) -> &MetricSources {
        &self.metric_sources
    }

    /// The same, to keep.
    pub(super) fn shared_metric_sources(&self) -> Arc<MetricSources> {
        Arc::clone(&self.metric_sources)
    }

    /// How far each worker has come, by the name of what it does. What stands still is stuck.
    pub(super) fn progress(&self) -> Vec<(String, u64)> {
        let name = |listener: Listener| {
            format!("a worker of {} {}", listener.protocol.label(), listener.address)
        };
        let workers = self.registry.publish_counts().into_iter();
        let sweeps = self.sweeps.load(Ordering::Relaxed);
        workers
            .map(|(listener, beat)| (name(listener), beat))
            .chain([(String::from("the sweep"), sweeps)])
            .collect()
    }

    /// A worker for each set of sockets: the first of every listener, the second of every …
    pub(super) fn start_udp(
        &mut self,
        listeners: Vec<BoundListener<UdpSocket>>,
        config: &Config,
    ) -> Result<()> {
        let worker_cores = cores();
        for (number, sockets_of_worker) in
            distribute(listeners, worker_count(config.udp_workers)).into_iter().enumerate()
        {
            let udp_listeners = |(socket, group): &(UdpSocket, ListenerGroup)| {
                let address = socket.local_addr();
                let listener = Listener {
                    protocol: Protocol::Udp,
                    address,
                    listener_policy: group.listener_policy,
                };
                let metrics = self.registry.register(listener);
                UdpListener {
                    metrics,
                    listener_policy: group.listener_policy,
                    proxies: group.simple_proxies.clone(),
                }
            };
            let udp_listeners = sockets_of_worker.iter().map(udp_listeners).collect();
            let sockets: Vec<_> = sockets_of_worker.into_iter().map(|(socket, _)| socket).collect();
            let mut front =
                UdpFront::new(Arc::clone(&self.tracker), udp_listeners, self.clock, seed()?);
            let stop = Arc::clone(&self.stop);
            let engine = config.engine;
            let place = config
                .pin_cores
                .then(|| worker_cores.get(number % worker_cores.len().max(1)))
                .flatten();
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
        listeners: Vec<BoundListener<TcpListener>>,
        tls: &TlsConfig,
        config: &Config,
    ) -> Result<()> {
        let workers = distribute(listeners, worker_count(config.http_workers));
        let worker_cores = Place::for_workers(workers.len());
        for (number, (sockets_of_worker, place)) in
            workers.into_iter().zip(worker_cores).enumerate()
        {
            let listener = |(socket, group): (TcpListener, ListenerGroup)| {
                let (address, listener_policy) = (socket.local_addr()?, group.listener_policy);
                let tls = (group.transport == Transport::Tls).then(|| tls.clone());
                let protocols = match tls {
                    None => [Protocol::Http, Protocol::Ws],
                    Some(_) => [Protocol::Https, Protocol::Wss],
                };
                let [http, web] = protocols.map(|protocol| {
                    self.registry.register(Listener { protocol, address, listener_policy })
                });
                anyhow::Ok(HttpListener { socket, tls, options: group.http, http, web })
            };
            let worker = HttpWorker {
                tracker: Arc::clone(&self.tracker),
                listeners: sockets_of_worker.into_iter().map(listener).collect::<Result<_>>()?,
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
        store: CertStore,
        configs: watch::Receiver<Option<AcmeConfig>>,
    ) -> Result<()> {
        let metric_sources = Arc::clone(&self.metric_sources);
        let stop = self.stop_async.subscribe();
        self.start("acme".into(), lower_priority, move || {
            acme::serve(&store, &metric_sources, configs, stop)
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
        set_priority: fn() -> io::Result<()>,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (stop, on_exit) = (Arc::clone(&self.stop), Arc::clone(&self.on_exit));
        let own_name = name.clone();
        let body = move || {
            if let Err(error) = set_priority() {
                info!("{own_name} competes for cores as any thread does: {error}");
            }
            // The thread ends either way: nothing that the panic left half done is used again.
            let reason = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => String::from("nothing was left to do"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => String::from("it panicked; the message stands above"),
            };
            if !stop.load(Ordering::Relaxed) {
                on_exit(ThreadExit { name: own_name, reason });
            }
        };
        let thread = thread::Builder::new().name(name.clone()).spawn(body);
        self.threads.push((name, thread.context("cannot start a thread")?));
        Ok(())
    }
}

static START: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();

fn process() -> ProcessStats {
    let usage = usage();
    ProcessStats {
        uptime_s: f64::from(START.get_or_init(Clock::start).now().0),
        cpu_s: usage.user_s + usage.system_s,
        resident_bytes: usage.resident_bytes,
        open_fds: usage.descriptors,
    }
}

fn seed() -> Result<u64> {
    getrandom::u64().context("the system gives no random numbers")
}

/// From a list for each listener to a list for each of at most `count` workers. A listener may have
/// more sockets than there are workers, or fewer, if they were handed over.
fn distribute<S>(listeners: Vec<BoundListener<S>>, count: usize) -> Vec<Vec<(S, ListenerGroup)>> {
    let mut workers: Vec<Vec<(S, ListenerGroup)>> = Vec::new();
    workers.resize_with(count, Vec::new);
    for BoundListener { sockets, group } in listeners {
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
        let distributed = |listeners: &[&[u32]], count| -> Vec<Vec<u32>> {
            let open = |sockets: &&[u32]| BoundListener {
                sockets: sockets.to_vec(),
                group: config.groups[0].clone(),
            };
            let workers = distribute(listeners.iter().map(open).collect(), count);
            workers
                .into_iter()
                .map(|all| all.into_iter().map(|(socket, _)| socket).collect())
                .collect()
        };
        assert_eq!(distributed(&[&[1, 2], &[3, 4]], 2), [[1, 3], [2, 4]]);
        assert_eq!(distributed(&[&[1, 2, 3], &[4]], 2), [vec![1, 3, 4], vec![2]]);
        assert_eq!(distributed(&[&[1]], 4), [[1]]);
        assert!(distributed(&[], 3).is_empty());
        assert!(worker_count(0) >= 1 && worker_count(3) == 3);
    }
}
