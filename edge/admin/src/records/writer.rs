//! The thread that writes the records.
//!
//! Queued changes are committed together, with one disk sync for all of them. Each has a savepoint of its own,
//! so that a failing one does not undo others. Counts are written in their own transactions without a sync: a
//! crash of the machine may lose the last ones, a crash of the process does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::Shared;
use super::changes::Consequences;
use super::failure::RecordsError;
use super::health::RecordsHealth;
use super::op::{Outcome, RecordOp};
use super::stamp::Clock;
use super::stamps;
use super::tables::counts::{self, PendingCounts};
use crate::clock::since_epoch;

/// Changes in one commit.
const BATCH_MAX: usize = 256;
/// Interval of error lines about a lasting failure.
const ERROR_LOG_PERIOD: Duration = Duration::from_secs(60);

/// The memory of the tracker and of the API: counts come from it, and what is committed is applied to it.
pub trait LiveState: Send {
    /// Moves counts that changed since the last call to `pending`.
    fn collect(&mut self, pending: &mut PendingCounts);
    /// Called after all of them are written, with the keys that were used for the first time ever.
    fn on_written(&mut self, _first_uses: &[u32]) {}
    /// Takes over what another process has written to the records, as `db` has them. Called while no collected count is
    /// pending.
    ///
    /// # Errors
    ///
    /// Fails if the records cannot be read. The call is repeated then.
    fn take_over(&mut self, _db: &Connection) -> Result<(), rusqlite::Error> {
        Ok(())
    }
    /// Applies a committed change. Ids are assigned, and a changed key is a whole one.
    fn apply(&mut self, change: RecordOp, source: ChangeSource<'_>);
}

/// Where a change was made.
#[derive(Clone, Copy)]
pub enum ChangeSource<'a> {
    /// Here. The handler of the API does itself what it returns to the client.
    Here,
    /// At any node of the cluster; with the records after the change.
    Cluster(&'a Connection),
}

/// Runs on the writer's thread.
pub(super) type Call = Box<dyn FnOnce(&mut Writer, &mut dyn LiveState) + Send>;

/// A request to the writer.
pub(super) enum WriterRequest {
    Change(Box<dyn Task>),
    Read(Box<dyn Task>),
    Call(Call),
    Close(oneshot::Sender<()>),
}

/// A type-erased change or read.
pub(super) trait Task: Send {
    /// Runs it in the present transaction.
    fn run(&mut self, connection: &Connection, to: &mut Consequences) -> Result<(), RecordsError>;
    /// Sends the result to the requester, after the commit.
    fn complete(self: Box<Self>, outcome: Result<(), RecordsError>);
}

/// A change or read with the channel for its result.
pub(super) struct TypedTask<T, C> {
    change: Option<C>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, RecordsError>>,
}

impl<T, C> TypedTask<T, C> {
    pub(super) fn new(change: C, reply: oneshot::Sender<Result<T, RecordsError>>) -> Self {
        Self { change: Some(change), result: None, reply }
    }
}

impl<T, C> Task for TypedTask<T, C>
where
    T: Send,
    C: FnOnce(&Connection, &mut Consequences) -> Result<T, rusqlite::Error> + Send,
{
    fn run(&mut self, connection: &Connection, to: &mut Consequences) -> Result<(), RecordsError> {
        let change = self.change.take();
        debug_assert!(change.is_some(), "a task runs once");
        let change = change.ok_or(RecordsError::Stopped)?;
        self.result = Some(change(connection, to).map_err(RecordsError::new)?);
        Ok(())
    }

    fn complete(self: Box<Self>, outcome: Result<(), RecordsError>) {
        let result = self.result.ok_or(RecordsError::Stopped);
        let answer = outcome.and(result);
        // The requester may have gone; the change stays.
        let _ = self.reply.send(answer);
    }
}

/// The owner of the only connection that writes.
pub struct Writer {
    pub(super) connection: Connection,
    queue: Receiver<WriterRequest>,
    health: Arc<RecordsHealth>,
    last_error_logged: Option<Instant>,
    /// True if anything was committed since the last checkpoint.
    pub(super) is_dirty: bool,
    pub(super) shared: Arc<Shared>,
    /// Returns the time, unix ms.
    pub(super) now: Box<dyn Fn() -> u64 + Send>,
    pub(super) clock: Clock,
    /// The [`data_version`] of what has been read.
    pub(super) data_version: i64,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        queue: Receiver<WriterRequest>,
        health: Arc<RecordsHealth>,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Self {
        Self {
            connection,
            queue,
            health,
            last_error_logged: None,
            is_dirty: false,
            shared,
            now: Box::new(|| since_epoch(SystemTime::now()).as_millis() as u64),
            clock,
            data_version: 0,
        }
    }

    /// Returns the connection, to restore the tracker's memory from before the thread starts.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes a change before the thread starts. Its effects are for the caller to apply.
    pub(crate) fn change(&mut self, op: RecordOp) -> Result<Outcome, RecordsError> {
        let changed = self.transact(true, |db, to| Ok(op.apply(db, to)?));
        changed.map(|(outcome, _)| outcome)
    }

