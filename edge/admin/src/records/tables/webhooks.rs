//! Webhooks.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::ids;

/// A row.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookRow {
    pub(crate) id: i64,
    pub(crate) url: String,
    /// Labels of kinds separated by spaces.
    pub(crate) events: String,
    /// The key of signatures, which must be stored in clear.
    pub(crate) secret: String,
    pub(crate) created: i64,
    /// The digest of the token that it ends with: that which created it, but the first token and that of the
    /// environment. A digest, because nodes that meet may give a token another id.
    #[serde(default)]
    pub(crate) token: Option<[u8; 32]>,
}

/// Adds a webhook. Id 0 is replaced with the next one. Returns the id.
pub(crate) fn insert(
    connection: &Connection,
    row: &mut WebhookRow,
) -> Result<i64, rusqlite::Error> {
    if row.id == 0 {
        row.id = ids::next(connection, "webhooks")?.into();
    }
    connection.execute(
        "INSERT INTO webhooks (id, url, events, secret, created, token) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![row.id, row.url, row.events, row.secret, row.created, row.token],
    )?;
    Ok(row.id)
}

/// Adds a webhook or replaces that of the same id.
pub(crate) fn put(connection: &Connection, row: &WebhookRow) -> Result<(), rusqlite::Error> {
    ids::note(connection, "webhooks", row.id)?;
    connection.execute(
        "INSERT INTO webhooks (id, url, events, secret, created, token) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET url = excluded.url, events = excluded.events,
             secret = excluded.secret, created = excluded.created, token = excluded.token",
        params![row.id, row.url, row.events, row.secret, row.created, row.token],
    )?;
    Ok(())
}

/// Removes a webhook; returns whether it existed.
pub(crate) fn remove(connection: &Connection, id: i64) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM webhooks WHERE id = ?1", [id])? > 0)
}

/// Returns all webhooks: there are few.
pub(crate) fn all(connection: &Connection) -> Result<Vec<WebhookRow>, rusqlite::Error> {
    let mut rows = connection
        .prepare("SELECT id, url, events, secret, created, token FROM webhooks ORDER BY id")?;
    let rows = rows.query_map([], |row| {
        Ok(WebhookRow {
            id: row.get(0)?,
            url: row.get(1)?,
            events: row.get(2)?,
            secret: row.get(3)?,
            created: row.get(4)?,
            token: row.get(5)?,
        })
    })?;
    rows.collect()
}
