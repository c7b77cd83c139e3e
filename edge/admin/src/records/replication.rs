//! Replication of the records between the nodes of a cluster.
//!
//! ```text
//!  change ─▶ rows and outbox, one transaction ─▶ stream ─▶ every node, this one too, in one order
//! ```
//!
//! The application connects this to the stream.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::error;

use super::op::{Consequences, RecordOp};
use super::replica::{Replica, ReplicationState, entry_text};
use super::snapshot::{self, EarlyTotals, Part, Place};
use super::tables::cluster;
use super::writer::{Call, ChangeSource, LiveState, WriterRequest};
use super::{Records, RecordsError, Writer, schema};
use crate::json::json_text;

/// Snapshots that may be read at the same time.
const SNAPSHOTS_MAX: usize = 4;
/// How often it is checked whether own changes have come back, and how long after each check.
const SETTLE_ATTEMPTS: u32 = 40;
const SETTLE_PAUSE: Duration = Duration::from_millis(50);
/// A snapshot ends when no part of it has been read for so long.
const SNAPSHOT_IDLE: Duration = Duration::from_secs(60);

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
    /// Calls `merge`, which counts the downloads of the message at `position` if they are not counted yet. No
    /// count is collected meanwhile. A log that is read again from an earlier place moves nothing.
    pub fn at(&self, position: StreamPosition, merge: impl FnOnce()) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        merge();
        if position.stream != current.stream || position.sequence > current.sequence {
            *current = position;
        }
    }

    /// Returns the place.
    pub fn get(&self) -> StreamPosition {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the downloads of the message at `position` have not been counted yet.
    pub fn is_uncounted(&self, position: StreamPosition) -> bool {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        position.stream != current.stream || position.sequence > current.sequence
    }

    /// Calls `collect`, which takes the counts, and returns the place that they belong to; `None` if there has
    /// been none. No message is merged meanwhile.
    pub(crate) fn collect(&self, collect: impl FnOnce()) -> Option<StreamPosition> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        collect();
        (current.stream != 0).then_some(*current)
    }

    fn set(&self, position: StreamPosition) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }
}

/// The place of the next part in a snapshot.
#[derive(Serialize, Deserialize)]
struct Cursor {
    snapshot: u64,
    place: Place,
    /// The number of the part, for snapshots in memory.
    number: usize,
}

/// Snapshots that are being read, by id.
#[derive(Default)]
pub(super) struct OpenSnapshots {
    open: BTreeMap<u64, (Source, Instant)>,
    last_id: u64,
}

enum Source {
    /// A connection in a read transaction, which blocks no writer.
    File(Connection, EarlyTotals),
    /// All parts of records in memory.
    Parts(Vec<Vec<u8>>),
}

impl Writer {
    /// Turns on replication as `node`, 1 to 255. `now` returns the time in unix ms. Call before the API is
    /// built and the thread starts.
    pub fn replicate(
        &mut self,
        node: u8,
        now: impl Fn() -> u64 + Send + 'static,
    ) -> Result<(), rusqlite::Error> {
        let state = std::sync::Arc::clone(&self.shared.replication);
        let replica = Replica::open(&self.connection, node, Box::new(now), state)?;
        self.shared.log_position.set(cluster::position(&self.connection, cluster::PEERS)?);
        self.replica = Some(replica);
        Ok(())
    }

    /// Runs a change of the replica in a transaction without a sync: what a crash of the machine loses comes
    /// again from the stream. Applies its effects.
    fn run_replica<T>(
        &mut self,
        live: &mut dyn LiveState,
        change: impl FnOnce(&mut Replica, &Connection, &mut Consequences) -> Result<T, rusqlite::Error>,
    ) -> Result<T, RecordsError> {
        let Some(replica) = &mut self.replica else { return Err(RecordsError::Stopped) };
        let db = &self.connection;
        let mut to = Consequences::default();
        let run = || {
            db.execute_batch("PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE")?;
            let result = change(replica, db, &mut to)?;
            let appended = replica.append(db, std::mem::take(&mut to.logged))?;
            db.execute_batch("COMMIT")?;
            replica.note(appended);
            Ok(result)
        };
        let result = run().map_err(RecordsError::new);
        if result.is_err() {
            if !db.is_autocommit() {
                // Fails only if there is no transaction any more.
                let _ = db.execute_batch("ROLLBACK");
            }
            if let Ok(Some(identity)) = cluster::identity(db) {
                replica.identity = identity;
            }
        }
        let _ = db.execute_batch("PRAGMA synchronous = FULL");
        self.is_dirty = true;
        match result {
            Ok(result) => {
                let source = ChangeSource::Cluster(&self.connection);
                to.effects.into_iter().for_each(|effect| live.apply(effect, source));
                Ok(result)
            }
            Err(error) => {
                self.report(&error, "change of another node not recorded yet");
                Err(error)
            }
        }
    }

