//! What a node of a cluster does, without I/O.

use std::sync::Arc;

/// What a node is.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's number, 1 to 255.
    pub node: u8,
    /// The process's start, unix ms × 2⁸ + 8 random bits: later starts are larger.
    pub boot: u64,
    /// Bytes of blocks that wait for the stream, at most.
    pub queue_bytes: usize,
    /// The lifetime of peers, seconds.
    pub peer_lifetime_s: u32,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// Time has passed. Comes at least ten times a second.
    Tick,
    /// The connection to NATS is there.
    Connected,
    /// The connection to NATS has ended.
    Disconnected,
    /// The store's encoder has cut a block of this node.
    Block(&'a [u8]),
    /// The store has lost changes, because they were not taken in time.
    Missed,
    /// A walk that [`Output::Walk`] asked for has cut a block; the last one is empty.
    Walked(&'a [u8]),
    /// The stream has stored the message with this ticket.
    Stored(u64),
    /// The stream has refused the message with this ticket.
    NotStored(u64),
    /// A block has come by the live path. `from` is the node that the subject names.
    Live { from: u8, block: &'a [u8] },
    /// A block has come by the log, in the order of the stream.
    Logged { sequence: u64, from: u8, block: &'a [u8] },
    /// A heartbeat has come.
    Heartbeat { from: u8, body: &'a [u8] },
}

/// Something to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Publish a block to the log. Its acknowledgement is [`Input::Stored`] with `ticket`.
    PublishLog { ticket: u64, block: Arc<[u8]> },
    /// Publish a block on the live path.
    PublishLive { block: Arc<[u8]> },
    /// Apply the block that came with this input: seconds that count as passed since its cut, and how its
    /// completed downloads count.
    Apply { cut_ago_s: u32, is_counted: bool },
    /// Begin a walk over peers that announced within the last `since_s` seconds.
    Walk { since_s: u32 },
    /// Remove the WebTorrent peers of a node.
    PurgeWeb { node: u8 },
}

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    options: Options,
}

impl Node {
    /// Returns a node that has just started.
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    /// Handles an input at `now_ms`, unix time in milliseconds. Appends what is to be done to `outputs`.
    pub fn handle(&mut self, now_ms: u64, input: Input<'_>, outputs: &mut Vec<Output>) {
        let _ = (&self.options, now_ms, input, outputs);
    }
}
