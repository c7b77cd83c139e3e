//! Snapshots: all rows, for a node that joins a cluster or has missed a part of the stream.
//!
//! Parts are ranges of tables: of the keys in it, the rows of a part are all there are. So a part says what is
//! to be removed, too, and is merged by itself.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tracker::KeyTotals;
use types::InfoHash;

use super::json as forms;
use super::replica::Replica;
use super::tables::bans::{self, BanRow};
use super::tables::cluster;
use super::tables::counts;
use super::tables::ignored_nodes;
use super::tables::keys::{self, KeyRow};
use super::tables::lists::{self, List};
use super::tables::settings;
use super::tables::tokens::{self, TokenRow};
use super::tables::webhooks::{self, WebhookRow};
use crate::json::json_text;

/// The number of the last table, in the order of parts.
const LAST_TABLE: u8 = 9;
/// Info hashes in a part.
const HASHES: u32 = 10_000;
/// Other rows in a part: they take at most some hundred bytes each.
const ROWS: u32 = 1000;

/// A part of a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// The first one.
    Head(Head),
    Rows(RowsPart),
}

/// Where a snapshot stands in the stream.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) node: u8,
    pub(super) epoch: u64,
    /// The node's last entry: the rows have its increments.
    pub(super) number: u64,
    /// Of each node: epoch, the last entry applied, the last one counted.
    pub(super) heard: Vec<(u8, u64, u64, u64)>,
    /// In the stream of records: stream and sequence.
    pub(super) position: (u64, u64),
    /// In the log of peers, up to which downloads are counted.
    pub(super) peers: (u64, u64),
}

/// The rows of a table with keys after `after` up to `until`.
#[derive(Serialize, Deserialize)]
pub(super) struct RowsPart {
    /// Absent: from the first one.
    pub(super) after: Option<String>,
    /// Absent: to the last one.
    pub(super) until: Option<String>,
    pub(super) rows: Rows,
}

/// Rows in the order of their keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rows {
    List {
        list: List,
        #[serde(with = "forms::hashes")]
        hashes: Vec<InfoHash>,
    },
    Bans(Vec<BanRow>),
    Keys(Vec<FullKey>),
    /// All tokens, and so on: these tables are small.
    Tokens(Vec<TokenRow>),
    Webhooks(Vec<WebhookRow>),
    Settings(Vec<(String, String)>),
    IgnoredNodes(Vec<u8>),
    Downloads {
        #[serde(with = "forms::hashes")]
        hashes: Vec<InfoHash>,
        counts: Vec<u32>,
    },
}

/// A key with its totals.
#[derive(Serialize, Deserialize)]
pub(super) struct FullKey {
    key: KeyRow,
    totals: [u64; 4],
    first_used: Option<i64>,
}

impl FullKey {
    pub(super) fn of(key: KeyRow) -> Self {
        let KeyTotals { uploaded, downloaded, seeding_s, announces } = key.totals;
        let first_used = key.first_used;
        Self { key, totals: [uploaded, downloaded, seeding_s, announces], first_used }
    }

    pub(super) fn row(self) -> KeyRow {
        let [uploaded, downloaded, seeding_s, announces] = self.totals;
        let totals = KeyTotals { uploaded, downloaded, seeding_s, announces };
        KeyRow { totals, first_used: self.first_used, ..self.key }
    }
}

/// A snapshot that is being merged.
pub(super) struct Merge {
    pub(super) head: Head,
    /// When the last part came, unix ms.
    pub(super) at: u64,
}

/// The place of a part: a table, and the key after which it begins.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Place {
    table: u8,
    after: Option<String>,
}

