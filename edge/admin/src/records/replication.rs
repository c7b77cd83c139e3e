//! Replication of the records between the nodes of a cluster.
//!
//! ```text
//!  change ─▶ rows and outbox, one transaction ─▶ stream ─▶ every node, this one too, in one order
//! ```
//!
//! The application connects this to the stream.

use std::sync::{Mutex, PoisonError};

use super::{Records, RecordsError, Writer};

/// A place in a stream. Places of different streams cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPosition {
    /// When the stream was made, unix ns; 0 = no stream yet.
    pub stream: u64,
    /// The sequence number of the last message applied; 0 = none.
    pub sequence: u64,
}

/// An entry of the outbox, to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Its number, for [`Records::mark_stored`].
    pub number: u64,
    /// JSON that [`Records::apply_remote`] understands.
    pub body: Vec<u8>,
}

/// A part of all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPart {
    /// JSON that [`Records::merge_snapshot`] understands.
    pub body: Vec<u8>,
    /// Where the next part begins, if there is one.
    pub next: Option<Vec<u8>>,
}

/// The place in the log of peers up to which completed downloads of other nodes are counted. It is stored in
/// the transaction that stores the counts, so that no restart counts one twice or misses one.
#[derive(Debug, Default)]
pub struct LogPosition(Mutex<StreamPosition>);

impl LogPosition {
    /// Calls `merge`, which counts the downloads of the message at `position`. No count is collected meanwhile.
    pub fn at(&self, position: StreamPosition, merge: impl FnOnce()) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        merge();
        *current = position;
    }

    /// Returns whether the downloads of the message at `position` have not been counted yet.
    pub fn is_uncounted(&self, position: StreamPosition) -> bool {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        position.stream != current.stream || position.sequence > current.sequence
    }
}

impl Writer {
    /// Turns on replication as `node`, 1 to 255. Call before the thread starts.
    pub fn replicate(&mut self, node: u8) -> Result<(), rusqlite::Error> {
        let _ = node;
        Ok(())
    }
}

impl Records {
    /// Returns the place in the log of peers up to which downloads are counted.
    pub fn log_position(&self) -> &LogPosition {
        &self.log_position
    }

    /// Returns the oldest entry that is not stored in the stream. Waits until there is one.
    pub async fn next_outgoing(&self) -> Result<OutboxEntry, RecordsError> {
        std::future::pending().await
    }

    /// Notes that the stream has stored this entry and all before it.
    pub async fn mark_stored(&self, number: u64) -> Result<(), RecordsError> {
        let _ = number;
        Ok(())
    }

    /// Makes the entries that were stored within the last minutes go out again, because the stream was made
    /// anew.
    pub async fn publish_again(&self) -> Result<(), RecordsError> {
        Ok(())
    }

    /// Returns the place of the last message that was applied.
    pub fn position(&self) -> StreamPosition {
        StreamPosition::default()
    }

    /// Applies the message at `position`, which node `from` wrote, and stores `position` in the same
    /// transaction. A message that cannot be understood is counted and skipped.
    ///
    /// # Errors
    ///
    /// If the records cannot be written, or a snapshot is being merged. Nothing has changed then: repeat the
    /// call.
    pub async fn apply_remote(
        &self,
        position: StreamPosition,
        from: u8,
        body: &[u8],
    ) -> Result<(), RecordsError> {
        let _ = (position, from, body);
        Ok(())
    }

    /// Notes that messages before `next` are lost or belong to another stream. The records may differ from
    /// those of other nodes until a snapshot is merged.
    pub async fn missed(&self, next: StreamPosition) -> Result<(), RecordsError> {
        let _ = next;
        Ok(())
    }

    /// Returns the part of all records at `cursor`; the first part for an empty one. All parts show one
    /// moment.
    pub async fn snapshot(&self, cursor: &[u8]) -> Result<SnapshotPart, RecordsError> {
        let _ = cursor;
        Ok(SnapshotPart::default())
    }

    /// Merges a part of another node's records. Parts come in order; `is_last` marks the last one, after which
    /// the stream must be read from [`Self::position`] on.
    pub async fn merge_snapshot(&self, part: &[u8], is_last: bool) -> Result<(), RecordsError> {
        let _ = (part, is_last);
        Ok(())
    }
}
