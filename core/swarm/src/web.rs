//! WebTorrent peers: apart from the others, because neither kind can speak with the other.
//!
//! They are few, each has a connection of this process behind it that costs far more than the peer
//! does here, and what is asked of them differs: a handful of random ones, by name. So plain maps do.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};

use arrayvec::ArrayVec;
use indexmap::IndexMap;
use primitives::Random;
use primitives::siphash::siphash;
use types::{FamilyCounts, SwarmCounts, WebPeer, limits};

use crate::mark::Mark;

/// What an announce of a WebTorrent peer has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebAnnounceSummary {
    /// The torrent's figures.
    pub counts: SwarmCounts,
    /// Whether it was counted as a download.
    pub downloaded: bool,
}

/// The peers to which offers should go.
pub type RelayTargets = ArrayVec<WebPeer, { limits::WEB_OFFERS_MAX }>;

//= webtorrent#kinds-apart
/// The WebTorrent peers of a torrent: seeders, leechers.
pub(crate) struct WebSwarm {
    pub(crate) peers: [IndexMap<WebPeer, Mark, Keyed>; 2],
}

impl WebSwarm {
    /// None yet. The key decides where peers are put.
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

    /// How many of a role's peers are others than `peer`.
    pub(crate) fn others(&self, role: usize, peer: &WebPeer) -> u32 {
        self.peers[role].len() as u32 - u32::from(self.peers[role].contains_key(peer))
    }

    /// Chooses `count` of a role's peers other than `peer`: distinct, any with the same chance.
    /// There are as many.
    pub(crate) fn choose(
        &self,
        role: usize,
        count: u32,
        peer: &WebPeer,
        random: &mut Random,
        chosen: &mut RelayTargets,
    ) {
        let peers = &self.peers[role];
        let own = peers.get_index_of(peer);
        let others = self.others(role, peer);
        // Floyd's choice of some of many: each step takes a number that is new, or the step's own.
        let mut picks: ArrayVec<u32, { limits::WEB_OFFERS_MAX }> = ArrayVec::new();
        for last in others - count..others {
            let pick = random.below(last + 1);
            picks.push(if picks.contains(&pick) { last } else { pick });
        }
        for pick in picks {
            let at = pick as usize;
            let at = at + usize::from(own.is_some_and(|own| at >= own));
            chosen.extend(peers.get_index(at).map(|(peer, _)| *peer));
        }
    }
}

/// Hashes under the store's key, so that nobody outside can aim.
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
        // A peer is a number of ours and an id: two writes, chained.
        self.hash = siphash::<1, 3>(&self.key, bytes) ^ self.hash.rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
