//! What is decided for each listener by itself: who may come in by it, and for which torrents.
//!
//! A door is a value, found by the number that its listeners know. All doors are replaced as a whole:
//! every batch sees either the old ones or the new ones.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use types::{Refusal, Scope};

use crate::ClientRules;
use crate::access::AccessLists;

/// The number of a listener's door. Several listeners may have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerPolicyId(pub u16);

/// Who is served at a door, and what.
#[derive(Clone, Debug, Default)]
pub struct ListenerPolicy {
    /// Which torrents.
    pub lists: AccessLists,
    /// Whether peers may have addresses that are not public.
    pub private_addresses: PrivateAddresses,
    /// Whether users need a key.
    pub private: bool,
    /// Which client software.
    pub clients: ClientRules,
}

/// Which peers with addresses that are not public are taken ([`Scope::Local`]). Such as no host can
/// have are never taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// Those that have reached the tracker at such an address, too: their own network is its own.
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
        // Doors are numbered by whoever made them, and stay as long as listeners do.
        &listener_policies[usize::from(self.0)]
    }
}

impl ListenerPolicy {
    /// Whether there may be a peer at `ip`, which has reached the tracker at an address that is
    /// public, or `via_local_address`.
    #[inline]
    pub(crate) fn admit_address(&self, ip: IpAddr, via_local_address: bool) -> Result<(), Refusal> {
        match (Scope::of(ip), self.private_addresses) {
            (Scope::Public, _) | (Scope::Local, PrivateAddresses::Allow) => Ok(()),
            (Scope::Local, PrivateAddresses::Auto) if via_local_address => Ok(()),
            _ => Err(Refusal::AddressNotPublic),
        }
    }
}

/// The doors in force, by their numbers. There is always the first.
#[derive(Debug)]
pub struct ListenerPolicies(ArcSwap<Vec<ListenerPolicy>>);

impl Default for ListenerPolicies {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(vec![ListenerPolicy::default()]))
    }
}

impl ListenerPolicies {
    /// The doors in force now.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Vec<ListenerPolicy>>> {
        self.0.load()
    }

    /// Puts other doors in force, for every worker from its next batch on. Those past the last of
    /// `listener_policies` stay as they are: no listener loses its own.
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
    fn replaced_as_a_whole() {
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
