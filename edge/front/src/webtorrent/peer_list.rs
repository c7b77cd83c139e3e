//! The torrents of a connection, each with the peer ids that announced it.
//!
//! Plain form: a `BTreeSet` of [`TorrentPeer`]. Departures, because a desktop client has thousands:
//! 1. Peers are in chunks, each as long as its peers need: a new peer copies two kilobytes at most, and lists
//!    that grow side by side leave no large gaps in memory.
//! 2. A chunk holds once the bytes with which all its peer ids begin. A browser has one id in all of its torrents.
//!    libtorrent has one for each, which begins with its name and version.

use std::cmp::Ordering;
use std::{iter, slice};

use arrayvec::ArrayVec;
use types::{InfoHash, PeerId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TorrentPeer {
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
}

/// A connection's peers, in order.
#[derive(Debug, Default)]
pub(super) struct PeerList {
    chunks: Chunks,
    len: u32,
}

/// Chunks in order. None of several is empty.
#[derive(Debug)]
enum Chunks {
    /// Most connections have one or two torrents.
    One(Chunk),
    Many(Vec<Chunk>),
}

/// Peers in order:
///
/// | bytes | |
/// |---|---|
/// | 1 | the number of bytes with which all peer ids begin |
/// | these | |
/// | 20 | for each peer: its torrent |
/// | the rest of 20 | its peer id, without those bytes |
///
/// Nothing at all if there are no peers.
#[derive(Debug, Default)]
struct Chunk(Box<[u8]>);

/// A chunk with more peers is split: adding one reads and writes all of them.
const CHUNK_MAX: usize = 64;
/// Peers of a chunk when the whole list is written anew: there is room for some more.
const CHUNK_USUAL: usize = CHUNK_MAX / 4 * 3;
/// Bytes of an info hash, and of a peer id.
const ID_LEN: usize = 20;

impl PeerList {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the bytes of memory that hold the peers.
    pub(super) fn bytes(&self) -> usize {
        let table = match &self.chunks {
            Chunks::One(_) => 0,
            Chunks::Many(chunks) => chunks.capacity() * size_of::<Chunk>(),
        };
        self.chunks.as_slice().iter().fold(table, |sum, chunk| sum + chunk.0.len())
    }

    pub(super) fn contains(&self, peer: &TorrentPeer) -> bool {
        let chunk = self.chunks.as_slice().get(self.chunk_of(peer));
        chunk.is_some_and(|chunk| chunk.search(peer).is_ok())
    }

    /// Returns the peers in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = TorrentPeer> {
        self.chunks.as_slice().iter().flat_map(Chunk::peers)
    }

    pub(super) fn of_torrent(&self, info_hash: InfoHash) -> impl Iterator<Item = TorrentPeer> {
        let first = TorrentPeer { info_hash, peer_id: PeerId([0; ID_LEN]) };
        let chunks = self.chunks.as_slice().iter().skip(self.chunk_of(&first));
        let from_first = chunks.flat_map(Chunk::peers).skip_while(move |peer| *peer < first);
        from_first.take_while(move |peer| peer.info_hash == info_hash)
    }

    /// Adds a peer, unless it is there.
    pub(super) fn insert(&mut self, peer: TorrentPeer) {
        let at = self.chunk_of(&peer);
        let Some(chunk) = self.chunks.as_mut_slice().get_mut(at) else { return };
        let Err(place) = chunk.search(&peer) else { return };
        let mut peers: ArrayVec<TorrentPeer, { CHUNK_MAX + 1 }> = chunk.peers().collect();
        peers.insert(place, peer);
        self.len += 1;
        if peers.len() <= CHUNK_MAX {
            *chunk = Chunk::of(&peers);
            return;
        }
        let (left, right) = peers.split_at(CHUNK_MAX / 2);
        *chunk = Chunk::of(left);
        self.chunks.insert(at + 1, Chunk::of(right));
    }

    /// Removes a peer, if it is there.
    pub(super) fn remove(&mut self, peer: &TorrentPeer) {
        let at = self.chunk_of(peer);
        let Some(chunk) = self.chunks.as_mut_slice().get_mut(at) else { return };
        let Ok(place) = chunk.search(peer) else { return };
        let mut peers: ArrayVec<TorrentPeer, CHUNK_MAX> = chunk.peers().collect();
        peers.remove(place);
        *chunk = Chunk::of(&peers);
        self.len -= 1;
        let Chunks::Many(chunks) = &mut self.chunks else { return };
        if peers.is_empty() {
            chunks.remove(at);
        }
        // Small chunks take more memory for each peer.
        if self.len() < self.chunks.as_slice().len() * CHUNK_MAX / 4 {
            self.retain(|_| true);
        }
    }

    /// Removes the peers for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl FnMut(&TorrentPeer) -> bool) {
        let kept: Vec<TorrentPeer> = self.iter().filter(keep).collect();
        self.len = kept.len() as u32;
        let mut chunks: Vec<Chunk> = kept.chunks(CHUNK_USUAL).map(Chunk::of).collect();
        self.chunks = match chunks.len() {
            0 | 1 => Chunks::One(chunks.pop().unwrap_or_default()),
            _ => Chunks::Many(chunks),
        };
    }

    /// Returns the number of the chunk in which a peer is, or would be.
    fn chunk_of(&self, peer: &TorrentPeer) -> usize {
        let chunks = self.chunks.as_slice();
        let begins_before = |chunk: &Chunk| chunk.peers().next().is_some_and(|it| it <= *peer);
        chunks.partition_point(begins_before).saturating_sub(1)
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self::One(Chunk::default())
    }
}

