//! The thread that writes.
//!
//! Changes that wait are committed together: one sync of the disk for all of them. Each is in a
//! savepoint of its own, so that one that fails takes no other with it. Counts go apart, and without
//! a sync: a crash of the machine may cost the last of them, one of the process does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;
use tracing::{error, info};

use super::tables::counts::{self, PendingCounts};
use super::{RecordsError, RecordsHealth};

/// Changes in one commit.
const BATCH_MAX: usize = 256;
/// How often a failure that lasts is spoken of.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

/// Where counts come from.
pub trait CountSource: Send {
    /// Adds what has changed since the last call to `pending`. They are gone from where they were.
    fn collect(&mut self, pending: &mut PendingCounts);
    /// Hears that all of it is on the disk now, and which keys have been used for the first time ever.
    fn on_written(&mut self, _first_uses: &[u32]) {}
}

/// What the writer is asked for.
pub(super) enum WriterRequest {
    Change(Box<dyn Task>),
    Read(Box<dyn Task>),
    Close(oneshot::Sender<()>),
}

/// A change, or a look, whose types are forgotten.
pub(super) trait Task: Send {
    fn run(&mut self, connection: &Connection) -> Result<(), RecordsError>;
    /// Puts it in force and says so to whoever waits; or says why not.
    fn complete(self: Box<Self>, outcome: Result<(), RecordsError>);
}

/// A change with what comes after it.
pub(super) struct TypedTask<T, C, A> {
    change: Option<C>,
    apply: A,
    made: Option<T>,
    reply: oneshot::Sender<Result<T, RecordsError>>,
}

impl<T, C, A> TypedTask<T, C, A> {
    pub(super) fn new(
        change: C,
        apply: A,
        reply: oneshot::Sender<Result<T, RecordsError>>,
    ) -> Self {
        Self { change: Some(change), apply, made: None, reply }
    }
}

impl<T, C, A> Task for TypedTask<T, C, A>
where
    T: Send,
    C: FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send,
    A: FnOnce(&T) + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), RecordsError> {
        let change = self.change.take().ok_or(RecordsError::Stopped)?;
        self.made = Some(change(connection).map_err(RecordsError::new)?);
        Ok(())
    }

    fn complete(self: Box<Self>, outcome: Result<(), RecordsError>) {
        let answer = match (outcome, self.made) {
            (Ok(()), Some(made)) => {
                (self.apply)(&made);
                Ok(made)
            }
            (Ok(()), None) => Err(RecordsError::Stopped),
            (Err(failure), _) => Err(failure),
        };
        // Whoever asked may have gone. What is done is done.
        let _ = self.reply.send(answer);
    }
}

