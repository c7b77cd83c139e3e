//! WebTorrent peers. They are kept apart, because browser and IP peers cannot connect to each
//! other.
//!
//! There are few of them, each has a connection of this process that costs far more than the peer
//! does here, and an announce needs only a handful of random ones by name. So this is the plain
//! form: an `IndexMap` for each role, with a keyed hash, and a tree of the peers by network and host,
//! which finds those that a cap counts.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use arrayvec::ArrayVec;
use indexmap::IndexMap;
use primitives::Random;
use primitives::siphash::siphash;
use replication::PeerMeta;
use types::{FamilyCounts, PackedV4, PackedV6, PeerKey, SwarmCounts, Tick, WebPeer, limits};

use crate::PeerCaps;
use crate::entry::{Entry, half};
use crate::role::{ByRole, SetRole};

/// The result of a WebTorrent announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebAnnounceSummary {
    /// The torrent's counts.
    pub counts: SwarmCounts,
    /// True if the announce was counted as a download.
    pub downloaded: bool,
}

/// The peers that offers should go to.
pub type RelayTargets = ArrayVec<WebPeer, { limits::WEB_OFFERS_MAX }>;

//= webtorrent#kinds-apart
/// The WebTorrent peers of a torrent: seeders, leechers.
pub(crate) struct WebSwarm {
    peers: ByRole<IndexMap<WebPeer, WebEntry, Keyed>>,
    /// This node's peers of both roles with public addresses: caps count them.
    by_host: BTreeSet<(Host, WebPeer)>,
}

/// The stored data of a peer.
#[derive(Clone, Copy)]
pub(crate) struct WebEntry {
    pub(crate) meta: PeerMeta,
    /// For addresses that are public and not exempt.
    pub(crate) host: Option<Host>,
}

/// A stored peer and its role.
#[derive(Clone, Copy)]
pub(crate) struct WebKnown {
    pub(crate) role: SetRole,
    pub(crate) entry: WebEntry,
}

/// A public v4 address or v6 /64, and the /24 or /48 that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    is_v6: bool,
    network: [u8; 6],
    host: [u8; 2],
}

impl Host {
    /// Returns the host of a public address; `None` for others, to which no cap applies.
    pub(crate) fn of(ip: IpAddr) -> Option<Self> {
        match PeerKey::new(ip, 0) {
            PeerKey::V4(key) => {
                let [a, b, c] = PackedV4::network(key)?;
                Some(Self { is_v6: false, network: [a, b, c, 0, 0, 0], host: [key[3], 0] })
            }
            PeerKey::V6(key) => {
                let network = PackedV6::network(key)?;
                let [.., high, low] = half(&key).to_le_bytes();
                Some(Self { is_v6: true, network, host: [high, low] })
            }
        }
    }

    /// Returns an address of the host: the v4 address, or the first one of the v6 /64.
    pub(crate) fn address(self) -> IpAddr {
        let [a, b, c, d, e, f] = self.network;
        let [high, low] = self.host;
        if self.is_v6 {
            IpAddr::from([a, b, c, d, e, f, high, low, 0, 0, 0, 0, 0, 0, 0, 0])
        } else {
            IpAddr::from([a, b, c, high])
        }
    }

    /// Returns the bytes that name the network, as [`Entry::network`] does.
    pub(crate) fn network(&self) -> &[u8] {
        let len = if self.is_v6 { 6 } else { 3 };
        &self.network[..len]
    }

    /// Returns the byte that tells the customers of the network apart, as [`Entry::customer`] does.
    fn customer(&self) -> u8 {
        let [customer, _] = self.host;
        customer
    }
}

