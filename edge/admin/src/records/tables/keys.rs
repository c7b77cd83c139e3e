//! User keys with their limits and totals.

use rusqlite::{Connection, OptionalExtension, Row, params};

use tracker::KeyTotals as Totals;

use super::ids;

/// A row. The key is stored in clear: administrators look it up for announce URLs.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRow {
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

/// A change of a key; fields that are `None` stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUpdate {
    pub(crate) id: u32,
    pub(crate) name: Option<String>,
    pub(crate) expires: Option<Option<i64>>,
    pub(crate) peers_per_torrent: Option<u16>,
    pub(crate) torrents: Option<u32>,
    pub(crate) addresses: Option<u16>,
    pub(crate) announces_per_minute: Option<u16>,
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

/// Adds a key without totals. Id 0 is replaced with the next one.
pub(crate) fn insert(connection: &Connection, row: &mut KeyRow) -> Result<(), rusqlite::Error> {
    if row.id == 0 {
        row.id = ids::next(connection, "keys")?;
    }
    let Rules { expires, peers_per_torrent, torrents, addresses, announces_per_minute } = row.rules;
    connection.execute(
        "INSERT INTO keys (id, key, name, created, expires, peers_per_torrent, torrents, addresses,
             announces_per_minute) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            row.id,
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
    Ok(())
}

/// Changes a key. Returns its row, or `None` if there is no such key.
pub(crate) fn update(
    connection: &Connection,
    update: &KeyUpdate,
) -> Result<Option<KeyRow>, rusqlite::Error> {
    let Some(mut row) = get(connection, update.id)? else { return Ok(None) };
    if let Some(name) = &update.name {
        row.name.clone_from(name);
    }
    let rules = &mut row.rules;
    rules.expires = update.expires.unwrap_or(rules.expires);
    rules.peers_per_torrent = update.peers_per_torrent.unwrap_or(rules.peers_per_torrent);
    rules.torrents = update.torrents.unwrap_or(rules.torrents);
    rules.addresses = update.addresses.unwrap_or(rules.addresses);
    rules.announces_per_minute = update.announces_per_minute.unwrap_or(rules.announces_per_minute);
    let Rules { expires, peers_per_torrent, torrents, addresses, announces_per_minute } = row.rules;
    connection.execute(
        "UPDATE keys SET name = ?2, expires = ?3, peers_per_torrent = ?4, torrents = ?5,
             addresses = ?6, announces_per_minute = ?7 WHERE id = ?1",
        params![
            row.id,
            row.name,
            expires,
            peers_per_torrent,
            torrents,
            addresses,
            announces_per_minute
        ],
    )?;
    Ok(Some(row))
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