impl Chunks {
    fn as_slice(&self) -> &[Chunk] {
        match self {
            Self::One(chunk) => slice::from_ref(chunk),
            Self::Many(chunks) => chunks,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Chunk] {
        match self {
            Self::One(chunk) => slice::from_mut(chunk),
            Self::Many(chunks) => chunks,
        }
    }

    fn insert(&mut self, at: usize, new: Chunk) {
        match self {
            Self::One(chunk) => {
                let chunk = std::mem::take(chunk);
                *self = Self::Many(vec![chunk]);
                self.insert(at, new);
            }
            Self::Many(chunks) => chunks.insert(at, new),
        }
    }
}

impl Chunk {
    /// Returns a chunk of peers in order.
    fn of(peers: &[TorrentPeer]) -> Self {
        let Some((TorrentPeer { peer_id, .. }, others)) = peers.split_first() else {
            return Self::default();
        };
        let same = |other: &TorrentPeer| {
            iter::zip(&peer_id.0, &other.peer_id.0).take_while(|(one, other)| one == other).count()
        };
        let shared = others.iter().map(same).min().unwrap_or(ID_LEN);
        let len = 1 + shared + peers.len() * (2 * ID_LEN - shared);
        let mut bytes = Vec::with_capacity(len);
        bytes.push(shared as u8);
        bytes.extend_from_slice(&peer_id.0[..shared]);
        for TorrentPeer { info_hash, peer_id } in peers {
            bytes.extend_from_slice(&info_hash.0);
            bytes.extend_from_slice(&peer_id.0[shared..]);
        }
        Self(bytes.into())
    }

    /// Returns the peers in order.
    fn peers(&self) -> impl ExactSizeIterator<Item = TorrentPeer> {
        let (shared, entries) = self.parts();
        entries.chunks_exact(2 * ID_LEN - shared.len()).map(|entry| read(shared, entry))
    }

    /// Returns the place of a peer, or as an error where it would be.
    fn search(&self, peer: &TorrentPeer) -> Result<usize, usize> {
        let (shared, entries) = self.parts();
        let len = 2 * ID_LEN - shared.len();
        let (mut low, mut high) = (0, entries.len() / len);
        while low < high {
            let middle = low.midpoint(high);
            match read(shared, &entries[middle * len..][..len]).cmp(peer) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Returns the bytes with which all peer ids begin, and the bytes of the peers.
    fn parts(&self) -> (&[u8], &[u8]) {
        match self.0.split_first() {
            Some((shared, rest)) => rest.split_at((*shared).into()),
            None => (&[], &[]),
        }
    }
}

/// Reads a peer of a chunk, whose peer ids begin with `shared`.
fn read(shared: &[u8], entry: &[u8]) -> TorrentPeer {
    let (torrent, rest) = entry.split_at(ID_LEN);
    let (mut info_hash, mut peer_id) = ([0; ID_LEN], [0; ID_LEN]);
    info_hash.copy_from_slice(torrent);
    let (start, end) = peer_id.split_at_mut(shared.len());
    start.copy_from_slice(shared);
    end.copy_from_slice(rest);
    TorrentPeer { info_hash: InfoHash(info_hash), peer_id: PeerId(peer_id) }
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
            let desktop = filled(torrents, desktop_id).bytes();
            assert!(desktop * 10 < torrents * 335, "{desktop}");
            assert!(filled(torrents, browser).bytes() < torrents * 22);
            assert!(filled(torrents, |random| PeerId(bytes(random))).bytes() < torrents * 42);
        }
        assert_eq!(filled(1, browser).bytes(), 41);
        assert_eq!(size_of::<PeerList>(), 32);
    }

    /// Removed torrents leave no chunks with few peers.
    #[test]
    fn memory_shrinks_with_the_list() {
        let mut list = filled(5000, desktop_id);
        let all: Vec<TorrentPeer> = list.iter().collect();
        let gone = all.iter().filter(|peer| peer.info_hash.0[1] > 2);
        gone.for_each(|peer| list.remove(peer));
        assert!((20..200).contains(&list.len()));
        assert!(list.bytes() < list.len() * 37, "{} of {}", list.bytes(), list.len());
    }
}
