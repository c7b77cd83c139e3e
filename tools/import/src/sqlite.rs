//! Tables of SQLite databases, opened for reading only.

use std::path::Path;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::error::{ImportError, Place};
use crate::row::{Field, Row};

/// Reads the rows of those tables that `is_wanted` accepts.
///
/// # Errors
///
/// Fails if the database cannot be read, and as `take` does.
pub(crate) fn read(
    path: &Path,
    file: &Arc<str>,
    is_wanted: &dyn Fn(&str) -> bool,
    take: &mut dyn FnMut(&Row<'_>) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let place = Place::file(file);
    let fail =
        |error: rusqlite::Error| place.error(format_args!("cannot read the database: {error}"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(fail)?;
    // A hostile schema gets no functions, and values have a limit.
    database.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA query_only = ON").map_err(fail)?;
    let mut names = database
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .map_err(fail)?;
    let names = names.query_map([], |row| row.get::<_, String>(0)).map_err(fail)?;
    let names: Vec<String> = names.collect::<Result<_, _>>().map_err(fail)?;
    for table in names.iter().filter(|name| is_wanted(name)) {
        let sql = format!("SELECT * FROM \"{}\"", table.replace('"', "\"\""));
        let mut select = database.prepare(&sql).map_err(fail)?;
        let columns: Vec<String> = select.column_names().map(String::from).collect();
        let mut fields = vec![Field::default(); columns.len()];
        let mut rows = select.query([]).map_err(fail)?;
        let file: Arc<str> = format!("{file}, table {table}").into();
        let mut place = Place { file, line: 0 };
        while let Some(row) = rows.next().map_err(fail)? {
            place.line += 1;
            for (at, field) in fields.iter_mut().enumerate() {
                fill(field, row.get_ref(at).map_err(fail)?);
            }
            take(&Row { table, columns: &columns, fields: &fields, place: &place })?;
        }
    }
    Ok(())
}

fn fill(field: &mut Field, value: ValueRef<'_>) {
    field.clear();
    match value {
        ValueRef::Null => field.is_null = true,
        ValueRef::Integer(number) => field.extend(number.to_string().as_bytes()),
        ValueRef::Real(number) => field.extend(number.to_string().as_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => field.extend(bytes),
    }
}
