//! Scopes: what a token permits.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::named::named;

named! {
    /// A permission of a token.
    pub(crate) enum Scope {
        All = "*", "Everything, including what later versions add.";
        StatsRead = "stats:read",
            "See statistics, status, listeners, certificates and the cluster.";
        TorrentsRead = "torrents:read", "See torrents and their peers.";
        TorrentsWrite = "torrents:write", "Freeze and remove torrents.";
        PeersRead = "peers:read", "Find peers by address.";
        PeersWrite = "peers:write", "Remove the peers of an address.";
        ListsRead = "lists:read", "See the allow list and the deny list.";
        ListsWrite = "lists:write", "Change the allow list and the deny list.";
        KeysRead = "keys:read", "See user keys with their totals.";
        KeysWrite = "keys:write", "Create, change and revoke user keys.";
        BansRead = "bans:read", "See bans.";
        BansWrite = "bans:write", "Ban networks, and remove bans.";
        TokensRead = "tokens:read", "See API tokens, but not their secrets.";
        TokensWrite = "tokens:write", "Create and revoke API tokens.";
        ConfigRead = "config:read", "See the configuration and the log.";
        ConfigWrite = "config:write", "Change settings, reload, and manage the cluster.";
        CertificatesWrite = "certificates:write", "Reload certificates and lists.";
        EventsRead = "events:read", "Follow events as they happen.";
        AccountingRead = "accounting:read", "Read what users transferred of each torrent.";
        AccountingWrite = "accounting:write", "Confirm what was read of it.";
    }
}

impl Scope {
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

    pub(crate) fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().fold(0, |bits, scope| bits | scope.bit()))
    }

    /// Parses the form in the records: names separated by spaces. Unknown names, as of a later version, permit
    /// nothing.
    pub(crate) fn parse(text: &str) -> Self {
        let known = Scope::all().filter(|scope| text.split(' ').any(|it| it == scope.label()));
        Self(known.fold(0, |bits, scope| bits | scope.bit()))
    }

    pub(crate) fn allow(self, scope: Scope) -> bool {
        self.0 & (Scope::All.bit() | scope.bit()) != 0
    }

    /// Returns whether everything that `other` permits is permitted.
    pub(crate) fn cover(self, other: Self) -> bool {
        self.0 & Scope::All.bit() != 0 || other.0 & !self.0 == 0
    }

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
