//! Settings of single listeners: which clients and torrents are served there.
//!
//! A policy is a value that listeners refer to by number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Public addresses for peers that are beside the tracker, behind the same router or on the same machine: others cannot
/// reach the addresses that they announce from.
#[derive(Debug, Default)]
pub struct ExternalAddress {
    /// The address of IPv4 peers; `None` = they keep their own.
    v4: Option<IpAddr>,
    /// The address of IPv6 peers; `None` = they keep their own.
    v6: Option<IpAddr>,
    /// The networks of the peers that get these addresses.
    networks: Networks,
    /// True if it is the machine's own address, and none is configured.
    is_automatic: bool,
    /// True if a peer got one of these addresses.
    is_used: AtomicBool,
}

/// Addresses by which no other machine reaches a peer: loopback and link-local ones.
const OF_THIS_MACHINE: [&str; 4] = ["127.0.0.0/8", "169.254.0.0/16", "::1", "fe80::/10"];

impl ExternalAddress {
    /// Returns the configured addresses for peers in `networks`.
    pub fn new(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>, networks: Networks) -> Self {
        let (v4, v6) = (v4.map(IpAddr::V4), v6.map(IpAddr::V6));
        Self { v4, v6, networks, ..Self::default() }
    }

    /// Returns what replaces loopback and link-local addresses if nothing is configured: the machine's own, a public one
    /// if there is one. A family without any gets that of the other. `None`: it has none at all.
    pub fn of_machine(own: &[IpAddr]) -> Option<Self> {
        let best = |is_of_family: fn(&IpAddr) -> bool| {
            let of_family = own.iter().filter(|ip| is_of_family(ip));
            let is_public = |ip: &&IpAddr| Scope::of(**ip) == Scope::Public;
            of_family.clone().find(is_public).or_else(|| of_family.clone().next()).copied()
        };
        let (v4, v6) = (best(IpAddr::is_ipv4), best(IpAddr::is_ipv6));
        let networks = Networks::parse(OF_THIS_MACHINE).ok()?;
        let (v4, v6) = (v4.or(v6)?, v6.or(v4)?);
        let (v4, v6) = (Some(v4), Some(v6));
        Some(Self { v4, v6, networks, is_automatic: true, ..Self::default() })
    }

    /// Returns the addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.into_iter().chain(self.v6)
    }

    /// Returns the addresses under which others got peers of this machine although no one outside its network can reach
    /// them: there is no public address, and none is configured.
    pub fn unreachable(&self) -> Option<IpAddr> {
        let is_needed = self.is_automatic && self.is_used.load(Ordering::Relaxed);
        self.addresses().find(|ip| is_needed && Scope::of(*ip) != Scope::Public)
    }

    /// Returns the address that replaces `ip`, if one does.
    #[cold]
    fn replacement(&self, ip: IpAddr) -> Option<IpAddr> {
        let ip = ip.to_canonical();
        let external = if ip.is_ipv4() { self.v4 } else { self.v6 };
        let found = external.filter(|_| self.networks.contains(ip));
        if found.is_some() && !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        found
    }

    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        self.addresses().any(|external| external == ip)
    }
}

/// `is_used` is no part of the value.
impl PartialEq for ExternalAddress {
    fn eq(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.v4, it.v6, it.is_automatic);
        of(self) == of(other) && self.networks == other.networks
    }
}

