//! Scopes: what a token permits.

use std::fmt;

use serde::{Deserialize, Serialize};

use utoipa::ToSchema;

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum Scope {
    /// Everything, including scopes of later versions.
    #[serde(rename = "*")]
    All,
    #[serde(rename = "stats:read")]
    StatsRead,
    #[serde(rename = "torrents:read")]
    TorrentsRead,
    #[serde(rename = "torrents:write")]
    TorrentsWrite,
    #[serde(rename = "peers:read")]
    PeersRead,
    #[serde(rename = "peers:write")]
    PeersWrite,
    #[serde(rename = "lists:read")]
    ListsRead,
    #[serde(rename = "lists:write")]
    ListsWrite,
    #[serde(rename = "keys:read")]
    KeysRead,
    #[serde(rename = "keys:write")]
    KeysWrite,
    #[serde(rename = "bans:read")]
    BansRead,
    #[serde(rename = "bans:write")]
    BansWrite,
    #[serde(rename = "tokens:read")]
    TokensRead,
    #[serde(rename = "tokens:write")]
    TokensWrite,
    #[serde(rename = "config:read")]
    ConfigRead,
    #[serde(rename = "config:write")]
    ConfigWrite,
    #[serde(rename = "certificates:write")]
    CertificatesWrite,
    #[serde(rename = "events:read")]
    EventsRead,
    #[serde(rename = "accounting:read")]
    AccountingRead,
    #[serde(rename = "accounting:write")]
    AccountingWrite,
}

impl Scope {
    /// The number of scopes.
    pub(super) const COUNT: usize = Self::LABELS.len();

    /// Name, and what it permits.
    const LABELS: [(Self, &'static str, &'static str); 20] = [
        (Self::All, "*", "Everything, including what later versions add."),
        (
            Self::StatsRead,
            "stats:read",
            "See statistics, status, listeners, certificates and the cluster.",
        ),
        (Self::TorrentsRead, "torrents:read", "See torrents and their peers."),
        (Self::TorrentsWrite, "torrents:write", "Freeze and remove torrents."),
        (Self::PeersRead, "peers:read", "Find peers by address."),
        (Self::PeersWrite, "peers:write", "Remove the peers of an address."),
        (Self::ListsRead, "lists:read", "See the allow list and the deny list."),
        (Self::ListsWrite, "lists:write", "Change the allow list and the deny list."),
        (Self::KeysRead, "keys:read", "See user keys with their totals."),
        (Self::KeysWrite, "keys:write", "Create, change and revoke user keys."),
        (Self::BansRead, "bans:read", "See bans."),
        (Self::BansWrite, "bans:write", "Ban networks, and remove bans."),
        (Self::TokensRead, "tokens:read", "See API tokens, but not their secrets."),
        (Self::TokensWrite, "tokens:write", "Create and revoke API tokens."),
        (Self::ConfigRead, "config:read", "See the configuration and the log."),
        (Self::ConfigWrite, "config:write", "Change settings, reload, and manage the cluster."),
        (Self::CertificatesWrite, "certificates:write", "Reload certificates and lists."),
        (Self::EventsRead, "events:read", "Follow events as they happen."),
        (Self::AccountingRead, "accounting:read", "Read what users transferred of each torrent."),
        (Self::AccountingWrite, "accounting:write", "Confirm what was read of it."),
    ];

    /// Returns all scopes.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::LABELS.iter().map(|(scope, ..)| *scope)
    }

    /// Returns what it permits.
    pub(super) fn meaning(self) -> &'static str {
        Self::LABELS.iter().find(|(scope, ..)| *scope == self).map_or("", |(.., text)| text)
    }

    /// Returns its name in requests and records.
    pub(crate) fn label(self) -> &'static str {
        Self::LABELS.iter().find(|(scope, ..)| *scope == self).map_or("", |(_, label, _)| label)
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u32);

impl Scopes {
    /// Everything.
    pub(crate) const ALL: Self = Self(1);

    /// Collects scopes.
    pub(crate) fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().fold(0, |bits, scope| bits | scope.bit()))
    }

    /// Parses the form in the records: names separated by spaces. Unknown names, as of a later version, permit
    /// nothing.
    pub(crate) fn parse(text: &str) -> Self {
        let known =
            Scope::LABELS.iter().filter(|(_, label, _)| text.split(' ').any(|one| one == *label));
        Self(known.fold(0, |bits, (scope, ..)| bits | scope.bit()))
    }

    /// Returns whether `scope` is permitted.
    pub(crate) fn allow(self, scope: Scope) -> bool {
        self.0 & (Scope::All.bit() | scope.bit()) != 0
    }

    /// Returns whether everything that `other` permits is permitted.
    pub(crate) fn cover(self, other: Self) -> bool {
        self.0 & Scope::All.bit() != 0 || other.0 & !self.0 == 0
    }

    /// Returns the scopes.
    pub(crate) fn list(self) -> Vec<Scope> {
        Scope::all().filter(|scope| self.0 & scope.bit() != 0).collect()
    }
}

impl fmt::Display for Scopes {
    /// Writes the form in the records.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.list().into_iter().map(Scope::label).collect();
        f.write_str(&labels.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_agree_with_json_and_bits() {
        for (at, (scope, label, _)) in Scope::LABELS.into_iter().enumerate() {
            assert_eq!(scope as usize, at);
            assert_eq!(serde_json::to_value(scope).unwrap(), label);
            assert_eq!(Scopes::parse(label), Scopes::of(&[scope]));
        }
    }

    #[test]
    fn permits_only_the_scopes_of_the_set() {
        let some = Scopes::parse("keys:read bans:write unknown:read");
        assert_eq!(some.to_string(), "keys:read bans:write");
        assert!(some.allow(Scope::KeysRead) && !some.allow(Scope::KeysWrite));
        assert!(!some.allow(Scope::All) && !Scopes::default().allow(Scope::StatsRead));
        assert!(Scopes::ALL.allow(Scope::TokensWrite));
        assert!(Scopes::ALL.cover(some) && some.cover(some) && !some.cover(Scopes::ALL));
        assert!(!some.cover(Scopes::of(&[Scope::KeysWrite])));
    }
}
