//! Settings of single listeners: which clients and torrents are served there.
//!
//! A policy is a value that listeners refer to by number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use types::{Refusal, Scope};

use crate::access::AccessLists;
use crate::{ClientRules, Networks};

/// The number of a listener's policy. Several listeners may share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerPolicyId(pub u16);

/// The clients and torrents that are served at a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenerPolicy {
    /// The lists that decide which torrents are served.
    pub lists: AccessLists,
    /// The rule for peers with addresses that are not public.
    pub private_addresses: PrivateAddresses,
    /// The credentials that clients need.
    pub access: Access,
    /// The client software that is served.
    pub clients: ClientRules,
    /// True if scrapes may ask for all torrents, unless the listener is private.
    pub full_scrape: bool,
    /// The addresses under which other peers get the peers of the tracker's own networks. `None` = their
    /// own.
    pub external: Option<Arc<ExternalAddress>>,
}

/// The credentials that a listener asks of its clients. The first kinds admit fewest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Every request needs a key.
    Private,
    /// Announces need a token that permits their torrent.
    Tokens,
    /// None.
    #[default]
    Open,
}

/// Public addresses for peers that are beside the tracker, behind the same router: others cannot reach
/// the addresses that they announce from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalAddress {
    /// The address of IPv4 peers; `None` = they keep their own.
    pub v4: Option<Ipv4Addr>,
    /// The address of IPv6 peers; `None` = they keep their own.
    pub v6: Option<Ipv6Addr>,
    /// The networks of the peers that get these addresses.
    pub networks: Networks,
}

impl ExternalAddress {
    /// Returns the address that replaces `ip`, if one does.
    fn replacement(&self, ip: IpAddr) -> Option<IpAddr> {
        let external = match ip.to_canonical() {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        };
        external.filter(|_| self.networks.contains(ip))
    }

    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        self.v4.is_some_and(|v4| ip == v4) || self.v6.is_some_and(|v6| ip == v6)
    }
}

/// The accepted peers among those with addresses that are not public ([`Scope::Local`]). Addresses that
/// no host can have are never accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// Peers that reached the tracker at such an address, too: they are in its own network.
    #[default]
    Auto,
    /// All.
    Allow,
    /// None.
    Deny,
}

impl ListenerPolicyId {
    #[inline]
    pub(crate) fn of(self, listener_policies: &[ListenerPolicy]) -> &ListenerPolicy {
        // Ids come from the same configuration as the policies, which are never removed.
        &listener_policies[usize::from(self.0)]
    }
}

impl ListenerPolicy {
    /// Returns whether clients need a key.
    #[inline]
    pub fn is_private(&self) -> bool {
        self.access == Access::Private
    }

    /// Returns the address under which others get a peer at `ip`.
    #[inline]
    pub(crate) fn peer_ip(&self, ip: IpAddr) -> IpAddr {
        let external = self.external.as_ref();
        external.and_then(|external| external.replacement(ip)).unwrap_or(ip)
    }

    /// Refuses a peer at `ip` if its address is not accepted. `via_local_address` is true if it reached
    /// the tracker at an address that is not public.
    #[inline]
    pub(crate) fn admit_address(&self, ip: IpAddr, via_local_address: bool) -> Result<(), Refusal> {
        match (Scope::of(ip), self.private_addresses) {
            (Scope::Public, _) | (Scope::Local, PrivateAddresses::Allow) => Ok(()),
            (Scope::Local, PrivateAddresses::Auto) if via_local_address => Ok(()),
            // Others get another address.
            (Scope::Local, _) if self.peer_ip(ip) != ip => Ok(()),
            _ => Err(Refusal::AddressNotPublic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_decides_about_addresses_that_are_not_public() {
        use PrivateAddresses::{Allow, Auto, Deny};
        for (private_addresses, via_local_address, admits_local) in [
            (Auto, true, true),
            (Auto, false, false),
            (Allow, true, true),
            (Allow, false, true),
            (Deny, true, false),
            (Deny, false, false),
        ] {
            let policy = ListenerPolicy { private_addresses, ..ListenerPolicy::default() };
            // Local, public, of a tunnel, of no host.
            let addresses =
                ["10.0.0.1", "fd00::1", "::ffff:8.8.8.8", "2002:808:808::1", "224.0.0.1"];
            let admits = addresses
                .map(|ip| policy.admit_address(ip.parse().unwrap(), via_local_address).is_ok());
            assert_eq!(admits, [admits_local, admits_local, true, false, false], "{policy:?}");
        }
    }

    #[test]
    fn peers_beside_the_tracker_get_its_address() {
        let external = ExternalAddress {
            v4: Some([192, 0, 2, 7].into()),
            v6: None,
            networks: Networks::parse(["10.0.0.0/8", "fc00::/7"]).unwrap(),
        };
        let policy = ListenerPolicy {
            external: Some(Arc::new(external)),
            private_addresses: PrivateAddresses::Deny,
            ..ListenerPolicy::default()
        };
        let given = |ip: &str| {
            let ip = ip.parse().unwrap();
            policy.admit_address(ip, false).map(|()| policy.peer_ip(ip).to_string())
        };
        let refused = Err(Refusal::AddressNotPublic);
        assert_eq!(given("10.1.2.3"), Ok("192.0.2.7".into()));
        assert_eq!(given("::ffff:10.1.2.3"), Ok("192.0.2.7".into()));
        assert_eq!(given("1.1.1.1"), Ok("1.1.1.1".into()));
        assert_eq!(given("192.168.0.1"), refused, "not in the networks");
        assert_eq!(given("fd00::1"), refused, "no address of its family");
        assert_eq!(given("224.0.0.1"), refused);
    }
}
