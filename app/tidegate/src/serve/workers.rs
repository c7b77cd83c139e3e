//! The threads of the tracker.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use admin::{AcmeAttempts, MetricSources, ProcessStats, Service, Status, UpgradeStats};
use anyhow::{Context, Result};
use front::Clock;
use front::http::{HttpListener, HttpWorker, StopOrder};
use front::udp::{UdpFront, UdpListener};
use front::webtorrent::{RemoteLetters, WorkerLink};
use net::process::{lower_priority, raise_priority, usage};
use net::tls::TlsConfig;
use net::{ReceiveLosses, UdpSocket, UdpWorker};
use pages::{ListenerPages, PublicUrl, Site, SiteOptions};
use tokio::sync::watch;
use tracing::{debug, info};
use tracker::Tracker;
use tracker::counters::{Listener, MetricsRegistry, Protocol};

use super::approval::Approval;
use super::draining::{Draining, Traffic};
use super::geo::GeoCounter;
use super::listeners::BoundListener;
use super::swarms::OpenJournal;
use super::time::unix_offset_s;
use super::xdp::{self, OpenXdp, SharedRules};
use super::{Event, Shared};
use crate::access::AccessState;
use crate::acme::{self, CertStore};
use config::{AcmeConfig, Config, ListenerGroup, Transport, worker_count};

/// A thread that ended unasked.
pub(super) struct ThreadExit {
    pub(super) name: String,
    /// What happened, as the rest of a sentence that begins with the name.
    pub(super) reason: String,
}

/// All threads, and the state they share.
pub(super) struct Workers {
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    metric_sources: Arc<MetricSources>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    stop_async: watch::Sender<bool>,
    stop_http: watch::Sender<Option<StopOrder>>,
    /// Steps the sweep has taken.
    sweeps: Arc<AtomicU64>,
    /// Steps the thread of the XDP program has taken, if there is one.
    xdp_steps: Option<Arc<AtomicU64>>,
    /// WebTorrent messages for other nodes, in a cluster, from when the HTTP workers start.
    letters: Arc<OnceLock<RemoteLetters>>,
    /// Present while clients are moving to other nodes.
    draining: Option<Draining>,
    threads: Vec<(String, JoinHandle<()>)>,
    on_exit: Arc<dyn Fn(ThreadExit) + Send + Sync>,
}

/// How often the sweep takes a step.
const SWEEP_PERIOD: Duration = Duration::from_millis(100);
/// Seconds for one pass of the sweep over all torrents, unless peers have a shorter lifetime.
const SWEEP_PASS_S: u32 = 60;

/// How long kept-alive connections stay open at a stop, for requests that are on their way. Not longer,
/// because the port is closed, and the next process may wait for this one to end.
const STOP_IDLE_GRACE: Duration = Duration::from_millis(500);

impl Workers {
    pub(super) fn new(
        shared: &Shared<'_>,
        on_exit: impl Fn(ThreadExit) + Send + Sync + 'static,
    ) -> Self {
        let (tracker, clock) = (shared.tracker, shared.clock);
        let registry = Arc::new(MetricsRegistry::default());
        let certificates = Arc::clone(shared.certificates);
        let journal = shared.journal.map(OpenJournal::stats);
        let metric_sources = MetricSources {
            tracker: Arc::clone(tracker),
            registry: Arc::clone(&registry),
            status: Status { torrent_names: Arc::clone(shared.names), ..Status::default() },
            process,
            clock: Box::new(move || clock.now()),
            certificates: Box::new(move || certificates.validities()),
            acme: AcmeAttempts::default(),
            journal: Box::new(move || journal.as_ref().map(|stats| stats())),
            cluster: OnceLock::new(),
            site: OnceLock::new(),
            receive_losses: OnceLock::new(),
            version: env!("CARGO_PKG_VERSION"),
        };
        // Uptime counts from here: after an upgrade the tracker's own clock continues the old one.
        let _ = start();
        Self {
            tracker: Arc::clone(tracker),
            registry,
            metric_sources: Arc::new(metric_sources),
            clock,
            stop: Arc::default(),
            stop_async: watch::Sender::new(false),
            stop_http: watch::Sender::new(None),
            sweeps: Arc::default(),
            xdp_steps: None,
            letters: Arc::default(),
            draining: None,
            threads: Vec::new(),
            on_exit: Arc::new(on_exit),
        }
    }

    /// Returns what the admin listener reports.
    pub(super) fn metric_sources(&self) -> &MetricSources {
        &self.metric_sources
    }

