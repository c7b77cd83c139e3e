//! Replication of the records between the nodes of a cluster.
//!
//! Rows are a map in which the later change of a row wins; each node holds all of it. A node sends each change once.
//! Nodes compare digests of ranges of rows, and read the rows of ranges that differ from each other: so they find every
//! change that was lost. Order, gaps and repetition do not matter. The application carries bodies between nodes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{Notify, oneshot};
use types::InfoHash;

use super::changes::Stamped;
use super::digests::{self, Digests};
use super::merge;
use super::op::{HASHES_MAX, RecordOp};
use super::rows::{self, Kind};
use super::stamp::Stamp;
use super::stamps::{self, State};
use super::tables::counts;
use super::tables::key_totals::{self, KeyCounts};
use super::tables::keys;
use super::tables::settings;
use super::tables::{bans, tokens, torrent_reasons, webhooks};
use super::writer::{Call, ChangeSource, LiveState, WriterRequest};
use super::{Records, RecordsError, Writer};
use crate::json::json_text;

/// Bytes of a body of changes.
const CHANGES_BYTES_MAX: usize = 256 * 1024;
/// Bytes of rows at which a part ends. The last row may take 130 KiB more: the value of a setting.
const PART_BYTES: usize = 384 * 1024;
/// Bytes of changes that wait to be sent. Other nodes find what is left out by digests.
const UNSENT_BYTES_MAX: usize = 8 << 20;

/// State of the replication, for the metrics and the API.
#[derive(Debug, Default)]
pub struct ReplicationState {
    /// True if the records are replicated.
    pub is_on: AtomicBool,
    /// Rows and counters of other nodes that were newer than those here.
    pub merged: AtomicU64,
    /// Rows and counters of other nodes that were not.
    pub stale: AtomicU64,
    /// Messages that were malformed, and changes with a time more than an hour ahead of this machine's clock.
    pub rejected: AtomicU64,
    /// Changes that could not be understood: a newer version has made them, perhaps.
    pub unknown: AtomicU64,
    /// Removed rows that are remembered.
    pub tombstones: AtomicU64,
    /// Changes that were not sent, because too many waited.
    pub unsent: AtomicU64,
    pub(super) digests: Digests,
    waiting: Mutex<Waiting>,
    added: Notify,
}

/// Changes that wait to be sent, as JSON.
#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<String>,
    bytes: usize,
}

