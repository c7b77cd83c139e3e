//! Changes of the records as values.
//!
//! What the API and the tracker change is one [`RecordOp`]: here and, in a cluster, at every other node. One
//! function applies it to the rows; another, of [`super::LiveState`], applies it to the memory of the tracker
//! and of the API once it is committed.

use std::net::IpAddr;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use types::InfoHash;

use super::json;
use super::tables::bans::{self, BanRow};
use super::tables::ignored_nodes;
use super::tables::keys::{self, KeyRow, KeyUpdate};
use super::tables::lists::{self, List};
use super::tables::settings;
use super::tables::tokens::{self, TokenRow};
use super::tables::webhooks::{self, WebhookRow};

/// Entries in one op: 400 KB as text.
pub(crate) const HASHES_MAX: usize = 10_000;

/// A change of the records, or of what the tracker holds in memory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordOp {
    /// Adds entries, fastest if they are sorted.
    ListAdded {
        /// The list, or the frozen torrents.
        list: List,
        /// At most 10,000.
        #[serde(with = "json::hashes")]
        hashes: Vec<InfoHash>,
    },
    /// Removes entries.
    ListRemoved {
        /// The list, or the frozen torrents.
        list: List,
        /// At most 10,000.
        #[serde(with = "json::hashes")]
        hashes: Vec<InfoHash>,
    },
    /// Creates a key. Id 0: it gets the next one. Totals are not replicated with it.
    KeyPut(KeyRow),
    /// Changes a key, if it exists.
    KeyChanged(KeyUpdate),
    /// Removes a key.
    KeyRemoved {
        /// Its id.
        id: u32,
    },
    /// Adds to the totals of keys. The node that counted has added them already.
    KeyTotals(Vec<keys::TotalsRow>),
    /// Keys were used at these Unix times, for the first time at one node.
    KeysFirstUsed(Vec<(u32, i64)>),
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
        /// Whether it is ignored.
        is_ignored: bool,
    },
    /// Raises download counts to at least these. Comes from snapshots only.
    #[serde(skip)]
    DownloadsRaised(Vec<(InfoHash, u32)>),
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

/// What a change did.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Rows that were added or removed.
    pub(crate) changed: usize,
    /// The id of the token or webhook.
    pub(crate) id: i64,
    /// The key that was created or changed, if it exists.
    pub(crate) key: Option<KeyRow>,
}

/// What changes in a transaction lead to after it.
#[derive(Default)]
pub(super) struct Consequences {
    /// What is to be applied to the memory.
    pub(super) effects: Vec<RecordOp>,
    /// Whether other nodes are to apply the changes, too.
    pub(super) is_logged: bool,
    /// What they are to apply.
    pub(super) logged: Vec<RecordOp>,
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

