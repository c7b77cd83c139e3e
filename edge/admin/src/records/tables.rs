//! The tables of the records. Each change and each read is a function of a connection.

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
