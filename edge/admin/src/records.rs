//! Durable records: access list entries, keys, bans, tokens, webhooks, settings and counts, in one SQLite file
//! that one thread writes.
//!
//! ```text
//!  API ── change ──▶ queue ─▶ writer: many changes, one commit ─▶ apply to the tracker ─▶ acknowledge
//!  tracker ── counts, every few seconds ──▶ writer
//!  API ── read ──▶ a connection of its own, which the writer does not block (WAL)
//! ```
//!
//! An acknowledged change is on the disk (`synchronous = FULL`) and applied, in that order. Counts are not
//! waited for: those that could not be written are kept for the next flush. The hot path never touches the
//! records.

mod archive;
mod changes;
mod copies;
mod digests;
mod failure;
mod health;
mod json;
mod merge;
mod offline;
mod op;
mod replication;
mod rows;
mod schema;
mod stamp;
mod stamps;
pub(crate) mod tables;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

pub use archive::{ArchiveError, ArchiveParts, ArchiveSummary, restore_archive, write_archive};
pub use copies::{CopyCounts, Replaced};
pub use failure::{OpenError, RecordsError};
pub use health::RecordsHealth;
pub use offline::{OfflineCounts, OfflineKey, OfflineRecords};
pub(crate) use op::Outcome;
pub use op::RecordOp;
pub use replication::{ReplicationState, RowsPart};
pub use rows::KINDS;
pub use tables::counts::PendingCounts;
pub use tables::lists::List;
pub use writer::{ChangeSource, LiveState, Writer};

use writer::{Call, WriterRequest};

/// The name of the file in its folder.
pub const FILE: &str = "tidegate.db";
/// Requests queued for the writer. Further ones are refused.
const QUEUE_MAX: usize = 1024;

/// A handle to the records.
pub struct Records {
    /// `None` if the records are in memory only.
    file: Option<PathBuf>,
    requests: SyncSender<WriterRequest>,
    health: Arc<RecordsHealth>,
    /// True if changes are refused. Locked while one is sent, so that none is queued after a pause.
    is_paused: Mutex<bool>,
    replication: Arc<ReplicationState>,
}

impl Records {
    /// Opens the records in `folder`, which must exist, or creates them; `None` = in memory, until the process
    /// ends. A file of an older schema is migrated.
    ///
    /// Run the returned [`Writer`] on a thread: changes, and reads of records in memory, wait for it.
    ///
    /// # Errors
    ///
    /// Fails if the file is damaged, of a later version, not tidegate's, or locked. The file is not changed
    /// then.
    pub fn open(folder: Option<&Path>) -> Result<(Self, Writer), OpenError> {
        let file = folder.map(|folder| folder.join(FILE));
        let connection = schema::open(file.as_deref())?;
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let health = Arc::<RecordsHealth>::default();
        let replication = Arc::<ReplicationState>::default();
        let writer = Writer::new(connection, queue, Arc::clone(&health), Arc::clone(&replication));
        let fail = |error: rusqlite::Error| OpenError { file: file.clone(), reason: error.into() };
        let writer = writer.map_err(fail)?;
        Ok((Self { file, requests, health, is_paused: Mutex::new(false), replication }, writer))
    }

    /// Returns whether the records survive the process.
    pub fn is_durable(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the directory of the records; `None` if they are in memory only.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.file.as_deref().and_then(Path::parent)
    }

    /// Returns the state of the records.
    pub fn health(&self) -> &RecordsHealth {
        &self.health
    }

    /// Makes a change. When this returns, it is committed and applied.
    pub(crate) async fn change(&self, op: RecordOp) -> Result<Outcome, RecordsError> {
        self.make(vec![op]).await
    }

    /// Makes several changes together, or none. Returns the number of rows that were added or removed.
    pub async fn change_all(&self, ops: Vec<RecordOp>) -> Result<usize, RecordsError> {
        Ok(self.make(ops).await?.changed)
    }

    /// Makes changes in a transaction. Their effects are applied to the memory once it is committed, in the
    /// order of commits.
    async fn make(&self, ops: Vec<RecordOp>) -> Result<Outcome, RecordsError> {
        let (reply, answer) = oneshot::channel();
        self.send_unless_paused(WriterRequest::Change(ops, reply))?;
        // The writer ends only with the process.
        answer.await.unwrap_or(Err(RecordsError::Stopped))
    }

    /// Reads what is committed.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, RecordsError> {
        let Some(file) = self.file.clone() else {
            let (reply, answer) = oneshot::channel();
            // The requester may have gone.
            let call: Call = Box::new(move |writer, _| drop(reply.send(read(writer.connection()))));
            self.send(WriterRequest::Call(call))?;
            return Ok(answer.await.map_err(|_| RecordsError::Stopped)??);
        };
        let read = tokio::task::spawn_blocking(move || Ok(read(&schema::open_read_only(&file)?)?));
        // The task is never cancelled, so an error is a panic.
        read.await.map_err(|_| RecordsError::Stopped)?
    }

    /// Refuses changes from now on, or accepts them again. Call before another process reads the records to take
    /// over: it would not apply changes acknowledged after that. Changes already queued are still made;
    /// [`Self::is_idle`] returns true once they are.
    pub fn pause(&self, is_paused: bool) {
        *self.is_paused.lock() = is_paused;
    }

    /// Returns whether nothing is queued for the writer.
    pub fn is_idle(&self) -> bool {
        self.health.changes_pending.load(Ordering::Acquire) == 0
    }

    /// Makes the writer flush and end. The receiver completes when it has.
    pub fn close(&self) -> oneshot::Receiver<()> {
        let (reply, closed) = oneshot::channel();
        // If it has ended already, the receiver returns an error.
        let _ = self.requests.send(WriterRequest::Close(reply));
        closed
    }

    /// Converts an error at the start to one for the operator.
    pub(crate) fn open_error(&self, error: RecordsError) -> OpenError {
        OpenError { file: self.file.clone(), reason: error.into() }
    }

    fn send_unless_paused(&self, request: WriterRequest) -> Result<(), RecordsError> {
        let paused = self.is_paused.lock();
        if *paused { Err(RecordsError::Upgrading) } else { self.send(request) }
    }

    fn send(&self, request: WriterRequest) -> Result<(), RecordsError> {
        self.health.changes_pending.fetch_add(1, Ordering::Relaxed);
        self.requests.try_send(request).map_err(|_| {
            self.health.changes_pending.fetch_sub(1, Ordering::Relaxed);
            self.health.count(&RecordsError::QueueFull);
            RecordsError::QueueFull
        })
    }
}

#[cfg(test)]
mod tests;
