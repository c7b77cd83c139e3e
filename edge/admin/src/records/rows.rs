//! Kinds of rows, what identifies a row, and which rows an op changes.

use primitives::siphash::siphash;
use serde_json::Value;
use tracker::{IpPrefix, KeyId, UserKey};
use types::InfoHash;

use super::op::RecordOp;
use super::tables::ids;
use super::tables::key_totals::KeyCounts;
use super::tables::lists::List;

/// The names of the kinds of rows, in the order of their numbers.
pub const KINDS: [&str; 12] = [
    "tokens",
    "webhooks",
    "settings",
    "ignored_nodes",
    "frozen",
    "allow",
    "deny",
    "bans",
    "keys",
    "key_totals",
    "downloads",
    "torrent_reasons",
];

/// A kind of rows. The number is in the file and in messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Tokens,
    Webhooks,
    Settings,
    IgnoredNodes,
    Frozen,
    Allow,
    Deny,
    Bans,
    Keys,
    KeyTotals,
    Downloads,
    TorrentReasons,
}

impl Kind {
    pub(super) const ALL: [Self; KINDS.len()] = [
        Self::Tokens,
        Self::Webhooks,
        Self::Settings,
        Self::IgnoredNodes,
        Self::Frozen,
        Self::Allow,
        Self::Deny,
        Self::Bans,
        Self::Keys,
        Self::KeyTotals,
        Self::Downloads,
        Self::TorrentReasons,
    ];

    /// Returns the list, if rows of this kind are entries of one.
    pub(super) fn list(self) -> Option<List> {
        [List::Frozen, List::Allow, List::Deny].into_iter().find(|list| list.kind() == self)
    }
}

/// The identity of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row<'a> {
    Entry(List, &'a InfoHash),
    Reason(&'a InfoHash),
    Key(u32),
    Ban(&'a str),
    Token(i64),
    Webhook(i64),
    Setting(&'a str),
    Node(u8),
}

impl Row<'_> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Entry(list, _) => list.kind(),
            Self::Reason(_) => Kind::TorrentReasons,
            Self::Key(_) => Kind::Keys,
            Self::Ban(_) => Kind::Bans,
            Self::Token(_) => Kind::Tokens,
            Self::Webhook(_) => Kind::Webhooks,
            Self::Setting(_) => Kind::Settings,
            Self::Node(_) => Kind::IgnoredNodes,
        }
    }

    /// Returns the row's key in the table of stamps: an info hash, or two bytes of the name's hash and the name.
    pub(super) fn key(self) -> Vec<u8> {
        match self {
            Self::Entry(_, hash) | Self::Reason(hash) => hash.0.to_vec(),
            Self::Key(id) => key_of_name(&id.to_string()),
            Self::Ban(name) | Self::Setting(name) => key_of_name(name),
            Self::Token(id) | Self::Webhook(id) => key_of_name(&id.to_string()),
            Self::Node(node) => key_of_name(&node.to_string()),
        }
    }
}

impl Row<'_> {
    /// Returns true if the row has an id that was assigned before its node was in a cluster.
    pub(super) fn has_early_id(self) -> bool {
        match self {
            Self::Key(id) => ids::is_early(id.into()),
            Self::Token(id) | Self::Webhook(id) => ids::is_early(id),
            _ => false,
        }
    }
}

/// Returns the key of a row that is no info hash: the hash in front spreads rows over the ranges.
pub(super) fn key_of_name(name: &str) -> Vec<u8> {
    let hash = siphash::<1, 3>(&[0; 16], name.as_bytes());
    let mut key = hash.to_be_bytes()[..2].to_vec();
    key.extend_from_slice(name.as_bytes());
    key
}

/// Returns the name in a key of [`key_of_name`].
pub(super) fn name_in_key(key: &[u8]) -> &str {
    std::str::from_utf8(key.get(2..).unwrap_or_default()).unwrap_or_default()
}

/// Bytes of a name or another text.
const TEXT_MAX: usize = 4000;
/// Bytes of the value of a setting.
const VALUE_MAX: usize = 64 * 1024;
/// Rows of one op: more than any node sends.
const ROWS_MAX: usize = 10_000;
/// The end of the year 9999.
const TIME_MAX: i64 = 253_402_300_799;

