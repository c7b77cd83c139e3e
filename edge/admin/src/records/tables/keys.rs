//! User keys with their limits and totals.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use tracker::KeyTotals as Totals;
use utoipa::ToSchema;

use super::ids;
use crate::json::nullable;

/// A row. The key is stored in clear: administrators look it up for announce URLs.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    pub(crate) id: u32,
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) created: i64,
    pub(crate) expires: Option<i64>,
    /// In this and the other limits, 0 = unlimited.
    pub(crate) peers_per_torrent: u16,
    pub(crate) torrents: u32,
    pub(crate) addresses: u16,
    pub(crate) announces_per_minute: u16,
    /// True if the user may only seed. Nodes of earlier versions do not send it.
    #[serde(default)]
    pub(crate) seed_only: bool,
    #[serde(default)]
    pub(crate) download_slots: u32,
    #[serde(skip)]
    pub(crate) totals: Totals,
    #[serde(skip)]
    pub(crate) first_used: Option<i64>,
}

/// A change of a key; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyUpdate {
    /// Another key in place of the present one, which is unknown then; totals stay. Its clients are refused until they
    /// announce with the new one.
    #[schema(pattern = "^[A-Za-z0-9_-]{16,64}$")]
    pub(crate) key: Option<String>,
    #[schema(max_length = 100)]
    pub(crate) name: Option<String>,
    /// Unix time in seconds; null: never.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 253402300799i64)]
    pub(crate) expires: Option<Option<i64>>,
    #[schema(maximum = 65535)]
    pub(crate) peers_per_torrent: Option<u16>,
    #[schema(format = Int64, maximum = 4294967295u64)]
    pub(crate) torrents: Option<u32>,
    #[schema(maximum = 65535)]
    pub(crate) addresses: Option<u16>,
    #[schema(maximum = 65535)]
    pub(crate) announces_per_minute: Option<u16>,
    pub(crate) seed_only: Option<bool>,
    #[schema(format = Int64, maximum = 4294967295u64)]
    pub(crate) download_slots: Option<u32>,
}

/// Keys with their totals over all nodes.
const SELECT: &str = "SELECT keys.id, key, name, created, expires, peers_per_torrent, torrents, addresses,
    announces_per_minute, seed_only, download_slots, coalesce(sum(uploaded), 0), coalesce(sum(downloaded), 0),
    coalesce(sum(seeding_s), 0), coalesce(sum(announces), 0), min(first_used) FROM keys LEFT JOIN key_totals ON key_totals.id = keys.id";

fn read(row: &Row<'_>) -> Result<KeyRow, rusqlite::Error> {
    // Never negative: `key_totals` caps what it writes.
    let total = |column| row.get::<_, i64>(column).map(|total| total.unsigned_abs());
    Ok(KeyRow {
        id: row.get(0)?,
        key: row.get(1)?,
        name: row.get(2)?,
        created: row.get(3)?,
        expires: row.get(4)?,
        peers_per_torrent: row.get(5)?,
        torrents: row.get(6)?,
        addresses: row.get(7)?,
        announces_per_minute: row.get(8)?,
        seed_only: row.get(9)?,
        download_slots: row.get(10)?,
        totals: Totals {
            uploaded: total(11)?,
            downloaded: total(12)?,
            seeding_s: total(13)?,
            announces: total(14)?,
        },
        first_used: row.get(15)?,
    })
}

/// Adds a key without totals. Id 0 is replaced with the next one.
pub(crate) fn insert(connection: &Connection, row: &mut KeyRow) -> Result<(), rusqlite::Error> {
    if row.id == 0 {
        row.id = ids::next(connection, "keys")?;
    }
    let mut insert = connection.prepare_cached(
        "INSERT INTO keys (id, key, name, created, expires, peers_per_torrent, torrents, addresses,
             announces_per_minute, seed_only, download_slots) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    insert.execute(params![
        row.id,
        row.key,
        row.name,
        row.created,
        row.expires,
        row.peers_per_torrent,
        row.torrents,
        row.addresses,
        row.announces_per_minute,
        row.seed_only,
        row.download_slots
    ])?;
    Ok(())
}

