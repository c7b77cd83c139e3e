//! User keys with their limits and totals.

use rusqlite::{Connection, OptionalExtension, Row, params};

use tracker::KeyTotals as Totals;

/// A row. The key is stored in clear: administrators look it up for announce URLs.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyRow {
    pub(crate) id: u32,
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) created: i64,
    pub(crate) rules: Rules,
    pub(crate) totals: Totals,
    pub(crate) first_used: Option<i64>,
}

/// Limits of a key; 0 = unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) expires: Option<i64>,
    pub(crate) peers_per_torrent: u16,
    pub(crate) torrents: u32,
    pub(crate) addresses: u16,
    pub(crate) announces_per_minute: u16,
}

const COLUMNS: &str = "id, key, name, created, expires, peers_per_torrent, torrents, addresses,
    announces_per_minute, uploaded, downloaded, seeding_s, announces, first_used";

fn read(row: &Row<'_>) -> Result<KeyRow, rusqlite::Error> {
    // Never negative: `counts::write` caps what it writes.
    let total = |column| row.get::<_, i64>(column).map(|total| total.unsigned_abs());
    Ok(KeyRow {
        id: row.get(0)?,
        key: row.get(1)?,
        name: row.get(2)?,
        created: row.get(3)?,
        rules: Rules {
            expires: row.get(4)?,
            peers_per_torrent: row.get(5)?,
            torrents: row.get(6)?,
            addresses: row.get(7)?,
            announces_per_minute: row.get(8)?,
        },
        totals: Totals {
            uploaded: total(9)?,
            downloaded: total(10)?,
            seeding_s: total(11)?,
            announces: total(12)?,
        },
        first_used: row.get(13)?,
    })
}

/// Adds a key, ignoring the id and totals in `row`. Returns the row with its id.
pub(crate) fn insert(connection: &Connection, row: KeyRow) -> Result<KeyRow, rusqlite::Error> {
    let Rules { expires, peers_per_torrent, torrents, addresses, announces_per_minute } = row.rules;
    connection.execute(
        "INSERT INTO keys (key, name, created, expires, peers_per_torrent, torrents, addresses,
             announces_per_minute) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            row.key,
            row.name,
            row.created,
            expires,
            peers_per_torrent,
            torrents,
            addresses,
            announces_per_minute
        ],
    )?;
    // Ids are sequential: 2^32 keys are more than any disk holds.
    let id = u32::try_from(connection.last_insert_rowid());
    debug_assert!(id.is_ok(), "key ids are exhausted");
    let id = id.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    Ok(KeyRow { id, ..row })
}

/// Changes the name and limits of a key; returns whether it existed.
pub(crate) fn update(
    connection: &Connection,
    id: u32,
    name: &str,
    rules: &Rules,
) -> Result<bool, rusqlite::Error> {
    let Rules { expires, peers_per_torrent, torrents, addresses, announces_per_minute } = *rules;
    let changed = connection.execute(
        "UPDATE keys SET name = ?2, expires = ?3, peers_per_torrent = ?4, torrents = ?5,
             addresses = ?6, announces_per_minute = ?7 WHERE id = ?1",
        params![id, name, expires, peers_per_torrent, torrents, addresses, announces_per_minute],
    )?;
    Ok(changed > 0)
}

/// Removes a key; returns whether it existed.
pub(crate) fn remove(connection: &Connection, id: u32) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM keys WHERE id = ?1", [id])? > 0)
}

/// Returns a key.
pub(crate) fn get(connection: &Connection, id: u32) -> Result<Option<KeyRow>, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS} FROM keys WHERE id = ?1");
    connection.query_row(&sql, [id], read).optional()
}

/// Returns up to `limit` keys with ids above `after`, sorted by id.
pub(crate) fn page(
    connection: &Connection,
    after: u32,
    limit: u32,
) -> Result<Vec<KeyRow>, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS} FROM keys WHERE id > ?1 ORDER BY id LIMIT ?2");
    let mut page = connection.prepare(&sql)?;
    let rows = page.query_map(params![after, limit], read)?;
    rows.collect()
}
