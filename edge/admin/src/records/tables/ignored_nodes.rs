//! Nodes of the cluster that are ignored.

use rusqlite::Connection;

/// Adds or removes a node. Returns how many rows that changed.
pub(crate) fn set(
    connection: &Connection,
    node: u8,
    is_ignored: bool,
) -> Result<usize, rusqlite::Error> {
    let sql = if is_ignored {
        "INSERT OR IGNORE INTO ignored_nodes (node) VALUES (?1)"
    } else {
        "DELETE FROM ignored_nodes WHERE node = ?1"
    };
    connection.execute(sql, [node])
}

pub(crate) fn all(connection: &Connection) -> Result<Vec<u8>, rusqlite::Error> {
    let mut rows = connection.prepare("SELECT node FROM ignored_nodes ORDER BY node")?;
    rows.query_map([], |row| row.get(0))?.collect()
}
