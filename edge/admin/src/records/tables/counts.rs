//! Counts from the hot path: downloads of torrents, totals of keys.
//!
//! Downloads are counted by each node for itself. Nodes merge counts by the maximum, and show the sum.

use std::collections::BTreeMap;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, params};
use tracker::{KeyId, KeyTotals as Totals};
use types::InfoHash;

use super::super::changes::Consequences;
use super::super::digests;
use super::super::op::{HASHES_MAX, RecordOp};
use super::super::rows::Kind;
use super::bans::BanRow;
use super::history::{self, PendingHistory};
use super::key_totals;

/// Keys in one op: 200 KB.
const KEYS_PER_OP: usize = 1500;
/// Automatic bans in one op.
const BANS_PER_OP: usize = 1000;

/// Counts to be written.
#[derive(Debug, Default)]
pub struct PendingCounts {
    /// Downloads to add, by torrent.
    pub downloads: BTreeMap<InfoHash, u32>,
    /// Torrents whose counts make room for others, before downloads are added.
    pub removed: Vec<InfoHash>,
    /// Amounts to add to the totals of keys, by key id.
    pub totals: BTreeMap<u32, Totals>,
    /// Keys used for the first time since the start, with the Unix time.
    pub first_uses: BTreeMap<u32, i64>,
    /// Automatic bans.
    pub(crate) bans: Vec<BanRow>,
    /// Statistics for the dashboard's charts. They are no counts: see `len`.
    pub(crate) history: PendingHistory,
    since: Option<Instant>,
}

impl PendingCounts {
    /// Adds to a torrent's downloads.
    pub fn add_downloads(&mut self, torrent: InfoHash, added: u32) {
        let downloads = self.downloads.entry(torrent).or_default();
        *downloads = downloads.saturating_add(added);
    }

    /// Removes a torrent's count.
    pub fn remove_downloads(&mut self, torrent: InfoHash) {
        self.downloads.remove(&torrent);
        self.removed.push(torrent);
    }

    /// Adds to a key's totals.
    pub fn add(&mut self, key: u32, delta: Totals) {
        let totals = self.totals.entry(key).or_default();
        *totals = totals.plus(&delta);
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.history.is_empty()
    }

    /// Returns the number of counts to write.
    pub fn len(&self) -> usize {
        let torrents = self.downloads.len() + self.removed.len();
        torrents + self.totals.len() + self.first_uses.len() + self.bans.len()
    }

    /// Returns since when the oldest count is pending.
    pub(in super::super) fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }
}

/// Writes all counts. Returns the keys that were used for the first time ever.
pub(in super::super) fn write(
    db: &Connection,
    to: &mut Consequences,
    pending: &PendingCounts,
) -> Result<Vec<u32>, rusqlite::Error> {
    for torrent in &pending.removed {
        remove(db, to, torrent)?;
    }
    let node = to.clock.node;
    let mut downloads = Vec::with_capacity(pending.downloads.len());
    for (torrent, added) in &pending.downloads {
        let changed = change(db, to, (torrent, node), |count| count.saturating_add(*added))?;
        downloads.push((*torrent, changed.new));
    }
    for counts in downloads.chunks(HASHES_MAX) {
        let stamp = to.clock.next();
        to.tell(stamp, RecordOp::downloads(node, counts));
    }
    let first_uses = write_keys(db, to, pending)?;
    for bans in pending.bans.chunks(BANS_PER_OP) {
        RecordOp::BansPut(bans.to_vec()).apply(db, to)?;
    }
    // The tracker has banned them already.
    to.effects.clear();
    history::write(db, &pending.history)?;
    Ok(first_uses)
}

fn write_keys(
    db: &Connection,
    to: &mut Consequences,
    pending: &PendingCounts,
) -> Result<Vec<u32>, rusqlite::Error> {
    let mut all: BTreeMap<u32, Totals> = pending.totals.clone();
    pending.first_uses.keys().for_each(|key| _ = all.entry(*key).or_default());
    // Keys in files have no rows.
    all.retain(|key, _| *key < KeyId::SITE_FIRST);
    let (mut changed, mut first_uses) = (Vec::new(), Vec::new());
    for (key, delta) in all {
        let used = pending.first_uses.get(&key).copied();
        let is_first = used.is_some() && !key_totals::is_used(db, key)?;
        let Some(counts) = key_totals::add(db, to, key, &delta, used)? else { continue };
        changed.push(counts);
        if is_first {
            first_uses.push(key);
        }
    }
    for keys in changed.chunks(KEYS_PER_OP) {
        let stamp = to.clock.next();
        to.tell(stamp, RecordOp::KeyTotals { node: to.clock.node, keys: keys.to_vec() });
    }
    Ok(first_uses)
}

/// A count before and after a change.
struct CountChange {
    old: u32,
    new: u32,
}

