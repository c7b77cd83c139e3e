//! Sets of info hashes managed by the API: access list entries and frozen torrents.

use rusqlite::{Connection, params, params_from_iter};
use serde::{Deserialize, Serialize};
use types::InfoHash;

/// An access list, or the frozen torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// The torrents that are served.
    Allow,
    /// The torrents that are not served.
    Deny,
    /// The torrents that take no new peers.
    Frozen,
}

/// Rows in one statement.
const ROWS: usize = 64;

impl List {
    fn table(self) -> &'static str {
        match self {
            Self::Allow => "allowed",
            Self::Deny => "denied",
            Self::Frozen => "frozen",
        }
    }
}

/// Adds entries, fastest if they are sorted. Returns how many are new.
pub(crate) fn insert(
    connection: &Connection,
    list: List,
    hashes: &[InfoHash],
) -> Result<usize, rusqlite::Error> {
    // Many rows in one statement: its overhead equals the cost of a row.
    let statement = |rows: usize| {
        let rows = vec!["(?)"; rows].join(",");
        connection.prepare(&format!("INSERT OR IGNORE INTO {} VALUES {rows}", list.table()))
    };
    let (many, rest) = hashes.as_chunks::<ROWS>();
    let mut count = 0;
    let mut insert = statement(ROWS)?;
    for hashes in many {
        count += insert.execute(params_from_iter(hashes.iter().map(|hash| hash.0)))?;
    }
    let mut insert = statement(1)?;
    rest.iter().try_fold(count, |count, hash| Ok(count + insert.execute(params![hash.0])?))
}

/// Removes entries. Returns how many existed.
pub(crate) fn remove(
    connection: &Connection,
    list: List,
    hashes: &[InfoHash],
) -> Result<usize, rusqlite::Error> {
    let sql = format!("DELETE FROM {} WHERE hash = ?1", list.table());
    let mut delete = connection.prepare(&sql)?;
    hashes.iter().try_fold(0, |count, hash| Ok(count + delete.execute(params![hash.0])?))
}

/// Returns up to `limit` entries after `after`, sorted.
pub(crate) fn page(
    connection: &Connection,
    list: List,
    after: Option<InfoHash>,
    limit: u32,
) -> Result<Vec<InfoHash>, rusqlite::Error> {
    search(connection, list, ALL, after, limit)
}

/// The first and the last hash to find.
pub(crate) type HashRange = (InfoHash, InfoHash);

/// All hashes.
const ALL: HashRange = (InfoHash([0; 20]), InfoHash([0xff; 20]));

/// Like [`page`], of the entries within `range`.
pub(crate) fn search(
    connection: &Connection,
    list: List,
    (first, last): HashRange,
    after: Option<InfoHash>,
    limit: u32,
) -> Result<Vec<InfoHash>, rusqlite::Error> {
    // One lower bound: with two, SQLite might begin at the smaller one.
    let (above, low) = match after {
        Some(after) if after >= first => (">", after),
        _ => (">=", first),
    };
    let sql = format!(
        "SELECT hash FROM {} WHERE hash {above} ?1 AND hash <= ?2 ORDER BY hash LIMIT ?3",
        list.table()
    );
    let mut page = connection.prepare(&sql)?;
    let rows = page.query_map(params![low.0, last.0, limit], |row| super::hash(row, 0))?;
    rows.collect()
}

/// Returns the number of entries within `range`.
pub(crate) fn count(
    connection: &Connection,
    list: List,
    (first, last): HashRange,
) -> Result<u64, rusqlite::Error> {
    let sql = format!("SELECT count(*) FROM {} WHERE hash BETWEEN ?1 AND ?2", list.table());
    let count: i64 = connection.query_row(&sql, params![first.0, last.0], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}
