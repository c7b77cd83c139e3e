//! Webhooks.

use rusqlite::{Connection, params};

/// A row.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct WebhookRow {
    pub(crate) id: i64,
    pub(crate) url: String,
    /// Labels of kinds separated by spaces.
    pub(crate) events: String,
    /// The key of signatures, which must be stored in clear.
    pub(crate) secret: String,
    pub(crate) created: i64,
}

/// Adds a webhook, ignoring the id in `row`. Returns the row with its id.
pub(crate) fn insert(
    connection: &Connection,
    row: WebhookRow,
) -> Result<WebhookRow, rusqlite::Error> {
    connection.execute(
        "INSERT INTO webhooks (url, events, secret, created) VALUES (?1, ?2, ?3, ?4)",
        params![row.url, row.events, row.secret, row.created],
    )?;
    Ok(WebhookRow { id: connection.last_insert_rowid(), ..row })
}

/// Removes a webhook; returns whether it existed.
pub(crate) fn remove(connection: &Connection, id: i64) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM webhooks WHERE id = ?1", [id])? > 0)
}

/// Returns all webhooks: there are few.
pub(crate) fn all(connection: &Connection) -> Result<Vec<WebhookRow>, rusqlite::Error> {
    let mut rows =
        connection.prepare("SELECT id, url, events, secret, created FROM webhooks ORDER BY id")?;
    let rows = rows.query_map([], |row| {
        Ok(WebhookRow {
            id: row.get(0)?,
            url: row.get(1)?,
            events: row.get(2)?,
            secret: row.get(3)?,
            created: row.get(4)?,
        })
    })?;
    rows.collect()
}