    /// Ends readiness, and begins to wait until clients have moved to other nodes, for as long as `longest`.
    pub(super) fn drain(&mut self, longest: Duration) {
        info!(
            seconds = longest.as_secs(),
            "draining: waiting until clients have moved, then stopping"
        );
        self.metric_sources.status.ready.store(false, Ordering::Relaxed);
        self.draining = Some(Draining::begin(longest, self.traffic()));
    }

    /// Returns true when clients have moved, or the time is over.
    pub(super) fn is_drained(&mut self) -> bool {
        let traffic = self.traffic();
        self.draining.as_mut().is_some_and(|draining| draining.is_over(traffic))
    }

    /// Returns what clients have done and hold, as the workers last reported it.
    fn traffic(&self) -> Traffic {
        let all = self.registry.read();
        let requests = all.iter().flat_map(|(_, counters)| counters.requests.as_flattened()).sum();
        let is_web =
            |listener: &Listener| matches!(listener.protocol, Protocol::Ws | Protocol::Wss);
        let of_web = all.iter().filter(|(listener, _)| is_web(listener));
        let web_sockets = of_web.map(|(_, counters)| counters.connections_open).sum();
        Traffic { requests, web_sockets }
    }

    /// Sets the engine of UDP that is reported, why it is not the configured one, if so, and what the old process sends
    /// in an upgrade. Call once.
    pub(super) fn set_status(
        &self,
        engine: String,
        fallback: Option<String>,
        upgrade: Arc<UpgradeStats>,
    ) {
        let status = &self.metric_sources.status;
        let _ = status.upgrade.set(upgrade);
        let _ = status.udp_engine.set(engine);
        let _ = fallback.map(|why| status.udp_fallback.set(why));
    }

    /// Begins to count the datagrams that do not fit into the receive buffers of these sockets.
    pub(super) fn count_losses(&self, listeners: &[BoundListener<UdpSocket>]) {
        let sockets = listeners.iter().flat_map(|listener| &listener.sockets);
        match ReceiveLosses::of(sockets) {
            Ok(losses) => {
                let losses = Mutex::new(losses);
                let count = move || losses.lock().unwrap_or_else(PoisonError::into_inner).count();
                // Set once.
                let _ = self.metric_sources.receive_losses.set(Box::new(count));
            }
            Err(error) => debug!(%error, "the system does not count full receive buffers"),
        }
    }

    /// Returns WebTorrent messages for other nodes, in a cluster, from when the HTTP workers start.
    pub(super) fn letters(&self) -> Arc<OnceLock<RemoteLetters>> {
        Arc::clone(&self.letters)
    }

    /// Returns a shared reference to the same.
    pub(super) fn shared_metric_sources(&self) -> Arc<MetricSources> {
        Arc::clone(&self.metric_sources)
    }

    /// Returns a counter for each worker, with its name. A worker whose counter does not change is stuck.
    pub(super) fn progress(&self) -> Vec<(String, u64)> {
        let name = |listener: Listener| {
            format!("worker of {} {}", listener.protocol.label(), listener.address)
        };
        let workers = self.registry.publish_counts().into_iter();
        let load = |name: &str, steps: &AtomicU64| (name.into(), steps.load(Ordering::Relaxed));
        // Its counters are among those of the workers: it comes first, so that it is named if it is stuck.
        let xdp = self.xdp_steps.iter().map(|steps| load("xdp", steps));
        xdp.chain(workers.map(|(listener, beat)| (name(listener), beat)))
            .chain([load("sweep", &self.sweeps)])
            .collect()
    }

    /// Starts the UDP workers: one for the first socket of every listener, one for the second, … `xdp` has
    /// what each of them gets of the XDP program.
    pub(super) fn start_udp(
        &mut self,
        listeners: Vec<BoundListener<UdpSocket>>,
        config: &Config,
        mut xdp: Option<&mut OpenXdp>,
    ) -> Result<()> {
        for (number, sockets_of_worker) in
            distribute(listeners, worker_count(config.udp_workers)).into_iter().enumerate()
        {
            let listeners = sockets_of_worker
                .iter()
                .map(|(socket, group)| self.udp_listener(socket.local_addr(), group))
                .collect();
            let sockets: Vec<_> = sockets_of_worker.into_iter().map(|(socket, _)| socket).collect();
            let mut front =
                UdpFront::new(Arc::clone(&self.tracker), listeners, self.clock, seed()?);
            let mut worker = UdpWorker::new(sockets, config.engine);
            let queues = xdp.as_mut().map(|xdp| xdp.equip(number, &mut worker)).unwrap_or_default();
            let stop = Arc::clone(&self.stop);
            self.start(format!("udp-{number}"), raise_priority, move || {
                Ok(::xdp::run(worker, queues, &mut front, &stop)?)
            })?;
        }
        Ok(())
    }

