//! Durable records: access entries, keys, bans, tokens, webhooks, settings, and counts. One SQLite
//! file, which one thread writes.
//!
//! ```text
//!  API ── change ──▶ queue ─▶ writer: many changes, one commit ─▶ into the tracker ─▶ acknowledged
//!  tracker ── counts, every few seconds ──▶ writer
//!  API ── look ──▶ a connection of its own, which no writer blocks (WAL)
//! ```
//!
//! What is acknowledged is on the disk (`synchronous = FULL`) and in force, in that order. Counts are
//! not waited for: what could not be written is kept for the next time. The hot path knows nothing of
//! any of this.

mod failure;
mod schema;
pub(crate) mod tables;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::oneshot;

pub use failure::{OpenError, RecordsError};
pub use tables::counts::PendingCounts;
pub use writer::{CountSource, Writer};

use writer::{TypedTask, WriterRequest};

/// The file's name in its folder.
pub const FILE: &str = "tidegate.db";
/// Changes that wait for the writer; more are refused.
const QUEUE_MAX: usize = 1024;
/// Connections that are kept for looks.
const READERS_MAX: usize = 4;

/// The way to the records; shared.
pub struct Records {
    /// `None` if they are kept in memory only.
    file: Option<PathBuf>,
    requests: SyncSender<WriterRequest>,
    readers: Mutex<Vec<Connection>>,
    health: Arc<RecordsHealth>,
    /// Whether changes are refused. Held while one is sent: none gets in behind a pause.
    is_paused: Mutex<bool>,
}

/// What the operator can see of the records' state.
#[derive(Debug, Default)]
pub struct RecordsHealth {
    /// Transactions committed.
    pub commits: AtomicU64,
    /// Changes acknowledged.
    pub changes: AtomicU64,
    /// Changes and flushes that failed, by [`RecordsError::index`].
    pub failures: [AtomicU64; RecordsError::LABELS.len()],
    /// Counts written.
    pub counts_written: AtomicU64,
    /// Counts that wait for the next try.
    pub counts_pending: AtomicU64,
    /// How long the last flush took, microseconds.
    pub last_flush_us: AtomicU64,
    /// Seconds since the counts that wait could first have been written; 0 if none do.
    pub lag_s: AtomicU64,
    /// Changes that wait for the writer.
    pub changes_pending: AtomicU64,
}

impl Records {
    /// Opens the records in `folder`, which must be there, or makes them; without one they are in memory
    /// and end with the process. Older ones are brought to the present form. What is damaged, newer than
    /// this program, or somebody else's, is refused and left as it is.
    ///
    /// The [`Writer`] has to be run on a thread: nothing is written, and in memory nothing read, before.
    pub fn open(folder: Option<&Path>) -> Result<(Self, Writer), OpenError> {
        let file = folder.map(|folder| folder.join(FILE));
        let connection = schema::open(file.as_deref())?;
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let health = Arc::<RecordsHealth>::default();
        let writer = Writer::new(connection, queue, Arc::clone(&health));
        let (readers, is_paused) = (Mutex::default(), Mutex::default());
        Ok((Self { file, requests, readers, health, is_paused }, writer))
    }

    /// Whether what is acknowledged outlives the process.
    pub fn is_durable(&self) -> bool {
        self.file.is_some()
    }

    /// What can be seen of their state.
    pub fn health(&self) -> &RecordsHealth {
        &self.health
    }

    /// Makes a change and, once it is committed, puts it in force by `apply`, on the writer's thread and
    /// in the order of commits. Gives what `change` gave. It may be called only once: there is no second try.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
        apply: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, RecordsError> {
        let (reply, answer) = oneshot::channel();
        let task = WriterRequest::Change(Box::new(TypedTask::new(change, apply, reply)));
        self.send_unless_paused(task)?;
        // The writer is gone only with the process.
        answer.await.unwrap_or(Err(RecordsError::Stopped))
    }

    /// Looks at what is committed.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, RecordsError> {
        let Some(file) = self.file.clone() else {
            let (reply, answer) = oneshot::channel();
            self.send(WriterRequest::Read(Box::new(TypedTask::new(read, |_: &T| (), reply))))?;
            return answer.await.unwrap_or(Err(RecordsError::Stopped));
        };
        let reader = self.readers().pop();
        let looked = tokio::task::spawn_blocking(move || {
            let reader = match reader {
                Some(reader) => reader,
                None => schema::open_read_only(&file)?,
            };
            let seen = read(&reader)?;
            Ok((reader, seen))
        });
        // It ends early only by a panic.
        let (reader, seen) =
            looked.await.map_err(|_| RecordsError::Stopped)?.map_err(RecordsError::new)?;
        let mut readers = self.readers();
        if readers.len() < READERS_MAX {
            readers.push(reader);
        }
        Ok(seen)
    }

    /// Refuses changes from now on, or takes them again: what is acknowledged while another process reads
    /// the records to take over would not be in force there. Those that wait already are still made:
    /// [`Self::is_idle`] says when.
    pub fn pause(&self, is_paused: bool) {
        *self.paused() = is_paused;
    }

    /// Whether nothing waits for the writer.
    pub fn is_idle(&self) -> bool {
        self.health.changes_pending.load(Ordering::Acquire) == 0
    }

    /// Has the writer write what is left, and end. Whoever waits on the receiver hears when it has.
    pub fn close(&self) -> oneshot::Receiver<()> {
        let (reply, closed) = oneshot::channel();
        // Where it is gone already, the receiver says so.
        let _ = self.requests.send(WriterRequest::Close(reply));
        closed
    }

    /// What an error of SQLite's, at the start, means to the operator.
    pub(crate) fn open_error(&self, error: &rusqlite::Error) -> OpenError {
        OpenError { file: self.file.clone(), reason: failure::Reason::new(error) }
    }

    fn send_unless_paused(&self, request: WriterRequest) -> Result<(), RecordsError> {
        let paused = self.paused();
        if *paused { Err(RecordsError::Upgrading) } else { self.send(request) }
    }

    fn paused(&self) -> std::sync::MutexGuard<'_, bool> {
        self.is_paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, request: WriterRequest) -> Result<(), RecordsError> {
        self.health.changes_pending.fetch_add(1, Ordering::Relaxed);
        self.requests.try_send(request).map_err(|_| {
            self.health.changes_pending.fetch_sub(1, Ordering::Relaxed);
            self.health.count(&RecordsError::QueueFull);
            RecordsError::QueueFull
        })
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordsHealth {
    /// Failures that somebody should look at: what is there already, or comes too fast, is no trouble.
    pub(crate) fn serious_failures(&self) -> u64 {
        let own = [RecordsError::Conflict, RecordsError::QueueFull, RecordsError::Upgrading]
            .map(|failure| failure.index());
        let all = self.failures.iter().enumerate().filter(|(at, _)| !own.contains(at));
        all.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn count(&self, failure: &RecordsError) {
        if let Some(count) = self.failures.get(failure.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
