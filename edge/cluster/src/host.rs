//! The tracker's part in the cluster: traits that the application implements for its node. Nothing here knows
//! records, protocols or configuration.

use std::pin::Pin;
use std::sync::Arc;

use replication::{Now, SharedAccounts};
use serde::{Deserialize, Serialize};

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

/// Lifetime of peers, and their announce interval.
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

    /// Returns what the tracker holds and does.
    fn figures(&self) -> Figures;

    /// Appends sessions that changed since the last call to `body`, at most what a block holds. Returns
    /// false if there are no more.
    fn take_sessions(&self, now: Now, body: &mut Vec<u8>) -> bool;

    /// Applies sessions of another node, which were true `ago_s` seconds ago.
    fn import_sessions(&self, now: Now, ago_s: u32, body: &[u8]);

    /// Returns the accounts of a site, if there is one.
    fn accounts(&self) -> Option<&Arc<dyn SharedAccounts>>;
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

/// Why rows could not be read or merged.
pub type RowsError = Box<dyn std::error::Error + Send + Sync>;

/// The replicated rows of this node: a map in which the last writer wins, and counters that only grow. Merging is
/// commutative and repeatable, so order, repetitions and gaps do not matter.
///
/// Rows have kinds, and each kind is cut into ranges by the rows' identities. Digests tell whether two nodes have the
/// same rows. The digest of a range is the wrapping sum of a hash of each row, so the difference of two digests stays
/// the same while both nodes apply the same changes.
pub trait Rows: Send + Sync + 'static {
    /// Returns the digests of all kinds, in the order of their numbers. Cheap: from memory.
    fn digests(&self) -> Vec<u64>;

    /// Returns the digests of the ranges of a kind; none for an unknown kind.
    fn range_digests(&self, kind: u8) -> Vec<u64>;

    /// Waits for changes made here since the last call. Returns a body of at most 256 KiB for [`Self::merge`]. Changes
    /// that exceed it are left out.
    fn next_changes(&self) -> BoxFuture<'_, Vec<u8>>;

    /// Returns rows of these ranges of a kind, from `cursor` on; empty = from the beginning. `ranges` are sorted.
    fn read_ranges(
        &self,
        kind: u8,
        ranges: Vec<u16>,
        cursor: Vec<u8>,
    ) -> BoxFuture<'_, Result<RowsPart, RowsError>>;

    /// Merges a body of another node. Rows that this version does not understand are counted and skipped.
    fn merge(&self, from: u8, body: Vec<u8>) -> BoxFuture<'_, Result<(), RowsError>>;
}

/// A part of the rows that [`Rows::read_ranges`] reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsPart {
    /// The rows, as [`Rows::merge`] understands them: at most 512 KiB.
    pub body: Vec<u8>,
    /// The cursor of the next part; `None` after the last one.
    pub next: Option<Vec<u8>>,
}
