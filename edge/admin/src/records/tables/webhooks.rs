//! Webhooks.

use rusqlite::{Connection, OptionalExtension, Row, params};
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

const COLUMNS: &str = "id, url, events, secret, created, token";

fn read(row: &Row<'_>) -> Result<WebhookRow, rusqlite::Error> {
    Ok(WebhookRow {
        id: row.get(0)?,
        url: row.get(1)?,
        events: row.get(2)?,
        secret: row.get(3)?,
        created: row.get(4)?,
        token: row.get(5)?,
    })
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
        &format!("INSERT INTO webhooks ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"),
        params![row.id, row.url, row.events, row.secret, row.created, row.token],
    )?;
    Ok(row.id)
}

/// Adds a webhook or replaces that of the same id.
pub(in super::super) fn put(
    connection: &Connection,
    row: &WebhookRow,
) -> Result<(), rusqlite::Error> {
    ids::note(connection, "webhooks", row.id)?;
    remove(connection, row.id)?;
    insert(connection, &mut row.clone()).map(drop)
}

/// Returns a webhook.
pub(in super::super) fn get(
    connection: &Connection,
    id: i64,
) -> Result<Option<WebhookRow>, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS} FROM webhooks WHERE id = ?1");
    connection.query_row(&sql, [id], read).optional()
}

/// Removes a webhook; returns whether it existed.
pub(crate) fn remove(connection: &Connection, id: i64) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM webhooks WHERE id = ?1", [id])? > 0)
}

/// Returns all webhooks: there are few.
pub(crate) fn all(connection: &Connection) -> Result<Vec<WebhookRow>, rusqlite::Error> {
    let mut rows = connection.prepare(&format!("SELECT {COLUMNS} FROM webhooks ORDER BY id"))?;
    rows.query_map([], read)?.collect()
}
