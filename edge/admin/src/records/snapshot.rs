//! Snapshots: all rows, for a node that joins a cluster or has missed a part of the stream.
//!
//! Parts are ranges of tables: of the keys in it, the rows of a part are all there are. So a part says what is
//! to be removed, too, and is merged by itself.

use std::collections::HashMap;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tracker::KeyTotals;
use types::InfoHash;

use super::json as forms;
use super::op::RecordOp;
use super::replica::Replica;
use super::tables::bans::{self, BanRow};
use super::tables::cluster;
use super::tables::counts;
use super::tables::ignored_nodes;
use super::tables::keys::{self, KeyRow, TotalsRow};
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
    /// Of each node: its epoch, and the last entry applied.
    pub(super) heard: Vec<(u8, u64, u64)>,
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

/// Totals that this node has counted and that come by later entries of the stream: they are left out of
/// snapshots, so that these stand at one place in the stream.
pub(super) struct EarlyTotals(HashMap<u32, KeyTotals>);

impl EarlyTotals {
    pub(super) fn read(db: &Connection) -> Result<Self, rusqlite::Error> {
        let mut early = Self(HashMap::new());
        early.add(&counts::unsent(db)?);
        let Some(identity) = cluster::identity(db)? else { return Ok(early) };
        let mut last = cluster::returned(db, identity)?;
        while let Some((number, _, ops)) = cluster::next(db, last, false)? {
            let ops: Vec<RecordOp> = serde_json::from_str(&ops).unwrap_or_default();
            for op in ops {
                if let RecordOp::KeyTotals(totals) = op {
                    early.add(&totals);
                }
            }
            last = number;
        }
        Ok(early)
    }

    fn add(&mut self, rows: &[TotalsRow]) {
        for (id, uploaded, downloaded, seeding_s, announces) in rows.iter().copied() {
            let totals = self.0.entry(id).or_default();
            *totals = totals.plus(&KeyTotals { uploaded, downloaded, seeding_s, announces });
        }
    }

    fn subtract_from(&self, row: &mut KeyRow) {
        let Some(early) = self.0.get(&row.id) else { return };
        let totals = &mut row.totals;
        totals.uploaded = totals.uploaded.saturating_sub(early.uploaded);
        totals.downloaded = totals.downloaded.saturating_sub(early.downloaded);
        totals.seeding_s = totals.seeding_s.saturating_sub(early.seeding_s);
        totals.announces = totals.announces.saturating_sub(early.announces);
    }
}

/// Returns the head of a snapshot of these rows.
pub(super) fn head(db: &Connection) -> Result<Part, rusqlite::Error> {
    let heard = cluster::all_heard(db)?.into_iter();
    let heard = heard.map(|(node, it)| (node, it.epoch, it.number)).collect();
    let position = cluster::position(db, cluster::RECORDS)?;
    let peers = cluster::position(db, cluster::PEERS)?;
    Ok(Part::Head(Head {
        heard,
        position: (position.stream, position.sequence),
        peers: (peers.stream, peers.sequence),
    }))
}

/// Reads the part at `place`, and returns the place of the next one.
pub(super) fn part(
    db: &Connection,
    early: &EarlyTotals,
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
            let mut rows = keys::page(db, id(after.as_deref()), ROWS)?;
            rows.iter_mut().for_each(|row| early.subtract_from(row));
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
    let early = EarlyTotals::read(db)?;
    let mut parts = vec![json_text(&head(db)?).into_bytes()];
    let mut place = Some(Place::default());
    while let Some(at) = place {
        let (part, next) = part(db, &early, &at)?;
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
