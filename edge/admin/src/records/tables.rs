//! The tables of the records. Each change and each read is a function of a connection.

/// Makes what reads and writes a table whose columns have the names of a struct's fields.
macro_rules! columns {
    ($row:ident, $table:literal: $first:ident $(, $column:ident)+) => {
        const COLUMNS: &str = concat!(stringify!($first) $(, ", ", stringify!($column))+);
        const INSERT: &str = concat!(
            "INSERT INTO ", $table, " (", stringify!($first) $(, ", ", stringify!($column))+,
            ") VALUES (:", stringify!($first) $(, ", :", stringify!($column))+, ")"
        );

        fn read(row: &rusqlite::Row<'_>) -> Result<$row, rusqlite::Error> {
            let $first = row.get(stringify!($first))?;
            Ok($row { $first, $($column: row.get(stringify!($column))?),+ })
        }

        fn write(
            insert: &mut rusqlite::Statement<'_>,
            row: &$row,
        ) -> Result<usize, rusqlite::Error> {
            insert.execute(rusqlite::params![row.$first $(, row.$column)+])
        }
    };
}

/// Makes the functions of a table with ids and few rows.
macro_rules! table_with_ids {
    ($row:ident, $table:literal: $($column:ident),+) => {
        columns!($row, $table: $($column),+);

        /// Adds a row. Id 0 is replaced with the next one. Returns the id.
        pub(crate) fn insert(db: &Connection, row: &mut $row) -> Result<i64, rusqlite::Error> {
            if row.id == 0 {
                row.id = super::ids::next(db, $table)?.into();
            }
            write(&mut db.prepare(INSERT)?, row)?;
            Ok(row.id)
        }

        /// Adds a row or replaces that of the same id.
        pub(in super::super) fn put(db: &Connection, row: &$row) -> Result<(), rusqlite::Error> {
            super::ids::note(db, $table, row.id)?;
            remove(db, row.id)?;
            insert(db, &mut row.clone()).map(drop)
        }

        pub(in super::super) fn get(
            db: &Connection,
            id: i64,
        ) -> Result<Option<$row>, rusqlite::Error> {
            let sql = format!(concat!("SELECT {} FROM ", $table, " WHERE id = ?1"), COLUMNS);
            db.query_row(&sql, [id], read).optional()
        }

        /// Removes a row; returns whether it existed.
        pub(crate) fn remove(db: &Connection, id: i64) -> Result<bool, rusqlite::Error> {
            Ok(db.execute(concat!("DELETE FROM ", $table, " WHERE id = ?1"), [id])? > 0)
        }

        pub(crate) fn all(db: &Connection) -> Result<Vec<$row>, rusqlite::Error> {
            let sql = format!(concat!("SELECT {} FROM ", $table, " ORDER BY id"), COLUMNS);
            db.prepare(&sql)?.query_map([], read)?.collect()
        }
    };
}

pub(crate) mod bans;
pub(crate) mod counts;
pub(crate) mod history;
pub(crate) mod ids;
pub(crate) mod ignored_nodes;
pub(crate) mod key_totals;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod settings;
pub(crate) mod tokens;
pub(crate) mod torrent_reasons;
pub(crate) mod webhooks;

use rusqlite::Row;
use types::InfoHash;

/// Reads an info hash from a column with 20 bytes.
fn hash(row: &Row<'_>, column: usize) -> Result<InfoHash, rusqlite::Error> {
    row.get::<_, [u8; 20]>(column).map(InfoHash)
}
