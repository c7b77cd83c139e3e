//! Settings that the API has set, as JSON. They override the file and the environment. One row is no setting: the secrets
//! of the cluster.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use tracing::warn;

/// The name of the row with the secrets of the cluster, which `/config` neither shows nor sets.
pub(crate) const SECRETS: &str = "secrets of the cluster";

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

/// The same. Returns whether a value is another one now.
pub(crate) fn change(
    connection: &Connection,
    values: &[(String, Option<String>)],
) -> Result<bool, rusqlite::Error> {
    let mut differs = false;
    for (name, value) in values {
        differs |= get(connection, name)? != *value;
    }
    put(connection, values)?;
    Ok(differs)
}

/// Returns a setting as it is recorded.
pub(crate) fn get(connection: &Connection, name: &str) -> Result<Option<String>, rusqlite::Error> {
    let sql = "SELECT value FROM settings WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get(0)).optional()
}

/// Returns all settings as they are recorded.
pub(crate) fn texts(connection: &Connection) -> Result<Vec<(String, String)>, rusqlite::Error> {
    let sql = "SELECT name, value FROM settings WHERE name != ?1 ORDER BY name";
    let mut rows = connection.prepare(sql)?;
    let rows = rows.query_map([SECRETS], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Returns all settings. A value that is not JSON is logged and skipped: only another program can have
/// written it.
pub(crate) fn all(connection: &Connection) -> Result<Vec<(String, Value)>, rusqlite::Error> {
    let mut settings = Vec::new();
    for (name, text) in texts(connection)? {
        match serde_json::from_str(&text) {
            Ok(value) => settings.push((name, value)),
            Err(error) => warn!(name, %error, "recorded setting is not JSON and was ignored"),
        }
    }
    Ok(settings)
}
