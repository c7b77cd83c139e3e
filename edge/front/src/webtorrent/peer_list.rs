//! The torrents of a connection, each with the peer ids that announced it.
//!
//! Plain form: a `BTreeSet` of [`TorrentPeer`]. Departures, because a desktop client has thousands:
//! 1. Peers are in one sorted array with little room to spare.
//! 2. The bytes with which all peer ids begin are there once. A browser has one id in all of its torrents.
//!    libtorrent has one for each, which begins with its name and version.

use std::cmp::Ordering;
use std::{iter, slice};

use types::{InfoHash, PeerId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TorrentPeer {
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
}

/// A connection's peers, in order.
#[derive(Debug, Default)]
pub(super) struct PeerList {
    /// The bytes with which all peer ids begin, then for each peer its torrent and the rest of its peer id.
    bytes: Vec<u8>,
    /// The number of those first bytes.
    shared: u8,
}

/// Bytes of an info hash, and of a peer id.
const ID_LEN: usize = 20;

impl PeerList {
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    /// Returns the bytes of memory that hold the peers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn contains(&self, peer: &TorrentPeer) -> bool {
        self.search(peer).is_ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = TorrentPeer> {
        self.entries().map(|entry| self.read(entry))
    }

    pub(super) fn of_torrent(&self, info_hash: InfoHash) -> impl Iterator<Item = TorrentPeer> {
        let first = TorrentPeer { info_hash, peer_id: PeerId([0; ID_LEN]) };
        let place = self.search(&first).unwrap_or_else(|place| place);
        let from_first = self.entries().skip(place).map(|entry| self.read(entry));
        from_first.take_while(move |peer| peer.info_hash == info_hash)
    }

    pub(super) fn insert(&mut self, peer: TorrentPeer) {
        let Err(place) = self.search(&peer) else { return };
        let shared = usize::from(self.shared);
        let same =
            iter::zip(&self.bytes[..shared], &peer.peer_id.0).take_while(|(a, b)| a == b).count();
        if same < shared || self.bytes.is_empty() {
            let mut peers: Vec<TorrentPeer> = self.iter().collect();
            peers.insert(place, peer);
            *self = Self::of(&peers);
            return;
        }
        let len = self.entry_len();
        if self.bytes.capacity() < self.bytes.len() + len {
            self.bytes.reserve_exact(len.max(self.bytes.len() / 32));
        }
        let entry = peer.info_hash.0.iter().chain(&peer.peer_id.0[shared..]).copied();
        let at = shared + place * len;
        self.bytes.splice(at..at, entry);
    }

    pub(super) fn remove(&mut self, peer: &TorrentPeer) {
        let Ok(place) = self.search(peer) else { return };
        let (at, len) = (usize::from(self.shared) + place * self.entry_len(), self.entry_len());
        self.bytes.drain(at..at + len);
        if self.len() == 0 {
            *self = Self::default();
        } else if self.bytes.len() < self.bytes.capacity() / 16 * 15 {
            self.bytes.shrink_to_fit();
        }
    }

    /// Removes the peers for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl FnMut(&TorrentPeer) -> bool) {
        *self = Self::of(&self.iter().filter(keep).collect::<Vec<_>>());
    }

    /// Returns a list of peers in order.
    fn of(peers: &[TorrentPeer]) -> Self {
        let Some((TorrentPeer { peer_id, .. }, others)) = peers.split_first() else {
            return Self::default();
        };
        let same = |other: &TorrentPeer| {
            iter::zip(&peer_id.0, &other.peer_id.0).take_while(|(one, other)| one == other).count()
        };
        let shared = others.iter().map(same).min().unwrap_or(ID_LEN);
        let mut bytes = Vec::with_capacity(shared + peers.len() * (2 * ID_LEN - shared));
        bytes.extend_from_slice(&peer_id.0[..shared]);
        for TorrentPeer { info_hash, peer_id } in peers {
            bytes.extend_from_slice(&info_hash.0);
            bytes.extend_from_slice(&peer_id.0[shared..]);
        }
        Self { bytes, shared: shared as u8 }
    }

    fn entry_len(&self) -> usize {
        2 * ID_LEN - usize::from(self.shared)
    }

    fn entries(&self) -> slice::ChunksExact<'_, u8> {
        self.bytes[self.shared.into()..].chunks_exact(self.entry_len())
    }

    /// Returns the place of a peer, or as an error where it would be.
    fn search(&self, peer: &TorrentPeer) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let entry = &self.bytes[usize::from(self.shared) + middle * self.entry_len()..];
            match self.read(&entry[..self.entry_len()]).cmp(peer) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    fn read(&self, entry: &[u8]) -> TorrentPeer {
        let (torrent, rest) = entry.split_at(ID_LEN);
        let (mut info_hash, mut peer_id) = ([0; ID_LEN], [0; ID_LEN]);
        info_hash.copy_from_slice(torrent);
        let (start, end) = peer_id.split_at_mut(self.shared.into());
        start.copy_from_slice(&self.bytes[..start.len()]);
        end.copy_from_slice(rest);
        TorrentPeer { info_hash: InfoHash(info_hash), peer_id: PeerId(peer_id) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tracker::Random;

    use super::*;

    fn bytes(random: &mut Random) -> [u8; ID_LEN] {
        std::array::from_fn(|_| random.next() as u8)
    }

    /// Returns a peer id as libtorrent makes it for each torrent.
    fn desktop_id(random: &mut Random) -> PeerId {
        let mut id = bytes(random);
        id[..8].copy_from_slice(b"-LT20B0-");
        PeerId(id)
    }

    /// Returns a list of this many torrents.
    fn filled(torrents: usize, mut peer_id: impl FnMut(&mut Random) -> PeerId) -> PeerList {
        let mut random = Random::new(1);
        let mut list = PeerList::default();
        for _ in 0..torrents {
            let info_hash = InfoHash(bytes(&mut random));
            list.insert(TorrentPeer { info_hash, peer_id: peer_id(&mut random) });
        }
        assert_eq!(list.len(), torrents);
        list
    }

    #[test]
    fn behaves_like_its_naive_twin() {
        for seed in 0..16 {
            let mut random = Random::new(seed);
            let (mut list, mut twin) = (PeerList::default(), BTreeSet::new());
            let torrents = 1 << (seed % 12);
            for step in 0..6000 {
                let number = random.below(torrents);
                let mut info_hash = [0; ID_LEN];
                info_hash[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
                // Ids that share all bytes, some, or none.
                let peer_id = match random.below(40) {
                    0 => PeerId([random.below(256) as u8; ID_LEN]),
                    1..20 => PeerId(*b"-LT20B0-abcdefghijkl"),
                    _ => desktop_id(&mut Random::new(number.into())),
                };
                let peer = TorrentPeer { info_hash: InfoHash(info_hash), peer_id };
                assert_eq!(list.contains(&peer), twin.contains(&peer));
                // Grows at first, and shrinks later.
                if random.below(3) == u32::from(step < 3000) * 2 || step < 2000 {
                    list.insert(peer);
                    twin.insert(peer);
                } else {
                    list.remove(&peer);
                    twin.remove(&peer);
                }
                if random.below(1000) == 0 {
                    let keep = |peer: &TorrentPeer| !peer.info_hash.0[0].is_multiple_of(7);
                    list.retain(keep);
                    twin.retain(keep);
                }
                let of_torrent = list.of_torrent(peer.info_hash).collect::<Vec<_>>();
                let same = twin.iter().filter(|it| it.info_hash == peer.info_hash);
                assert!(of_torrent.iter().eq(same));
                assert_eq!(list.len(), twin.len());
                if step % 16 == 0 {
                    assert!(list.iter().eq(twin.iter().copied()), "{seed} {step}");
                }
            }
            twin.iter().for_each(|peer| list.remove(peer));
            assert_eq!((list.len(), list.bytes()), (0, 0));
        }
    }

    #[test]
    fn torrents_take_few_bytes() {
        let browser = |_: &mut Random| PeerId(*b"-WW0208-abcdefghijkl");
        for torrents in [500, 5000] {
            let mut list = filled(torrents, desktop_id);
            assert!(list.bytes() * 10 < torrents * 335, "{}", list.bytes());
            list.iter().skip(100).collect::<Vec<_>>().iter().for_each(|peer| list.remove(peer));
            assert!(list.bytes() < 3600, "{}", list.bytes());
            assert!(filled(torrents, browser).bytes() < torrents * 22);
            assert!(filled(torrents, |random| PeerId(bytes(random))).bytes() < torrents * 42);
        }
        assert_eq!(filled(1, browser).bytes(), 40);
        assert_eq!(size_of::<PeerList>(), 32);
    }
}