impl ReplicationState {
    /// Queues committed changes for other nodes.
    pub(super) fn send(&self, changes: Vec<Stamped>) {
        if changes.is_empty() || !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.waiting.lock();
        for change in changes {
            let text = json_text(&change);
            if text.len() + 2 > CHANGES_BYTES_MAX || waiting.bytes + text.len() > UNSENT_BYTES_MAX {
                self.unsent.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            waiting.bytes += text.len();
            waiting.changes.push_back(text);
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// Takes a body of changes; `None` if none waits.
    pub(super) fn take_changes(&self) -> Option<Vec<u8>> {
        let mut waiting = self.waiting.lock();
        let mut body = Vec::new();
        while let Some(change) = waiting.changes.front() {
            if !body.is_empty() && body.len() + change.len() + 2 > CHANGES_BYTES_MAX {
                break;
            }
            body.push(if body.is_empty() { b'[' } else { b',' });
            body.extend_from_slice(change.as_bytes());
            waiting.bytes -= change.len();
            waiting.changes.pop_front();
        }
        body.push(b']');
        (body.len() > 1).then_some(body)
    }
}

/// Rows of some ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsPart {
    /// JSON that [`Records::merge`] understands.
    pub body: Vec<u8>,
    /// Where the next part begins, unless this is the last.
    pub next: Option<Vec<u8>>,
}

impl Writer {
    /// Turns on replication as `node`, 1 to 255. `now` returns the time in unix ms. Call before the API is
    /// built and the thread starts.
    ///
    /// # Errors
    ///
    /// Fails if the records cannot be written.
    pub fn replicate(
        &mut self,
        node: u8,
        now: impl Fn() -> u64 + Send + 'static,
    ) -> Result<(), RecordsError> {
        self.now = Box::new(now);
        self.transact(true, |db, to| {
            to.clock.node = node;
            Ok(stamps::set_node(db, to, node)?)
        })?;
        self.clock.node = node;
        let state = &self.replication;
        state.tombstones.store(stamps::tombstones(&self.connection)?, Ordering::Relaxed);
        state.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn merge(
        &mut self,
        live: &mut dyn LiveState,
        from: u8,
        body: &[u8],
    ) -> Result<(), RecordsError> {
        let state = std::sync::Arc::clone(&self.replication);
        // No sync: rows that a crash of the machine loses are still at other nodes.
        let merged =
            self.transact(false, |db, to| Ok(merge::merge_body(db, to, &state, from, body)?));
        match merged {
            Ok(((), effects)) => {
                let source = ChangeSource::Cluster(&self.connection);
                effects.into_iter().for_each(|effect| live.apply(effect, source));
                Ok(())
            }
            Err(error) => {
                self.report(&error, "rows of another node not recorded yet");
                Err(error)
            }
        }
    }
}

impl Records {
    /// Returns the state of the replication.
    pub fn replication(&self) -> &ReplicationState {
        &self.replication
    }

    /// Returns the digests of all kinds of rows, in the order of [`KINDS`](super::KINDS). Equal digests mean equal rows.
    pub fn digests(&self) -> Vec<u64> {
        self.replication.digests.of_kinds()
    }

    /// Returns the digests of the 1,024 ranges of a kind: wrapping sums over the rows in each. Empty for an unknown kind.
    pub fn range_digests(&self, kind: u8) -> Vec<u64> {
        self.replication.digests.of_ranges(kind)
    }

    /// Waits for changes made here since the last call, and returns them: a body of at most 256 KiB for
    /// [`Self::merge`]. What there is no room for is left out: other nodes find it by digests.
    pub async fn next_changes(&self) -> Vec<u8> {
        loop {
            let added = self.replication.added.notified();
            if let Some(changes) = self.replication.take_changes() {
                return changes;
            }
            added.await;
        }
    }

    /// Returns rows of these ranges of a kind, which must be sorted, from `cursor` on; an empty one is the beginning. At
    /// most 512 KiB.
    ///
    /// # Errors
    ///
    /// Fails if the records cannot be read.
    pub async fn read_ranges(
        &self,
        kind: u8,
        ranges: Vec<u16>,
        cursor: Vec<u8>,
    ) -> Result<RowsPart, RecordsError> {
        let Some(kind) = Kind::ALL.get(usize::from(kind)).copied() else {
            return Ok(RowsPart { body: b"[]".into(), next: None });
        };
        self.read(move |db| PartReader::read(db, kind, &ranges, cursor)).await
    }

    /// Merges a body of node `from`. Rows that are not understood are counted, and stop nothing.
    ///
    /// # Errors
    ///
    /// Fails if the records cannot be written. Nothing has changed then.
    pub async fn merge(&self, from: u8, body: Vec<u8>) -> Result<(), RecordsError> {
        let (reply, answer) = oneshot::channel();
        let call: Call = Box::new(move |writer, live| {
            // The requester may have gone; the change stays.
            let _ = reply.send(writer.merge(live, from, &body));
        });
        self.send_unless_paused(WriterRequest::Call(call))?;
        answer.await.unwrap_or(Err(RecordsError::Stopped))
    }

    /// Returns the secrets of the cluster as they are recorded, if they are.
    ///
    /// # Errors
    ///
    /// Fails if the records cannot be read.
    pub async fn cluster_secrets(&self) -> Result<Option<String>, RecordsError> {
        self.read(|db| settings::get(db, settings::SECRETS)).await
    }

    /// Makes a change that other nodes of the cluster must make, too, and that has been made here. Does
    /// nothing outside clusters.
    pub(crate) async fn tell(&self, op: RecordOp) -> Result<(), RecordsError> {
        if self.replication.is_on.load(Ordering::Relaxed) {
            self.change(op).await?;
        }
        Ok(())
    }
}

/// Collects rows until a part is full.
#[derive(Default)]
pub(super) struct PartReader {
    /// Entries of a list by stamp, and whether they were removed.
    entries: BTreeMap<(Stamp, bool), Vec<InfoHash>>,
    /// Downloads by node.
    downloads: BTreeMap<u8, Vec<(InfoHash, u32)>>,
    /// Totals of keys by node.
    totals: BTreeMap<u8, Vec<KeyCounts>>,
    others: Vec<Stamped>,
    bytes: usize,
    /// The key of the last row.
    last: Vec<u8>,
    is_full: bool,
}

impl PartReader {
    pub(super) fn read(
        db: &Connection,
        kind: Kind,
        ranges: &[u16],
        cursor: Vec<u8>,
    ) -> Result<RowsPart, rusqlite::Error> {
        let mut part = Self { last: cursor, ..Self::default() };
        for range in ranges.iter().copied().filter(|range| *range < digests::RANGES) {
            let (first, end) = digests::bounds(range);
            // The key that follows the last one.
            let after_last = [part.last.as_slice(), &[0]].concat();
            part.read_range(db, kind, (&first.max(after_last), &end))?;
            if part.is_full {
                break;
            }
        }
        let next = part.is_full.then(|| part.last.clone());
        let body = json_text(&part.changes(kind)).into_bytes();
        Ok(RowsPart { body, next })
    }

    fn read_range(
        &mut self,
        db: &Connection,
        kind: Kind,
        (first, end): (&[u8], &[u8]),
    ) -> Result<(), rusqlite::Error> {
        match kind {
            Kind::Downloads => counts::each(db, first, end, |torrent, node, count| {
                let has_room = self.has_room_for(&torrent.0, 56);
                if has_room {
                    self.downloads.entry(node).or_default().push((torrent, count));
                }
                has_room
            }),
            Kind::KeyTotals => key_totals::each(db, first, end, |key, node, counts| {
                let has_room = self.has_room_for(key, 160);
                if has_room {
                    self.totals.entry(node).or_default().push(counts);
                }
                has_room
            }),
            _ => stamps::each(db, kind, (first, end), |key, state| {
                self.add_row(db, kind, key, state)
            }),
        }
    }

    /// Adds a row or a tombstone. Returns false if there is no room.
    fn add_row(
        &mut self,
        db: &Connection,
        kind: Kind,
        key: &[u8],
        State { stamp, is_removed }: State,
    ) -> Result<bool, rusqlite::Error> {
        if kind.list().is_some() {
            let has_room = self.has_room_for(key, 40);
            if let (true, Ok(hash)) = (has_room, key.try_into()) {
                let entries = self.entries.entry((stamp, is_removed)).or_default();
                entries.push(InfoHash(hash));
                // The op around them.
                self.bytes += if entries.len() == 1 { 120 } else { 0 };
            }
            return Ok(has_room);
        }
        let Some(op) = read_row(db, kind, key, is_removed)? else { return Ok(true) };
        let change = Stamped { stamp, op };
        let has_room = self.has_room_for(key, json_text(&change).len());
        if has_room {
            self.others.push(change);
        }
        Ok(has_room)
    }

    /// Counts a row, unless the part is full. All counters with one key are in one part.
    fn has_room_for(&mut self, key: &[u8], bytes: usize) -> bool {
        if self.bytes >= PART_BYTES && self.last != key {
            self.is_full = true;
            return false;
        }
        self.bytes += bytes;
        self.last.clear();
        self.last.extend_from_slice(key);
        true
    }

    fn changes(self, kind: Kind) -> Vec<Stamped> {
        let mut changes = self.others;
        if let Some(list) = kind.list() {
            for ((stamp, is_removed), hashes) in self.entries {
                let ops = RecordOp::list(list, &hashes, !is_removed).into_iter();
                changes.extend(ops.map(|op| Stamped { stamp, op }));
            }
        }
        // Counters have no stamps.
        let stamp = Stamp::OLDEST;
        for (node, counts) in self.downloads {
            let ops = counts.chunks(HASHES_MAX).map(|counts| RecordOp::downloads(node, counts));
            changes.extend(ops.map(|op| Stamped { stamp, op }));
        }
        for (node, keys) in self.totals {
            changes.push(Stamped { stamp, op: RecordOp::KeyTotals { node, keys } });
        }
        changes
    }
}

/// Reads a row as the op that puts it, or returns the op that removes it.
fn read_row(
    db: &Connection,
    kind: Kind,
    key: &[u8],
    is_removed: bool,
) -> Result<Option<RecordOp>, rusqlite::Error> {
    let name = rows::name_in_key(key);
    let id: u32 = name.parse().unwrap_or_default();
    Ok(match kind {
        Kind::Tokens if is_removed => Some(RecordOp::TokenRemoved { id: id.into() }),
        Kind::Tokens => tokens::get(db, id.into())?.map(RecordOp::TokenPut),
        Kind::Webhooks if is_removed => Some(RecordOp::WebhookRemoved { id: id.into() }),
        Kind::Webhooks => webhooks::get(db, id.into())?.map(RecordOp::WebhookPut),
        Kind::Keys if is_removed => Some(RecordOp::KeyRemoved { id }),
        Kind::Keys => keys::get(db, id)?.map(RecordOp::KeyPut),
        Kind::Bans if is_removed => Some(RecordOp::BanRemoved { network: name.into() }),
        Kind::Bans => bans::get(db, name)?.map(|row| RecordOp::BansPut(vec![row])),
        Kind::Settings => {
            let value = settings::get(db, name)?;
            Some(RecordOp::SettingsPut(vec![(name.into(), value)]))
        }
        Kind::IgnoredNodes => {
            let node = u8::try_from(id).ok();
            node.map(|node| RecordOp::NodeIgnored { node, is_ignored: !is_removed })
        }
        Kind::TorrentReasons => match key.try_into().map(InfoHash) {
            Ok(hash) if is_removed => Some(RecordOp::ReasonsRemoved { hashes: vec![hash] }),
            Ok(hash) => torrent_reasons::get(db, hash)?.map(|row| RecordOp::ReasonsPut(vec![row])),
            Err(_) => None,
        },
        _ => None,
    })
}