/// Returns the head of a snapshot of these rows.
pub(super) fn head(db: &Connection) -> Result<Part, rusqlite::Error> {
    let identity = cluster::identity(db)?;
    let (node, epoch) = identity.map_or((0, 0), |identity| (identity.node, identity.epoch));
    let heard = cluster::all_heard(db)?.into_iter();
    let heard = heard.map(|(node, it)| (node, it.epoch, it.number, it.counted)).collect();
    let position = cluster::position(db, cluster::RECORDS)?;
    let peers = cluster::position(db, cluster::PEERS)?;
    Ok(Part::Head(Head {
        node,
        epoch,
        number: cluster::last_number(db)?,
        heard,
        position: (position.stream, position.sequence),
        peers: (peers.stream, peers.sequence),
    }))
}

/// Reads the part at `place`, and returns the place of the next one.
pub(super) fn part(
    db: &Connection,
    place: &Place,
) -> Result<(Part, Option<Place>), rusqlite::Error> {
    let after = place.after.clone();
    let (rows, until) = match place.table {
        0 => (Rows::Tokens(tokens::all(db)?), None),
        1 => (Rows::Webhooks(webhooks::all(db)?), None),
        2 => (Rows::Settings(settings::texts(db)?), None),
        3 => (Rows::IgnoredNodes(ignored_nodes::all(db)?), None),
        4 => list_part(db, List::Frozen, after.as_deref())?,
        5 => list_part(db, List::Allow, after.as_deref())?,
        6 => list_part(db, List::Deny, after.as_deref())?,
        7 => {
            // Expired ones, too.
            let rows = bans::page(db, i64::MIN, after.as_deref().unwrap_or_default(), ROWS)?;
            let until = rows.last().filter(|_| rows.len() == ROWS as usize);
            let until = until.map(|row| row.network.clone());
            (Rows::Bans(rows), until)
        }
        8 => {
            let rows = keys::page(db, id(after.as_deref()), ROWS)?;
            let until = rows.last().filter(|_| rows.len() == ROWS as usize);
            let until = until.map(|row| row.id.to_string());
            (Rows::Keys(rows.into_iter().map(FullKey::of).collect()), until)
        }
        _ => {
            let rows = counts::page(db, hash(after.as_deref()), HASHES)?;
            let until = rows.last().filter(|_| rows.len() == HASHES as usize);
            let until = until.map(|(hash, _)| hash.to_string());
            let (hashes, counts) = rows.into_iter().unzip();
            (Rows::Downloads { hashes, counts }, until)
        }
    };
    let next = match &until {
        Some(until) => Some(Place { table: place.table, after: Some(until.clone()) }),
        None => (place.table < LAST_TABLE).then_some(Place { table: place.table + 1, after: None }),
    };
    Ok((Part::Rows(RowsPart { after, until, rows }), next))
}

fn list_part(
    db: &Connection,
    list: List,
    after: Option<&str>,
) -> Result<(Rows, Option<String>), rusqlite::Error> {
    let hashes = lists::page(db, list, hash(after), HASHES)?;
    let until = hashes.last().filter(|_| hashes.len() == HASHES as usize);
    let until = until.map(InfoHash::to_string);
    Ok((Rows::List { list, hashes }, until))
}

/// Parses a bound of a range of info hashes. A malformed one counts as absent.
pub(super) fn hash(bound: Option<&str>) -> Option<InfoHash> {
    bound.and_then(|text| text.parse().ok())
}

/// Parses the lower bound of a range of ids.
pub(super) fn id(bound: Option<&str>) -> u32 {
    bound.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns all parts, for records that one connection reads and writes.
pub(super) fn all_parts(db: &Connection) -> Result<Vec<Vec<u8>>, rusqlite::Error> {
    let mut parts = vec![json_text(&head(db)?).into_bytes()];
    let mut place = Some(Place::default());
    while let Some(at) = place {
        let (part, next) = part(db, &at)?;
        parts.push(json_text(&part).into_bytes());
        place = next;
    }
    Ok(parts)
}

impl Replica {
    /// Returns whether a snapshot is being merged, and has not been left unfinished.
    pub(super) fn is_merging(&self) -> bool {
        /// Another part comes within this time, ms.
        const PATIENCE_MS: u64 = 60_000;
        self.merge.as_ref().is_some_and(|merge| (self.now)() < merge.at + PATIENCE_MS)
    }
}
