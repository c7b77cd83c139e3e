//! What the tracker does for its node of the cluster. The application implements it; nothing here knows
//! records, protocols or configuration.

use std::net::IpAddr;
use std::pin::Pin;

use replication::Now;
use serde::{Deserialize, Serialize};
use types::InfoHash;

pub use swarm::Store;

use crate::node::Figures;

/// A boxed future, so that traits with them can be objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place in a stream of NATS. Places of different streams cannot be compared: a stream that was deleted
/// and made again counts from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// When the stream was made, unix ns; 0 = no stream yet.
    pub stream: u64,
    /// The sequence number of the last message applied; 0 = none.
    pub sequence: u64,
}

/// How long peers live and how often they announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTimes {
    /// Seconds without an announce after which a peer is removed.
    pub lifetime_s: u32,
    /// The longest time between two announces of a client that answers to the tracker, in seconds.
    pub interval_s: u32,
}

/// The tracker's memory.
pub trait Host: Send + Sync + 'static {
    /// Returns the store that blocks are merged into.
    fn store(&self) -> &Store;

    /// Reads both clocks.
    fn now(&self) -> Now;

    /// Returns how long peers live, by the present policy.
    fn peer_times(&self) -> PeerTimes;

    /// Returns what the tracker holds and does. [`Figures::records`] is left out.
    fn figures(&self) -> Figures;

    /// Calls `apply`, which merges the log's message at `position` and counts its downloads by
    /// [`Self::count_download`]. No durable count is collected meanwhile, and the next one is stored together
    /// with `position`.
    fn at(&self, position: Position, apply: &mut dyn FnMut());

    /// Whether the message at `position` is later than the last one whose downloads are counted. Call it
    /// outside of [`Self::at`].
    fn is_uncounted(&self, position: Position) -> bool;

    /// Counts a download that a peer at `from` completed at another node, durably.
    fn count_download(&self, info_hash: &InfoHash, from: IpAddr);

    /// Appends sessions that changed since the last call to `body`, at most what a block holds. Returns
    /// false if there are no more.
    fn take_sessions(&self, now: Now, body: &mut Vec<u8>) -> bool;

    /// Applies sessions of another node, which were true `ago_s` seconds ago.
    fn import_sessions(&self, now: Now, ago_s: u32, body: &[u8]);
}

/// WebTorrent messages between browsers at different nodes. Losing them is allowed: browsers offer again.
pub trait Letters: Send + Sync + 'static {
    /// Waits until there is something to take.
    fn wait(&self) -> BoxFuture<'_, ()>;

    /// Takes what waits: for each node, a body of at most 64 KiB. Returns nothing if nothing waits.
    fn take(&self) -> Vec<(u8, Vec<u8>)>;

    /// Delivers a body from another node. Returns false if it does not add up; then nothing was delivered.
    fn deliver(&self, from: u8, body: &[u8]) -> bool;
}

/// An entry of this node's outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, which [`RecordLog::mark_stored`] gets.
    pub number: u64,
    /// What other nodes apply.
    pub body: Vec<u8>,
}

/// Why records could not be read or written. The log says it; the call is repeated.
pub type RecordError = Box<dyn std::error::Error + Send + Sync>;

/// The durable records of this node: what it changed goes out in order, what others changed comes in.
///
/// Calls are made one at a time, but for those of the snapshot. Futures may be dropped.
pub trait RecordLog: Send + Sync + 'static {
    /// Returns the oldest entry that is not stored in the stream. Waits until there is one.
    fn next_outgoing(&self) -> BoxFuture<'_, Result<Entry, RecordError>>;

    /// Notes that the stream has stored this entry and all before it.
    fn mark_stored(&self, number: u64) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Notes that the stream was made anew: entries stored within the last minutes go out again.
    fn publish_again(&self) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Returns whether these records have been merged with those of another node once, or there was none.
    fn has_joined(&self) -> bool;

    /// Publishes all records of a node that has not joined, because no other node can send its own.
    fn join_alone(&self) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Returns the place of the last message that was applied.
    fn position(&self) -> Position;

    /// Applies the message at `position`, which node `from` wrote, and stores `position` with it. A message
    /// that does not add up is counted and skipped. An error means that nothing was stored.
    fn apply<'a>(
        &'a self,
        position: Position,
        from: u8,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<(), RecordError>>;

    /// Notes that messages between [`Self::position`] and `next` are lost, or belong to another stream: the
    /// records may differ from those of other nodes until a snapshot is merged.
    fn missed(&self, next: Position) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Returns a part of all records, for another node: the first one for an empty `cursor`, and with it the
    /// cursor of the next part, unless it was the last. A part has at most 512 KiB.
    fn snapshot(&self, cursor: Vec<u8>) -> BoxFuture<'_, Result<SnapshotPart, RecordError>>;

    /// Merges a part of another node's records. Parts come in order; `is_last` marks the last one. An error
    /// ends the merging of this snapshot.
    fn merge_snapshot<'a>(
        &'a self,
        part: &'a [u8],
        is_last: bool,
    ) -> BoxFuture<'a, Result<(), RecordError>>;
}

/// A part of all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPart {
    /// The records, in a form that only [`RecordLog`] knows.
    pub body: Vec<u8>,
    /// Where the next part begins, if there is one.
    pub next: Option<Vec<u8>>,
}