    /// Returns the settings that the API has set, as JSON by setting name.
    pub fn settings(&self) -> Result<Vec<(String, serde_json::Value)>, rusqlite::Error> {
        super::tables::settings::all(&self.connection)
    }

    /// Runs until closed: commits changes as they come, and flushes counts every `period`.
    pub fn run(mut self, live: &mut dyn LiveState, period: Duration) {
        let mut pending = PendingCounts::default();
        let mut next_flush = Instant::now() + period;
        let mut closed = None;
        while closed.is_none() {
            let rest = next_flush.saturating_duration_since(Instant::now());
            match self.queue.recv_timeout(rest) {
                Ok(first) => closed = self.serve(first, live),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_flush {
                self.flush(live, &mut pending);
                self.clean_up();
                if pending.is_empty() {
                    self.take_over(live);
                }
                self.checkpoint();
                next_flush = Instant::now() + period;
            }
        }
        self.flush(live, &mut pending);
        self.checkpoint();
        if let Some(closed) = closed {
            let _ = closed.send(());
        }
    }

    /// Serves what is queued, in place of the thread.
    #[cfg(test)]
    pub(super) fn serve_queued(&mut self, live: &mut dyn LiveState) {
        while let Ok(request) = self.queue.try_recv() {
            self.serve(request, live);
        }
    }

    /// Serves a request and those queued behind it. Returns the reply channel of a close request.
    fn serve(
        &mut self,
        first: WriterRequest,
        live: &mut dyn LiveState,
    ) -> Option<oneshot::Sender<()>> {
        let mut tasks = Vec::new();
        let mut next = Some(first);
        let mut closed = None;
        while let Some(request) = next {
            match request {
                WriterRequest::Change(task) => tasks.push(task),
                WriterRequest::Read(mut task) => {
                    // Reads come here for records in memory. They see committed changes only, as in a file.
                    self.commit(std::mem::take(&mut tasks), live);
                    self.health.changes_pending.fetch_sub(1, Ordering::Relaxed);
                    let outcome = task.run(&self.connection, &mut Consequences::new(self.clock));
                    task.complete(outcome);
                }
                WriterRequest::Call(call) => {
                    self.commit(std::mem::take(&mut tasks), live);
                    call(self, live);
                    self.health.changes_pending.fetch_sub(1, Ordering::Release);
                }
                WriterRequest::Close(reply) => closed = Some(reply),
            }
            next = if tasks.len() < BATCH_MAX { self.queue.try_recv().ok() } else { None };
        }
        self.commit(tasks, live);
        closed
    }

    /// Commits changes together. Then applies and completes each.
    fn commit(&mut self, mut tasks: Vec<Box<dyn Task>>, live: &mut dyn LiveState) {
        if tasks.is_empty() {
            return;
        }
        let count = tasks.len() as u64;
        let outcomes = match self.transact(true, |db, to| run_tasks(db, to, &mut tasks)) {
            Ok((outcomes, _)) => {
                self.health.commits.fetch_add(1, Ordering::Relaxed);
                self.health.set_failing(None);
                outcomes
            }
            Err(error) => tasks.iter().map(|_| Err(error.clone())).collect(),
        };
        // Release: a thread that sees the queue empty sees the changes on the disk.
        self.health.changes_pending.fetch_sub(count, Ordering::Release);
        for (task, outcome) in tasks.into_iter().zip(outcomes) {
            match outcome {
                Ok(effects) => {
                    self.health.changes.fetch_add(1, Ordering::Relaxed);
                    effects.into_iter().for_each(|effect| live.apply(effect, ChangeSource::Here));
                    task.complete(Ok(()));
                }
                Err(error) => {
                    self.report(&error, "change not recorded");
                    task.complete(Err(error));
                }
            }
        }
    }

    /// Runs `change` in a transaction, and publishes what it leads to besides its effects, which are returned. Without
    /// `is_synced`, a crash of the machine may undo it.
    pub(super) fn transact<T>(
        &mut self,
        is_synced: bool,
        change: impl FnOnce(&Connection, &mut Consequences) -> Result<T, RecordsError>,
    ) -> Result<(T, Vec<RecordOp>), RecordsError> {
        self.is_dirty = true;
        let db = &self.connection;
        let mut to = Consequences::new(Clock { now_ms: (self.now)(), ..self.clock });
        let run = || {
            if !is_synced {
                db.execute_batch("PRAGMA synchronous = NORMAL")?;
            }
            db.execute_batch("BEGIN IMMEDIATE")?;
            let result = change(db, &mut to)?;
            let digests = to.write(db)?;
            db.execute_batch("COMMIT")?;
            Ok((result, digests))
        };
        let done: Result<_, RecordsError> = run();
        if done.is_err() && !db.is_autocommit() {
            // Fails only if there is no transaction any more.
            let _ = db.execute_batch("ROLLBACK");
        }
        if !is_synced {
            db.execute_batch("PRAGMA synchronous = FULL")?;
        }
        let (result, digests) = done?;
        let Consequences { effects, told, clock, merged, stale, .. } = to;
        let state = &self.shared.replication;
        state.digests.set(&digests);
        state.merged.fetch_add(merged, Ordering::Relaxed);
        state.stale.fetch_add(stale, Ordering::Relaxed);
        state.send(told);
        self.clock = clock;
        Ok((result, effects))
    }

    /// Applies changes of other nodes to the memory.
    pub(super) fn apply_of_cluster(&self, live: &mut dyn LiveState, effects: Vec<RecordOp>) {
        let source = ChangeSource::Cluster(&self.connection);
        effects.into_iter().for_each(|effect| live.apply(effect, source));
    }

    /// Writes counts, or keeps them for the next flush.
    pub(super) fn flush(&mut self, live: &mut dyn LiveState, pending: &mut PendingCounts) {
        live.collect(pending);
        if pending.is_empty() {
            self.health.lag_s.store(0, Ordering::Relaxed);
            return;
        }
        let pending_since = pending.since();
        let start = Instant::now();
        let written = self.write_counts(pending);
        match written {
            Ok(first_uses) => {
                self.health
                    .last_flush_us
                    .store(start.elapsed().as_micros() as u64, Ordering::Relaxed);
                self.health.counts_written.fetch_add(pending.len() as u64, Ordering::Relaxed);
                self.health.counts_pending.store(0, Ordering::Relaxed);
                self.health.lag_s.store(0, Ordering::Relaxed);
                self.health.set_failing(None);
                live.on_written(&first_uses);
                *pending = PendingCounts::default();
            }
            Err(error) => {
                self.health.counts_pending.store(pending.len() as u64, Ordering::Relaxed);
                self.health.lag_s.store(pending_since.elapsed().as_secs(), Ordering::Relaxed);
                self.report(&error, "counts not written yet");
            }
        }
    }

    /// Removes expired bans and old tombstones.
    pub(super) fn clean_up(&mut self) {
        let cleaned = self.transact(false, |db, to| {
            to.remove_expired(db)?;
            Ok(stamps::tombstones(db)?)
        });
        match cleaned {
            Ok((tombstones, _)) => {
                self.shared.replication.tombstones.store(tombstones, Ordering::Relaxed);
            }
            Err(error) => self.report(&error, "expired records not removed yet"),
        }
    }

    /// Takes over what another process has written. During an upgrade there are two: the old one writes its last counts
    /// after the new one has read them.
    pub(super) fn take_over(&mut self, live: &mut dyn LiveState) {
        let taken = data_version(&self.connection).and_then(|version| {
            if version != self.data_version {
                self.shared.replication.digests.load(&self.connection)?;
                live.take_over(&self.connection)?;
            }
            Ok(version)
        });
        match taken {
            Ok(version) => self.data_version = version,
            Err(error) => self.report(&error.into(), "records of the old process not read yet"),
        }
    }

    fn write_counts(&mut self, pending: &PendingCounts) -> Result<Vec<u32>, RecordsError> {
        // Counts are not acknowledged, so they need no sync: that of the next change covers them, too. But other nodes
        // receive them, and this node must not lose what others have of it.
        let is_synced = self.clock.node > 0;
        let written = self.transact(is_synced, |db, to| Ok(counts::write(db, to, pending)?));
        written.map(|(first_uses, _)| first_uses)
    }

    /// Moves committed pages from the WAL to the database file. A failure costs only space.
    fn checkpoint(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Counts a failure and logs it: as an error at most once per [`ERROR_LOG_PERIOD`], else as info.
    pub(super) fn report(&mut self, reason: &RecordsError, message: &str) {
        self.health.count(reason);
        // A conflict is a mistake of the client, which gets it in the response.
        if *reason == RecordsError::Conflict {
            return;
        }
        if reason.is_serious() {
            self.health.set_failing(Some(reason));
        }
        if self.last_error_logged.is_none_or(|last| last.elapsed() >= ERROR_LOG_PERIOD) {
            self.last_error_logged = Some(Instant::now());
            error!(%reason, "{message}");
        } else {
            info!(%reason, "{message}");
        }
    }
}

/// Returns a number that changes when another process writes.
pub(super) fn data_version(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("PRAGMA data_version", [], |row| row.get(0))
}

/// Runs tasks in the present transaction, each with a savepoint. Returns the effects of each, or why it failed.
fn run_tasks(
    db: &Connection,
    to: &mut Consequences,
    tasks: &mut [Box<dyn Task>],
) -> Result<Vec<Result<Vec<RecordOp>, RecordsError>>, RecordsError> {
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        db.execute_batch("SAVEPOINT task")?;
        let mut part = Consequences::new(to.clock);
        let outcome = task.run(db, &mut part);
        // Some errors, such as a full disk, roll back the whole transaction.
        if db.is_autocommit() {
            return Err(outcome.err().unwrap_or(RecordsError::Stopped));
        }
        let end = if outcome.is_ok() { "RELEASE task" } else { "ROLLBACK TO task; RELEASE task" };
        db.execute_batch(end)?;
        outcomes.push(outcome.map(|()| to.absorb(part)));
    }
    Ok(outcomes)
}
