//! Bearer tokens. Only their digests are stored.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::ids;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    pub(crate) id: i64,
    /// SHA-256.
    pub(crate) digest: [u8; 32],
    pub(crate) name: String,
    /// Names separated by spaces.
    pub(crate) scopes: String,
    pub(crate) created: i64,
    pub(crate) expires: Option<i64>,
    /// True if it is the first token, which ends when another takes over.
    pub(crate) is_first: bool,
}

impl TokenRow {
    /// Returns whether it has expired at the Unix time `now`.
    pub(crate) fn has_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

const COLUMNS: &str = "id, digest, name, scopes, created, expires, is_first";

fn read(row: &Row<'_>) -> Result<TokenRow, rusqlite::Error> {
    Ok(TokenRow {
        id: row.get(0)?,
        digest: row.get(1)?,
        name: row.get(2)?,
        scopes: row.get(3)?,
        created: row.get(4)?,
        expires: row.get(5)?,
        is_first: row.get(6)?,
    })
}

/// Adds a token. Id 0 is replaced with the next one. Returns the id.
pub(crate) fn insert(connection: &Connection, row: &mut TokenRow) -> Result<i64, rusqlite::Error> {
    if row.id == 0 {
        row.id = ids::next(connection, "tokens")?.into();
    }
    connection.execute(
        &format!("INSERT INTO tokens ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"),
        params![row.id, row.digest, row.name, row.scopes, row.created, row.expires, row.is_first],
    )?;
    Ok(row.id)
}

/// Adds a token or replaces that of the same id.
pub(in super::super) fn put(
    connection: &Connection,
    row: &TokenRow,
) -> Result<(), rusqlite::Error> {
    ids::note(connection, "tokens", row.id)?;
    remove(connection, row.id)?;
    insert(connection, &mut row.clone()).map(drop)
}

/// Returns a token.
pub(in super::super) fn get(
    connection: &Connection,
    id: i64,
) -> Result<Option<TokenRow>, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1");
    connection.query_row(&sql, [id], read).optional()
}

/// Returns the id of the token with this digest.
pub(in super::super) fn id_of(
    connection: &Connection,
    digest: &[u8; 32],
) -> Result<Option<i64>, rusqlite::Error> {
    let sql = "SELECT id FROM tokens WHERE digest = ?1";
    connection.query_row(sql, [digest], |row| row.get(0)).optional()
}

/// Removes a token; returns whether it existed.
pub(crate) fn remove(connection: &Connection, id: i64) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM tokens WHERE id = ?1", [id])? > 0)
}

/// Returns all tokens: there are few.
pub(crate) fn all(connection: &Connection) -> Result<Vec<TokenRow>, rusqlite::Error> {
    let mut rows = connection.prepare(&format!("SELECT {COLUMNS} FROM tokens ORDER BY id"))?;
    rows.query_map([], read)?.collect()
}