    fn apply_remote(
        &mut self,
        live: &mut dyn LiveState,
        (position, from): (StreamPosition, u8),
        body: &[u8],
    ) -> Result<(), RecordsError> {
        if self.replica.as_ref().is_some_and(Replica::is_merging) {
            return Err(RecordsError::Merging);
        }
        self.run_replica(live, |replica, db, to| {
            to.effects = replica.apply(db, position, from, body)?;
            Ok(())
        })?;
        self.shared.replication.set_position(position);
        Ok(())
    }

    fn merge_snapshot(
        &mut self,
        live: &mut dyn LiveState,
        part: &[u8],
        is_last: bool,
    ) -> Result<(), RecordsError> {
        let part: Part = serde_json::from_slice(part)
            .map_err(|error| RecordsError::Other(format!("malformed snapshot: {error}")))?;
        let is_merging = self.replica.as_ref().is_some_and(Replica::is_merging);
        if !is_merging && !matches!(part, Part::Head(_)) {
            return Err(RecordsError::Other("the snapshot has no first part".into()));
        }
        let position = self.run_replica(live, |replica, db, to| {
            replica.merge_part(db, part, to)?;
            let position = is_last.then(|| replica.finish_merge(db, to)).transpose()?;
            Ok(position)
        })?;
        let Some(position) = position else { return Ok(()) };
        self.finish_join()?;
        self.shared.replication.set_position(position);
        self.shared.replication.may_differ.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Takes over what a merge has changed in the tables of the cluster.
    fn finish_join(&mut self) -> Result<(), RecordsError> {
        let peers = cluster::position(&self.connection, cluster::PEERS);
        if self.shared.log_position.is_unset() {
            self.shared.log_position.set(peers.map_err(RecordsError::new)?);
        }
        let Some(replica) = &mut self.replica else { return Ok(()) };
        let has_joined = replica.identity.has_joined;
        self.shared.replication.has_joined.store(has_joined, Ordering::Relaxed);
        replica.load_pending(&self.connection).map_err(RecordsError::new)
    }
}

impl LogPosition {
    fn is_unset(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stream == 0
    }
}

impl Records {
    /// Returns the place in the log of peers up to which downloads are counted.
    pub fn log_position(&self) -> &LogPosition {
        &self.shared.log_position
    }

    /// Returns the state of the replication.
    pub fn replication(&self) -> &ReplicationState {
        &self.shared.replication
    }

    /// Returns the oldest entry that is not stored in the stream. Waits until there is one.
    pub async fn next_outgoing(&self) -> Result<OutboxEntry, RecordsError> {
        loop {
            let added = self.shared.replication.entry_added.notified();
            let next = self.read(|db| {
                let epoch = cluster::identity(db)?.map_or(0, |identity| identity.epoch);
                Ok(cluster::next(db, 0, true)?.map(|entry| (epoch, entry)))
            });
            if let Some((epoch, (number, at, ops))) = next.await? {
                let body = entry_text(epoch, number, at, &ops).into_bytes();
                return Ok(OutboxEntry { number, body });
            }
            added.await;
        }
    }

    /// Notes that the stream has stored this entry and all before it.
    pub async fn mark_stored(&self, number: u64) -> Result<(), RecordsError> {
        self.call(move |writer, live| {
            writer.run_replica(live, |replica, db, _| replica.mark_stored(db, number))
        })
        .await
    }

    /// Makes the entries that were stored within the last ten minutes go out again, because the stream was made
    /// anew.
    pub async fn publish_again(&self) -> Result<(), RecordsError> {
        self.call(|writer, live| {
            writer.run_replica(live, |replica, db, _| {
                cluster::mark_unstored(db)?;
                replica.count_outbox(db)
            })
        })
        .await
    }

    /// Returns the place of the last message that was applied.
    pub fn position(&self) -> StreamPosition {
        self.shared.replication.position()
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
        let body = body.to_vec();
        self.call(move |writer, live| writer.apply_remote(live, (position, from), &body)).await
    }

