//! Status of a running node, and orders to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use super::apply::Applied;
use crate::snapshot::Snapshot;
use crate::status::{ClusterRecords, ClusterStream};

/// Numbers of nodes are bytes.
const NODES: usize = 256;

/// An operator's order: to drop everything from a node from now on, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The node.
    pub node: u8,
    /// True to drop its messages, false to accept them again.
    pub is_ignored: bool,
}

/// Status of a running node, which also takes orders to it. The node's threads and the management API share it.
#[derive(Debug)]
pub struct Status {
    shared: Mutex<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    is_warm: AtomicBool,
    is_mute: AtomicBool,
    ignored: [AtomicBool; NODES],
    pub(super) applied: Applied,
}

#[derive(Debug)]
struct Shared {
    overview: Overview,
    connected_at: Instant,
    streams_at: Instant,
}

/// All there is to see of a node.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The node's own view of itself and of the others.
    pub node: Snapshot,
    /// The NATS server that it is connected to.
    pub server: Option<String>,
    /// Seconds since the connection was made or lost.
    pub connection_age_s: f64,
    /// Connections made again.
    pub reconnects: u64,
    /// Messages that the client dropped, because they came faster than they were handled.
    pub slow: u64,
    /// The streams, as they were last looked up.
    pub streams: Vec<ClusterStream>,
    /// Why they could not be looked up or made the last time, or what is not as it should be.
    pub failure: Option<String>,
    /// Rights that the servers give this node and no node may have: a sentence for each kind, with the remedy.
    pub open_doors: Vec<String>,
    /// Blocks applied, and the seconds that took.
    pub applied: (u64, f64),
    /// Bodies of letters that were dropped, because NATS is away or the node is mute.
    pub unsent_letters: u64,
    /// Bodies of letters that were received, and dropped because they did not add up.
    pub damaged_letters: u64,
    /// Replicated rows, without what the records count themselves.
    pub rows: ClusterRecords,
}

impl Status {
    /// Returns the status of a node that has not started, and where its orders come out.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let now = Instant::now();
        let overview = Overview::default();
        let status = Self {
            shared: Mutex::new(Shared { overview, connected_at: now, streams_at: now }),
            orders,
            is_warm: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
            ignored: [const { AtomicBool::new(false) }; NODES],
            applied: Applied::default(),
        };
        (status, receiver)
    }

    /// Sends an order to the node, which carries it out within a moment.
    pub fn order(&self, order: Order) {
        self.ignored[usize::from(order.node)].store(order.is_ignored, Ordering::Relaxed);
        // Fails only while the process is going down.
        let _ = self.orders.send(order);
    }

    /// Returns true if the node knows what the others knew when it started, or has waited long enough.
    pub fn is_warm(&self) -> bool {
        self.is_warm.load(Ordering::Relaxed)
    }

    /// Returns true if the node publishes nothing, because an older process has its number.
    pub fn is_mute(&self) -> bool {
        self.is_mute.load(Ordering::Relaxed)
    }

    /// Returns true if an operator has ordered to ignore `node`.
    pub fn is_ignored(&self, node: u8) -> bool {
        self.ignored[usize::from(node)].load(Ordering::Relaxed)
    }

    /// Returns all there is to see.
    pub fn overview(&self) -> Overview {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = self.lock();
        let mut overview = shared.overview.clone();
        overview.connection_age_s = shared.connected_at.elapsed().as_secs_f64();
        overview.applied = (load(&self.applied.blocks), load(&self.applied.ns) as f64 / 1e9);
        for stream in &mut overview.streams {
            stream.age_s = shared.streams_at.elapsed().as_secs_f64();
        }
        overview
    }

    /// Changes what there is to see.
    pub(super) fn change(&self, change: impl FnOnce(&mut Overview)) {
        change(&mut self.lock().overview);
    }

    pub(super) fn set_snapshot(&self, snapshot: Snapshot, is_warm: bool) {
        self.is_mute.store(snapshot.is_mute, Ordering::Relaxed);
        self.change(|overview| overview.node = snapshot);
        self.is_warm.store(is_warm, Ordering::Relaxed);
    }

    /// Notes that the connection was made, to `server`, or lost.
    pub(super) fn set_server(&self, server: Option<String>, is_again: bool) {
        let mut shared = self.lock();
        shared.connected_at = Instant::now();
        shared.overview.server = server;
        shared.overview.reconnects += u64::from(is_again);
    }

    pub(super) fn set_streams(&self, streams: Vec<ClusterStream>) {
        let mut shared = self.lock();
        shared.streams_at = Instant::now();
        shared.overview.streams = streams;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing in there is ever half done.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
