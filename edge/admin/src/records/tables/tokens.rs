//! Bearer tokens. Only their digests are stored.

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

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

table_with_ids!(TokenRow, "tokens": id, digest, name, scopes, created, expires, is_first);

/// Returns the id of the token with this digest.
pub(in super::super) fn id_of(
    connection: &Connection,
    digest: &[u8; 32],
) -> Result<Option<i64>, rusqlite::Error> {
    let sql = "SELECT id FROM tokens WHERE digest = ?1";
    connection.query_row(sql, [digest], |row| row.get(0)).optional()
}
