//! Totals of keys: what each node has counted. Nodes merge them by the maximum, and show the sum.

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use tracker::KeyTotals as Totals;

use super::super::changes::Consequences;
use super::super::digests;
use super::super::rows::{self, Kind, Row};
use super::super::stamps;

/// The largest total of a node: the sum over all nodes still fits an integer of SQLite.
pub(in super::super) const TOTAL_MAX: u64 = i64::MAX.unsigned_abs() / 256;

/// The counts of a node for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCounts {
    pub(crate) id: u32,
    /// Bytes.
    pub(crate) uploaded: u64,
    /// Bytes.
    pub(crate) downloaded: u64,
    /// Seconds as a seeder.
    pub(crate) seeding_s: u64,
    pub(crate) announces: u64,
    /// Unix time in seconds.
    pub(crate) first_used: Option<i64>,
}

impl KeyCounts {
    fn add(&mut self, delta: &Totals) {
        let add = |total: &mut u64, delta: u64| *total = total.saturating_add(delta).min(TOTAL_MAX);
        add(&mut self.uploaded, delta.uploaded);
        add(&mut self.downloaded, delta.downloaded);
        add(&mut self.seeding_s, delta.seeding_s);
        add(&mut self.announces, delta.announces);
    }

    fn raise(&mut self, other: &Self) {
        let raise = |total: &mut u64, other: u64| *total = other.max(*total).min(TOTAL_MAX);
        raise(&mut self.uploaded, other.uploaded);
        raise(&mut self.downloaded, other.downloaded);
        raise(&mut self.seeding_s, other.seeding_s);
        raise(&mut self.announces, other.announces);
        self.use_at(other.first_used);
    }

    /// Notes a use. The earliest is kept.
    fn use_at(&mut self, time: Option<i64>) {
        self.first_used = self.first_used.into_iter().chain(time).min();
    }

    fn hash(&self, node: u8) -> u64 {
        let empty = Self { id: self.id, ..Self::default() };
        if *self == empty {
            return 0;
        }
        let totals = [self.uploaded, self.downloaded, self.seeding_s, self.announces];
        let [uploaded, downloaded, seeding_s, announces] = totals.map(u64::cast_signed);
        let first_used = self.first_used.unwrap_or(-1);
        let values = [node.into(), uploaded, downloaded, seeding_s, announces, first_used];
        digests::hash(Kind::KeyTotals, &rows::key_of_name(self.id), &values)
    }
}

const COLUMNS: &str = "id, uploaded, downloaded, seeding_s, announces, first_used";

fn read(row: &rusqlite::Row<'_>) -> Result<KeyCounts, rusqlite::Error> {
    let total = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(KeyCounts {
        id: row.get(0)?,
        uploaded: total(1)?,
        downloaded: total(2)?,
        seeding_s: total(3)?,
        announces: total(4)?,
        first_used: row.get(5)?,
    })
}

/// Changes what a node has counted for a key, by `change`. Returns the result.
fn change(
    db: &Connection,
    to: &mut Consequences,
    (id, node): (u32, u8),
    change: impl FnOnce(&mut KeyCounts),
) -> Result<KeyCounts, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS} FROM key_totals WHERE id = ?1 AND node = ?2");
    let old = db.prepare_cached(&sql)?.query_row(params![id, node], read).optional()?;
    let old = old.unwrap_or_else(|| KeyCounts { id, ..KeyCounts::default() });
    let mut new = old.clone();
    change(&mut new);
    if new == old {
        return Ok(new);
    }
    let sql = format!(
        "INSERT OR REPLACE INTO key_totals (node, {COLUMNS}, changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
    );
    db.prepare_cached(&sql)?.execute(params![
        node,
        id,
        new.uploaded.cast_signed(),
        new.downloaded.cast_signed(),
        new.seeding_s.cast_signed(),
        new.announces.cast_signed(),
        new.first_used,
        to.clock.now_s()
    ])?;
    to.digests.replace(Kind::KeyTotals, &rows::key_of_name(id), old.hash(node), new.hash(node));
    Ok(new)
}

