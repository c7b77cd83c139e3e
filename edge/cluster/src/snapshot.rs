//! Snapshot of a cluster, as one of its nodes sees it.

use serde::{Deserialize, Serialize};

pub use crate::heartbeat::Heartbeat;
use crate::status::{ClusterEvent, ClusterNode, ClusterQueue};

/// State of a node, and of the others as it knows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Its progress in learning what the others know.
    pub warmth: Warmth,
    /// Milliseconds from the start until it was warm.
    pub warm_ms: Option<u64>,
    /// True if it publishes nothing, because an older process has its number.
    pub is_mute: bool,
    /// Its own blocks on their way to the log, and its progress in reading the log. Times are whole seconds.
    pub queue: ClusterQueue,
    /// The largest of the nodes' `lag_ms`, milliseconds.
    pub lag_ms: u64,
    /// Blocks and bytes sent since the start.
    pub sent: SentCounts,
    /// Bytes of the messages of other nodes that were applied since the start.
    pub applied_bytes: u64,
    /// Messages dropped since the start, by [`crate::DropReason::ALL`].
    pub dropped: [u64; crate::DropReason::ALL.len()],
    /// By how much this machine's wall clock is ahead of the stream's, milliseconds.
    pub clock_ahead_ms: i64,
    /// The other nodes, by number. Those that left are there for an hour.
    pub nodes: Vec<ClusterNode>,
    /// Nodes that were heard of within the last seconds, and have listeners of other kinds.
    pub refused: Vec<u8>,
    /// The last 20 events, oldest first.
    pub events: Vec<ClusterEvent>,
}

/// Progress of a node in learning what the others know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warmth {
    /// It has not reached NATS yet.
    #[default]
    Connecting,
    /// It reads the log.
    Warming,
    /// It knows everything, or has waited long enough.
    Warm,
}

/// Blocks and bytes that a node has sent since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// Blocks cut.
    pub cut_blocks: u64,
    /// Bytes published to the log, those of repeated messages included.
    pub logged_bytes: u64,
    /// Blocks stored.
    pub stored_blocks: u64,
    /// Blocks published live, because they were not stored in time.
    pub live_blocks: u64,
    /// Blocks that were dropped: they had waited for too long, or the queue was full.
    pub dropped_blocks: u64,
    /// Messages that were published again, because they were not acknowledged in time.
    pub retries: u64,
    /// Walks that told the others what dropped blocks reported.
    pub walks: u64,
}