    /// Notes that messages before `next` are lost or belong to another stream. The records may differ from
    /// those of other nodes until a snapshot is merged.
    pub async fn missed(&self, next: StreamPosition) -> Result<(), RecordsError> {
        let position = self.position();
        error!(
            ?position,
            ?next,
            "changes of other nodes were missed: records may differ until POST /api/v1/cluster/resync"
        );
        self.shared.replication.may_differ.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether these records have been merged with those of the other nodes once, or there were none.
    /// Before, changes are not published one by one.
    pub fn has_joined(&self) -> bool {
        self.shared.replication.has_joined.load(Ordering::Relaxed)
    }

    /// Joins the cluster without a snapshot, because no other node has one: publishes all records. Does nothing
    /// if this node has joined before.
    pub async fn join_alone(&self) -> Result<(), RecordsError> {
        self.call(|writer, live| {
            writer.run_replica(live, |replica, db, to| replica.join_alone(db, to))?;
            writer.finish_join()
        })
        .await
    }

    /// Returns the part of all records at `cursor`; the first part for an empty one. All parts show one
    /// moment. A snapshot ends when it has not been read from for a minute.
    pub async fn snapshot(&self, cursor: &[u8]) -> Result<SnapshotPart, RecordsError> {
        let ended = || RecordsError::Other("the snapshot has ended: begin a new one".into());
        let mut cursor = match cursor {
            [] => self.open_snapshot().await?,
            _ => serde_json::from_slice(cursor).map_err(|_| ended())?,
        };
        let source = self.snapshots().take(cursor.snapshot).ok_or_else(ended)?;
        let place = cursor.place.clone();
        let number = cursor.number;
        let read = tokio::task::spawn_blocking(move || match source {
            Source::File(db, early) => {
                let (part, next) = match number {
                    0 => (snapshot::head(&db)?, Some(Place::default())),
                    _ => snapshot::part(&db, &early, &place)?,
                };
                Ok((Source::File(db, early), json_text(&part).into_bytes(), next))
            }
            Source::Parts(mut parts) => {
                let body = parts.get_mut(number).map(std::mem::take).unwrap_or_default();
                let next = (number + 1 < parts.len()).then(Place::default);
                Ok((Source::Parts(parts), body, next))
            }
        });
        // The task is never cancelled, so an error is a panic.
        let read = read.await.map_err(|_| RecordsError::Stopped)?;
        let (source, body, next) = read.map_err(RecordsError::new)?;
        let Some(place) = next else { return Ok(SnapshotPart { body, next: None }) };
        cursor.place = place;
        cursor.number += 1;
        self.snapshots().put(cursor.snapshot, source);
        Ok(SnapshotPart { body, next: Some(json_text(&cursor).into_bytes()) })
    }

    /// Waits a moment for own changes to come back from the stream: a snapshot without any on the way stands at
    /// one place in the stream.
    async fn settle(&self) -> Result<(), RecordsError> {
        for _ in 0..SETTLE_ATTEMPTS {
            if self.read(cluster::has_settled).await? {
                break;
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
        Ok(())
    }

    async fn open_snapshot(&self) -> Result<Cursor, RecordsError> {
        self.settle().await?;
        let source = match self.file.clone() {
            Some(file) => {
                let opened = tokio::task::spawn_blocking(move || {
                    let db = schema::open_read_only(&file)?;
                    // Its snapshot begins with the first read.
                    db.execute_batch("BEGIN")?;
                    let early = EarlyTotals::read(&db)?;
                    Ok(Source::File(db, early))
                });
                opened.await.map_err(|_| RecordsError::Stopped)?.map_err(RecordsError::new)?
            }
            None => Source::Parts(self.read(snapshot::all_parts).await?),
        };
        let snapshot = self.snapshots().add(source);
        Ok(Cursor { snapshot, place: Place::default(), number: 0 })
    }

    /// Merges a part of another node's records. Parts come in order; `is_last` marks the last one, after which
    /// the stream must be read from [`Self::position`] on.
    pub async fn merge_snapshot(&self, part: &[u8], is_last: bool) -> Result<(), RecordsError> {
        let part = part.to_vec();
        self.call(move |writer, live| writer.merge_snapshot(live, &part, is_last)).await
    }

    /// Makes a change that other nodes of the cluster must make, too, and that has been made here. Does
    /// nothing outside clusters.
    pub(crate) async fn tell(&self, op: RecordOp) -> Result<(), RecordsError> {
        let is_on = &self.shared.replication.is_on;
        if is_on.load(Ordering::Relaxed) {
            self.change(op).await?;
        }
        Ok(())
    }

    /// Runs `call` on the writer's thread.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Writer, &mut dyn LiveState) -> Result<T, RecordsError> + Send + 'static,
    ) -> Result<T, RecordsError> {
        let (reply, answer) = oneshot::channel();
        let call: Call = Box::new(move |writer, live| {
            // The requester may have gone; the change stays.
            let _ = reply.send(call(writer, live));
        });
        self.send_unless_paused(WriterRequest::Call(call))?;
        answer.await.unwrap_or(Err(RecordsError::Stopped))
    }

    fn snapshots(&self) -> std::sync::MutexGuard<'_, OpenSnapshots> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenSnapshots {
    fn add(&mut self, source: Source) -> u64 {
        self.open.retain(|_, (_, used)| used.elapsed() < SNAPSHOT_IDLE);
        if self.open.len() >= SNAPSHOTS_MAX {
            self.open.pop_first();
        }
        self.last_id += 1;
        self.put(self.last_id, source);
        self.last_id
    }

    fn put(&mut self, id: u64, source: Source) {
        self.open.insert(id, (source, Instant::now()));
    }

    fn take(&mut self, id: u64) -> Option<Source> {
        self.open.remove(&id).map(|(source, _)| source)
    }
}
