//! A set of info hashes that changes while it is read.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use primitives::{AtomicWords, prefetch};
use types::{InfoHash, limits};

/// Info hashes that are added and removed one by one or by the million, in force at once.
///
/// Plain form: one sorted array. Departures:
/// 1. It is cut into 65,536 pieces by the hashes' leading bits, each with its own lock: a change moves a
///    few hundred bytes, and lookups in other pieces do not wait for it.
/// 2. Pieces grow by an eighth, not by a factor of two: an entry takes 20 bytes and some 5 more.
/// 3. For each piece, 32 bytes say which third bytes its hashes have. With a million entries they reject
///    most hashes that are not in the list, without a lock. They can be prefetched, and those of all
///    pieces are one huge page.
/// 4. Entries that are added together are sorted first, and each piece takes its own in one pass.
///
/// An attacker who chooses hashes with equal leading bits makes one piece large, and changes to it slow:
/// with a million entries in one piece a change takes a millisecond. Lookups hardly suffer.
///
/// A sharded hash table finds entries 2.6 times as fast, rejects others 1.7 times as slowly, and takes
/// nearly twice the memory (`bench/record/2026-11-22-key-tables.md`).
#[derive(Default)]
pub struct LiveList {
    /// Allocated with the first entry.
    pieces: OnceLock<Pieces>,
    len: AtomicUsize,
}

struct Pieces {
    /// For each piece, a bit for each third byte that an entry has. Written under the piece's lock.
    third_bytes: AtomicWords,
    is_huge: AtomicBool,
    /// Sorted, without duplicates.
    entries: Box<[RwLock<Vec<InfoHash>>]>,
}

/// A piece.
struct Piece<'a> {
    third_bytes: &'a [AtomicU64; 4],
    entries: &'a RwLock<Vec<InfoHash>>,
}

const PIECES: usize = 1 << 16;
/// With this many random entries, all memory of the third bytes is in use.
const HUGE_FROM: usize = PIECES / 8;

impl LiveList {
    /// Adds entries, and returns how many are new. Leaves out those over
    /// [`limits::ACCESS_ENTRIES_MAX`].
    pub fn insert(&self, hashes: &[InfoHash]) -> usize {
        let pieces = self.pieces.get_or_init(Pieces::new);
        let new = self.change(hashes, |group| {
            let room = limits::ACCESS_ENTRIES_MAX.saturating_sub(self.len());
            let piece = group.first().and_then(|hash| pieces.of(hash))?;
            let new = piece.insert(group.get(..room.min(group.len()))?);
            self.len.fetch_add(new, Ordering::Relaxed);
            Some(new)
        });
        if self.len() >= HUGE_FROM && !pieces.is_huge.swap(true, Ordering::Relaxed) {
            pieces.third_bytes.make_huge();
        }
        new
    }

    /// Removes entries, and returns how many there were.
    pub fn remove(&self, hashes: &[InfoHash]) -> usize {
        let Some(pieces) = self.pieces.get() else { return 0 };
        self.change(hashes, |group| {
            let gone = group.first().and_then(|hash| pieces.of(hash))?.remove(group);
            self.len.fetch_sub(gone, Ordering::Relaxed);
            Some(gone)
        })
    }

    /// Returns whether the list contains `hash`.
    #[inline]
    pub fn contains(&self, hash: &InfoHash) -> bool {
        self.piece(hash).is_some_and(|piece| piece.contains(hash))
    }

    /// Prefetches what [`LiveList::contains`] reads, most of the time.
    #[inline]
    pub(crate) fn prefetch(&self, hash: &InfoHash) {
        self.piece(hash).into_iter().for_each(|piece| prefetch(piece.third_bytes));
    }

    /// Returns the number of hashes.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the list takes, without the allocator's own for each piece.
    pub fn bytes(&self) -> usize {
        let Some(Pieces { third_bytes, entries, .. }) = self.pieces.get() else { return 0 };
        let held = |piece: &RwLock<Vec<InfoHash>>| piece.read().capacity() * size_of::<InfoHash>();
        let pieces = size_of_val(third_bytes.words()) + size_of_val(&**entries);
        pieces + entries.iter().map(held).sum::<usize>()
    }

    /// Returns the piece of `hash`, or `None` while the list is empty.
    #[inline]
    fn piece(&self, hash: &InfoHash) -> Option<Piece<'_>> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.pieces.get()?.of(hash)
    }

    /// Calls `change` with the entries of each piece, sorted and without duplicates. Returns the sum of
    /// its results.
    fn change(
        &self,
        hashes: &[InfoHash],
        change: impl FnMut(&[InfoHash]) -> Option<usize>,
    ) -> usize {
        let mut sorted = hashes.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.chunk_by(|a, b| a.0[..2] == b.0[..2]).filter_map(change).sum()
    }
}

impl fmt::Debug for LiveList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LiveList of {}", self.len())
    }
}

impl Pieces {
    fn new() -> Self {
        Self {
            third_bytes: AtomicWords::new(4 * PIECES),
            is_huge: AtomicBool::default(),
            entries: (0..PIECES).map(|_| RwLock::default()).collect(),
        }
    }

    /// Returns the piece of a hash.
    #[inline]
    fn of(&self, hash: &InfoHash) -> Option<Piece<'_>> {
        let [high, low, ..] = hash.0;
        let number = usize::from(u16::from_be_bytes([high, low]));
        let third_bytes = self.third_bytes.words().as_chunks().0.get(number)?;
        Some(Piece { third_bytes, entries: self.entries.get(number)? })
    }
}

