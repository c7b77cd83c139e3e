//! Kinds of rows, what identifies a row, and which rows an op changes.

use primitives::siphash::siphash;
use serde_json::Value;
use tracker::{IpPrefix, KeyId, UserKey};
use types::InfoHash;

use super::op::RecordOp;
use super::tables::key_totals::KeyCounts;
use super::tables::lists::List;
use super::tables::torrent_reasons::ReasonRow;

macro_rules! kinds {
    ($($kind:ident = $name:literal,)+) => {
        /// The names of the kinds of rows, in the order of their numbers.
        pub const KINDS: [&str; Kind::ALL.len()] = [$($name),+];

        /// A kind of rows. The number is in the file and in messages between nodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind {
            $($kind),+
        }

        impl Kind {
            pub(super) const ALL: &[Self] = &[$(Self::$kind),+];
        }
    };
}

kinds! {
    Tokens = "tokens",
    Webhooks = "webhooks",
    Settings = "settings",
    IgnoredNodes = "ignored_nodes",
    Frozen = "frozen",
    Allow = "allow",
    Deny = "deny",
    Bans = "bans",
    Keys = "keys",
    KeyTotals = "key_totals",
    Downloads = "downloads",
    TorrentReasons = "torrent_reasons",
}

impl Kind {
    /// Returns the list, if rows of this kind are entries of one.
    pub(super) fn list(self) -> Option<List> {
        [List::Frozen, List::Allow, List::Deny].into_iter().find(|list| list.kind() == self)
    }
}

/// The identity of a row.
pub(super) struct Row {
    pub(super) kind: Kind,
    /// The row's key in the table of stamps: an info hash, or what [`key_of_name`] returns.
    pub(super) key: Vec<u8>,
}

impl Row {
    pub(super) fn of_hash(kind: Kind, hash: &InfoHash) -> Self {
        Self { kind, key: hash.0.to_vec() }
    }

    /// Returns the row with a name, an id or a number.
    pub(super) fn named(kind: Kind, name: impl ToString) -> Self {
        Self { kind, key: key_of_name(name) }
    }
}

/// Returns the key of a row that is no info hash: two bytes of the name's hash, which spread rows over the ranges, and
/// the name.
pub(super) fn key_of_name(name: impl ToString) -> Vec<u8> {
    let name = name.to_string();
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
    pub(super) fn retain_rows(&mut self, mut is_kept: impl FnMut(&Row, bool) -> bool) -> bool {
        let mut retain = |kind, hashes: &mut Vec<InfoHash>, is_removed| {
            hashes.retain(|hash| is_kept(&Row::of_hash(kind, hash), is_removed));
            !hashes.is_empty()
        };
        match self {
            Self::ListAdded { list, hashes } => retain(list.kind(), hashes, false),
            Self::ListRemoved { list, hashes } => retain(list.kind(), hashes, true),
            Self::ReasonsPut(rows) => {
                let row = |row: &ReasonRow| Row::of_hash(Kind::TorrentReasons, &row.info_hash);
                rows.retain(|it| is_kept(&row(it), false));
                !rows.is_empty()
            }
            Self::ReasonsRemoved { hashes } => retain(Kind::TorrentReasons, hashes, true),
            Self::KeyPut(row) => is_kept(&Row::named(Kind::Keys, row.id), false),
            Self::KeyRemoved { id } => is_kept(&Row::named(Kind::Keys, id), true),
            Self::BansPut(rows) => {
                rows.retain(|row| is_kept(&Row::named(Kind::Bans, &row.network), false));
                !rows.is_empty()
            }
            Self::BanRemoved { network } => is_kept(&Row::named(Kind::Bans, network), true),
            Self::TokenPut(row) => is_kept(&Row::named(Kind::Tokens, row.id), false),
            Self::TokenRemoved { id } => is_kept(&Row::named(Kind::Tokens, id), true),
            Self::WebhookPut(row) => is_kept(&Row::named(Kind::Webhooks, row.id), false),
            Self::WebhookRemoved { id } => is_kept(&Row::named(Kind::Webhooks, id), true),
            Self::SettingsPut(values) => {
                values.retain(|(name, value)| {
                    is_kept(&Row::named(Kind::Settings, name), value.is_none())
                });
                !values.is_empty()
            }
            Self::NodeIgnored { node, is_ignored } => {
                is_kept(&Row::named(Kind::IgnoredNodes, node), !*is_ignored)
            }
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
                let expires = row.expires.is_none_or(is_time);
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
