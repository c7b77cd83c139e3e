//! The table of stamps: one for each row, and for each row that was removed in a cluster (a tombstone), so that a
//! change that comes late does not bring it back. Entries of lists are in this table only.

use rusqlite::{Connection, OptionalExtension, params};

use super::changes::Consequences;
use super::digests;
use super::rows::{self, Kind, Row};
use super::stamp::{Clock, Stamp};
use super::tables::{bans, counts, key_totals};

/// Time for which tombstones are kept: a node that was away for longer may bring back rows that were removed meanwhile.
/// A year and a month; 40 bytes each.
const TOMBSTONE_MS: u64 = 400 * 86_400_000;

/// State of a row since its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) stamp: Stamp,
    pub(super) is_removed: bool,
}

impl State {
    fn hash(self, kind: Kind, key: &[u8]) -> u64 {
        digests::hash(kind, key, &[self.stamp.number(), self.is_removed.into()])
    }
}

/// Returns what became of a row; `None` if nothing is known of it.
pub(super) fn get(db: &Connection, row: &Row) -> Result<Option<State>, rusqlite::Error> {
    let sql = "SELECT stamp, is_removed FROM stamps WHERE kind = ?1 AND key = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok(State { stamp: row.get(0)?, is_removed: row.get(1)? });
    db.prepare_cached(sql)?.query_row(params![row.kind as u8, row.key], read).optional()
}

impl Consequences {
    /// Notes a change of a row that was made here. Returns false if the row is an entry of a list that is so already.
    pub(super) fn note(
        &mut self,
        db: &Connection,
        row: &Row,
        new: State,
    ) -> Result<bool, rusqlite::Error> {
        let old = get(db, row)?;
        let was_removed = old.is_none_or(|old| old.is_removed);
        if row.kind.list().is_some() && was_removed == new.is_removed {
            return Ok(false);
        }
        let is_kept = !new.is_removed || self.clock.node > 0;
        self.set(db, row, old, is_kept.then_some(new))?;
        Ok(true)
    }

    /// Notes a change of a row that another node made, if it is later than the last one known. Returns false if it
    /// is not.
    pub(super) fn take(
        &mut self,
        db: &Connection,
        row: &Row,
        new: State,
    ) -> Result<bool, rusqlite::Error> {
        let old = get(db, row)?;
        let is_newer = old.is_none_or(|old| old.stamp < new.stamp);
        self.count_merged(is_newer);
        if is_newer {
            self.set(db, row, old, Some(new))?;
        }
        Ok(is_newer)
    }

