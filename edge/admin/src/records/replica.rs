//! This node's part of the replication, for the writer of the records.
//!
//! The stream's order is the truth: every node applies every entry in it, its own ones again. A node shows
//! what the stream says so far and, on top, its own changes that have not come back yet. So an entry is left
//! out as far as it concerns rows that a later own change has changed: that one holds in the end, everywhere.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, ErrorCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use tracker::KeyId;

use super::op::RecordOp;
use super::replication::StreamPosition;
use super::snapshot::Merge;
use super::tables::cluster::{self, Heard, Identity};
use super::tables::counts::{self, PendingCounts};
use crate::json::json_text;

/// Bytes of the ops of an entry, at most, unless one op has more.
const ENTRY_BYTES: usize = 512 * 1024;
/// Bytes of a message of the stream: an entry with one large op.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of entries that are not stored in the stream. Above this, changes are refused.
const OUTBOX_BYTES_MAX: u64 = 256 << 20;
/// How long stored entries are kept, ms: they go out again if the stream is made anew.
const STORED_KEPT_MS: u64 = 600_000;
/// How long ops that act on the memory only are worth something, ms.
const EPHEMERAL_MS: u64 = 600_000;
/// How far another node's clock may be ahead, ms.
const AHEAD_MS_MAX: u64 = 86_400_000;
/// Rows of key totals in one op: 475 KB.
const TOTALS_PER_OP: usize = 5_000;
/// Automatic bans in one op.
const BANS_PER_OP: usize = 1_000;
/// Changed rows that are remembered before those that have come back are looked for.
const PENDING_MIN: usize = 4096;

/// Returns the time, unix ms.
pub(super) type Now = Box<dyn Fn() -> u64 + Send>;

/// State of the replication, for the requesters, metrics and the API.
#[derive(Debug, Default)]
pub struct ReplicationState {
    /// Whether the records are replicated.
    pub is_on: AtomicBool,
    /// Bytes of entries that are not stored in the stream yet.
    pub outbox_bytes: AtomicU64,
    /// Entries of the stream that were applied.
    pub applied: AtomicU64,
    /// Entries that had been applied already.
    pub duplicates: AtomicU64,
    /// Entries that never came.
    pub missing: AtomicU64,
    /// Messages that could not be understood.
    pub malformed: AtomicU64,
    /// Changes that could not be understood, or contradict the rows.
    pub unknown_ops: AtomicU64,
    /// Automatic bans that other nodes do not get, because the outbox was full.
    pub bans_unsent: AtomicU64,
    /// Whether the rows have been merged with those of the other nodes once.
    pub has_joined: AtomicBool,
    /// Whether the rows may differ from those of other nodes until a snapshot is merged.
    pub may_differ: AtomicBool,
    position: Mutex<StreamPosition>,
    pub(super) entry_added: Notify,
}

impl ReplicationState {
    /// Returns the place in the stream of the last message that was applied.
    pub(super) fn position(&self) -> StreamPosition {
        *self.lock_position()
    }

    pub(super) fn set_position(&self, position: StreamPosition) {
        *self.lock_position() = position;
    }

    fn lock_position(&self) -> MutexGuard<'_, StreamPosition> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether changes are refused because too much waits for the stream.
    pub(super) fn is_full(&self) -> bool {
        self.outbox_bytes.load(Ordering::Relaxed) >= OUTBOX_BYTES_MAX
    }
}

fn add(count: &AtomicU64, number: u64) {
    count.fetch_add(number, Ordering::Relaxed);
}

/// An entry of the stream.
#[derive(Deserialize)]
struct Entry {
    epoch: u64,
    number: u64,
    at: u64,
    ops: Vec<Value>,
}

