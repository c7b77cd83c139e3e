//! Changes of the records as values.
//!
//! A change by the API or the tracker is one [`RecordOp`]: here and, in a cluster, at every other node. One function
//! applies it to the rows; another, of [`super::LiveState`], applies it to the memory of the tracker and of the API
//! once it is committed.

use std::net::IpAddr;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use types::InfoHash;

use super::changes::Consequences;
use super::json;
use super::tables::bans::{self, BanRow};
use super::tables::ignored_nodes;
use super::tables::key_totals::{self, KeyCounts};
use super::tables::keys::{self, KeyRow, KeyUpdate};
use super::tables::lists::List;
use super::tables::settings;
use super::tables::tokens::{self, TokenRow};
use super::tables::torrent_reasons::{self, ReasonRow};
use super::tables::webhooks::{self, WebhookRow};

/// Info hashes in one op: 200 KB as text.
pub(crate) const HASHES_MAX: usize = 5000;

/// A change of the records, or of what the tracker holds in memory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordOp {
    /// Adds entries, fastest if they are sorted.
    ListAdded {
        /// The list, or the frozen torrents.
        list: List,
        /// At most 5,000.
        #[serde(with = "json::hashes")]
        hashes: Vec<InfoHash>,
    },
    /// Removes entries.
    ListRemoved {
        /// The list, or the frozen torrents.
        list: List,
        /// At most 5,000.
        #[serde(with = "json::hashes")]
        hashes: Vec<InfoHash>,
    },
    /// Refuses torrents with reasons.
    ReasonsPut(Vec<ReasonRow>),
    /// Serves torrents again that were refused with reasons.
    ReasonsRemoved {
        /// At most 5,000.
        #[serde(with = "json::hashes")]
        hashes: Vec<InfoHash>,
    },
    /// Creates a key. Id 0: it gets the next one. Totals are not replicated with it.
    KeyPut(KeyRow),
    /// Changes a key, if it exists. Other nodes get the changed row.
    #[serde(skip)]
    KeyChanged {
        /// Its id.
        id: u32,
        /// The fields that change.
        update: KeyUpdate,
    },
    /// Removes a key.
    KeyRemoved {
        /// Its id.
        id: u32,
    },
    /// Sets the counts of a node for keys. Counts are merged by the maximum.
    KeyTotals {
        /// The node; 0: before the cluster.
        node: u8,
        /// At most 10,000.
        keys: Vec<KeyCounts>,
    },
    /// Adds or replaces bans.
    BansPut(Vec<BanRow>),
    /// Removes a ban.
    BanRemoved {
        /// In CIDR notation.
        network: String,
    },
    /// Creates a token. Id 0: it gets the next one.
    TokenPut(TokenRow),
    /// Removes a token.
    TokenRemoved {
        /// Its id.
        id: i64,
    },
    /// Creates a webhook. Id 0: it gets the next one.
    WebhookPut(WebhookRow),
    /// Removes a webhook.
    WebhookRemoved {
        /// Its id.
        id: i64,
    },
    /// Sets settings to JSON values; `None` removes one.
    SettingsPut(Vec<(String, Option<String>)>),
    /// Makes the nodes of the cluster ignore one of them, or heed it again.
    NodeIgnored {
        /// Its number.
        node: u8,
        /// True if it is ignored.
        is_ignored: bool,
    },
    /// Sets the number of downloads that completed at a node. Counts are merged by the maximum.
    Downloads {
        /// The node; 0: before the cluster.
        node: u8,
        /// At most 5,000.
        #[serde(with = "json::hashes")]
        hashes: Vec<InfoHash>,
        /// As many, in the same order.
        counts: Vec<u32>,
    },
    /// Downloads that other nodes have counted, besides those already known. An effect of merging.
    #[serde(skip)]
    DownloadsAdded(Vec<(InfoHash, u32)>),
    /// Removes a torrent and its peers. Changes no row.
    TorrentRemoved {
        /// Its info hash.
        #[serde(with = "json::hash")]
        hash: InfoHash,
    },
    /// Removes the peers of an address. Changes no row.
    PeersRemoved {
        /// The address.
        address: IpAddr,
    },
}

