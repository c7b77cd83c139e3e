//! Banned networks.

use std::net::IpAddr;

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use tracker::IpPrefix;
use utoipa::ToSchema;

use crate::json::json_text;

/// A banned network.
// A row, what the API shows of it, and what nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ban)]
pub struct BanRow {
    /// In CIDR notation.
    // With no bits set behind the prefix.
    pub(crate) network: String,
    /// Free text; of an automatic ban, the offence.
    pub(crate) reason: String,
    /// True if the tracker banned it automatically.
    pub(crate) automatic: bool,
    /// Unix time, seconds.
    pub(crate) created: i64,
    /// Unix time in seconds; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<i64>,
}

columns!(BanRow, "bans": network, reason, automatic, created, expires);

/// Adds bans. A ban replaces one of the same network, except that an automatic ban never replaces one that an
/// administrator made. Returns those that were added.
pub(crate) fn put(
    connection: &Connection,
    bans: &[BanRow],
) -> Result<Vec<BanRow>, rusqlite::Error> {
    let sql = format!(
        "{INSERT} ON CONFLICT (network) DO UPDATE SET reason = excluded.reason,
             automatic = excluded.automatic, created = excluded.created, expires = excluded.expires
         WHERE automatic OR NOT excluded.automatic"
    );
    let mut insert = connection.prepare(&sql)?;
    let mut added = Vec::with_capacity(bans.len());
    for ban in bans {
        if write(&mut insert, ban)? > 0 {
            added.push(ban.clone());
        }
    }
    Ok(added)
}

/// Removes a ban; returns whether it existed.
pub(crate) fn remove(connection: &Connection, network: &str) -> Result<bool, rusqlite::Error> {
    Ok(connection.execute("DELETE FROM bans WHERE network = ?1", [network])? > 0)
}

/// Removes expired bans, and returns them.
pub(in super::super) fn take_expired(
    connection: &Connection,
    now: i64,
) -> Result<Vec<BanRow>, rusqlite::Error> {
    let sql = format!("DELETE FROM bans WHERE expires <= ?1 RETURNING {COLUMNS}");
    let mut expired = connection.prepare_cached(&sql)?;
    expired.query_map([now], read)?.collect()
}

pub(in super::super) fn get(
    connection: &Connection,
    network: &str,
) -> Result<Option<BanRow>, rusqlite::Error> {
    let sql = format!("SELECT {COLUMNS} FROM bans WHERE network = ?1");
    connection.query_row(&sql, [network], read).optional()
}

/// Returns every network that contains `ip`.
fn networks_with(ip: IpAddr) -> Vec<String> {
    let ip = ip.to_canonical();
    let bits_max = if ip.is_ipv4() { 32 } else { 128 };
    (0..=bits_max).map(|bits| IpPrefix::new(ip, bits).to_string()).collect()
}

/// Bans that are searched for.
#[derive(Clone, Debug)]
pub(crate) struct BanFilter {
    /// Unix time in seconds: only bans that are valid then.
    pub(crate) now: i64,
    /// A part of the network or of the reason, or an address in the network. Empty: any.
    pub(crate) text: String,
}

/// SQL condition: a ban is valid at the time `?1`, and the text `?2` is a part of its network or its reason, or an
/// address in its network. The JSON `?3` lists the networks that contain that address.
const MATCHES: &str = "(expires IS NULL OR expires > ?1)
    AND (?2 = '' OR instr(network, lower(?2)) > 0 OR instr(lower(reason), lower(?2)) > 0
        OR network IN (SELECT value FROM json_each(?3)))";

impl BanFilter {
    /// Returns the networks that contain the address that is searched for, as JSON.
    fn networks(&self) -> String {
        let networks = self.text.trim().parse().map(networks_with).unwrap_or_default();
        json_text(&networks)
    }
}

/// Returns up to `limit` bans that match, sorted by network, after the network `after`.
pub(crate) fn page(
    connection: &Connection,
    filter: &BanFilter,
    after: &str,
    limit: u32,
) -> Result<Vec<BanRow>, rusqlite::Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM bans WHERE {MATCHES} AND network > ?4 ORDER BY network LIMIT ?5"
    );
    let mut page = connection.prepare(&sql)?;
    let parameters = params![filter.now, filter.text, filter.networks(), after, limit];
    page.query_map(parameters, read)?.collect()
}

/// Returns how many bans match.
pub(crate) fn count(connection: &Connection, filter: &BanFilter) -> Result<u64, rusqlite::Error> {
    let sql = format!("SELECT count(*) FROM bans WHERE {MATCHES}");
    let parameters = params![filter.now, filter.text, filter.networks()];
    let count: i64 = connection.query_row(&sql, parameters, |row| row.get(0))?;
    Ok(count.unsigned_abs())
}
