//! Sets of info hashes managed by the API: access list entries and frozen torrents.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use types::InfoHash;

use super::super::rows::Kind;

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

impl List {
    /// Returns the kind of its entries, which are rows of the table of stamps.
    pub(in super::super) fn kind(self) -> Kind {
        match self {
            Self::Allow => Kind::Allow,
            Self::Deny => Kind::Deny,
            Self::Frozen => Kind::Frozen,
        }
    }
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
        "SELECT key FROM stamps WHERE kind = ?4 AND key {above} ?1 AND key <= ?2 AND NOT is_removed
         ORDER BY key LIMIT ?3"
    );
    let mut page = connection.prepare(&sql)?;
    let bounds = params![low.0, last.0, limit, list.kind() as u8];
    let rows = page.query_map(bounds, |row| super::hash(row, 0))?;
    rows.collect()
}

/// Returns the number of entries within `range`.
pub(crate) fn count(
    connection: &Connection,
    list: List,
    (first, last): HashRange,
) -> Result<u64, rusqlite::Error> {
    let sql =
        "SELECT count(*) FROM stamps WHERE kind = ?1 AND key BETWEEN ?2 AND ?3 AND NOT is_removed";
    let bounds = params![list.kind() as u8, first.0, last.0];
    let count: i64 = connection.query_row(sql, bounds, |row| row.get(0))?;
    Ok(count.unsigned_abs())
}
