//! The threads of the tracker, and how they stop.

mod servers;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admin::MetricSources;
use anyhow::{Context, Result};
use front::Clock;
use front::http::StopOrder;
use front::webtorrent::RemoteLetters;
use net::process::lower_priority;
use tokio::sync::watch;
use tracing::info;
use tracker::Tracker;
use tracker::counters::{Listener, MetricsRegistry, Protocol};

use super::time::unix_offset_s;

pub(super) struct ThreadExit {
    pub(super) name: String,
    /// Description of the exit, as the rest of a sentence that begins with the name.
    pub(super) reason: String,
}

pub(crate) struct Workers {
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    metric_sources: Arc<MetricSources>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    stop_async: watch::Sender<bool>,
    stop_http: watch::Sender<Option<StopOrder>>,
    sweeps: Arc<AtomicU64>,
    /// Steps that threads of subsystems have taken, with their names.
    heartbeats: Vec<(&'static str, Arc<AtomicU64>)>,
    /// WebTorrent messages for other nodes, in a cluster, from when the HTTP workers start.
    letters: Arc<OnceLock<RemoteLetters>>,
    draining: Option<Draining>,
    threads: Vec<(String, JoinHandle<()>)>,
    on_exit: Arc<dyn Fn(ThreadExit) + Send + Sync>,
}

type SetPriority = fn() -> io::Result<()>;

const SWEEP_PERIOD: Duration = Duration::from_millis(100);
/// Seconds for one pass of the sweep over all torrents, unless peers have a shorter lifetime.
const SWEEP_PASS_S: u32 = 60;

/// Time that kept-alive connections stay open at a stop, for requests that are on their way. It is short, because the
/// port is closed, and the next process may wait for this one to end.
const STOP_IDLE_GRACE: Duration = Duration::from_millis(500);
const END_POLL: Duration = Duration::from_millis(5);

impl Workers {
    pub(super) fn new(
        metric_sources: MetricSources,
        clock: Clock,
        on_exit: impl Fn(ThreadExit) + Send + Sync + 'static,
    ) -> Self {
        Self {
            tracker: Arc::clone(&metric_sources.tracker),
            registry: Arc::clone(&metric_sources.registry),
            metric_sources: Arc::new(metric_sources),
            clock,
            stop: Arc::default(),
            stop_async: watch::Sender::new(false),
            stop_http: watch::Sender::new(None),
            sweeps: Arc::default(),
            heartbeats: Vec::new(),
            letters: Arc::default(),
            draining: None,
            threads: Vec::new(),
            on_exit: Arc::new(on_exit),
        }
    }

    pub(crate) fn metric_sources(&self) -> &Arc<MetricSources> {
        &self.metric_sources
    }

    /// Returns a flag that becomes true when threads are to end.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Returns a channel that becomes true at the same time.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop_async.subscribe()
    }

    /// Returns a counter of a thread's steps. While it does not change, the thread is stuck.
    pub(crate) fn heartbeat(&mut self, name: &'static str) -> Arc<AtomicU64> {
        let steps = Arc::<AtomicU64>::default();
        self.heartbeats.push((name, Arc::clone(&steps)));
        steps
    }

    /// Returns WebTorrent messages for other nodes, in a cluster, from when the HTTP workers start.
    pub(crate) fn letters(&self) -> Arc<OnceLock<RemoteLetters>> {
        Arc::clone(&self.letters)
    }

    /// Ends readiness, and begins to wait until clients have moved to other nodes, for as long as `longest`.
    pub(super) fn drain(&mut self, longest: Duration) {
        info!(
            seconds = longest.as_secs(),
            "draining: waiting until clients have moved, then stopping"
        );
        self.metric_sources.status.ready.store(false, Ordering::Relaxed);
        self.draining = Some(Draining::begin(longest, self.traffic().0));
    }

    /// Returns true when clients have moved, or the time is over.
    pub(super) fn is_drained(&mut self) -> bool {
        let (requests, web_sockets) = self.traffic();
        let draining = self.draining.as_mut();
        draining.is_some_and(|draining| draining.is_over(requests, web_sockets))
    }

