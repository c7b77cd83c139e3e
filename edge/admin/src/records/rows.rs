//! Which rows an op changes, and whether another node's op may be applied at all.

use serde_json::Value;
use tracker::{IpPrefix, KeyId, UserKey};
use types::InfoHash;

use super::op::RecordOp;
use super::tables::lists::List;

/// What identifies a row, or the part of it that ops replace as a whole.
#[derive(Clone, Copy, Hash)]
pub(super) enum Row<'a> {
    Entry(List, &'a InfoHash),
    /// Whether a key exists.
    Key(u32),
    /// The name and limits of a key.
    KeyRules(u32),
    /// Which id a key has.
    KeyText(&'a str),
    Ban(&'a str),
    Token(i64),
    Webhook(i64),
    Setting(&'a str),
    Node(u8),
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
    /// Calls `see` with each row that holds afterwards what the op says, whatever it was. Automatic bans are
    /// not among them, because they do not replace others.
    pub(super) fn each_row(&self, mut see: impl FnMut(Row<'_>)) {
        match self {
            Self::ListAdded { list, hashes } | Self::ListRemoved { list, hashes } => {
                hashes.iter().for_each(|hash| see(Row::Entry(*list, hash)));
            }
            Self::KeyPut(row) => {
                see(Row::Key(row.id));
                see(Row::KeyRules(row.id));
                see(Row::KeyText(&row.key));
            }
            Self::KeyChanged(update) => see(Row::KeyRules(update.id)),
            Self::KeyRemoved { id } => see(Row::Key(*id)),
            Self::BansPut(rows) => {
                let rows = rows.iter().filter(|row| !row.automatic);
                rows.for_each(|row| see(Row::Ban(&row.network)));
            }
            Self::BanRemoved { network } => see(Row::Ban(network)),
            Self::TokenPut(row) => see(Row::Token(row.id)),
            Self::TokenRemoved { id } => see(Row::Token(*id)),
            Self::WebhookPut(row) => see(Row::Webhook(row.id)),
            Self::WebhookRemoved { id } => see(Row::Webhook(*id)),
            Self::SettingsPut(values) => {
                values.iter().for_each(|(name, _)| see(Row::Setting(name)));
            }
            Self::NodeIgnored { node, .. } => see(Row::Node(*node)),
            Self::KeyTotals(_) | Self::KeysFirstUsed(_) | Self::DownloadsRaised(_) => {}
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => {}
        }
    }

    /// Returns the part of the op about rows that `is_kept` accepts, if there is one.
    pub(super) fn retain_rows(mut self, is_kept: impl Fn(Row<'_>) -> bool) -> Option<Self> {
        let is_left = match &mut self {
            Self::ListAdded { list, hashes } | Self::ListRemoved { list, hashes } => {
                hashes.retain(|hash| is_kept(Row::Entry(*list, hash)));
                !hashes.is_empty()
            }
            Self::KeyPut(row) => is_kept(Row::Key(row.id)) && is_kept(Row::KeyText(&row.key)),
            Self::KeyChanged(update) => is_kept(Row::KeyRules(update.id)),
            Self::KeyRemoved { id } => is_kept(Row::Key(*id)),
            Self::BansPut(rows) => {
                rows.retain(|row| is_kept(Row::Ban(&row.network)));
                !rows.is_empty()
            }
            Self::BanRemoved { network } => is_kept(Row::Ban(network)),
            Self::TokenPut(row) => is_kept(Row::Token(row.id)),
            Self::TokenRemoved { id } => is_kept(Row::Token(*id)),
            Self::WebhookPut(row) => is_kept(Row::Webhook(row.id)),
            Self::WebhookRemoved { id } => is_kept(Row::Webhook(*id)),
            Self::SettingsPut(values) => {
                values.retain(|(name, _)| is_kept(Row::Setting(name)));
                !values.is_empty()
            }
            Self::NodeIgnored { node, .. } => is_kept(Row::Node(*node)),
            Self::KeyTotals(_) | Self::KeysFirstUsed(_) | Self::DownloadsRaised(_) => true,
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => true,
        };
        is_left.then_some(self)
    }

    /// Returns whether another node's op is one that this node could have made.
    pub(super) fn is_valid(&self) -> bool {
        let is_id = |id: i64| (1..i64::from(KeyId::FILE_FIRST)).contains(&id);
        let is_text = |text: &str| text.len() <= TEXT_MAX;
        let is_time = |time: i64| (0..=TIME_MAX).contains(&time);
        let is_network =
            |text: &str| text.parse::<IpPrefix>().is_ok_and(|network| network.to_string() == text);
        match self {
            Self::ListAdded { .. } | Self::ListRemoved { .. } => true,
            Self::KeyPut(row) => {
                let expires = row.rules.expires.is_none_or(is_time);
                is_id(row.id.into())
                    && UserKey::parse(&row.key).is_ok()
                    && is_text(&row.name)
                    && expires
            }
            Self::KeyChanged(update) => {
                let expires = update.expires.flatten().is_none_or(is_time);
                is_id(update.id.into()) && update.name.as_deref().is_none_or(is_text) && expires
            }
            Self::KeyRemoved { id } => is_id((*id).into()),
            Self::KeyTotals(rows) => rows.len() <= ROWS_MAX,
            Self::KeysFirstUsed(uses) => {
                uses.len() <= ROWS_MAX && uses.iter().all(|(_, at)| is_time(*at))
            }
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
            Self::DownloadsRaised(_) => false,
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => true,
        }
    }
}
