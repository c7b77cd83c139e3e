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

use super::changes::Consequences;
use super::failure::RecordsError;
use super::health::RecordsHealth;
use super::op::{Outcome, RecordOp};
use super::replication::ReplicationState;
use super::stamp::{Clock, Stamp};
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

/// Where the outcome of a change is sent, after the commit.
pub(super) type ChangeReply = oneshot::Sender<Result<Outcome, RecordsError>>;

/// A request to the writer.
pub(super) enum WriterRequest {
    /// Makes all of these changes or, if one fails, none.
    Change(Vec<RecordOp>, ChangeReply),
    Call(Call),
    Close(oneshot::Sender<()>),
}

/// The owner of the only connection that writes.
pub struct Writer {
    pub(super) connection: Connection,
    queue: Receiver<WriterRequest>,
    health: Arc<RecordsHealth>,
    last_error_logged: Option<Instant>,
    /// True if anything was committed since the last checkpoint.
    pub(super) is_dirty: bool,
    pub(super) replication: Arc<ReplicationState>,
    /// Returns the time, unix ms.
    pub(super) now: Box<dyn Fn() -> u64 + Send>,
    pub(super) clock: Clock,
    /// The [`data_version`] of what has been read.
    pub(super) data_version: i64,
}

impl Writer {
    /// Takes over the records of a connection, and reads the state that is kept in memory.
    pub(super) fn new(
        connection: Connection,
        queue: Receiver<WriterRequest>,
        health: Arc<RecordsHealth>,
        replication: Arc<ReplicationState>,
    ) -> Result<Self, rusqlite::Error> {
        replication.digests.load(&connection)?;
        let (node, last) = stamps::read_clock(&connection)?.unwrap_or((0, Stamp::OLDEST));
        Ok(Self {
            data_version: data_version(&connection)?,
            connection,
            queue,
            health,
            last_error_logged: None,
            is_dirty: false,
            replication,
            now: Box::new(|| since_epoch(SystemTime::now()).as_millis() as u64),
            clock: Clock { node, last, now_ms: 0 },
        })
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
        let mut changes = Vec::new();
        let mut next = Some(first);
        let mut closed = None;
        while let Some(request) = next {
            match request {
                WriterRequest::Change(ops, reply) => changes.push((ops, reply)),
                WriterRequest::Call(call) => {
                    // It sees what is committed.
                    self.commit(std::mem::take(&mut changes), live);
                    call(self, live);
                    self.health.changes_pending.fetch_sub(1, Ordering::Release);
                }
                WriterRequest::Close(reply) => closed = Some(reply),
            }
            next = if changes.len() < BATCH_MAX { self.queue.try_recv().ok() } else { None };
        }
        self.commit(changes, live);
        closed
    }

    /// Commits changes together. Then applies each, and replies to its requester.
    fn commit(&mut self, changes: Vec<(Vec<RecordOp>, ChangeReply)>, live: &mut dyn LiveState) {
        if changes.is_empty() {
            return;
        }
        let (changes, replies): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let results = match self.transact(true, |db, to| run_changes(db, to, changes)) {
            Ok((results, _)) => {
                self.health.commits.fetch_add(1, Ordering::Relaxed);
                self.health.set_failing(None);
                results
            }
            Err(error) => replies.iter().map(|_| Err(error.clone())).collect(),
        };
        // Release: a thread that sees the queue empty sees the changes on the disk.
        self.health.changes_pending.fetch_sub(replies.len() as u64, Ordering::Release);
        for (reply, result) in replies.into_iter().zip(results) {
            let answer = result.map(|(outcome, effects)| {
                self.health.changes.fetch_add(1, Ordering::Relaxed);
                effects.into_iter().for_each(|effect| live.apply(effect, ChangeSource::Here));
                outcome
            });
            if let Err(error) = &answer {
                self.report(error, "change not recorded");
            }
            // The requester may have gone; the change stays.
            let _ = reply.send(answer);
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
        let state = &self.replication;
        state.digests.set(&digests);
        state.merged.fetch_add(merged, Ordering::Relaxed);
        state.stale.fetch_add(stale, Ordering::Relaxed);
        state.send(told);
        self.clock = clock;
        Ok((result, effects))
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
        // Counts are not acknowledged, so they need no sync: that of the next change covers them, too. But other nodes
        // receive them, and this node must not lose what others have of it.
        let is_synced = self.clock.node > 0;
        let written = self.transact(is_synced, |db, to| Ok(counts::write(db, to, pending)?));
        match written {
            Ok((first_uses, _)) => {
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

    pub(super) fn clean_up(&mut self) {
        let cleaned = self.transact(false, |db, to| {
            to.remove_expired(db)?;
            Ok(stamps::tombstones(db)?)
        });
        match cleaned {
            Ok((tombstones, _)) => {
                self.replication.tombstones.store(tombstones, Ordering::Relaxed);
            }
            Err(error) => self.report(&error, "expired records not removed yet"),
        }
    }

    /// Takes over what another process has written. During an upgrade there are two: the old one writes its last counts
    /// after the new one has read them.
    pub(super) fn take_over(&mut self, live: &mut dyn LiveState) {
        let taken = data_version(&self.connection).and_then(|version| {
            if version != self.data_version {
                self.replication.digests.load(&self.connection)?;
                live.take_over(&self.connection)?;
            }
            Ok(version)
        });
        match taken {
            Ok(version) => self.data_version = version,
            Err(error) => self.report(&error.into(), "records of the old process not read yet"),
        }
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
        if !RecordsError::HARMLESS.contains(reason) {
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

/// The outcome of a change, and its effects on the memory.
type Applied = (Outcome, Vec<RecordOp>);

/// Makes changes in the present transaction, each with a savepoint.
fn run_changes(
    db: &Connection,
    to: &mut Consequences,
    changes: Vec<Vec<RecordOp>>,
) -> Result<Vec<Result<Applied, RecordsError>>, RecordsError> {
    let mut results = Vec::with_capacity(changes.len());
    for ops in changes {
        db.execute_batch("SAVEPOINT change")?;
        let mut part = Consequences::new(to.clock);
        let outcome = run_ops(db, &mut part, ops).map_err(RecordsError::new);
        // Some errors, such as a full disk, roll back the whole transaction.
        if db.is_autocommit() {
            return Err(outcome.err().unwrap_or(RecordsError::Stopped));
        }
        let end =
            if outcome.is_ok() { "RELEASE change" } else { "ROLLBACK TO change; RELEASE change" };
        db.execute_batch(end)?;
        results.push(outcome.map(|outcome| (outcome, to.absorb(part))));
    }
    Ok(results)
}

/// Applies ops one after the other. Returns the outcome of the last one, with the rows that all have changed.
fn run_ops(
    db: &Connection,
    to: &mut Consequences,
    ops: Vec<RecordOp>,
) -> Result<Outcome, rusqlite::Error> {
    ops.into_iter().try_fold(Outcome::default(), |before, op| {
        let outcome = op.apply(db, to)?;
        Ok(Outcome { changed: before.changed + outcome.changed, ..outcome })
    })
}
