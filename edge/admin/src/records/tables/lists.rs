//! Sets of info hashes that the API has made: access entries, frozen torrents.

use rusqlite::{Connection, params};
use types::InfoHash;

/// Which list: of the two that gate, or of the torrents that are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Allow,
    Deny,
    Frozen,
}

impl List {
    fn table(self) -> &'static str {
        match self {
            Self::Allow => "allowed",
            Self::Deny => "denied",
            Self::Frozen => "frozen",
        }
    }
}

/// Adds entries, fastest if they are sorted. Gives how many were not there.
pub(crate) fn insert(
    connection: &Connection,
    list: List,
    hashes: &[InfoHash],
) -> Result<usize, rusqlite::Error> {
    let sql = format!("INSERT OR IGNORE INTO {} VALUES (?1)", list.table());
    let mut insert = connection.prepare(&sql)?;
    hashes.iter().try_fold(0, |count, hash| Ok(count + insert.execute(params![hash.0])?))
}

/// Removes entries. Gives how many were there.
pub(crate) fn remove(
    connection: &Connection,
    list: List,
    hashes: &[InfoHash],
) -> Result<usize, rusqlite::Error> {
    let sql = format!("DELETE FROM {} WHERE hash = ?1", list.table());
    let mut delete = connection.prepare(&sql)?;
    hashes.iter().try_fold(0, |count, hash| Ok(count + delete.execute(params![hash.0])?))
}

/// Up to `limit` entries behind `after`, in order.
pub(crate) fn page(
    connection: &Connection,
    list: List,
    after: Option<InfoHash>,
    limit: u32,
) -> Result<Vec<InfoHash>, rusqlite::Error> {
    // Nothing is as short as an empty hash, so all are behind it.
    let after = after.map(|hash| hash.0.to_vec()).unwrap_or_default();
    let sql = format!("SELECT hash FROM {} WHERE hash > ?1 ORDER BY hash LIMIT ?2", list.table());
    let mut page = connection.prepare(&sql)?;
    let rows = page.query_map(params![after, limit], |row| super::hash(row, 0))?;
    rows.collect()
}