    fn set(
        &mut self,
        db: &Connection,
        row: &Row,
        old: Option<State>,
        new: Option<State>,
    ) -> Result<(), rusqlite::Error> {
        let Row { kind, key } = row;
        match new {
            Some(State { stamp, is_removed }) => db
                .prepare_cached("INSERT OR REPLACE INTO stamps VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![*kind as u8, key, stamp, is_removed])?,
            None => db
                .prepare_cached("DELETE FROM stamps WHERE kind = ?1 AND key = ?2")?
                .execute(params![*kind as u8, key])?,
        };
        let hash = |state: Option<State>| state.map_or(0, |state| state.hash(*kind, key));
        self.digests.replace(*kind, key, hash(old), hash(new));
        Ok(())
    }

    /// Makes a row unknown.
    pub(super) fn forget(&mut self, db: &Connection, row: &Row) -> Result<(), rusqlite::Error> {
        let old = get(db, row)?;
        self.set(db, row, old, None)
    }

    /// Returns the stamp before which tombstones are not kept.
    pub(super) fn oldest_tombstone(&self) -> Stamp {
        Stamp::at(self.clock.now_ms.saturating_sub(TOMBSTONE_MS))
    }

    /// Removes bans that have expired, and tombstones after [`TOMBSTONE_MS`]. All nodes do this at about the same time,
    /// and tell no other.
    pub(super) fn remove_expired(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        for ban in bans::take_expired(db, self.clock.now_s())? {
            let row = Row::named(Kind::Bans, &ban.network);
            let old = get(db, &row)?;
            // An automatic ban has replaced no other ban, so no earlier one can come back.
            let tombstone = old.filter(|_| !ban.automatic && self.clock.node > 0);
            let tombstone = tombstone.map(|old| State { is_removed: true, ..old });
            self.set(db, &row, old, tombstone)?;
        }
        let mut old = db.prepare_cached(
            "SELECT kind, key FROM stamps WHERE is_removed AND stamp < ?1 ORDER BY stamp LIMIT 10000",
        )?;
        let old = old.query_map([self.oldest_tombstone()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (kind, key) in old.collect::<Result<Vec<(u8, Vec<u8>)>, _>>()? {
            let Some(kind) = Kind::ALL.get(usize::from(kind)).copied() else { continue };
            let row = Row { kind, key };
            self.forget(db, &row)?;
            if kind == Kind::Keys {
                let id = rows::name_in_key(&row.key).parse().unwrap_or_default();
                key_totals::remove(db, self, id)?;
            }
        }
        Ok(())
    }
}

/// Calls `see` with the rows and tombstones of a kind, from the first key to before the end, in their order, until it
/// returns false.
pub(super) fn each(
    db: &Connection,
    kind: Kind,
    (first, end): (&[u8], &[u8]),
    mut see: impl FnMut(&[u8], State) -> Result<bool, rusqlite::Error>,
) -> Result<(), rusqlite::Error> {
    let mut rows = db.prepare_cached(
        "SELECT key, stamp, is_removed FROM stamps WHERE kind = ?1 AND key >= ?2 AND key < ?3
         ORDER BY key",
    )?;
    let mut rows = rows.query(params![kind as u8, first, end])?;
    while let Some(row) = rows.next()? {
        let state = State { stamp: row.get(1)?, is_removed: row.get(2)? };
        if !see(&row.get::<_, Vec<u8>>(0)?, state)? {
            break;
        }
    }
    Ok(())
}

pub(super) fn tombstones(db: &Connection) -> Result<u64, rusqlite::Error> {
    let sql = "SELECT count(*) FROM stamps WHERE is_removed";
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Stamps rows of an older schema with the oldest stamp, and computes all digests. Does nothing if there is a clock
/// already.
pub(super) fn adopt(db: &Connection) -> Result<(), rusqlite::Error> {
    if read_clock(db)?.is_some() {
        return Ok(());
    }
    const NAMES: [(Kind, &str); 6] = [
        (Kind::Tokens, "SELECT CAST(id AS TEXT) FROM tokens"),
        (Kind::Webhooks, "SELECT CAST(id AS TEXT) FROM webhooks"),
        (Kind::Settings, "SELECT name FROM settings"),
        (Kind::IgnoredNodes, "SELECT CAST(node AS TEXT) FROM ignored_nodes"),
        (Kind::Bans, "SELECT network FROM bans"),
        (Kind::Keys, "SELECT CAST(id AS TEXT) FROM keys"),
    ];
    let transaction = db.unchecked_transaction()?;
    let mut to = Consequences::new(Clock { node: 0, last: Stamp::OLDEST, now_ms: 0 });
    let state = State { stamp: Stamp::OLDEST, is_removed: false };
    for (kind, sql) in NAMES {
        let mut names = db.prepare(sql)?;
        let mut names = names.query([])?;
        while let Some(row) = names.next()? {
            let row = Row::named(kind, row.get::<_, String>(0)?);
            to.set(db, &row, None, Some(state))?;
        }
    }
    for kind in [Kind::Frozen, Kind::Allow, Kind::Deny] {
        each(db, kind, (&[], &[0xff; 21]), |key, state| {
            to.digests.replace(kind, key, 0, state.hash(kind, key));
            Ok(true)
        })?;
    }
    counts::digest_all(db, &mut to)?;
    key_totals::digest_all(db, &mut to)?;
    to.write(db)?;
    db.execute("INSERT OR IGNORE INTO clock VALUES (0, ?1)", [Stamp::OLDEST])?;
    transaction.commit()
}

/// Returns the number of this node, 0 outside clusters, and the last stamp.
pub(super) fn read_clock(db: &Connection) -> Result<Option<(u8, Stamp)>, rusqlite::Error> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    db.query_row("SELECT node, stamp FROM clock", [], read).optional()
}

/// Makes this node `node`. Ids that another node has assigned with the same file are not continued. Those of this node
/// are: records that were migrated from 1.0.0 have them, but not the node's number. Rows with ids from before the
/// cluster get the node's own stamps: in no other node's table these ids mean the same rows.
pub(super) fn set_node(
    db: &Connection,
    to: &mut Consequences,
    node: u8,
) -> Result<(), rusqlite::Error> {
    let old = read_clock(db)?.map_or(0, |(node, _)| node);
    if old == node {
        return Ok(());
    }
    db.execute("DELETE FROM last_ids WHERE id % 256 <> ?1", [node])?;
    db.execute("UPDATE clock SET node = ?1", [node])?;
    if old > 0 {
        return Ok(());
    }
    for kind in [Kind::Tokens, Kind::Webhooks, Kind::Keys] {
        let mut keys = db.prepare("SELECT key FROM stamps WHERE kind = ?1")?;
        let keys = keys.query_map([kind as u8], |row| row.get(0))?;
        for key in keys.collect::<Result<Vec<Vec<u8>>, _>>()? {
            let row = Row { kind, key };
            let old = get(db, &row)?;
            let stamp = to.clock.next();
            to.set(db, &row, old, old.map(|old| State { stamp, ..old }))?;
        }
    }
    Ok(())
}