    fn udp_listener(&self, address: SocketAddr, group: &ListenerGroup) -> UdpListener {
        let listener_policy = group.listener_policy;
        let listener = Listener { protocol: Protocol::Udp, address, listener_policy };
        UdpListener {
            metrics: self.registry.register(listener),
            listener_policy,
            proxies: group.simple_proxies.clone(),
        }
    }

    /// Starts the thread that keeps the XDP program up to date and counts what it does.
    pub(super) fn start_xdp(&mut self, xdp: OpenXdp, rules: SharedRules) -> Result<()> {
        let (tracker, clock) = (Arc::clone(&self.tracker), self.clock);
        let sources = Arc::clone(&self.metric_sources);
        let mut updater = xdp.updater(rules, tracker, clock, sources);
        // Before the workers' first datagrams.
        updater.step();
        let (stop, steps) = (Arc::clone(&self.stop), Arc::<AtomicU64>::default());
        self.xdp_steps = Some(Arc::clone(&steps));
        self.start("xdp".into(), lower_priority, move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(xdp::PERIOD);
                updater.step();
                steps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Returns what pages and statistics of HTTP workers show. `node` is the number of a node of a cluster.
    pub(super) fn site(
        &self,
        urls: Vec<PublicUrl>,
        config: &Config,
        node: Option<u8>,
    ) -> Arc<Site> {
        // Uptime is the process's, as in metrics.
        let uptime_s = || start().1.elapsed().as_secs();
        Arc::new(Site::new(SiteOptions {
            urls,
            host: config.public_host.clone(),
            registry: Arc::clone(&self.registry),
            uptime_s: Box::new(uptime_s),
            version: env!("CARGO_PKG_VERSION"),
            node: node.unwrap_or(0),
        }))
    }

    /// Starts the HTTP workers, likewise. `tls` is for listeners that use it.
    pub(super) fn start_http(
        &mut self,
        listeners: Vec<BoundListener<TcpListener>>,
        tls: &TlsConfig,
        site: &Arc<Site>,
        config: &Config,
        node: Option<u8>,
    ) -> Result<()> {
        let workers = distribute(listeners, worker_count(config.http_workers));
        let links = if let (Some(cluster), Some(node)) = (&config.cluster, node) {
            let bytes_per_s = cluster.relay_bytes_per_s;
            let (links, letters) =
                WorkerLink::for_workers_of_node(workers.len(), node, bytes_per_s);
            // Set once: the workers start once.
            let _ = self.letters.set(letters);
            links
        } else {
            WorkerLink::for_workers(workers.len())
        };
        for (number, (sockets_of_worker, link)) in workers.into_iter().zip(links).enumerate() {
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
                let pages = ListenerPages {
                    tracker: Arc::clone(&self.tracker),
                    site: Arc::clone(site),
                    listener_policy,
                    options: group.pages,
                };
                let pages = Some(Arc::new(pages) as _);
                anyhow::Ok(HttpListener { socket, tls, options: group.http, pages, http, web })
            };
            let worker = HttpWorker {
                tracker: Arc::clone(&self.tracker),
                listeners: sockets_of_worker.into_iter().map(listener).collect::<Result<_>>()?,
                clock: self.clock,
                seed: seed()?,
                link,
                memory_limits: config.http_memory,
                lower_priority: || {
                    // Without the right to it, the threads share the cores with the workers.
                    let _ = lower_priority();
                },
            };
            let stop = self.stop_http.subscribe();
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

    /// Starts the thread that writes records. It has normal priority, because changes through the API
    /// wait for it, and is not among those that [`Self::stop`] stops: it ends after all others.
    pub(super) fn start_records(&mut self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.start(
            "records".into(),
            || Ok(()),
            move || {
                work();
                Ok(())
            },
        )?;
        // [`Self::stop`] does not wait for it.
        self.threads.pop();
        Ok(())
    }

    /// Starts the thread that restores and writes the journal of swarms. [`Self::stop`] does not stop it,
    /// because it writes what the workers change last.
    pub(super) fn start_journal(
        &mut self,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        self.start("journal".into(), lower_priority, move || {
            work();
            Ok(())
        })?;
        let (_, thread) = self.threads.pop().context("the thread was just started")?;
        Ok(thread)
    }

    /// Starts the thread of the cluster. [`Self::stop`] does not stop it, because it publishes what the workers
    /// change last.
    pub(super) fn start_cluster(
        &mut self,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        self.start("cluster".into(), lower_priority, work)?;
        let (_, thread) = self.threads.pop().context("the thread was just started")?;
        Ok(thread)
    }

    /// Starts the thread that obtains and renews certificates, following the latest of `configs`.
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

    /// Starts the threads that follow folders and keys, and that count peers by network.
    pub(super) fn start_followers(
        &mut self,
        configs: watch::Receiver<Arc<Config>>,
        access: &AccessState,
        events: Sender<Event>,
    ) -> Result<()> {
        let (tracker, sources) = (Arc::clone(&self.tracker), Arc::clone(&self.metric_sources));
        let counter = GeoCounter::new(configs.clone(), Arc::clone(&tracker), Arc::clone(&sources));
        let approval = Approval {
            configs,
            folders: access.folders.clone(),
            token_keys: access.token_keys.clone(),
            tracker,
            sources,
            events,
        };
        let stop = self.stop_async.subscribe();
        self.start("approval".into(), lower_priority, move || approval.run(stop))?;
        let stop = Arc::clone(&self.stop);
        self.start("geo".into(), lower_priority, move || {
            counter.run(&stop);
            Ok(())
        })
    }

    /// Starts the thread that removes expired peers, a few at a time. In a cluster, it keeps the time of
    /// connection ids right, too. The first time before this returns.
    pub(super) fn start_sweep(&mut self, is_in_cluster: bool) -> Result<()> {
        let tracker = Arc::clone(&self.tracker);
        let (clock, stop) = (self.clock, Arc::clone(&self.stop));
        let sweeps = Arc::clone(&self.sweeps);
        let set_time = move |tracker: &Tracker| {
            if is_in_cluster {
                tracker.set_unix_offset(unix_offset_s(clock));
            }
        };
        set_time(&tracker);
        self.start("sweep".into(), lower_priority, move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(SWEEP_PERIOD);
                let pass_s = (tracker.peer_lifetime_min_s() / 4).clamp(1, SWEEP_PASS_S);
                let steps_s = (1000 / SWEEP_PERIOD.as_millis()) as u32;
                tracker.sweep(clock.now(), pass_s * steps_s);
                set_time(&tracker);
                sweeps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Stops all threads. Returns the names of those that have not ended by `deadline`. If another
    /// process has taken over, kept-alive connections may stay to the end, because
    /// no client waits for this one.
    pub(super) fn stop(self, is_handed_over: bool, deadline: Instant) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.stop_async.send_replace(true);
        let idle_grace = if is_handed_over { Duration::MAX } else { STOP_IDLE_GRACE };
        self.stop_http.send_replace(Some(StopOrder { idle_grace }));
        let mut left = self.threads;
        while !left.is_empty() && Instant::now() < deadline {
            left.retain(|(_, thread)| !thread.is_finished());
            thread::sleep(Duration::from_millis(5));
        }
        left.into_iter().map(|(name, _)| name).collect()
    }

    /// Starts a thread, which first sets its priority. It is reported if it ends unasked: by an error, a
    /// panic or otherwise.
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
                info!(thread = own_name, %error, "cannot change the priority of the thread");
            }
            // The thread ends either way: no state that a panic left inconsistent is used again.
            let reason = match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => String::from("ended unexpectedly"),
                Ok(Err(error)) => format!("failed: {error:#}"),
                Err(_) => String::from("panicked (see the message above)"),
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

/// Returns when this process started, by the wall clock and a monotonic one.
fn start() -> (SystemTime, Instant) {
    static START: OnceLock<(SystemTime, Instant)> = OnceLock::new();
    *START.get_or_init(|| (SystemTime::now(), Instant::now()))
}

fn process() -> ProcessStats {
    let usage = usage();
    let (started, since) = start();
    ProcessStats {
        started,
        uptime_s: since.elapsed().as_secs_f64(),
        cpu_s: usage.user_s + usage.system_s,
        resident_bytes: usage.resident_bytes,
        open_fds: usage.descriptors,
    }
}

fn seed() -> Result<u64> {
    getrandom::u64().context("cannot get random numbers from the system")
}

/// Distributes the sockets of each listener over at most `count` workers. A listener with inherited
/// sockets may have more or fewer of them than there are workers.
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
    use config::Settings;

    #[test]
    fn gives_every_worker_a_socket_of_every_listener() {
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
