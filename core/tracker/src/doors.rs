//! What is decided for each listener by itself: who may come in by it, and for which torrents.
//!
//! A door is a value, found by the number that its listeners know. All doors are replaced as a whole:
//! every batch sees either the old ones or the new ones.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use types::{Refusal, Scope};

use crate::ClientRules;
use crate::access::AccessLists;

/// The number of a listener's door. Several listeners may have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorNumber(pub u16);

/// Who is served at a door, and what.
#[derive(Clone, Debug, Default)]
pub struct Door {
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

impl DoorNumber {
    #[inline]
    pub(crate) fn of(self, doors: &[Door]) -> &Door {
        // Doors are numbered by whoever made them, and stay as long as listeners do.
        &doors[usize::from(self.0)]
    }
}

impl Door {
    /// Whether there may be a peer at `ip`, which has reached the tracker at an address that is
    /// public, or `near`.
    #[inline]
    pub(crate) fn admit_address(&self, ip: IpAddr, near: bool) -> Result<(), Refusal> {
        match (Scope::of(ip), self.private_addresses) {
            (Scope::Public, _) | (Scope::Local, PrivateAddresses::Allow) => Ok(()),
            (Scope::Local, PrivateAddresses::Auto) if near => Ok(()),
            _ => Err(Refusal::AddressNotPublic),
        }
    }
}

/// The doors in force, by their numbers. There is always the first.
#[derive(Debug)]
pub struct Doors {
    all: ArcSwap<Vec<Door>>,
    /// A bit for each of the first that is private.
    private: AtomicU64,
}

/// Nobody has more listeners, and who has looks a little longer.
const BITS: usize = 64;

impl Default for Doors {
    fn default() -> Self {
        let all = ArcSwap::from_pointee(vec![Door::default()]);
        Self { all, private: AtomicU64::default() }
    }
}

impl Doors {
    /// The doors in force now.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Vec<Door>>> {
        self.all.load()
    }

    /// Puts other doors in force, for every worker from its next batch on. Those past the last of
    /// `doors` stay as they are: no listener loses its own.
    pub fn replace(&self, mut doors: Vec<Door>) {
        let len = doors.len();
        doors.extend(self.all.load().iter().skip(len).cloned());
        let first = doors.iter().take(BITS).enumerate();
        let private = first.fold(0, |bits, (at, door)| bits | u64::from(door.private) << at);
        self.all.store(Arc::new(doors));
        self.private.store(private, Ordering::Relaxed);
    }

    /// Whether users need a key at a door.
    #[inline]
    pub fn is_private(&self, door: DoorNumber) -> bool {
        match usize::from(door.0) {
            at if at < BITS => self.private.load(Ordering::Relaxed) >> at & 1 != 0,
            _ => door.of(&self.load()).private,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Mode;

    #[test]
    fn replaced_as_a_whole() {
        let doors = Doors::default();
        let before = doors.load();
        let lists = AccessLists { mode: Mode::Allow, ..AccessLists::default() };
        doors.replace(vec![Door { lists, ..Door::default() }, Door::default()]);
        assert!(before.len() == 1 && before[0].lists.is_open());
        let after = doors.load();
        assert!(!after[0].lists.is_open() && after[1].lists.is_open());
        doors.replace(vec![Door::default()]);
        assert!(doors.load().len() == 2 && doors.load()[0].lists.is_open());
    }

    #[test]
    fn private_ones_are_told_from_others_however_many_there_are() {
        let doors = Doors::default();
        let is_private = |at: u16| at.is_multiple_of(3);
        let door = |at| Door { private: is_private(at), ..Door::default() };
        doors.replace((0..200).map(door).collect());
        assert!((0..200).all(|at| doors.is_private(DoorNumber(at)) == is_private(at)));
    }
}