/// Returns the text of an entry whose ops are this JSON array.
pub(super) fn entry_text(epoch: u64, number: u64, at: u64, ops: &str) -> String {
    format!(r#"{{"epoch":{epoch},"number":{number},"at":{at},"ops":{ops}}}"#)
}

/// Entries that were appended in a transaction.
#[derive(Default)]
pub(super) struct Appended {
    /// The numbers of entries, and their ops.
    entries: Vec<(u64, Vec<RecordOp>)>,
    bytes: u64,
}

/// Rows that own entries have changed, until these come back from the stream.
#[derive(Default)]
struct PendingRows {
    hasher: RandomState,
    /// The last entry that changed a row, by the hash of what identifies the row.
    entries: HashMap<u64, u64>,
    /// The number of rows at which entries that have come back are removed.
    prune_at: usize,
}

/// The writer's part of the replication.
pub(super) struct Replica {
    pub(super) identity: Identity,
    pub(super) now: Now,
    pub(super) state: Arc<ReplicationState>,
    pending: PendingRows,
    /// Whether totals wait in their table until the outbox is empty.
    has_unsent_totals: bool,
    /// The snapshot that is being merged.
    pub(super) merge: Option<Merge>,
    last_cleanup: u64,
}

impl Replica {
    /// Begins or continues as `node`. If the rows were copied from another node, they are those of a new one.
    pub(super) fn open(
        db: &Connection,
        node: u8,
        now: Now,
        state: Arc<ReplicationState>,
    ) -> Result<Self, rusqlite::Error> {
        let known = cluster::identity(db)?;
        let identity = match known.filter(|known| known.node == node) {
            Some(identity) => identity,
            None => {
                cluster::clear(db)?;
                let identity = Identity { node, epoch: now(), has_joined: false };
                cluster::set_identity(db, identity)?;
                identity
            }
        };
        let mut replica = Self {
            identity,
            now,
            state,
            pending: PendingRows::default(),
            has_unsent_totals: counts::has_unsent(db)?,
            merge: None,
            last_cleanup: 0,
        };
        replica.load_pending(db)?;
        replica.state.outbox_bytes.store(cluster::unstored_bytes(db)?, Ordering::Relaxed);
        replica.state.set_position(cluster::position(db, cluster::RECORDS)?);
        replica.state.has_joined.store(identity.has_joined, Ordering::Relaxed);
        replica.state.is_on.store(true, Ordering::Relaxed);
        Ok(replica)
    }

    /// Finds the rows that own entries have changed that have not come back.
    pub(super) fn load_pending(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        self.pending = PendingRows::default();
        let mut last = cluster::returned(db, self.identity)?;
        while let Some((number, _, ops)) = cluster::next(db, last, false)? {
            let ops: Vec<RecordOp> = serde_json::from_str(&ops).unwrap_or_default();
            ops.iter().for_each(|op| self.pending.add(op, number));
            last = number;
        }
        Ok(())
    }

    /// Appends ops to the outbox, in the present transaction. Call [`Self::note`] after its commit.
    pub(super) fn append(
        &self,
        db: &Connection,
        ops: Vec<RecordOp>,
    ) -> Result<Appended, rusqlite::Error> {
        let mut appended = Appended::default();
        let (mut text, mut packed) = (String::from("["), Vec::new());
        for op in ops {
            let json = json_text(&op);
            if !packed.is_empty() && text.len() + json.len() > ENTRY_BYTES {
                self.append_entry(db, &mut text, &mut packed, &mut appended)?;
            }
            if !packed.is_empty() {
                text.push(',');
            }
            text += &json;
            packed.push(op);
        }
        if !packed.is_empty() {
            self.append_entry(db, &mut text, &mut packed, &mut appended)?;
        }
        Ok(appended)
    }

    fn append_entry(
        &self,
        db: &Connection,
        text: &mut String,
        packed: &mut Vec<RecordOp>,
        appended: &mut Appended,
    ) -> Result<(), rusqlite::Error> {
        text.push(']');
        let number = cluster::append(db, (self.now)(), text)?;
        appended.bytes += text.len() as u64;
        appended.entries.push((number, std::mem::take(packed)));
        text.truncate(1);
        Ok(())
    }

    /// Notes committed entries.
    pub(super) fn note(&mut self, appended: Appended) {
        if appended.entries.is_empty() {
            return;
        }
        for (number, ops) in &appended.entries {
            ops.iter().for_each(|op| self.pending.add(op, *number));
        }
        add(&self.state.outbox_bytes, appended.bytes);
        self.state.entry_added.notify_one();
    }

    /// Appends what the hot path has counted, in the transaction that writes it: automatic bans, first uses,
    /// and totals. While other entries wait, totals are added up in a table instead.
    pub(super) fn append_counts(
        &self,
        db: &Connection,
        pending: &PendingCounts,
        first_uses: &[u32],
    ) -> Result<Appended, rusqlite::Error> {
        if !self.identity.has_joined {
            return Ok(Appended::default());
        }
        let mut ops = Vec::new();
        if self.state.is_full() {
            add(&self.state.bans_unsent, pending.bans.len() as u64);
        } else {
            let bans = pending.bans.chunks(BANS_PER_OP);
            ops.extend(bans.map(|bans| RecordOp::BansPut(bans.to_vec())));
        }
        let is_first = |(key, _): &&(u32, i64)| first_uses.contains(key);
        let uses: Vec<_> = pending.first_uses.iter().filter(is_first).copied().collect();
        ops.extend(uses.chunks(TOTALS_PER_OP).map(|uses| RecordOp::KeysFirstUsed(uses.to_vec())));
        // Keys in files have no rows.
        let mut totals = pending.totals();
        totals.retain(|row| row.0 < KeyId::FILE_FIRST);
        if self.has_backlog() {
            counts::keep_unsent(db, &totals)?;
        } else {
            if self.has_unsent_totals {
                counts::keep_unsent(db, &totals)?;
                totals = counts::take_unsent(db)?;
            }
            let totals = totals.chunks(TOTALS_PER_OP);
            ops.extend(totals.map(|totals| RecordOp::KeyTotals(totals.to_vec())));
        }
        self.append(db, ops)
    }

    fn has_backlog(&self) -> bool {
        self.state.outbox_bytes.load(Ordering::Relaxed) > 0
    }

    /// Notes that counts were committed.
    pub(super) fn note_counts(&mut self, has_totals: bool, appended: Appended) {
        self.has_unsent_totals = self.has_backlog() && (self.has_unsent_totals || has_totals);
        self.note(appended);
    }

    /// Returns whether totals wait that could be sent now.
    pub(super) fn can_send_totals(&self) -> bool {
        self.has_unsent_totals && !self.has_backlog()
    }

    /// Notes that the stream has stored the entries up to `number`.
    pub(super) fn mark_stored(&self, db: &Connection, number: u64) -> Result<(), rusqlite::Error> {
        let bytes = cluster::mark_stored(db, number, (self.now)())?;
        // Saturating: during an upgrade, the old process appends entries, too.
        let left = self.state.outbox_bytes.load(Ordering::Relaxed).saturating_sub(bytes);
        self.state.outbox_bytes.store(left, Ordering::Relaxed);
        Ok(())
    }

    /// Counts the bytes that wait for the stream.
    pub(super) fn count_outbox(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        self.state.outbox_bytes.store(cluster::unstored_bytes(db)?, Ordering::Relaxed);
        self.state.entry_added.notify_one();
        Ok(())
    }

    /// Removes entries that were stored long ago, once a minute.
    pub(super) fn clean_up(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        let now = (self.now)();
        if now < self.last_cleanup + 60_000 {
            return Ok(());
        }
        self.last_cleanup = now;
        cluster::remove_stored(db, now.saturating_sub(STORED_KEPT_MS))
    }

    /// Applies the message at `position` in the present transaction. Returns what is to be applied to the
    /// memory.
    pub(super) fn apply(
        &mut self,
        db: &Connection,
        position: StreamPosition,
        from: u8,
        body: &[u8],
    ) -> Result<Vec<RecordOp>, rusqlite::Error> {
        let mut effects = Vec::new();
        match self.parse(body) {
            Some(entry) => self.apply_entry(db, from, entry, &mut effects)?,
            None => add(&self.state.malformed, 1),
        }
        cluster::set_position(db, cluster::RECORDS, position)?;
        Ok(effects)
    }

    fn parse(&self, body: &[u8]) -> Option<Entry> {
        if body.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        let entry: Entry = serde_json::from_slice(body).ok()?;
        // A later epoch would silence the node until then.
        let epoch_max = (self.now)() + AHEAD_MS_MAX;
        let is_valid = entry.number > 0 && entry.number < 1 << 53 && entry.epoch <= epoch_max;
        is_valid.then_some(entry)
    }

    fn apply_entry(
        &mut self,
        db: &Connection,
        from: u8,
        entry: Entry,
        effects: &mut Vec<RecordOp>,
    ) -> Result<(), rusqlite::Error> {
        let mut heard = cluster::heard(db, from)?;
        if entry.epoch > heard.epoch {
            heard = Heard { epoch: entry.epoch, number: entry.number - 1 };
        }
        if entry.epoch < heard.epoch || entry.number <= heard.number {
            add(&self.state.duplicates, 1);
            return Ok(());
        }
        add(&self.state.missing, entry.number - heard.number - 1);
        let is_own = from == self.identity.node && entry.epoch == self.identity.epoch;
        let is_known = is_own && entry.number <= cluster::last_number(db)?;
        if is_own && !is_known {
            self.begin_epoch(db)?;
        }
        // Own changes that come later in the stream than this entry.
        let mut own = cluster::returned(db, self.identity)?;
        if is_known {
            own = entry.number;
            self.pending.prune(own);
        }
        let age = (self.now)().abs_diff(entry.at);
        for op in entry.ops {
            let op = serde_json::from_value::<RecordOp>(op).ok().filter(RecordOp::is_valid);
            let Some(op) = op else {
                add(&self.state.unknown_ops, 1);
                continue;
            };
            if op.is_ephemeral() && (is_known || age > EPHEMERAL_MS) {
                continue;
            }
            if let Some(op) = self.pending.leave_out(op, own) {
                self.apply_op(db, op, !is_known, effects)?;
            }
        }
        add(&self.state.applied, 1);
        cluster::set_heard(db, from, Heard { number: entry.number, ..heard })
    }

    /// Applies one op. One that contradicts the rows is counted and left out.
    pub(super) fn apply_op(
        &self,
        db: &Connection,
        op: RecordOp,
        counts: bool,
        effects: &mut Vec<RecordOp>,
    ) -> Result<(), rusqlite::Error> {
        let before = effects.len();
        db.execute_batch("SAVEPOINT op")?;
        let applied = op.apply_in_order(db, counts, effects);
        let conflicts = |error: &rusqlite::Error| {
            error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
        };
        match applied {
            Ok(()) => db.execute_batch("RELEASE op"),
            Err(error) if conflicts(&error) => {
                effects.truncate(before);
                add(&self.state.unknown_ops, 1);
                db.execute_batch("ROLLBACK TO op; RELEASE op")
            }
            Err(error) => Err(error),
        }
    }

    /// Begins a new epoch: the cluster has heard of entries that these records do not have, because they were
    /// restored from a backup. Numbers would be used again.
    pub(super) fn begin_epoch(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        self.identity.epoch = (self.now)().max(self.identity.epoch + 1);
        cluster::set_identity(db, self.identity)
    }
}

impl PendingRows {
    /// Notes that an own entry changes the rows of `op`.
    fn add(&mut self, op: &RecordOp, number: u64) {
        let Self { hasher, entries, .. } = self;
        op.each_row(|row| {
            entries.insert(hasher.hash_one(row), number);
        });
    }

    /// Removes what has come back, if that is worth while.
    fn prune(&mut self, number: u64) {
        if self.entries.len() >= self.prune_at.max(PENDING_MIN) {
            self.entries.retain(|_, entry| *entry > number);
            self.prune_at = 2 * self.entries.len();
        }
    }

    /// Leaves out of `op` what concerns rows that own entries after `number` have changed.
    fn leave_out(&self, op: RecordOp, number: u64) -> Option<RecordOp> {
        if self.entries.is_empty() {
            return Some(op);
        }
        op.retain_rows(|row| {
            let entry = self.entries.get(&self.hasher.hash_one(row));
            entry.is_none_or(|entry| *entry <= number)
        })
    }
}