/// Adds what this node has counted for a key. Returns what it has counted in all; `None` if there is no such key.
pub(in super::super) fn add(
    db: &Connection,
    to: &mut Consequences,
    id: u32,
    delta: &Totals,
    used: Option<i64>,
) -> Result<Option<KeyCounts>, rusqlite::Error> {
    if !db.prepare_cached("SELECT 1 FROM keys WHERE id = ?1")?.exists([id])? {
        return Ok(None);
    }
    let node = to.clock.node;
    let add = |counts: &mut KeyCounts| {
        counts.add(delta);
        counts.use_at(used);
    };
    change(db, to, (id, node), add).map(Some)
}

/// Returns whether a key was used before, at any node.
pub(in super::super) fn is_used(db: &Connection, id: u32) -> Result<bool, rusqlite::Error> {
    let sql = "SELECT 1 FROM key_totals WHERE id = ?1 AND first_used IS NOT NULL";
    db.prepare_cached(sql)?.exists([id])
}

/// Merges what `node` has counted. Keys that are not known yet are left out: they come again.
pub(in super::super) fn merge(
    db: &Connection,
    to: &mut Consequences,
    node: u8,
    keys: &[KeyCounts],
) -> Result<(), rusqlite::Error> {
    for theirs in keys {
        if stamps::get(db, &Row::named(Kind::Keys, theirs.id))?.is_none() {
            continue;
        }
        let mut is_higher = false;
        let raise = |counts: &mut KeyCounts| {
            let before = counts.clone();
            counts.raise(theirs);
            is_higher = *counts != before;
        };
        change(db, to, (theirs.id, node), raise)?;
        to.count_merged(is_higher);
    }
    Ok(())
}

fn of_key(db: &Connection, id: u32) -> Result<Vec<(u8, KeyCounts)>, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS}, node FROM key_totals WHERE id = ?1");
    let mut rows = db.prepare_cached(&sql)?;
    rows.query_map([id], |row| Ok((row.get(6)?, read(row)?)))?.collect()
}

pub(in super::super) fn remove(
    db: &Connection,
    to: &mut Consequences,
    id: u32,
) -> Result<(), rusqlite::Error> {
    for (node, counts) in of_key(db, id)? {
        to.digests.replace(Kind::KeyTotals, &rows::key_of_name(id), counts.hash(node), 0);
    }
    db.execute("DELETE FROM key_totals WHERE id = ?1", [id])?;
    Ok(())
}

/// Moves all totals of a key to another id of it.
pub(in super::super) fn rename(
    db: &Connection,
    to: &mut Consequences,
    old: u32,
    new: u32,
) -> Result<(), rusqlite::Error> {
    for (node, theirs) in of_key(db, old)? {
        change(db, to, (new, node), |counts| counts.raise(&theirs))?;
    }
    remove(db, to, old)
}

/// Calls `see` with what each node has counted for keys from `first` to before `end` of the table of stamps, in their
/// order, until it returns false.
pub(in super::super) fn each(
    db: &Connection,
    first: &[u8],
    end: &[u8],
    mut see: impl FnMut(&[u8], u8, KeyCounts) -> bool,
) -> Result<(), rusqlite::Error> {
    let sql = "SELECT key FROM stamps WHERE kind = ?1 AND key >= ?2 AND key < ?3 ORDER BY key";
    let mut keys = db.prepare_cached(sql)?;
    let mut keys = keys.query(params![Kind::Keys as u8, first, end])?;
    while let Some(row) = keys.next()? {
        let key: Vec<u8> = row.get(0)?;
        let id = rows::name_in_key(&key).parse().unwrap_or_default();
        for (node, counts) in of_key(db, id)? {
            if !see(&key, node, counts) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Adds all totals to the digests.
pub(in super::super) fn digest_all(
    db: &Connection,
    to: &mut Consequences,
) -> Result<(), rusqlite::Error> {
    let mut rows = db.prepare(&format!("SELECT {COLUMNS}, node FROM key_totals"))?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let counts = read(row)?;
        let hash = counts.hash(row.get(6)?);
        to.digests.replace(Kind::KeyTotals, &rows::key_of_name(counts.id), 0, hash);
    }
    Ok(())
}
