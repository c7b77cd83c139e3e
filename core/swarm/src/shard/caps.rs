//! Caps on the peers of one host or network in a torrent.
//!
//! All peers of a public network are in one page of each role's set, so counting them is a scan of
//! the two pages that the search for the new peer has just visited. Only new peers are counted.
//!
//! A new peer replaces the one of its host that announced longest ago, at the cap of its host. At the cap of its
//! network it replaces that of the customer with the most peers there, the new one included: a host that announces
//! many replaces its own, not those of its neighbours. More are replaced if there are more than the cap allows: caps
//! fall when they are changed, and nodes of a cluster admit peers before they know each other's. Blocks
//! bring new peers, too: the new one may be the first to go, and is not stored. Which peers of a block stay does not
//! depend on the order in which they come.

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
/// cluster have each let new peers in. Bounds the time under the lock: each replaced peer is two scans of its page.
pub(super) const REPLACED_MAX: usize = 64;

/// A peer that a torrent does not have yet.
pub(super) struct Newcomer<E: Entry> {
    pub(super) key: E::Key,
    pub(super) now: Tick,
    pub(super) caps: PeerCaps,
    pub(super) is_exempt: bool,
    /// Its age if a block brings it; `None` if it announces here.
    pub(super) merged_age: Option<u32>,
}

/// The room for a new peer in its torrent.
pub(super) enum Room<K> {
    /// It exceeds no cap.
    Enough,
    /// It exceeds a cap unless this one goes.
    Replace(Victim<K>),
    /// It goes before all peers that are there: a block brings it, and it announced earlier.
    Refused,
}

/// A peer that a new one may replace.
#[derive(Clone, Copy)]
pub(super) struct Victim<K> {
    rank: Rank<K>,
    pub(super) role: usize,
    /// Its index among the peers of its role that were looked at.
    pub(super) at: usize,
}

/// Decides which peer goes: the one of highest rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<K> {
    /// Peers of its customer, the new one included; 0 if it is exempt.
    of_customer: u16,
    age: u32,
    /// Decides between those of the same age.
    key: K,
}

impl<E: Entry> Newcomer<E> {
    /// Looks for room among the peers that share pages with it, seeders and leechers. Exempt peers count for
    /// none but the highest cap.
    pub(super) fn room(&self, pages: [&[E]; 2], exempt: Option<&Exempt>) -> Room<E::Key> {
        let is_exempt = |peer: &E| {
            exempt.is_some_and(|is_exempt| is_exempt(peer.peer_key().socket_addr().ip()))
        };
        // 1. Count those of its host, of each customer of its network, and all on its page.
        let (mut of_host, mut of_network, mut of_page) = (0, 0, 0);
        let mut of_customers = [0_u16; 1 << u8::BITS];
        of_customers[usize::from(E::customer(self.key))] = 1;
        for peer in pages.into_iter().flatten().filter(|peer| peer.shares_network(self.key)) {
            of_page += 1;
            if !is_exempt(peer) {
                of_network += 1;
                of_host += u16::from(peer.shares_address(self.key));
                of_customers[usize::from(E::customer(peer.key()))] += 1;
            }
        }
        // 2. Compare with the caps.
        let is_reached = |count: u16, cap: u16| !self.is_exempt && cap > 0 && count >= cap;
        let is_host_full = is_reached(of_host, self.caps.per_address);
        if !is_host_full
            && !is_reached(of_network, self.caps.per_network)
            && of_page < limits::PEERS_PER_NETWORK_MAX
        {
            return Room::Enough;
        }
        // 3. Find the one that goes. Exempt ones are the last.
        let rank = |key, age, is_exempt| Rank {
            of_customer: if is_exempt { 0 } else { of_customers[usize::from(E::customer(key))] },
            age,
            // Of the same rank otherwise, the first one goes if the new one announces: honest peers, which
            // stay, so gather at the front, where answers begin. If a block brings it, the one with the highest
            // key goes: all nodes of a cluster decide alike.
            key: if self.merged_age.is_some() { key } else { self.key },
        };
        let is_candidate = |peer: &E| {
            peer.shares_network(self.key) && (!is_host_full || peer.shares_address(self.key))
        };
        let mut victim: Option<Victim<E::Key>> = None;
        for (role, peers) in pages.into_iter().enumerate() {
            for (at, peer) in peers.iter().enumerate().filter(|(_, peer)| is_candidate(peer)) {
                let rank = rank(peer.key(), peer.meta().age(self.now), is_exempt(peer));
                if victim.is_none_or(|victim| victim.rank < rank) {
                    victim = Some(Victim { rank, role, at });
                }
            }
        }
        let own = self.merged_age.map(|age| rank(self.key, age, self.is_exempt));
        match victim {
            None => Room::Enough,
            Some(victim) if own.is_some_and(|own| victim.rank < own) => Room::Refused,
            Some(victim) => Room::Replace(victim),
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

    /// Returns true if a new peer of a torrent with sets may exceed a cap.
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
            let victim = match new.room(pages, self.exempt.as_deref()) {
                Room::Enough => break,
                Room::Replace(victim) => victim,
                Room::Refused => return false,
            };
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
            let victim = match new.room(pages.into(), self.exempt.as_deref()) {
                Room::Enough => break,
                Room::Replace(victim) => victim,
                Room::Refused => return false,
            };
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

    /// Returns true if the address is exempt from caps.
    pub(super) fn is_exempt(&self, ip: IpAddr) -> bool {
        self.exempt.as_deref().is_some_and(|is_exempt| is_exempt(ip))
    }
}
