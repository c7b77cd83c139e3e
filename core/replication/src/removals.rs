//! Removals that blocks have reported: what was true before them must not bring a peer back.
//!
//! A store does not keep peers that are gone, so a block that comes late has nothing to compare with. Blocks
//! of several nodes come late whenever a node repeats what it has published, or walks over its peers while
//! another node reports that one of them is gone.
//!
//! Times are those of the blocks, in seconds, so that all nodes decide alike. The plain form would be one table; two,
//! of which the older one is dropped as a whole, forget without a pass over all. Each is split into small ones,
//! because a table is rebuilt when it grows, and that happens under the lock of the shard.

use hashbrown::HashTable;
use primitives::siphash::siphash;
use types::InfoHash;

use crate::block::Word;
use crate::merge::MergeClock;
use crate::meta::AGE_UNIT_S;

/// Removals that a shard remembers between two calls of [`Removals::forget`]: some 8 MB. Those beyond are not
/// remembered.
const REMOVALS_MAX: usize = 1 << 18;
/// Parts of a table. The largest part is rebuilt within some ten microseconds.
const PARTS: usize = 128;

/// Peers that were removed, and when, in seconds on the store's clock.
#[derive(Default)]
pub struct Removals {
    recent: Table,
    older: Table,
}

/// A removal: the keyed hash of a peer, and when.
#[derive(Clone, Copy)]
struct Removal {
    peer: u64,
    at: i64,
}

#[derive(Default)]
struct Table {
    /// Empty, or [`PARTS`].
    parts: Vec<HashTable<Removal>>,
    len: usize,
}

impl Table {
    fn get(&self, peer: u64) -> Option<i64> {
        let part = self.parts.get(part_of(peer))?;
        part.find(peer, |it| it.peer == peer).map(|it| it.at)
    }

    fn insert(&mut self, peer: u64, at: i64) {
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, HashTable::new);
        }
        let Some(part) = self.parts.get_mut(part_of(peer)) else { return };
        match part.find_mut(peer, |it| it.peer == peer) {
            Some(removal) => removal.at = at,
            None if self.len < REMOVALS_MAX => {
                self.len += 1;
                part.insert_unique(peer, Removal { peer, at }, |it| it.peer);
            }
            None => {}
        }
    }
}

/// A part's table uses the lowest and the highest bits of the hash.
fn part_of(peer: u64) -> usize {
    (peer >> 32) as usize % PARTS
}

impl Removals {
    /// Forgets what was remembered before the last call. Returns it, to be dropped after unlocking.
    pub fn forget(&mut self) -> impl Sized + use<> {
        let recent = std::mem::take(&mut self.recent);
        std::mem::replace(&mut self.older, recent)
    }

    /// Returns true if no removal is remembered.
    pub fn is_empty(&self) -> bool {
        self.recent.len + self.older.len == 0
    }

    /// Notes that the peer with that [`removal_hash`] is gone, as `word` reports.
    pub fn note(&mut self, clock: &MergeClock, peer: u64, word: Word) {
        let at = clock.cut_s - i64::from(word.age()) * i64::from(AGE_UNIT_S);
        if self.at(peer).is_none_or(|known| known < at) {
            self.recent.insert(peer, at);
        }
    }

    /// Returns when a peer was removed, in seconds on the store's clock.
    fn at(&self, peer: u64) -> Option<i64> {
        self.recent.get(peer).max(self.older.get(peer))
    }

    /// Returns true if `word` may bring a peer back: the peer was not removed after the word was true.
    pub fn admits(&self, clock: &MergeClock, is_walk: bool, peer: u64, word: Word) -> bool {
        let unit = i64::from(AGE_UNIT_S);
        let at = clock.cut_s - i64::from(word.age()) * unit;
        let Some(removed) = self.at(peer) else { return true };
        if is_walk || word.age() > 0 {
            // The peer announced at some time in the unit. An announce after the removal is a change, which
            // comes by itself.
            return at.div_euclid(unit) > removed.div_euclid(unit);
        }
        // Within a second the message that comes later wins.
        at >= removed
    }
}

/// Returns the name of a peer by its key on the wire.
pub fn removal_hash(key: &[u8; 16], info_hash: &InfoHash, peer: &[u8]) -> u64 {
    let mut message = [0; 20 + 18];
    let (torrent, rest) = message.split_at_mut(20);
    torrent.copy_from_slice(&info_hash.0);
    // Families differ in length, which is part of the hash.
    let len = peer.len().min(rest.len());
    rest[..len].copy_from_slice(&peer[..len]);
    siphash::<1, 3>(key, &message[..20 + len])
}

#[cfg(test)]
mod tests {
    use types::{Role, Tick};

    use super::*;
    use crate::MergeTime;

    fn clock(cut: u32) -> MergeClock {
        let now = Tick(10_000);
        MergeClock::new(MergeTime { now, cut_ago_s: now.0 - cut, epoch_min: 0 }, 2700)
    }

    impl Removals {
        /// Notes or admits a word, as it comes.
        fn admit(&mut self, clock: &MergeClock, is_walk: bool, peer: u64, word: Word) -> bool {
            if word.is_gone() {
                self.note(clock, peer, word);
                return true;
            }
            self.admits(clock, is_walk, peer, word)
        }
    }

    fn present(age: u32) -> Word {
        Word::present(age, Role::Leecher, false)
    }

    #[test]
    fn what_was_true_before_a_removal_is_not_admitted() {
        let mut removals = Removals::default();
        // Second 9000 is the 8th of its unit.
        assert!(removals.admit(&clock(9000), false, 1, Word::gone()));
        for (cut, is_admitted) in [(8000, false), (8999, false), (9000, true), (9001, true)] {
            assert_eq!(removals.admit(&clock(cut), false, 1, present(0)), is_admitted, "{cut}");
        }
        // Another peer.
        assert!(removals.admit(&clock(8000), false, 2, present(0)));
        // Walks, and words with an age, tell the unit.
        for (cut, age, is_admitted) in
            [(9001, 0, false), (9007, 0, false), (9008, 0, true), (9024, 1, true), (9023, 1, false)]
        {
            assert_eq!(removals.admit(&clock(cut), true, 1, present(age)), is_admitted, "{cut}");
        }
        assert!(!removals.admit(&clock(9023), false, 1, present(1)));
    }

    #[test]
    fn the_latest_removal_counts_and_is_forgotten_after_two_rounds() {
        let mut removals = Removals::default();
        removals.admit(&clock(9000), false, 1, Word::gone());
        drop(removals.forget());
        // Told of again, and of an earlier one.
        removals.admit(&clock(8900), false, 1, Word::gone());
        assert!(!removals.admit(&clock(8950), false, 1, present(0)));
        drop(removals.forget());
        assert!(removals.admit(&clock(8950), false, 1, present(0)));
        removals.admit(&clock(9000), false, 1, Word::gone());
        removals.admit(&clock(9100), false, 1, Word::gone());
        assert!(!removals.admit(&clock(9099), false, 1, present(0)));
    }

    #[test]
    fn removals_are_bounded() {
        let mut removals = Removals::default();
        for peer in 0..REMOVALS_MAX as u64 + 5 {
            removals.admit(&clock(9000), false, peer, Word::gone());
        }
        assert_eq!(removals.recent.len, REMOVALS_MAX);
    }
}