impl Eq for ExternalAddress {}

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

    /// Returns whether others get another address for a peer at `ip`, which an operator has chosen, or which is public.
    fn is_replaced(&self, ip: IpAddr) -> bool {
        let Some(external) = &self.external else { return false };
        let is_accepted =
            |given: IpAddr| !external.is_automatic || Scope::of(given) == Scope::Public;
        external.replacement(ip).is_some_and(is_accepted)
    }

    /// Returns whether others may get another address than `ip` for a peer there: then [`Self::peer_ip`] has it.
    /// `via_local_address` is true if the peer reached the tracker at an address that is not public. An automatic
    /// address replaces none that is public, so most peers need no search.
    ///
    /// # Errors
    ///
    /// If addresses like this are not accepted.
    #[inline]
    pub(crate) fn admit_address(
        &self,
        ip: IpAddr,
        via_local_address: bool,
    ) -> Result<bool, Refusal> {
        match (Scope::of(ip), self.private_addresses) {
            (Scope::Public, _) => {
                Ok(self.external.as_ref().is_some_and(|external| !external.is_automatic))
            }
            (Scope::Local, PrivateAddresses::Allow) => Ok(true),
            (Scope::Local, PrivateAddresses::Auto) if via_local_address => Ok(true),
            (Scope::Local, _) if self.is_replaced(ip) => Ok(true),
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

    /// Returns the address under which others get a peer at `ip`.
    fn given_at(
        policy: &ListenerPolicy,
        ip: &str,
        via_local_address: bool,
    ) -> Result<String, Refusal> {
        let ip = ip.parse().unwrap();
        let may_differ = policy.admit_address(ip, via_local_address)?;
        let given = if may_differ { policy.peer_ip(ip) } else { ip };
        Ok(given.to_string())
    }

    #[test]
    fn peers_beside_the_tracker_get_its_address() {
        let networks = Networks::parse(["10.0.0.0/8", "fc00::/7"]).unwrap();
        let external = ExternalAddress::new(Some([192, 0, 2, 7].into()), None, networks);
        let policy = ListenerPolicy {
            external: Some(Arc::new(external)),
            private_addresses: PrivateAddresses::Deny,
            ..ListenerPolicy::default()
        };
        let given = |ip: &str| given_at(&policy, ip, false);
        let refused = Err(Refusal::AddressNotPublic);
        assert_eq!(given("10.1.2.3"), Ok("192.0.2.7".into()));
        assert_eq!(given("::ffff:10.1.2.3"), Ok("192.0.2.7".into()));
        assert_eq!(given("1.1.1.1"), Ok("1.1.1.1".into()));
        assert_eq!(given("192.168.0.1"), refused, "not in the networks");
        assert_eq!(given("fd00::1"), refused, "no address of its family");
        assert_eq!(given("224.0.0.1"), refused);
    }

    /// Returns a policy at a machine with these addresses.
    fn at_machine(own: &[&str], private_addresses: PrivateAddresses) -> ListenerPolicy {
        let own: Vec<IpAddr> = own.iter().map(|ip| ip.parse().unwrap()).collect();
        let external = ExternalAddress::of_machine(&own).map(Arc::new);
        ListenerPolicy { external, private_addresses, ..ListenerPolicy::default() }
    }

    #[test]
    fn peers_of_the_machine_get_its_own_address() {
        use PrivateAddresses::{Auto, Deny};
        let given = |policy: &ListenerPolicy, ip: &str| given_at(policy, ip, true);
        let own = ["192.168.1.5", "1.2.3.4", "2600::1"];
        for rule in [Auto, Deny] {
            let policy = at_machine(&own, rule);
            for (ip, expected) in [
                ("127.0.0.1", "1.2.3.4"),
                ("127.255.0.9", "1.2.3.4"),
                ("::ffff:127.0.0.1", "1.2.3.4"),
                ("169.254.7.7", "1.2.3.4"),
                ("::1", "2600::1"),
                ("fe80::7", "2600::1"),
                ("8.8.8.8", "8.8.8.8"),
                ("126.1.1.1", "126.1.1.1"),
                ("2600::7", "2600::7"),
            ] {
                assert_eq!(given(&policy, ip), Ok(expected.into()), "{ip}");
            }
            assert_eq!(policy.external.as_ref().unwrap().unreachable(), None);
        }
        assert_eq!(given(&at_machine(&own, Auto), "192.168.1.7"), Ok("192.168.1.7".into()));

        // Without a public address, the machine's network can reach it, and the operator can see that.
        let policy = at_machine(&["192.168.1.5"], Auto);
        let external = policy.external.as_ref().unwrap();
        assert_eq!(given(&policy, "8.8.8.8"), Ok("8.8.8.8".into()));
        assert_eq!(external.unreachable(), None);
        assert_eq!(given(&policy, "::1"), Ok("192.168.1.5".into()), "of the other family");
        assert_eq!(external.unreachable(), Some([192, 168, 1, 5].into()));
        let denied = given(&at_machine(&["192.168.1.5"], Deny), "127.0.0.1");
        assert_eq!(denied, Err(Refusal::AddressNotPublic));
        assert_eq!(given(&at_machine(&[], Auto), "127.0.0.1"), Ok("127.0.0.1".into()));
    }
}