    /// Applies a change that was made here to the rows. A key, token or webhook that exists already is a
    /// conflict.
    pub(super) fn apply(
        mut self,
        db: &Connection,
        to: &mut Consequences,
    ) -> Result<Outcome, rusqlite::Error> {
        let mut outcome = Outcome::default();
        let mut effect = None;
        match &mut self {
            Self::ListAdded { list, hashes } => outcome.changed = lists::insert(db, *list, hashes)?,
            Self::ListRemoved { list, hashes } => {
                outcome.changed = lists::remove(db, *list, hashes)?;
            }
            Self::KeyPut(row) => {
                keys::insert(db, row)?;
                outcome.key = Some(row.clone());
            }
            Self::KeyChanged(update) => {
                let Some(row) = keys::update(db, update)? else { return Ok(outcome) };
                // All of it: of two concurrent changes, the later one holds as a whole.
                *update = KeyUpdate::to(&row);
                effect = Some(Self::KeyPut(row.clone()));
                outcome.key = Some(row);
            }
            Self::KeyRemoved { id } => outcome.changed = keys::remove(db, *id)?.into(),
            Self::BansPut(rows) => drop(bans::put(db, rows)?),
            Self::BanRemoved { network } => outcome.changed = bans::remove(db, network)?.into(),
            Self::TokenPut(row) => outcome.id = tokens::insert(db, row)?,
            Self::TokenRemoved { id } => outcome.changed = tokens::remove(db, *id)?.into(),
            Self::WebhookPut(row) => outcome.id = webhooks::insert(db, row)?,
            Self::WebhookRemoved { id } => outcome.changed = webhooks::remove(db, *id)?.into(),
            Self::SettingsPut(values) => settings::put(db, values)?,
            Self::NodeIgnored { node, is_ignored } => {
                outcome.changed = ignored_nodes::set(db, *node, *is_ignored)?;
            }
            Self::KeyTotals(_) | Self::KeysFirstUsed(_) | Self::DownloadsRaised(_) => {}
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => {}
        }
        // What was not there stays so elsewhere. The token of the environment is not recorded, and stays.
        if outcome.changed == 0 && self.is_removal() {
            return Ok(outcome);
        }
        if to.is_logged {
            to.logged.push(self.clone());
        }
        to.effects.push(effect.unwrap_or(self));
        Ok(outcome)
    }

    /// Returns whether it removes rows.
    fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::ListRemoved { .. }
                | Self::KeyRemoved { .. }
                | Self::BanRemoved { .. }
                | Self::TokenRemoved { .. }
                | Self::WebhookRemoved { .. }
        )
    }

    /// Returns whether it acts on the memory only: it is worth nothing later.
    pub(super) fn is_ephemeral(&self) -> bool {
        matches!(self, Self::TorrentRemoved { .. } | Self::PeersRemoved { .. })
    }

    /// Applies a change in the order of the stream, whatever the rows are: a later one replaces an earlier
    /// one. With `counts`, totals are added.
    pub(super) fn apply_in_order(
        self,
        db: &Connection,
        counts: bool,
        effects: &mut Vec<Self>,
    ) -> Result<(), rusqlite::Error> {
        match self {
            Self::ListAdded { list, ref hashes } => drop(lists::insert(db, list, hashes)?),
            Self::ListRemoved { list, ref hashes } => drop(lists::remove(db, list, hashes)?),
            Self::KeyPut(ref row) => {
                let displaced = keys::put(db, row)?;
                effects.extend(displaced.into_iter().map(|id| Self::KeyRemoved { id }));
            }
            Self::KeyChanged(ref update) => {
                effects.extend(keys::update(db, update)?.map(Self::KeyPut));
                return Ok(());
            }
            Self::KeyRemoved { id } => drop(keys::remove(db, id)?),
            Self::KeyTotals(totals) if counts => return keys::add_totals(db, &totals),
            Self::KeyTotals(_) => return Ok(()),
            Self::KeysFirstUsed(uses) => return keys::first_used(db, &uses),
            Self::BansPut(rows) => {
                effects.push(Self::BansPut(bans::put(db, &rows)?));
                return Ok(());
            }
            Self::BanRemoved { ref network } => drop(bans::remove(db, network)?),
            Self::TokenPut(ref row) => {
                let displaced = tokens::put(db, row)?;
                effects.extend(displaced.into_iter().map(|id| Self::TokenRemoved { id }));
            }
            Self::TokenRemoved { id } => drop(tokens::remove(db, id)?),
            Self::WebhookPut(ref row) => webhooks::put(db, row)?,
            Self::WebhookRemoved { id } => drop(webhooks::remove(db, id)?),
            Self::NodeIgnored { node, is_ignored } => {
                ignored_nodes::set(db, node, is_ignored)?;
            }
            Self::SettingsPut(ref values) => {
                if !settings::change(db, values)? {
                    return Ok(());
                }
            }
            Self::DownloadsRaised(_) | Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => {}
        }
        effects.push(self);
        Ok(())
    }
}
