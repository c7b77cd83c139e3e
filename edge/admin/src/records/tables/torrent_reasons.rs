//! Torrents that are refused with reasons of their own.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use types::InfoHash;

use super::super::json;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonRow {
    #[serde(with = "json::hash")]
    pub(crate) info_hash: InfoHash,
    /// The text that clients show.
    pub(crate) reason: String,
}

fn read(row: &Row<'_>) -> Result<ReasonRow, rusqlite::Error> {
    Ok(ReasonRow { info_hash: super::hash(row, 0)?, reason: row.get(1)? })
}

/// Adds rows, or replaces their reasons.
pub(crate) fn put(connection: &Connection, rows: &[ReasonRow]) -> Result<(), rusqlite::Error> {
    let mut put =
        connection.prepare_cached("INSERT OR REPLACE INTO torrent_reasons VALUES (?1, ?2)")?;
    for ReasonRow { info_hash, reason } in rows {
        put.execute(params![info_hash.0, reason])?;
    }
    Ok(())
}

/// Removes rows, and returns the torrents that had one.
pub(crate) fn remove(
    connection: &Connection,
    hashes: &[InfoHash],
) -> Result<Vec<InfoHash>, rusqlite::Error> {
    let mut remove = connection.prepare_cached("DELETE FROM torrent_reasons WHERE hash = ?1")?;
    let mut removed = Vec::new();
    for hash in hashes {
        if remove.execute([hash.0])? > 0 {
            removed.push(*hash);
        }
    }
    Ok(removed)
}

pub(in super::super) fn get(
    connection: &Connection,
    hash: InfoHash,
) -> Result<Option<ReasonRow>, rusqlite::Error> {
    let sql = "SELECT hash, reason FROM torrent_reasons WHERE hash = ?1";
    connection.prepare_cached(sql)?.query_row([hash.0], read).optional()
}

/// Returns up to `limit` rows after the torrent `after`, sorted by info hash.
pub(crate) fn page(
    connection: &Connection,
    after: Option<InfoHash>,
    limit: u32,
) -> Result<Vec<ReasonRow>, rusqlite::Error> {
    let sql = "SELECT hash, reason FROM torrent_reasons WHERE hash > ?1 ORDER BY hash LIMIT ?2";
    // An empty blob is before all others.
    let after = after.map_or_else(Vec::new, |hash| hash.0.to_vec());
    let mut page = connection.prepare(sql)?;
    let rows = page.query_map(params![after, limit], read)?;
    rows.collect()
}
