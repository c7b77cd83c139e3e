//! Swarms and sessions over an upgrade: the old process sends them through a stream that the new one
//! inherits, beside [`super::upgrade`]'s. If that fails, the upgrade continues without them.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use admin::UpgradeStats;
use anyhow::{Context, Result};
use front::Clock;
use journal::{Milestone, SendOrders, SessionSource};
use net::process::available_memory_bytes;
use replication::{Clocks, Now};
use tracing::{info, warn};
use tracker::{SessionOrigin, SessionWalk, Tracker};

use super::time::clocks;
use super::workers::{ends_by, give_way};
use swarm::{Encoder, Feed};

/// The name of the stream among the inherited sockets.
pub(super) const STREAM_NAME: &str = "swarms";
/// Byte that the new process writes to the stream when it reads. A version that takes no swarms closes the stream.
const HELLO: u8 = b's';
/// Longest time to send the last changes and sessions, once the old process has stopped.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// Memory that must be available, relative to what the old process's store takes: both are there for a
/// while.
const MEMORY_FACTOR: f64 = 1.2;
pub(super) const SESSIONS_BYTES: usize = 64 * 1024;

#[derive(Clone)]
pub(super) struct SwarmSource {
    tracker: Arc<Tracker>,
    feed: Arc<Feed>,
    clocks: Clocks,
}

impl SwarmSource {
    /// `feed` is shared with the journal.
    pub(super) fn new(tracker: &Arc<Tracker>, feed: &Arc<Feed>, clock: Clock) -> Self {
        Self { tracker: Arc::clone(tracker), feed: Arc::clone(feed), clocks: clocks(clock) }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.tracker.totals().memory_reserved
    }

    pub(super) fn send(&self) -> Result<(SwarmSender, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (orders, source, stream) =
            (Arc::<SendOrders>::default(), self.clone(), ours.try_clone()?);
        let work = {
            let orders = Arc::clone(&orders);
            move || source.run(&stream, &orders)
        };
        let thread = thread::Builder::new().name("upgrade-swarms".into()).spawn(work);
        let thread = thread.context("cannot start a thread")?;
        Ok((SwarmSender { orders, stream: ours, thread }, theirs.into()))
    }

    /// Sends everything. Returns how many bytes that were, or `None` if the new process takes no swarms.
    fn run(&self, mut stream: &UnixStream, orders: &SendOrders) -> io::Result<Option<u64>> {
        let mut hello = [0];
        if !matches!(stream.read(&mut hello), Ok(1)) {
            return Ok(None);
        }
        give_way();
        let boot = (self.clocks)().unix_ms << 8;
        let encoder = Encoder::new(&self.feed, self.tracker.store(), boot);
        let mut sessions = session_source(&self.tracker);
        let mut sessions = |now: Now, body: &mut Vec<u8>| sessions(now, true, body);
        journal::send(stream, encoder, &self.clocks, orders, &mut sessions).map(Some)
    }
}

pub(super) fn session_source(tracker: &Arc<Tracker>) -> Box<SessionSource> {
    let tracker = Arc::clone(tracker);
    let mut walk = None;
    Box::new(move |now: Now, is_last: bool, body: &mut Vec<u8>| {
        let current = walk.get_or_insert_with(|| SessionWalk::new(is_last));
        let has_more = tracker.passkeys().export_sessions(now.tick, current, SESSIONS_BYTES, body);
        if !has_more {
            walk = None;
        }
        has_more
    })
}

/// The old process's side: sends swarms on a thread.
pub(super) struct SwarmSender {
    orders: Arc<SendOrders>,
    stream: UnixStream,
    thread: JoinHandle<io::Result<Option<u64>>>,
}

impl SwarmSender {
    /// Sends what is left. Call when the new process serves and nothing changes any more.
    pub(super) fn finish(self) {
        self.orders.finish();
        if !ends_by(&self.thread, Instant::now() + FINISH_TIMEOUT) {
            warn!("stopping without having sent all swarms: the new process does not take them");
            return self.cancel();
        }
        match self.thread.join() {
            Ok(Ok(Some(bytes))) => info!(bytes, "sent all swarms to the new process"),
            Ok(Ok(None)) => {
                info!("the new process takes no swarms: clients come back within an interval");
            }
            Ok(Err(error)) => warn!(%error, "cannot send all swarms to the new process"),
            Err(_) => warn!("cannot send all swarms to the new process: the sender panicked"),
        }
    }

