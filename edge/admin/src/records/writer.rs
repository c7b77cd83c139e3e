//! The thread that writes the records.
//!
//! Queued changes are committed together, with one disk sync for all of them. Each has a savepoint of its own,
//! so that a failing one does not undo others. Counts are written in their own transactions without a sync: a
//! crash of the machine may lose the last ones, a crash of the process does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::Shared;
use super::failure::RecordsError;
use super::health::RecordsHealth;
use super::op::{Consequences, Outcome, RecordOp};
use super::replica::Replica;
use super::tables::counts::{self, PendingCounts};

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
    /// Whether anything was committed since the last checkpoint.
    pub(super) is_dirty: bool,
    pub(super) shared: Arc<Shared>,
    /// Present if the records are replicated.
    pub(super) replica: Option<Replica>,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        queue: Receiver<WriterRequest>,
        health: Arc<RecordsHealth>,
        shared: Arc<Shared>,
    ) -> Self {
        let (last_error_logged, is_dirty, replica) = (None, false, None);
        Self { connection, queue, health, last_error_logged, is_dirty, shared, replica }
    }

    /// Returns the connection, to restore the tracker's memory from before the thread starts.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes a change before the thread starts. Its effects are for the caller to apply.
    pub(crate) fn change(&mut self, op: RecordOp) -> Result<Outcome, rusqlite::Error> {
        let is_logged = self.replica.as_ref().is_some_and(|replica| replica.identity.has_joined);
        let mut to = Consequences { is_logged, ..Consequences::default() };
        let transaction = self.connection.unchecked_transaction()?;
        let outcome = op.apply(&transaction, &mut to)?;
        let append = |replica: &Replica| replica.append(&transaction, to.logged);
        let appended = self.replica.as_ref().map(append).transpose()?;
        transaction.commit()?;
        if let (Some(replica), Some(appended)) = (&mut self.replica, appended) {
            replica.note(appended);
        }
        Ok(outcome)
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
                    let outcome = task.run(&self.connection, &mut Consequences::default());
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
        self.is_dirty = true;
        let outcomes = match self.shared.replication.is_full() {
            false => self.transact(&mut tasks),
            true => Err(RecordsError::OutboxFull),
        };
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => vec![Err(error); tasks.len()],
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

    /// Runs the tasks in one transaction. Returns the effects of each, or why it or the transaction failed.
    fn transact(
        &mut self,
        tasks: &mut [Box<dyn Task>],
    ) -> Result<Vec<Result<Vec<RecordOp>, RecordsError>>, RecordsError> {
        let execute = |sql| self.connection.execute_batch(sql).map_err(RecordsError::new);
        execute("BEGIN IMMEDIATE")?;
        let mut outcomes = Vec::with_capacity(tasks.len());
        let is_logged = self.replica.as_ref().is_some_and(|replica| replica.identity.has_joined);
        let mut logged = Vec::new();
        for task in tasks {
            execute("SAVEPOINT task")?;
            let mut to = Consequences { is_logged, ..Consequences::default() };
            let outcome = task.run(&self.connection, &mut to);
            // Some errors, such as a full disk, roll back the whole transaction.
            if self.connection.is_autocommit() {
                return Err(outcome.err().unwrap_or(RecordsError::Stopped));
            }
            let end =
                if outcome.is_ok() { "RELEASE task" } else { "ROLLBACK TO task; RELEASE task" };
            self.or_roll_back(execute(end))?;
            if outcome.is_ok() {
                logged.append(&mut to.logged);
            }
            outcomes.push(outcome.map(|()| to.effects));
        }
        let appended =
            self.replica.as_ref().map(|replica| replica.append(&self.connection, logged));
        let appended = self.or_roll_back(appended.transpose().map_err(RecordsError::new))?;
        self.or_roll_back(execute("COMMIT"))?;
        if let (Some(replica), Some(appended)) = (&mut self.replica, appended) {
            replica.note(appended);
        }
        self.health.commits.fetch_add(1, Ordering::Relaxed);
        self.health.set_failing(None);
        Ok(outcomes)
    }

    fn or_roll_back<T>(&self, done: Result<T, RecordsError>) -> Result<T, RecordsError> {
        if done.is_err() && !self.connection.is_autocommit() {
            // Fails only if there is no transaction any more.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }

    /// Writes counts, or keeps them for the next flush.
    pub(super) fn flush(&mut self, live: &mut dyn LiveState, pending: &mut PendingCounts) {
        live.collect(pending);
        let can_send_totals = self.replica.as_ref().is_some_and(Replica::can_send_totals);
        if pending.is_empty() && !can_send_totals {
            self.health.lag_s.store(0, Ordering::Relaxed);
            return;
        }
        let pending_since = pending.sort_and_dedup();
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
                self.is_dirty = true;
            }
            Err(error) => {
                self.health.counts_pending.store(pending.len() as u64, Ordering::Relaxed);
                self.health.lag_s.store(pending_since.elapsed().as_secs(), Ordering::Relaxed);
                self.report(&error, "counts not written yet");
            }
        }
    }

    /// Removes entries of the outbox that are not needed any more.
    fn clean_up(&mut self) {
        let Some(replica) = &mut self.replica else { return };
        if let Err(error) = replica.clean_up(&self.connection) {
            self.report(&RecordsError::new(error), "old entries not removed yet");
        }
    }

    fn write_counts(&mut self, pending: &PendingCounts) -> Result<Vec<u32>, RecordsError> {
        let execute = |sql| self.connection.execute_batch(sql).map_err(RecordsError::new);
        // Counts are not acknowledged, so they need no sync. The sync of the next change covers them, too.
        execute("PRAGMA synchronous = NORMAL")?;
        let write = || {
            execute("BEGIN IMMEDIATE")?;
            let written = counts::write(&self.connection, pending).map_err(RecordsError::new);
            let first_uses = written.inspect_err(|_| {
                let _ = execute("ROLLBACK");
            })?;
            let append =
                |replica: &Replica| replica.append_counts(&self.connection, pending, &first_uses);
            let appended = self.replica.as_ref().map(append).transpose();
            let appended = self.or_roll_back(appended.map_err(RecordsError::new))?;
            self.or_roll_back(execute("COMMIT"))?;
            Ok((first_uses, appended))
        };
        let written = write();
        execute("PRAGMA synchronous = FULL")?;
        let (first_uses, appended) = written?;
        if let (Some(replica), Some(appended)) = (&mut self.replica, appended) {
            replica.note_counts(!pending.totals.is_empty(), appended);
        }
        Ok(first_uses)
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