/// The only one that writes.
pub struct Writer {
    connection: Connection,
    queue: Receiver<WriterRequest>,
    health: Arc<RecordsHealth>,
    complained: Option<Instant>,
    /// Whether something was committed since the last checkpoint.
    is_dirty: bool,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        queue: Receiver<WriterRequest>,
        health: Arc<RecordsHealth>,
    ) -> Self {
        Self { connection, queue, health, complained: None, is_dirty: false }
    }

    /// The connection, before the thread is started: to fill images from.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the API has set of the configuration, as JSON by the names of keys.
    pub fn settings(&self) -> Result<Vec<(String, serde_json::Value)>, rusqlite::Error> {
        let parse =
            |(name, text): (String, String)| Some((name, serde_json::from_str(&text).ok()?));
        Ok(super::tables::settings::all(&self.connection)?.into_iter().filter_map(parse).collect())
    }

    /// Writes until told to end: changes as they come, counts every `period`.
    pub fn run(mut self, counts: &mut dyn CountSource, period: Duration) {
        let mut pending = PendingCounts::default();
        let mut due = Instant::now() + period;
        let mut closed = None;
        while closed.is_none() {
            let rest = due.saturating_duration_since(Instant::now());
            match self.queue.recv_timeout(rest) {
                Ok(first) => closed = self.serve(first),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= due {
                self.flush(counts, &mut pending);
                self.checkpoint();
                due = Instant::now() + period;
            }
        }
        self.flush(counts, &mut pending);
        self.checkpoint();
        if let Some(closed) = closed {
            let _ = closed.send(());
        }
    }

    /// Serves a job and those that wait behind it. Gives whom to tell of the end, if it is one.
    fn serve(&mut self, first: WriterRequest) -> Option<oneshot::Sender<()>> {
        let mut tasks = Vec::new();
        let mut next = Some(first);
        let mut closed = None;
        while let Some(request) = next {
            match request {
                WriterRequest::Change(task) => tasks.push(task),
                WriterRequest::Read(mut task) => {
                    // In memory nobody else looks: it sees what is committed, as elsewhere.
                    self.commit(std::mem::take(&mut tasks));
                    self.health.changes_pending.fetch_sub(1, Ordering::Relaxed);
                    let looked = task.run(&self.connection);
                    task.complete(looked);
                }
                WriterRequest::Close(reply) => closed = Some(reply),
            }
            next = if tasks.len() < BATCH_MAX { self.queue.try_recv().ok() } else { None };
        }
        self.commit(tasks);
        closed
    }

    /// Commits changes together, and settles each.
    fn commit(&mut self, mut tasks: Vec<Box<dyn Task>>) {
        if tasks.is_empty() {
            return;
        }
        let count = tasks.len() as u64;
        self.is_dirty = true;
        let made = self.transact(&mut tasks);
        let outcomes = match made {
            Ok(outcomes) => outcomes,
            Err(failure) => vec![Err(failure); tasks.len()],
        };
        // Whoever sees that nothing waits sees it on the disk.
        self.health.changes_pending.fetch_sub(count, Ordering::Release);
        for (task, outcome) in tasks.into_iter().zip(outcomes) {
            match &outcome {
                Ok(()) => drop(self.health.changes.fetch_add(1, Ordering::Relaxed)),
                Err(failure) => self.report(failure, "a change was not recorded"),
            }
            task.complete(outcome);
        }
    }

    /// What became of each; or why nothing of all came to be.
    fn transact(
        &self,
        tasks: &mut [Box<dyn Task>],
    ) -> Result<Vec<Result<(), RecordsError>>, RecordsError> {
        let say = |sql| self.connection.execute_batch(sql).map_err(RecordsError::new);
        say("BEGIN IMMEDIATE")?;
        let mut outcomes = Vec::with_capacity(tasks.len());
        for task in tasks {
            say("SAVEPOINT task")?;
            let outcome = task.run(&self.connection);
            // Some failures, as that of a full disk, end the whole transaction.
            if self.connection.is_autocommit() {
                return Err(outcome.err().unwrap_or(RecordsError::Stopped));
            }
            let end =
                if outcome.is_ok() { "RELEASE task" } else { "ROLLBACK TO task; RELEASE task" };
            self.or_roll_back(say(end))?;
            outcomes.push(outcome);
        }
        self.or_roll_back(say("COMMIT"))?;
        self.health.commits.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }

    fn or_roll_back(&self, done: Result<(), RecordsError>) -> Result<(), RecordsError> {
        if done.is_err() && !self.connection.is_autocommit() {
            // It fails only where there is nothing left to take back.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }

    /// Writes counts, or keeps them for the next time.
    fn flush(&mut self, counts: &mut dyn CountSource, pending: &mut PendingCounts) {
        counts.collect(pending);
        if pending.is_empty() {
            self.health.lag_s.store(0, Ordering::Relaxed);
            return;
        }
        let waiting_since = pending.tidy();
        let begun = Instant::now();
        let written = self.write_counts(pending);
        match written {
            Ok(first_uses) => {
                self.health
                    .last_flush_us
                    .store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                self.health.counts_written.fetch_add(pending.len() as u64, Ordering::Relaxed);
                self.health.counts_pending.store(0, Ordering::Relaxed);
                self.health.lag_s.store(0, Ordering::Relaxed);
                counts.on_written(&first_uses);
                *pending = PendingCounts::default();
                self.is_dirty = true;
            }
            Err(failure) => {
                self.health.counts_pending.store(pending.len() as u64, Ordering::Relaxed);
                self.health.lag_s.store(waiting_since.elapsed().as_secs(), Ordering::Relaxed);
                self.report(&failure, "counts are kept for the next try");
            }
        }
    }

    fn write_counts(&self, pending: &PendingCounts) -> Result<Vec<u32>, RecordsError> {
        let say = |sql| self.connection.execute_batch(sql).map_err(RecordsError::new);
        // Nobody was told of these. The next change that is acknowledged syncs them, too.
        say("PRAGMA synchronous = NORMAL")?;
        let write = || {
            say("BEGIN IMMEDIATE")?;
            let written = counts::write(&self.connection, pending).map_err(RecordsError::new);
            let first_uses = written.inspect_err(|_| {
                let _ = say("ROLLBACK");
            })?;
            self.or_roll_back(say("COMMIT"))?;
            Ok(first_uses)
        };
        let written = write();
        say("PRAGMA synchronous = FULL")?;
        written
    }

    /// Moves what is committed to its place in the file. A failure costs nothing but space.
    fn checkpoint(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Counts a failure, and speaks of it now and then.
    fn report(&mut self, failure: &RecordsError, consequence: &str) {
        self.health.count(failure);
        // Who asks for what is there already is told so; it is nobody else's business.
        if *failure == RecordsError::Conflict {
            return;
        }
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAINT_PERIOD) {
            self.complained = Some(Instant::now());
            error!("records: {failure}; {consequence}");
        } else {
            info!("records: {failure}; {consequence}");
        }
    }
}
