//! Ids of keys, tokens and webhooks.
//!
//! Outside clusters they are sequential. In a cluster, each node assigns ids that no other assigns: from
//! 2²⁸ on, the last 8 bits are the node's number. Ids below are those from before the cluster; ids from 2³¹
//! on are those of keys in files.

use rusqlite::{Connection, OptionalExtension, params};
use tracker::KeyId;

use super::super::stamps;

/// The first id of clusters. It leaves 7,340,032 ids for each node.
const CLUSTER_BASE: u32 = 1 << 28;

/// Returns the id of the next row of `table`: one that no row of it has ever had.
pub(super) fn next(db: &Connection, table: &str) -> Result<u32, rusqlite::Error> {
    match node(db)? {
        0 => next_sequential(db, table),
        node => next_of_node(db, table, node),
    }
}

/// Returns the number of this node; 0 outside clusters.
fn node(db: &Connection) -> Result<u8, rusqlite::Error> {
    Ok(stamps::read_clock(db)?.map_or(0, |(node, _)| node))
}

fn next_sequential(db: &Connection, table: &str) -> Result<u32, rusqlite::Error> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
    let last: Option<i64> = db.query_row(sql, [table], |row| row.get(0)).optional()?;
    // 2^31 rows are more than any disk holds.
    checked(last.unwrap_or(0) + 1)
}

fn next_of_node(db: &Connection, table: &str, node: u8) -> Result<u32, rusqlite::Error> {
    let sql = "SELECT id FROM last_ids WHERE name = ?1";
    let last: Option<i64> = db.query_row(sql, [table], |row| row.get(0)).optional()?;
    let before = i64::from(CLUSTER_BASE) + i64::from(node);
    let id = checked(last.unwrap_or(before) + 256)?;
    note(db, table, id.into())?;
    Ok(id)
}

/// Notes that a row of `table` has this id: if it is one that this node assigns, the next one is larger.
pub(super) fn note(db: &Connection, table: &str, id: i64) -> Result<(), rusqlite::Error> {
    if is_early(id) || id % 256 != i64::from(node(db)?) {
        return Ok(());
    }
    db.execute(
        "INSERT INTO last_ids (name, id) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET id = max(id, excluded.id)",
        params![table, id],
    )?;
    Ok(())
}

/// Returns true if an id was assigned outside a cluster.
pub(crate) fn is_early(id: i64) -> bool {
    id < i64::from(CLUSTER_BASE)
}

fn checked(id: i64) -> Result<u32, rusqlite::Error> {
    let id = u32::try_from(id).ok().filter(|id| *id < KeyId::FILE_FIRST);
    debug_assert!(id.is_some(), "ids are exhausted");
    id.ok_or_else(|| rusqlite::Error::ToSqlConversionFailure("all ids have been assigned".into()))
}