impl RecordOp {
    /// Keeps the part of the op about rows that `is_kept` accepts; it also gets true if the op removes the row.
    /// Returns false if no part is left.
    pub(super) fn retain_rows(&mut self, mut is_kept: impl FnMut(Row<'_>, bool) -> bool) -> bool {
        match self {
            Self::ListAdded { list, hashes } => {
                hashes.retain(|hash| is_kept(Row::Entry(*list, hash), false));
                !hashes.is_empty()
            }
            Self::ListRemoved { list, hashes } => {
                hashes.retain(|hash| is_kept(Row::Entry(*list, hash), true));
                !hashes.is_empty()
            }
            Self::ReasonsPut(rows) => {
                rows.retain(|row| is_kept(Row::Reason(&row.info_hash), false));
                !rows.is_empty()
            }
            Self::ReasonsRemoved { hashes } => {
                hashes.retain(|hash| is_kept(Row::Reason(hash), true));
                !hashes.is_empty()
            }
            Self::KeyPut(row) => is_kept(Row::Key(row.id), false),
            Self::KeyRemoved { id } => is_kept(Row::Key(*id), true),
            Self::BansPut(rows) => {
                rows.retain(|row| is_kept(Row::Ban(&row.network), false));
                !rows.is_empty()
            }
            Self::BanRemoved { network } => is_kept(Row::Ban(network), true),
            Self::TokenPut(row) => is_kept(Row::Token(row.id), false),
            Self::TokenRemoved { id } => is_kept(Row::Token(*id), true),
            Self::WebhookPut(row) => is_kept(Row::Webhook(row.id), false),
            Self::WebhookRemoved { id } => is_kept(Row::Webhook(*id), true),
            Self::SettingsPut(values) => {
                values.retain(|(name, value)| is_kept(Row::Setting(name), value.is_none()));
                !values.is_empty()
            }
            Self::NodeIgnored { node, is_ignored } => is_kept(Row::Node(*node), !*is_ignored),
            Self::KeyChanged { .. }
            | Self::KeyTotals { .. }
            | Self::Downloads { .. }
            | Self::DownloadsAdded(_)
            | Self::TorrentRemoved { .. }
            | Self::PeersRemoved { .. } => true,
        }
    }

    /// Returns whether another node's op is one that this node could have made.
    pub(super) fn is_valid(&self) -> bool {
        let is_id = |id: i64| (1..i64::from(KeyId::FILE_FIRST)).contains(&id);
        let is_text = |text: &str| text.len() <= TEXT_MAX;
        let is_time = |time: i64| (0..=TIME_MAX).contains(&time);
        let is_network =
            |text: &str| text.parse::<IpPrefix>().is_ok_and(|network| network.to_string() == text);
        match self {
            Self::ListAdded { .. } | Self::ListRemoved { .. } | Self::ReasonsRemoved { .. } => true,
            Self::ReasonsPut(rows) => {
                rows.len() <= ROWS_MAX && rows.iter().all(|row| is_text(&row.reason))
            }
            Self::KeyPut(row) => {
                let expires = row.rules.expires.is_none_or(is_time);
                is_id(row.id.into())
                    && UserKey::parse(&row.key).is_ok()
                    && is_text(&row.name)
                    && expires
            }
            Self::KeyRemoved { id } => is_id((*id).into()),
            Self::KeyTotals { keys, .. } => {
                let is_first_use = |it: &KeyCounts| it.first_used.is_none_or(is_time);
                keys.len() <= ROWS_MAX && keys.iter().all(is_first_use)
            }
            Self::Downloads { hashes, counts, .. } => hashes.len() == counts.len(),
            Self::BansPut(rows) => {
                let is_valid = rows.iter().all(|row| {
                    is_network(&row.network)
                        && is_text(&row.reason)
                        && row.expires.is_none_or(is_time)
                });
                rows.len() <= ROWS_MAX && is_valid
            }
            Self::BanRemoved { network } => is_network(network),
            Self::TokenPut(row) => is_id(row.id) && is_text(&row.name) && is_text(&row.scopes),
            Self::TokenRemoved { id } | Self::WebhookRemoved { id } => is_id(*id),
            Self::WebhookPut(row) => {
                is_id(row.id)
                    && [&row.url, &row.events, &row.secret].into_iter().all(|text| is_text(text))
            }
            Self::SettingsPut(values) => {
                let is_json = |text: &String| {
                    text.len() <= VALUE_MAX && serde_json::from_str::<Value>(text).is_ok()
                };
                let is_valid = values
                    .iter()
                    .all(|(name, value)| is_text(name) && value.as_ref().is_none_or(is_json));
                values.len() <= ROWS_MAX && is_valid
            }
            Self::NodeIgnored { node, .. } => *node > 0,
            // Made by merging only.
            Self::KeyChanged { .. } | Self::DownloadsAdded(_) => false,
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => true,
        }
    }
}
