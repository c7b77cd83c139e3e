//! Generates announces.

use primitives::Random;
use swarm::{Action, PeerCaps, StoreAnnounce};
use types::{Families, InfoHash, PeerId, PeerKey, Role};

/// Returns a torrent's info hash, without a pattern.
pub(crate) fn hash(number: u32) -> InfoHash {
    let mut random = Random::new(u64::from(number) << 20);
    let mut bytes = [0; 20];
    for part in bytes.chunks_mut(8) {
        let random = random.next().to_le_bytes();
        part.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
    }
    InfoHash(bytes)
}

/// Returns a peer's announce. A quarter of the peers seed, always the same ones.
pub(super) fn job(torrent: u32, peer: u64, want: u16) -> StoreAnnounce {
    let [a, b, c, d, high, low, ..] = peer.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    StoreAnnounce {
        slot: 0,
        info_hash: hash(torrent),
        peer: PeerKey::V4([a, b, c, d, high, low]),
        peer_id: PeerId::default(),
        role: if peer.is_multiple_of(4) { Role::Seeder } else { Role::Leecher },
        action: Action::Update { completed: false },
        min_interval_s: 0,
        caps: PeerCaps::default(),
        want,
        families: Families::Own,
    }
}

/// Mean number of peers per torrent on public trackers.
const PEERS_PER_TORRENT: f64 = 4.6;

/// Returns (torrent, peer) pairs in random order. Torrent sizes are those of public trackers: 86 %
/// have up to four peers, few have thousands.
pub(crate) fn skewed(torrents: u32) -> Vec<(u32, u64)> {
    let size = |scale: f64, rank: u32| (scale / f64::from(rank + 1).powf(0.85)).clamp(1.0, 5000.0);
    let peers = f64::from(torrents) * PEERS_PER_TORRENT;
    // Compensates for truncation to integers below.
    let wanted = peers * 1.08;
    let (mut low, mut high) = (0.0, 1e7);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let total: f64 = (0..torrents).map(|rank| size(middle, rank)).sum();
        if total > wanted { high = middle } else { low = middle }
    }
    let mut pairs = Vec::new();
    for torrent in 0..torrents {
        for _ in 0..size(low, torrent) as u32 {
            pairs.push((torrent, pairs.len() as u64));
        }
    }
    shuffle(&mut pairs);
    pairs
}

fn shuffle<T>(items: &mut [T]) {
    let mut random = Random::new(3);
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn most_torrents_are_small_but_most_peers_are_not_in_them() {
        let pairs = skewed(100_000);
        let mut sizes: HashMap<u32, u32> = HashMap::new();
        pairs.iter().for_each(|(torrent, _)| *sizes.entry(*torrent).or_default() += 1);
        assert_eq!(sizes.len(), 100_000);
        let small = sizes.values().filter(|size| **size <= 4).count();
        assert!((80_000..90_000).contains(&small), "{small}");
        let mean = pairs.len() as f64 / 1e5;
        assert!((4.0..5.0).contains(&mean), "{mean}");
        assert!(sizes.values().max().unwrap() > &1000);
    }

    #[test]
    fn torrents_and_peers_are_distinct() {
        let hashes: HashSet<_> = (0..1000).map(hash).collect();
        let peers: HashSet<_> = (0..1000).map(|peer| job(0, peer, 0).peer).collect();
        assert_eq!((hashes.len(), peers.len()), (1000, 1000));
    }
}
