//! Settings that the API has set, as JSON. They override the file and the environment.

use rusqlite::{Connection, params};

/// Sets values, and removes those that are `None`.
pub(crate) fn put(
    connection: &Connection,
    values: &[(String, Option<String>)],
) -> Result<(), rusqlite::Error> {
    let mut set = connection.prepare(
        "INSERT INTO settings (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?;
    let mut unset = connection.prepare("DELETE FROM settings WHERE name = ?1")?;
    for (name, value) in values {
        match value {
            Some(value) => set.execute(params![name, value])?,
            None => unset.execute([name])?,
        };
    }
    Ok(())
}

/// Returns all settings.
pub(crate) fn all(connection: &Connection) -> Result<Vec<(String, String)>, rusqlite::Error> {
    let mut rows = connection.prepare("SELECT name, value FROM settings ORDER BY name")?;
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