impl WebSwarm {
    /// Returns an empty swarm. The key decides where peers are placed.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let peers = || IndexMap::with_hasher(Keyed(key));
        Self { peers: ByRole::new(peers(), peers()), by_host: BTreeSet::new() }
    }

    pub(crate) fn counts(&self) -> FamilyCounts {
        let [seeders, leechers] = SetRole::BOTH.map(|role| self.peers[role].len() as u32);
        FamilyCounts { seeders, leechers }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.peers.iter().all(IndexMap::is_empty)
    }

    pub(crate) fn find(&self, peer: &WebPeer) -> Option<WebKnown> {
        let in_set = |role| Some(WebKnown { role, entry: *self.peers[role].get(peer)? });
        SetRole::BOTH.into_iter().find_map(in_set)
    }

    /// Returns the peer of a role at an index, which changes when peers are removed.
    pub(crate) fn get_index(&self, role: SetRole, at: usize) -> Option<(WebPeer, WebEntry)> {
        self.peers[role].get_index(at).map(|(peer, entry)| (*peer, *entry))
    }

    pub(crate) fn peers(
        &self,
        role: SetRole,
    ) -> impl ExactSizeIterator<Item = (&WebPeer, PeerMeta)> {
        self.peers[role].iter().map(|(peer, entry)| (peer, entry.meta))
    }

    /// Adds a peer, or replaces it, whatever its role was. Caps count it if it `is_own`. Returns what was stored of
    /// it before.
    pub(crate) fn insert(
        &mut self,
        peer: WebPeer,
        new: WebKnown,
        is_own: bool,
    ) -> Option<WebKnown> {
        let WebKnown { role, entry } = new;
        let old = self.find(&peer);
        if old.is_some_and(|old| old.role != role) {
            self.peers[role.other()].swap_remove(&peer);
        }
        self.peers[role].insert(peer, entry);
        if let Some(host) = old.and_then(|old| old.entry.host) {
            self.by_host.remove(&(host, peer));
        }
        self.by_host.extend(entry.host.filter(|_| is_own).map(|host| (host, peer)));
        old
    }

    /// Removes a peer. Returns what was stored of it.
    pub(crate) fn remove(&mut self, peer: &WebPeer) -> Option<WebKnown> {
        let known = self.find(peer)?;
        self.peers[known.role].swap_remove(peer);
        if let Some(host) = known.entry.host {
            self.by_host.remove(&(host, *peer));
        }
        Some(known)
    }

    /// Returns the peer that a new one at `host` replaces, if a cap is reached: the one that announced longest
    /// ago of its host, or of the customer with the most peers in its network, the new one included.
    pub(crate) fn victim(&self, now: Tick, host: Host, caps: PeerCaps) -> Option<WebPeer> {
        let of_host = || self.between(host, host);
        if caps.per_address > 0 && is_reached(of_host(), caps.per_address) {
            return of_host().max_by_key(|(_, peer)| self.age(now, peer)).map(|(_, peer)| *peer);
        }
        let network_max = match caps.per_network {
            0 => limits::PEERS_PER_NETWORK_MAX,
            cap => cap.min(limits::PEERS_PER_NETWORK_MAX),
        };
        let [first, last] = [[0; 2], [0xff; 2]].map(|end| Host { host: end, ..host });
        let of_network = || self.between(first, last);
        if !is_reached(of_network(), network_max) {
            return None;
        }
        let mut of_customers = [0_u16; 1 << u8::BITS];
        let customers = of_network().map(|(other, _)| other.customer());
        for customer in customers.chain([host.customer()]) {
            of_customers[usize::from(customer)] += 1;
        }
        let rank = |(other, peer): &&(Host, WebPeer)| {
            (of_customers[usize::from(other.customer())], self.age(now, peer))
        };
        of_network().max_by_key(rank).map(|(_, peer)| *peer)
    }

    /// Returns the peers at hosts from `first` to `last`.
    fn between(&self, first: Host, last: Host) -> impl Iterator<Item = &(Host, WebPeer)> {
        self.by_host.range((first, WebPeer::MIN)..=(last, WebPeer::MAX))
    }

    fn age(&self, now: Tick, peer: &WebPeer) -> Option<u32> {
        self.find(peer).map(|known| known.entry.meta.age(now))
    }

    /// Returns how many of a role's peers are not `peer`.
    pub(crate) fn others(&self, role: SetRole, peer: &WebPeer) -> u32 {
        self.peers[role].len() as u32 - u32::from(self.peers[role].contains_key(peer))
    }

    /// Chooses `count` of a role's peers other than `peer`: distinct, each with the same
    /// probability. `count` must not exceed their number.
    pub(crate) fn choose(
        &self,
        role: SetRole,
        count: u32,
        peer: &WebPeer,
        random: &mut Random,
        targets: &mut RelayTargets,
    ) {
        let peers = &self.peers[role];
        let own = peers.get_index_of(peer);
        let others = self.others(role, peer);
        // Floyd's algorithm: each step takes a number that is new, or the step's own.
        let mut picks: ArrayVec<u32, { limits::WEB_OFFERS_MAX }> = ArrayVec::new();
        for last in others - count..others {
            let pick = random.below(last + 1);
            picks.push(if picks.contains(&pick) { last } else { pick });
        }
        for pick in picks {
            let at = pick as usize;
            let at = at + usize::from(own.is_some_and(|own| at >= own));
            targets.extend(peers.get_index(at).map(|(peer, _)| *peer));
        }
    }
}

/// Returns true if there are as many peers as `cap` allows. Looks at no more.
fn is_reached<'a>(peers: impl Iterator<Item = &'a (Host, WebPeer)>, cap: u16) -> bool {
    peers.take(cap.into()).count() >= cap.into()
}

/// Hashes under the store's key, so that collisions cannot be provoked.
#[derive(Clone)]
pub(crate) struct Keyed([u8; 16]);

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: self.0, hash: 0 }
    }
}

pub(crate) struct KeyedHasher {
    key: [u8; 16],
    hash: u64,
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        // A peer is hashed by two writes, connection and id; chain them.
        self.hash = siphash::<1, 3>(&self.key, bytes) ^ self.hash.rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
