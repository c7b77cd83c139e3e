//! What is in the records, table by table: each change and each look is a function of a connection.

pub(crate) mod bans;
pub(crate) mod counts;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod settings;
pub(crate) mod tokens;
pub(crate) mod webhooks;

use rusqlite::Row;
use types::InfoHash;

/// An info hash, as 20 bytes.
fn hash(row: &Row<'_>, column: usize) -> Result<InfoHash, rusqlite::Error> {
    row.get::<_, [u8; 20]>(column).map(InfoHash)
}