fn hash(torrent: &InfoHash, node: u8, count: u32) -> u64 {
    match count {
        0 => 0,
        count => digests::hash(Kind::Downloads, &torrent.0, &[node.into(), count.into()]),
    }
}

/// Changes the count of a torrent at a node by `change`.
fn change(
    db: &Connection,
    to: &mut Consequences,
    (torrent, node): (&InfoHash, u8),
    change: impl FnOnce(u32) -> u32,
) -> Result<CountChange, rusqlite::Error> {
    let sql = "SELECT count FROM downloads WHERE hash = ?1 AND node = ?2";
    let old = db.prepare_cached(sql)?.query_row(params![torrent.0, node], |row| row.get(0));
    let old: u32 = old.optional()?.unwrap_or_default();
    let new = change(old);
    if new != old {
        db.prepare_cached("INSERT OR REPLACE INTO downloads VALUES (?1, ?2, ?3)")?
            .execute(params![torrent.0, node, new])?;
        let hashes = [old, new].map(|count| hash(torrent, node, count));
        to.digests.replace(Kind::Downloads, &torrent.0, hashes[0], hashes[1]);
    }
    Ok(CountChange { old, new })
}

fn remove(
    db: &Connection,
    to: &mut Consequences,
    torrent: &InfoHash,
) -> Result<(), rusqlite::Error> {
    let sql = "DELETE FROM downloads WHERE hash = ?1 RETURNING node, count";
    let mut removal = db.prepare_cached(sql)?;
    let mut removed = removal.query([torrent.0])?;
    while let Some(row) = removed.next()? {
        let old = hash(torrent, row.get(0)?, row.get(1)?);
        to.digests.replace(Kind::Downloads, &torrent.0, old, 0);
    }
    Ok(())
}

/// Merges what `node` has counted. Its effects are what that adds.
pub(in super::super) fn merge(
    db: &Connection,
    to: &mut Consequences,
    node: u8,
    counts: impl Iterator<Item = (InfoHash, u32)>,
) -> Result<(), rusqlite::Error> {
    let mut added = Vec::new();
    for (torrent, theirs) in counts {
        let CountChange { old, new } = change(db, to, (&torrent, node), |old| old.max(theirs))?;
        to.count_merged(new > old);
        if new > old {
            added.push((torrent, new - old));
        }
    }
    if !added.is_empty() {
        to.effects.push(RecordOp::DownloadsAdded(added));
    }
    Ok(())
}

/// Raises the downloads of a torrent over all nodes to at least `count`. Returns whether they were fewer.
pub(in super::super) fn raise(
    db: &Connection,
    to: &mut Consequences,
    torrent: &InfoHash,
    count: u32,
) -> Result<bool, rusqlite::Error> {
    let sql = "SELECT coalesce(sum(count), 0) FROM downloads WHERE hash = ?1";
    let present: i64 = db.prepare_cached(sql)?.query_row([torrent.0], |row| row.get(0))?;
    let missing = count.saturating_sub(u32::try_from(present).unwrap_or(u32::MAX));
    let node = to.clock.node;
    change(db, to, (torrent, node), |own| own.saturating_add(missing))?;
    Ok(missing > 0)
}

/// Calls `take` with the count of every torrent, over all nodes.
pub(crate) fn read_downloads(
    connection: &Connection,
    mut take: impl FnMut(InfoHash, u32),
) -> Result<(), rusqlite::Error> {
    let mut rows = connection.prepare("SELECT hash, sum(count) FROM downloads GROUP BY hash")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let count = row.get::<_, i64>(1)?;
        take(super::hash(row, 0)?, u32::try_from(count).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// Calls `see` with the count of each torrent from `first` to before `end` at each node, in their order, until it returns
/// false.
pub(in super::super) fn each(
    db: &Connection,
    first: &[u8],
    end: &[u8],
    mut see: impl FnMut(InfoHash, u8, u32) -> bool,
) -> Result<(), rusqlite::Error> {
    let sql = "SELECT hash, node, count FROM downloads WHERE hash >= ?1 AND hash < ?2
        ORDER BY hash, node";
    let mut rows = db.prepare_cached(sql)?;
    let mut rows = rows.query([first, end])?;
    while let Some(row) = rows.next()? {
        if !see(super::hash(row, 0)?, row.get(1)?, row.get(2)?) {
            break;
        }
    }
    Ok(())
}

/// Adds all counts to the digests.
pub(in super::super) fn digest_all(
    db: &Connection,
    to: &mut Consequences,
) -> Result<(), rusqlite::Error> {
    let end = [0xff; 21];
    each(db, &[], &end, |torrent, node, count| {
        to.digests.replace(Kind::Downloads, &torrent.0, 0, hash(&torrent, node, count));
        true
    })
}