    /// Returns how many requests there were, and how many WebSockets are open.
    fn traffic(&self) -> (u64, u64) {
        let all = self.registry.read();
        let requests = all.iter().flat_map(|(_, counters)| counters.requests.as_flattened()).sum();
        let is_web =
            |listener: &Listener| matches!(listener.protocol, Protocol::Ws | Protocol::Wss);
        let of_web = all.iter().filter(|(listener, _)| is_web(listener));
        let web_sockets = of_web.map(|(_, counters)| counters.connections_open).sum();
        (requests, web_sockets)
    }

    /// Returns a counter for each worker, with its name. A worker whose counter does not change is stuck.
    pub(super) fn progress(&self) -> Vec<(String, u64)> {
        let name = |listener: Listener| {
            format!("worker of {} {}", listener.protocol.label(), listener.address)
        };
        let workers = self.registry.publish_counts().into_iter();
        let load = |name: &str, steps: &AtomicU64| (name.into(), steps.load(Ordering::Relaxed));
        // The counters of a subsystem's thread are among those of the workers: it comes first, so that it is named
        // if it is stuck.
        let subsystems = self.heartbeats.iter().map(|(name, steps)| load(name, steps));
        subsystems
            .chain(workers.map(|(listener, beat)| (name(listener), beat)))
            .chain([load("sweep", &self.sweeps)])
            .collect()
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
        self.start("sweep", lower_priority, move || {
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
        left.retain(|(_, thread)| !ends_by(thread, deadline));
        left.into_iter().map(|(name, _)| name).collect()
    }

    /// Starts a thread, which first sets its priority. It is reported if it ends unasked.
    pub(crate) fn start(
        &mut self,
        name: &str,
        set_priority: SetPriority,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let thread = self.spawn(name, set_priority, work)?;
        self.threads.push((name.into(), thread));
        Ok(())
    }

    /// Starts a thread likewise. [`Self::stop`] does not wait for it: it writes or sends what the others change last.
    pub(crate) fn spawn(
        &self,
        name: &str,
        set_priority: SetPriority,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let (stop, on_exit) = (Arc::clone(&self.stop), Arc::clone(&self.on_exit));
        let own_name = String::from(name);
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
        thread::Builder::new().name(name.into()).spawn(body).context("cannot start a thread")
    }
}

/// A node without a request for this long has no clients any more.
const QUIET: Duration = Duration::from_secs(5);

/// A node that is to stop, and waits until its clients have moved to other nodes.
struct Draining {
    deadline: Instant,
    busy_at: Instant,
    requests: u64,
}

impl Draining {
    fn begin(longest: Duration, requests: u64) -> Self {
        let now = Instant::now();
        Self { deadline: now + longest, busy_at: now, requests }
    }

    /// Returns whether the wait is over.
    fn is_over(&mut self, requests: u64, web_sockets: u64) -> bool {
        let now = Instant::now();
        if requests != self.requests || web_sockets > 0 {
            self.requests = requests;
            self.busy_at = now;
        }
        now >= self.deadline || now >= self.busy_at + QUIET
    }
}

/// Does `work` on this thread with the latest of `configs`, until `stop` becomes true. It is dropped, and begins
/// anew, when there is another configuration.
pub(crate) fn follow<T: Clone>(
    mut configs: watch::Receiver<T>,
    mut stop: watch::Receiver<bool>,
    mut work: impl AsyncFnMut(T),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        loop {
            let config = configs.borrow_and_update().clone();
            tokio::select! {
                () = work(config) => {}
                // Once the sender is gone, the configuration stays as it is.
                Ok(()) = configs.changed() => {}
                _ = &mut stopped => break,
            }
        }
    });
    // Does not wait for name lookups in progress.
    runtime.shutdown_background();
    Ok(())
}

/// Lowers the priority of this thread, so that the workers come first. Without the right to it, which has been logged at
/// startup, they share the cores.
pub(super) fn give_way() {
    let _ = lower_priority();
}

/// Waits for the end of a thread. Returns false if it has not ended by `deadline`.
pub(crate) fn ends_by<T>(thread: &JoinHandle<T>, deadline: Instant) -> bool {
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(END_POLL);
    }
    true
}