/// Result of a change.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Rows that were added or removed.
    pub(crate) changed: usize,
    /// The id of the token or webhook.
    pub(crate) id: i64,
    /// The key that was created or changed, if it exists.
    pub(crate) key: Option<KeyRow>,
}

impl RecordOp {
    /// Returns ops that add or remove these entries.
    pub(crate) fn list(list: List, hashes: &[InfoHash], is_added: bool) -> Vec<Self> {
        let op = |hashes: &[InfoHash]| match hashes.to_vec() {
            hashes if is_added => Self::ListAdded { list, hashes },
            hashes => Self::ListRemoved { list, hashes },
        };
        hashes.chunks(HASHES_MAX).map(op).collect()
    }

    /// Returns an op with what `node` has counted.
    pub(super) fn downloads(node: u8, counts: &[(InfoHash, u32)]) -> Self {
        let (hashes, counts) = counts.iter().copied().unzip();
        Self::Downloads { node, hashes, counts }
    }

    /// Applies a change that was made here to the rows, and stamps it. A key, token or webhook that exists already is
    /// a conflict.
    pub(super) fn apply(
        mut self,
        db: &Connection,
        to: &mut Consequences,
    ) -> Result<Outcome, rusqlite::Error> {
        let mut outcome = Outcome::default();
        match &mut self {
            Self::KeyPut(row) => {
                keys::insert(db, row)?;
                outcome.key = Some(row.clone());
            }
            Self::KeyChanged { id, update } => {
                let Some(row) = keys::update(db, *id, update)? else { return Ok(outcome) };
                outcome.key = Some(row.clone());
                self = Self::KeyPut(row);
            }
            Self::TokenPut(row) => outcome.id = tokens::insert(db, row)?,
            Self::WebhookPut(row) => outcome.id = webhooks::insert(db, row)?,
            Self::ReasonsPut(rows) => torrent_reasons::put(db, rows)?,
            Self::BansPut(rows) => *rows = bans::put(db, rows)?,
            Self::SettingsPut(values) => settings::put(db, values)?,
            other => outcome.changed = other.remove_rows(db)?,
        }
        // The removal of a row that does not exist here changes nothing elsewhere. The token of the environment is not
        // recorded, and stays.
        if (outcome.changed == 0 && self.is_removal()) || !to.stamp(db, &mut self)? {
            return Ok(outcome);
        }
        if let Self::KeyRemoved { id } = self
            && to.clock.node == 0
        {
            // In a cluster, they go with the tombstone: nodes that have not heard of the removal still tell theirs.
            key_totals::remove(db, to, id)?;
        }
        if let Self::ListAdded { hashes, .. } | Self::ListRemoved { hashes, .. } = &self {
            outcome.changed = hashes.len();
        }
        to.effects.push(self);
        Ok(outcome)
    }

    /// Removes the rows that this op names, and leaves in it those that were there. Returns their number; 0 for an op
    /// that removes none, or entries of lists.
    pub(super) fn remove_rows(&mut self, db: &Connection) -> Result<usize, rusqlite::Error> {
        Ok(match self {
            Self::ReasonsRemoved { hashes } => {
                *hashes = torrent_reasons::remove(db, hashes)?;
                hashes.len()
            }
            Self::KeyRemoved { id } => keys::remove(db, *id)?.into(),
            Self::BanRemoved { network } => bans::remove(db, network)?.into(),
            Self::TokenRemoved { id } => tokens::remove(db, *id)?.into(),
            Self::WebhookRemoved { id } => webhooks::remove(db, *id)?.into(),
            Self::NodeIgnored { node, is_ignored } => ignored_nodes::set(db, *node, *is_ignored)?,
            _ => 0,
        })
    }

    /// Returns whether it removes rows other than entries of lists.
    fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::ReasonsRemoved { .. }
                | Self::KeyRemoved { .. }
                | Self::BanRemoved { .. }
                | Self::TokenRemoved { .. }
                | Self::WebhookRemoved { .. }
                | Self::NodeIgnored { is_ignored: false, .. }
        )
    }
}
