//! Ids of keys, tokens and webhooks.

use rusqlite::{Connection, OptionalExtension};

/// Returns the id of the next row of `table`: one more than any row of it has ever had.
pub(super) fn next(connection: &Connection, table: &str) -> Result<u32, rusqlite::Error> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
    let last: Option<i64> = connection.query_row(sql, [table], |row| row.get(0)).optional()?;
    // Ids are sequential: 2^32 rows are more than any disk holds.
    let id = u32::try_from(last.unwrap_or(0) + 1);
    debug_assert!(id.is_ok(), "ids are exhausted");
    id.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
