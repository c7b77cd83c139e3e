//! Caps on the peers of one host or network in a torrent.
//!
//! All peers of a public network are in one page of each role's set, so counting them is a scan of
//! the two pages that the search for the new peer has just visited. Only new peers are counted.
//!
//! A new peer replaces the one that announced longest ago, and more if there are more than the cap allows: caps
//! fall when they are changed, and nodes of a cluster let peers in before they have heard of each other's. Blocks
//! bring new peers, too: of those that announced longest ago the new one may be the first, and is not stored.

use std::net::IpAddr;

use types::{PackedV4, Tick, limits};

use super::announce::{PeerUpdate, take_inline};
use super::{Exempt, FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::PeerCaps;
use crate::entry::Entry;
use crate::record::INLINE_MAX;
use crate::set::Position;

impl PeerCaps {
    /// Returns the number of peers from which on a new one of the same network may exceed a cap.
    #[inline]
    pub(super) fn least(self) -> u16 {
        let capped = |cap: u16| if cap == 0 { u16::MAX } else { cap };
        capped(self.per_address).min(capped(self.per_network)).min(limits::PEERS_PER_NETWORK_MAX)
    }
}

/// The most peers that one new peer replaces. More than one are above a cap when caps fall, or when nodes of a
/// cluster have each let new peers in. Bounds the time under the lock: each replaced peer is a scan of its page.
pub(super) const REPLACED_MAX: usize = 64;

/// A peer that a torrent does not have yet.
pub(super) struct Newcomer<E: Entry> {
    pub(super) key: E::Key,
    pub(super) now: Tick,
    pub(super) caps: PeerCaps,
    pub(super) is_exempt: bool,
    /// Its age, if a block tells of it; `None` if it announces here.
    pub(super) merged_age: Option<u32>,
}

impl<E: Entry> Newcomer<E> {
    /// Whether it goes before the peer that it would replace: a block tells of one that announced earlier.
    pub(super) fn is_before(&self, victim: &Victim<E::Key>) -> bool {
        self.merged_age.is_some_and(|age| victim.rank < (age, self.key))
    }

    /// Returns the peer to replace among those that share pages with it, seeders and leechers, if a cap is
    /// reached. Exempt peers count for none but the highest cap.
    pub(super) fn victim(
        &self,
        pages: [&[E]; 2],
        exempt: Option<&Exempt>,
    ) -> Option<Victim<E::Key>> {
        let mut groups = Groups::<E::Key>::default();
        for (role, entries) in pages.into_iter().enumerate() {
            let near = entries.iter().enumerate().filter(|(_, peer)| peer.shares_network(self.key));
            for (at, entry) in near {
                // Of the same age, the first one goes if the new one announces: honest peers, which stay, so
                // gather at the front, where answers begin. If a block brings it, the one with the highest key
                // goes: all nodes of a cluster decide alike.
                let key = if self.merged_age.is_some() { entry.key() } else { self.key };
                let peer = Victim { rank: (entry.meta().age(self.now), key), role, at };
                groups.page.add(peer);
                if exempt.is_some_and(|is_exempt| is_exempt(entry.peer_key().socket_addr().ip())) {
                    continue;
                }
                groups.network.add(peer);
                if entry.shares_address(self.key) {
                    groups.host.add(peer);
                }
            }
        }
        let is_reached = |count: u16, cap: u16| !self.is_exempt && cap > 0 && count >= cap;
        if is_reached(groups.host.count, self.caps.per_address) {
            groups.host.oldest
        } else if is_reached(groups.network.count, self.caps.per_network) {
            groups.network.oldest
        } else if groups.page.count >= limits::PEERS_PER_NETWORK_MAX {
            groups.network.oldest.filter(|_| !self.is_exempt).or(groups.page.oldest)
        } else {
            None
        }
    }
}

/// A peer that a new one may replace.
#[derive(Clone, Copy)]
pub(super) struct Victim<K> {
    /// Its age, and what decides between those of the same age: the highest goes first.
    rank: (u32, K),
    pub(super) role: usize,
    /// Its index among the peers of its role that were looked at.
    pub(super) at: usize,
}

/// The peers in a torrent that count with a new one.
struct Groups<K> {
    host: Group<K>,
    network: Group<K>,
    /// The network, and those of it that are exempt.
    page: Group<K>,
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        let [host, network, page] = [(); 3].map(|()| Group { count: 0, oldest: None });
        Self { host, network, page }
    }
}

/// The peers of one host or network: how many there are, and the one that announced longest ago.
struct Group<K> {
    count: u16,
    oldest: Option<Victim<K>>,
}

