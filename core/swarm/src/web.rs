//! WebTorrent peers. They are kept apart, because browser and IP peers cannot connect to each
//! other.
//!
//! There are few of them, each has a connection of this process that costs far more than the peer
//! does here, and an announce needs only a handful of random ones by name. So this is the plain
//! form: an `IndexMap` for each role, with a keyed hash.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};

use arrayvec::ArrayVec;
use indexmap::IndexMap;
use primitives::Random;
use primitives::siphash::siphash;
use types::{FamilyCounts, SwarmCounts, WebPeer, limits};

use crate::meta::PeerMeta;

/// The result of a WebTorrent announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebAnnounceSummary {
    /// The torrent's counts.
    pub counts: SwarmCounts,
    /// Whether it was counted as a download.
    pub downloaded: bool,
}

/// The peers that offers should go to.
pub type RelayTargets = ArrayVec<WebPeer, { limits::WEB_OFFERS_MAX }>;

//= webtorrent#kinds-apart
/// The WebTorrent peers of a torrent: seeders, leechers.
pub(crate) struct WebSwarm {
    pub(crate) peers: [IndexMap<WebPeer, PeerMeta, Keyed>; 2],
}

impl WebSwarm {
    /// Returns an empty swarm. The key decides where peers are placed.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { peers: [(); 2].map(|()| IndexMap::with_hasher(Keyed(key))) }
    }

    pub(crate) fn counts(&self) -> FamilyCounts {
        let [seeders, leechers] = &self.peers;
        FamilyCounts { seeders: seeders.len() as u32, leechers: leechers.len() as u32 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.peers.iter().all(IndexMap::is_empty)
    }

    pub(crate) fn holds(&self, peer: &WebPeer) -> bool {
        self.peers.iter().any(|peers| peers.contains_key(peer))
    }

    /// Returns how many of a role's peers are not `peer`.
    pub(crate) fn others(&self, role: usize, peer: &WebPeer) -> u32 {
        self.peers[role].len() as u32 - u32::from(self.peers[role].contains_key(peer))
    }

    /// Chooses `count` of a role's peers other than `peer`: distinct, each with the same
    /// probability. `count` must not exceed their number.
    pub(crate) fn choose(
        &self,
        role: usize,
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