    pub(super) fn cancel(self) {
        self.orders.cancel();
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The new process's side: receives swarms on a thread.
pub(super) struct SwarmTarget {
    tracker: Arc<Tracker>,
    clock: Clock,
    /// For metrics.
    pub(super) stats: Arc<UpgradeStats>,
    /// For the journal.
    pub(super) reception: Arc<Reception>,
    /// True if a journal follows. Swarms that are not received are then restored from it.
    has_journal: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Reception {
    pub(super) is_running: AtomicBool,
    /// Set when everything has come, with the last changes and sessions.
    pub(super) is_complete: AtomicBool,
}

impl SwarmTarget {
    pub(super) fn new(tracker: &Arc<Tracker>, clock: Clock, has_journal: bool) -> Self {
        Self {
            tracker: Arc::clone(tracker),
            clock,
            stats: Arc::default(),
            reception: Arc::default(),
            has_journal,
        }
    }

    /// Receives swarms from `stream`, which is closed if there is too little memory. Waits until everything is there that
    /// the old process had when it began to send, or no more comes, or `deadline` is reached. Returns true if everything is
    /// there. They continue to come. `memory_bytes` is what they take.
    pub(super) fn start(
        self,
        mut stream: UnixStream,
        memory_bytes: u64,
        deadline: Instant,
    ) -> Result<bool> {
        let needed = memory_bytes as f64 * MEMORY_FACTOR;
        if available_memory_bytes().is_some_and(|available| (available as f64) < needed) {
            warn!(
                needed_mib = memory_bytes >> 20,
                "too little memory for the swarms of two processes at a time: starting without those of \
                 the old one"
            );
            return Ok(false);
        }
        let seed = getrandom::u64().context("cannot get random numbers from the system")?;
        // Before this process serves: what is announced here is younger than what comes.
        self.tracker.store().remember_stopped(true);
        self.tracker.passkeys().begin_import();
        self.reception.is_running.store(true, Ordering::Release);
        let (sender, walked) = channel();
        let work = move || {
            // To the old process's workers, too, which share the cores.
            give_way();
            let begun = Instant::now();
            let result = stream.write_all(&[HELLO]).map_err(Into::into).and_then(|()| {
                self.receive(&stream, seed, &mut || {
                    let ms = begun.elapsed().as_millis() as u64;
                    self.stats.milliseconds.store(ms.max(1), Ordering::Relaxed);
                    let _ = sender.send(());
                })
            });
            self.reception.is_running.store(false, Ordering::Release);
            if let Err(error) = result {
                warn!("received only some of the old process's swarms: {error:#}");
            }
        };
        let thread = thread::Builder::new().name("upgrade-swarms".into()).spawn(work);
        thread.context("cannot start a thread")?;
        let walked = walked.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        if walked == Err(RecvTimeoutError::Timeout) {
            warn!("serving before all of the old process's swarms are here: it sends too slowly");
        }
        Ok(walked.is_ok())
    }

    /// Receives everything. Calls `walked` when all is there but what still changes.
    fn receive(&self, stream: &UnixStream, seed: u64, walked: &mut dyn FnMut()) -> Result<()> {
        let tracker = &self.tracker;
        let clocks = clocks(self.clock);
        let counting = Counting { stream, bytes: &self.stats.bytes };
        let mut receiver = journal::Receiver::new(counting, seed);
        let mut sessions = 0;
        let mut take_sessions = |ago_s: u32, body: &[u8]| {
            let origin = SessionOrigin::EarlierProcess { is_exact: true };
            let imported = tracker.import_sessions(clocks().tick, ago_s, origin, body);
            sessions += imported.unwrap_or_default();
        };
        let mut result = Ok(());
        loop {
            match receiver.receive(tracker.store(), &clocks, &mut take_sessions) {
                Ok(Milestone::Walked) => walked(),
                Ok(Milestone::Complete) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if result.is_ok() || !self.has_journal {
            tracker.passkeys().finish_import();
            tracker.store().remember_stopped(false);
        }
        let merged = receiver.merged();
        if merged.full > 0 {
            warn!(peers = merged.full, "limits.memory_mib is used up: peers were left out");
        }
        result?;
        self.reception.is_complete.store(true, Ordering::Release);
        // Some come twice: as the walk found them, and as a change.
        let totals = tracker.totals();
        let known = [totals.v4, totals.v6].map(|family| family.seeders + family.leechers);
        let peers = merged.peers.min(known.iter().sum());
        let bytes = receiver.bytes();
        info!(peers, sessions, bytes, "received all swarms of the old process");
        Ok(())
    }
}

struct Counting<'a> {
    stream: &'a UnixStream,
    bytes: &'a AtomicU64,
}

impl Read for Counting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (&mut &*self.stream).read(buffer)?;
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