impl<K: Copy + Ord> Group<K> {
    fn add(&mut self, peer: Victim<K>) {
        self.count = self.count.saturating_add(1);
        if self.oldest.is_none_or(|oldest| oldest.rank < peer.rank) {
            self.oldest = Some(peer);
        }
    }
}

impl Shard {
    /// Replaces peers of a torrent with sets if the new one of an announce would exceed a cap. Returns
    /// whether it may have.
    // Not inline: known peers, which are most, do not come here.
    #[inline(never)]
    pub(super) fn make_room<E: FamilyPeers>(
        &mut self,
        number: u32,
        key: E::Key,
        update: &PeerUpdate<'_>,
    ) -> bool {
        let is_crowded = self.is_crowded::<E>(number, key, update.announce.caps);
        if is_crowded {
            self.replace_oldest::<E>(number, &update.newcomer(key));
        }
        is_crowded
    }

    /// Does what [`Shard::make_room`] does for a torrent with inline peers.
    #[cold]
    pub(super) fn make_room_inline(&mut self, number: u32, key: [u8; 6], update: &PeerUpdate<'_>) {
        self.replace_oldest_inline(number, &update.newcomer(key));
    }

    /// Whether a new peer of a torrent with sets may exceed a cap.
    #[inline]
    pub(super) fn is_crowded<E: FamilyPeers>(
        &self,
        number: u32,
        key: E::Key,
        caps: PeerCaps,
    ) -> bool {
        let sets = E::sets(self.records.at(number).sets());
        let least = u32::from(caps.least());
        if sets[SEEDERS].len() + sets[LEECHERS].len() < least {
            return false;
        }
        if E::network(key).is_none() {
            return false;
        }
        let is_paged = sets[SEEDERS].is_paged() || sets[LEECHERS].is_paged();
        let hash = if is_paged { peer_hash::<E>(&self.key)(key) } else { 0 };
        let count: u32 = sets.iter().map(|set| set.count_network(&self.arena, key, |_| hash)).sum();
        count >= least
    }

    /// Removes peers of a torrent with sets until the new one exceeds no cap. Returns false if the new one
    /// goes before those that are left.
    #[cold]
    pub(super) fn replace_oldest<E: FamilyPeers>(
        &mut self,
        number: u32,
        new: &Newcomer<E>,
    ) -> bool {
        let hash = peer_hash::<E>(&self.key);
        for _ in 0..REPLACED_MAX {
            let mut sets = *E::sets(self.records.at(number).sets());
            let places = sets.each_ref().map(|set| set.page_with(&self.arena, new.key, hash));
            let pages = places.map(|(_, entries)| entries);
            let Some(victim) = new.victim(pages, self.exempt.as_deref()) else { break };
            if new.is_before(&victim) {
                return false;
            }
            let position = Position { page: places[victim.role].0, at: victim.at as u32 };
            let gone = sets[victim.role].remove(&mut self.arena, position, hash);
            *E::sets_mut(self.records.at_mut(number).sets_mut()) = sets;
            self.count_replaced(number, victim.role, &gone, new);
        }
        true
    }

    /// Does what [`Shard::replace_oldest`] does for a torrent with inline peers.
    pub(super) fn replace_oldest_inline(&mut self, number: u32, new: &Newcomer<PackedV4>) -> bool {
        if PackedV4::network(new.key).is_none() {
            return true;
        }
        for _ in 0..INLINE_MAX {
            let record = self.records.at_mut(number);
            let seeders = usize::from(record.inline_seeders);
            let pages = record.inline_peers().split_at(seeders);
            let victim = new.victim(pages.into(), self.exempt.as_deref());
            let Some(victim) = victim else { break };
            if new.is_before(&victim) {
                return false;
            }
            let at = victim.at + if victim.role == SEEDERS { 0 } else { seeders };
            let gone = record.inline_peers()[at];
            take_inline(record, at);
            self.count_replaced(number, victim.role, &gone, new);
        }
        true
    }

    fn count_replaced<E: FamilyPeers>(
        &mut self,
        number: u32,
        role: usize,
        gone: &E,
        new: &Newcomer<E>,
    ) {
        let info_hash = self.records.at(number).info_hash;
        self.count_removed::<E>(number, role, gone.meta());
        self.remove_id(info_hash, gone.peer_key());
        // Other nodes merge the same blocks, and replace the same peers by themselves.
        if new.merged_age.is_none() {
            self.changes.push_gone(&info_hash, &gone.peer_key());
        }
        self.networks.remove::<E>(gone.key());
        self.totals.replaced += 1;
    }

    /// Whether the address is exempt from caps.
    pub(super) fn is_exempt(&self, ip: IpAddr) -> bool {
        self.exempt.as_deref().is_some_and(|is_exempt| is_exempt(ip))
    }
}
