//! Changes of the records as values.
//!
//! What the API changes is one [`RecordOp`]. One function applies it to the rows; another, of
//! [`super::LiveState`], applies it to the memory of the tracker and of the API once it is committed.

use std::net::IpAddr;

use rusqlite::Connection;
use types::InfoHash;

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
#[derive(Clone, PartialEq, Eq)]
pub enum RecordOp {
    /// Adds entries, fastest if they are sorted; at most [`HASHES_MAX`], here and below.
    ListAdded {
        /// The list, or the frozen torrents.
        list: List,
        /// The entries.
        hashes: Vec<InfoHash>,
    },
    /// Removes entries.
    ListRemoved {
        /// The list, or the frozen torrents.
        list: List,
        /// The entries.
        hashes: Vec<InfoHash>,
    },
    /// Creates a key. Id 0: it gets the next one.
    KeyPut(KeyRow),
    /// Changes a key.
    KeyChanged(KeyUpdate),
    /// Removes a key.
    KeyRemoved {
        /// Its id.
        id: u32,
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
        /// Whether it is ignored.
        is_ignored: bool,
    },
    /// Removes a torrent and its peers. Changes no row.
    TorrentRemoved {
        /// Its info hash.
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

impl RecordOp {
    /// Returns ops that add or remove these entries.
    pub(crate) fn list(list: List, hashes: &[InfoHash], is_added: bool) -> Vec<Self> {
        let op = |hashes: &[InfoHash]| match hashes.to_vec() {
            hashes if is_added => Self::ListAdded { list, hashes },
            hashes => Self::ListRemoved { list, hashes },
        };
        hashes.chunks(HASHES_MAX).map(op).collect()
    }

    /// Applies it to the rows, and appends to `effects` what is to be applied to the memory. A key, token or
    /// webhook that exists already is a conflict.
    pub(super) fn apply(
        mut self,
        db: &Connection,
        effects: &mut Vec<Self>,
    ) -> Result<Outcome, rusqlite::Error> {
        let mut outcome = Outcome::default();
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
                outcome.key = keys::update(db, update)?;
                effects.extend(outcome.key.clone().map(Self::KeyPut));
                return Ok(outcome);
            }
            Self::KeyRemoved { id } => outcome.changed = keys::remove(db, *id)?.into(),
            Self::BansPut(rows) => bans::put(db, rows)?,
            Self::BanRemoved { network } => outcome.changed = bans::remove(db, network)?.into(),
            Self::TokenPut(row) => outcome.id = tokens::insert(db, row)?,
            Self::TokenRemoved { id } => outcome.changed = tokens::remove(db, *id)?.into(),
            Self::WebhookPut(row) => outcome.id = webhooks::insert(db, row)?,
            Self::WebhookRemoved { id } => outcome.changed = webhooks::remove(db, *id)?.into(),
            Self::SettingsPut(values) => settings::put(db, values)?,
            Self::NodeIgnored { node, is_ignored } => {
                outcome.changed = ignored_nodes::set(db, *node, *is_ignored)?;
            }
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => {}
        }
        // A token that is not recorded, as that of the environment, stays.
        let is_absent = matches!(self, Self::TokenRemoved { .. }) && outcome.changed == 0;
        if !is_absent {
            effects.push(self);
        }
        Ok(outcome)
    }
}
