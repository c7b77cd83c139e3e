//! Settings of single listeners: which clients and torrents are served there.
//!
//! A policy is a value that listeners refer to by number. All policies are replaced as a whole: every
//! batch sees either the old ones or the new ones.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use types::{Refusal, Scope};

use crate::ClientRules;
use crate::access::AccessLists;

/// The number of a listener's policy. Several listeners may share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerPolicyId(pub u16);

/// Which clients and torrents are served at a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenerPolicy {
    /// Which torrents are served.
    pub lists: AccessLists,
    /// Whether peers may have addresses that are not public.
    pub private_addresses: PrivateAddresses,
    /// Whether clients need a key.
    pub private: bool,
    /// Which client software is served.
    pub clients: ClientRules,
    /// Whether scrapes may ask for all torrents, if the listener is not private.
    pub full_scrape: bool,
}

/// Which peers with addresses that are not public ([`Scope::Local`]) are accepted. Addresses that no
/// host can have are never accepted.
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
    /// Refuses a peer at `ip` if its address is not accepted. `via_local_address` is whether it reached
    /// the tracker at an address that is not public.
    #[inline]
    pub(crate) fn admit_address(&self, ip: IpAddr, via_local_address: bool) -> Result<(), Refusal> {
        match (Scope::of(ip), self.private_addresses) {
            (Scope::Public, _) | (Scope::Local, PrivateAddresses::Allow) => Ok(()),
            (Scope::Local, PrivateAddresses::Auto) if via_local_address => Ok(()),
            _ => Err(Refusal::AddressNotPublic),
        }
    }
}

/// The policies in force, by their ids. The first always exists.
#[derive(Debug)]
pub struct ListenerPolicies(ArcSwap<Vec<ListenerPolicy>>);

impl Default for ListenerPolicies {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(vec![ListenerPolicy::default()]))
    }
}

impl ListenerPolicies {
    /// Returns the policies in force now.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Vec<ListenerPolicy>>> {
        self.0.load()
    }

    /// Replaces the policies, for every worker from its next batch on. Keeps those past the end of
    /// `listener_policies`, so that no listener loses its own.
    pub fn replace(&self, mut listener_policies: Vec<ListenerPolicy>) {
        let len = listener_policies.len();
        listener_policies.extend(self.0.load().iter().skip(len).cloned());
        self.0.store(Arc::new(listener_policies));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Mode;

    #[test]
    fn policies_are_replaced_as_a_whole() {
        let listener_policies = ListenerPolicies::default();
        let before = listener_policies.load();
        let lists = AccessLists { mode: Mode::Allow, ..AccessLists::default() };
        listener_policies.replace(vec![
            ListenerPolicy { lists, ..ListenerPolicy::default() },
            ListenerPolicy::default(),
        ]);
        assert!(before.len() == 1 && before[0].lists.is_open());
        let after = listener_policies.load();
        assert!(!after[0].lists.is_open() && after[1].lists.is_open());
        listener_policies.replace(vec![ListenerPolicy::default()]);
        assert!(listener_policies.load().len() == 2 && listener_policies.load()[0].lists.is_open());
    }
}
