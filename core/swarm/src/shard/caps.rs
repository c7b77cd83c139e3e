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

use replication::PeerMeta;
use types::{Tick, limits};

use super::torrent::{FamilyPeers, Place};
use super::{Exempt, Shard};
use crate::PeerCaps;
use crate::entry::Entry;

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
    /// Its age if a block brings it; `None` if it announces here.
    pub(super) merged_age: Option<u32>,
}

/// The room for a new peer in its torrent.
enum Room {
    /// It exceeds no cap.
    Enough,
    /// It exceeds a cap unless the peer at that place goes.
    Replace(Place),
    /// It goes before all peers that are there: a block brings it, and it announced earlier.
    Refused,
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
    /// Looks for room among the peers that share pages with it. Exempt peers count for none but the highest cap.
    fn room(&self, pages: [(Place, &[E]); 2], exempt: Option<&Exempt>) -> Room {
        let is_exempt = |peer: &E| {
            exempt.is_some_and(|is_exempt| is_exempt(peer.peer_key().socket_addr().ip()))
        };
        let is_new_exempt = is_exempt(&E::new(self.key, PeerMeta::default()));
        // 1. Count those of its host, of each customer of its network, and all on its page.
        let (mut of_host, mut of_network, mut of_page) = (0, 0, 0);
        let mut of_customers = [0_u16; 1 << u8::BITS];
        of_customers[usize::from(E::customer(self.key))] = 1;
        let near = pages.into_iter().flat_map(|(_, peers)| peers);
        for peer in near.filter(|peer| peer.shares_network(self.key)) {
            of_page += 1;
            if !is_exempt(peer) {
                of_network += 1;
                of_host += u16::from(peer.shares_address(self.key));
                of_customers[usize::from(E::customer(peer.key()))] += 1;
            }
        }
        // 2. Compare with the caps.
        let is_reached = |count: u16, cap: u16| !is_new_exempt && cap > 0 && count >= cap;
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
        let mut victim: Option<(Rank<E::Key>, Place)> = None;
        for (mut place, peers) in pages {
            for peer in peers {
                if is_candidate(peer) {
                    let rank = rank(peer.key(), peer.meta().age(self.now), is_exempt(peer));
                    if victim.is_none_or(|(highest, _)| highest < rank) {
                        victim = Some((rank, place));
                    }
                }
                place.position.at += 1;
            }
        }
        let own = self.merged_age.map(|age| rank(self.key, age, is_new_exempt));
        match victim {
            None => Room::Enough,
            Some((highest, _)) if own.is_some_and(|own| highest < own) => Room::Refused,
            Some((_, place)) => Room::Replace(place),
        }
    }
}

impl Shard {
    /// Removes peers of a torrent until the new one exceeds no cap. Returns false if the new one goes before
    /// those that are left.
    #[inline]
    pub(super) fn make_room<E: FamilyPeers>(&mut self, number: u32, new: &Newcomer<E>) -> bool {
        !self.torrent(number).is_crowded::<E>(new.key, new.caps) || self.replace_oldest(number, new)
    }

    #[cold]
    fn replace_oldest<E: FamilyPeers>(&mut self, number: u32, new: &Newcomer<E>) -> bool {
        let info_hash = self.records.at(number).info_hash;
        let exempt = self.exempt.clone();
        for _ in 0..REPLACED_MAX {
            let mut torrent = self.torrent(number);
            let gone = match new.room(torrent.near::<E>(new.key), exempt.as_deref()) {
                Room::Enough => break,
                Room::Replace(place) => torrent.remove::<E>(place),
                Room::Refused => return false,
            };
            // Other nodes merge the same blocks, and replace the same peers by themselves.
            if new.merged_age.is_none() {
                self.keep_removal(info_hash, gone.peer_key(), false);
            }
            self.totals.replaced += 1;
        }
        true
    }

    pub(super) fn is_exempt(&self, ip: IpAddr) -> bool {
        self.exempt.as_deref().is_some_and(|is_exempt| is_exempt(ip))
    }
}
