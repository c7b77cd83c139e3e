//! Status of a running node, and orders to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use super::apply::Applied;
use crate::snapshot::Snapshot;
use crate::status::{ClusterStatus, ClusterStream};

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
    /// The connection, the streams, open doors, and records without what these count themselves. The rest of it is
    /// added when it is shown.
    pub status: ClusterStatus,
    /// Messages that the client dropped, because they came faster than they were handled.
    pub slow: u64,
    /// Blocks applied, and the seconds that took.
    pub applied: (u64, f64),
    /// Bodies of letters that were dropped, because NATS is away or the node is mute.
    pub unsent_letters: u64,
    /// Bodies of letters that were received, and dropped because they did not add up.
    pub damaged_letters: u64,
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
        overview.status.connection.age_s = shared.connected_at.elapsed().as_secs_f64();
        overview.applied = (load(&self.applied.blocks), load(&self.applied.ns) as f64 / 1e9);
        for stream in &mut overview.status.streams {
            stream.age_s = shared.streams_at.elapsed().as_secs_f64();
        }
        overview
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Overview)) {
        change(&mut self.lock().overview);
    }

    pub(super) fn set_snapshot(&self, snapshot: Snapshot) {
        self.is_mute.store(snapshot.is_mute, Ordering::Relaxed);
        self.change(|overview| overview.node = snapshot);
    }

    /// Notes that the connection was made, to `server`, or lost.
    pub(super) fn set_server(&self, server: Option<String>, is_again: bool) {
        let mut shared = self.lock();
        shared.connected_at = Instant::now();
        let connection = &mut shared.overview.status.connection;
        connection.server = server;
        connection.reconnects += u64::from(is_again);
    }

    pub(super) fn set_streams(&self, streams: Vec<ClusterStream>) {
        let mut shared = self.lock();
        shared.streams_at = Instant::now();
        shared.overview.status.streams = streams;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing in there is ever half done.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