impl Piece<'_> {
    #[inline]
    fn contains(&self, hash: &InfoHash) -> bool {
        let (word, bit) = third_byte(hash);
        let bits = self.third_bytes.get(word).map_or(0, |word| word.load(Ordering::Relaxed));
        bits & bit != 0 && self.entries.read().binary_search(hash).is_ok()
    }

    /// Inserts sorted entries without duplicates, and returns how many are new.
    fn insert(&self, new: &[InfoHash]) -> usize {
        let mut entries = self.entries.write();
        let added = merge(&mut entries, new);
        for (word, bit) in new.iter().map(third_byte) {
            if let Some(word) = self.third_bytes.get(word) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        added
    }

    /// Removes sorted entries, and returns how many there were.
    fn remove(&self, old: &[InfoHash]) -> usize {
        let mut entries = self.entries.write();
        let before = entries.len();
        entries.retain(|entry| old.binary_search(entry).is_err());
        if entries.len() < entries.capacity() / 2 {
            entries.shrink_to_fit();
        }
        let mut words = [0; 4];
        for (word, bit) in entries.iter().map(third_byte) {
            words.get_mut(word).into_iter().for_each(|word| *word |= bit);
        }
        for (word, bits) in self.third_bytes.iter().zip(words) {
            word.store(bits, Ordering::Relaxed);
        }
        before - entries.len()
    }
}

/// Returns the word of a piece, and its bit, that stand for a hash's third byte.
#[inline]
fn third_byte(hash: &InfoHash) -> (usize, u64) {
    let [_, _, third, ..] = hash.0;
    (usize::from(third >> 6), 1 << (third & 63))
}

/// Merges `new` into `piece`, both sorted and without duplicates. Works from the end, so that each entry
/// moves once. Returns how many are new.
fn merge(piece: &mut Vec<InfoHash>, new: &[InfoHash]) -> usize {
    let added = new.iter().filter(|hash| piece.binary_search(hash).is_err()).count();
    let old_len = piece.len();
    let len = old_len + added;
    if piece.capacity() < len {
        piece.reserve_exact(len + len / 8 - old_len);
    }
    piece.resize(len, InfoHash::default());
    let (mut from, mut to) = (old_len, len);
    for hash in new.iter().rev() {
        // Move larger entries up. When there is nothing left to add, there is nothing left to move.
        while from < to && from > 0 && piece[from - 1] > *hash {
            piece[to - 1] = piece[from - 1];
            (from, to) = (from - 1, to - 1);
        }
        if from == to {
            break;
        }
        if from == 0 || piece[from - 1] != *hash {
            piece[to - 1] = *hash;
            to -= 1;
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use primitives::Random;

    /// Returns a hash in one of `pieces` pieces.
    fn hash(random: &mut Random, pieces: u32, others: u32) -> InfoHash {
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&((random.below(pieces) * 7919) as u16).to_be_bytes());
        bytes[2] = random.below(others.min(256)) as u8;
        bytes[18..].copy_from_slice(&(random.below(others.min(20)) as u16).to_be_bytes());
        InfoHash(bytes)
    }

    #[test]
    fn agrees_with_a_tree_set() {
        let mut random = Random::new(1);
        for (pieces, others, most) in [(1, 9, 4), (1, 300, 60), (5, 40, 30), (60_000, 3, 200)] {
            let (list, mut twin) = (LiveList::default(), BTreeSet::new());
            assert_eq!(list.remove(&[hash(&mut random, pieces, others)]), 0);
            for _ in 0..250 {
                let count = random.below(most);
                let hashes: Vec<_> =
                    (0..count).map(|_| hash(&mut random, pieces, others)).collect();
                if random.below(5) < 3 {
                    let new = hashes.iter().filter(|hash| twin.insert(**hash)).count();
                    assert_eq!(list.insert(&hashes), new);
                } else {
                    let gone = hashes.iter().filter(|hash| twin.remove(*hash)).count();
                    assert_eq!(list.remove(&hashes), gone);
                }
                assert_eq!((list.len(), list.is_empty()), (twin.len(), twin.is_empty()));
                for _ in 0..50 {
                    let probe = hash(&mut random, pieces, others);
                    assert_eq!(list.contains(&probe), twin.contains(&probe));
                }
            }
            assert!(twin.iter().all(|hash| list.contains(hash)));
        }
    }

    #[test]
    fn a_million_entries_take_at_most_32_bytes_each() {
        // A sixteenth of the pieces, as full as a million entries make all of them.
        const SHARE: usize = 16;
        let mut random = Random::new(2);
        let mut one = || {
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&(random.next() / SHARE as u64).to_be_bytes());
            InfoHash(bytes)
        };
        let list = LiveList::default();
        for _ in 0..8 {
            let hashes: Vec<_> = (0..1_000_000 / SHARE / 8).map(|_| one()).collect();
            assert_eq!(list.insert(&hashes), hashes.len());
        }
        let empty = LiveList::default();
        empty.insert(&[InfoHash::default()]);
        let fixed = empty.bytes() - size_of::<InfoHash>();
        // The allocator takes 16 bytes for each piece.
        let bytes = fixed + 16 * PIECES + SHARE * (list.bytes() - fixed);
        let len = SHARE * list.len();
        assert!(bytes <= 32 * len, "{} bytes each", bytes / len);
    }
}