/// Changes a key. Returns its row, or `None` if there is no such key.
pub(crate) fn update(
    connection: &Connection,
    id: u32,
    update: &KeyUpdate,
) -> Result<Option<KeyRow>, rusqlite::Error> {
    let Some(mut row) = get(connection, id)? else { return Ok(None) };
    row.key = update.key.clone().unwrap_or(row.key);
    row.name = update.name.clone().unwrap_or(row.name);
    row.expires = update.expires.unwrap_or(row.expires);
    row.peers_per_torrent = update.peers_per_torrent.unwrap_or(row.peers_per_torrent);
    row.torrents = update.torrents.unwrap_or(row.torrents);
    row.addresses = update.addresses.unwrap_or(row.addresses);
    row.announces_per_minute = update.announces_per_minute.unwrap_or(row.announces_per_minute);
    row.seed_only = update.seed_only.unwrap_or(row.seed_only);
    row.download_slots = update.download_slots.unwrap_or(row.download_slots);
    put(connection, &row)?;
    Ok(Some(row))
}

/// Adds a key or replaces that of the same id.
pub(in super::super) fn put(connection: &Connection, row: &KeyRow) -> Result<(), rusqlite::Error> {
    ids::note(connection, "keys", row.id.into())?;
    remove(connection, row.id)?;
    insert(connection, &mut row.clone())
}

/// Returns the id of the key with this text.
pub(in super::super) fn id_of(
    connection: &Connection,
    key: &str,
) -> Result<Option<u32>, rusqlite::Error> {
    let sql = "SELECT id FROM keys WHERE key = ?1";
    connection.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()
}

/// Removes a key; returns whether it existed.
pub(crate) fn remove(connection: &Connection, id: u32) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM keys WHERE id = ?1", [id])? > 0)
}

pub(crate) fn get(connection: &Connection, id: u32) -> Result<Option<KeyRow>, rusqlite::Error> {
    let sql = format!("{SELECT} WHERE keys.id = ?1 GROUP BY keys.id");
    connection.prepare_cached(&sql)?.query_row([id], read).optional()
}

/// SQL condition: a key matches the text `?1`, which is empty, a part of its name, the beginning of the key, or its id;
/// and its totals have changed, or it was created, at or after the time `?2`, if that is not null.
const MATCHES: &str = "(?1 = '' OR instr(lower(name), lower(?1)) > 0
    OR substr(key, 1, length(?1)) = ?1 OR CAST(keys.id AS TEXT) = ?1)
    AND (?2 IS NULL OR created >= ?2 OR keys.id IN (SELECT id FROM key_totals WHERE changed >= ?2))";

/// Keys that are searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyFilter {
    /// A part of the name, the beginning of the key, or the id. Empty: any.
    pub(crate) text: String,
    /// Only keys that changed since, unix time in seconds.
    pub(crate) changed_since: Option<i64>,
}

/// Returns up to `limit` keys that match, with ids above `after`, sorted by id.
pub(crate) fn page(
    connection: &Connection,
    filter: &KeyFilter,
    after: u32,
    limit: u32,
) -> Result<Vec<KeyRow>, rusqlite::Error> {
    let sql = format!(
        "{SELECT} WHERE keys.id > ?3 AND {MATCHES} GROUP BY keys.id ORDER BY keys.id LIMIT ?4"
    );
    let mut page = connection.prepare(&sql)?;
    let KeyFilter { text, changed_since } = filter;
    page.query_map(params![text, changed_since, after, limit], read)?.collect()
}

/// Returns how many keys match.
pub(crate) fn count(connection: &Connection, filter: &KeyFilter) -> Result<u64, rusqlite::Error> {
    let sql = format!("SELECT count(*) FROM keys WHERE {MATCHES}");
    let KeyFilter { text, changed_since } = filter;
    let count: i64 = connection.query_row(&sql, params![text, changed_since], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}
