//! Torrents that were refused for the first time some minutes ago.
//!
//! Uploaders announce a torrent before the site has put it on the allow list. A wait of an hour makes them think that
//! the upload has failed; a minute for every client, with torrents that are never allowed, costs sixty times the
//! requests. So only torrents that were not refused during the last day get the short time, for ten to twenty minutes.
//!
//! Plain form: a map from info hashes to times. Instead, Bloom filters, in memory that does not grow with what
//! clients choose to announce. They err to the long time: a filter that is full knows every torrent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use primitives::siphash::siphash_128;
use types::{InfoHash, Tick};

/// Bits of a filter. With 100,000 torrents a day, 3 % of new ones are taken for old ones.
const BITS: usize = 1 << 20;
/// Seconds during which new torrents are collected. They stay new for one more such time.
const NEW_S: u32 = 600;
/// Seconds during which old torrents are collected. They stay known for one more such time.
const OLD_S: u32 = 24 * 3600;

/// The torrents that were refused.
pub(crate) struct FirstRefusals {
    key: [u8; 16],
    /// Allocated with the first refusal.
    filters: OnceLock<Filters>,
}

struct Filters {
    /// Two halves by time: the current one, and the one before.
    new: [Filter; 2],
    old: [Filter; 2],
    /// The numbers of the current times. Changed while `rotation` is locked.
    new_period: AtomicU32,
    old_period: AtomicU32,
    rotation: Mutex<()>,
}

/// A Bloom filter with two bits for each torrent.
struct Filter(Box<[AtomicU64]>);

impl FirstRefusals {
    /// Returns an empty set. `key` keeps those who choose torrents from filling chosen bits.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key, filters: OnceLock::new() }
    }

    /// Notes that a torrent is refused, and returns true if that happened first a short time ago.
    pub(crate) fn is_new(&self, now: Tick, hash: &InfoHash) -> bool {
        let filters = self.filters.get_or_init(|| Filters::new(now));
        filters.rotate(now);
        let bits = siphash_128::<1, 3>(&self.key, &hash.0);
        let old = &filters.old[half(filters.old_period.load(Relaxed))];
        if filters.old.iter().any(|filter| filter.contains(bits)) {
            old.insert(bits);
            return false;
        }
        filters.new[half(filters.new_period.load(Relaxed))].insert(bits);
        true
    }
}

impl Filters {
    fn new(now: Tick) -> Self {
        Self {
            new: [Filter::new(), Filter::new()],
            old: [Filter::new(), Filter::new()],
            new_period: AtomicU32::new(now.0 / NEW_S),
            old_period: AtomicU32::new(now.0 / OLD_S),
            rotation: Mutex::default(),
        }
    }

    /// Makes the torrents old whose time as new ones is over, and forgets the oldest.
    fn rotate(&self, now: Tick) {
        let (new_period, old_period) = (now.0 / NEW_S, now.0 / OLD_S);
        let is_current = || {
            self.new_period.load(Relaxed) == new_period
                && self.old_period.load(Relaxed) == old_period
        };
        if is_current() {
            return;
        }
        let _guard = self.rotation.lock();
        if is_current() {
            return;
        }
        // Another thread may be a second behind.
        let passed = old_period.saturating_sub(self.old_period.load(Relaxed));
        for period in 0..passed.min(2) {
            self.old[half(old_period - period)].clear();
        }
        self.old_period.fetch_max(old_period, Relaxed);
        let known = &self.old[half(self.old_period.load(Relaxed))];
        let passed = new_period.saturating_sub(self.new_period.load(Relaxed));
        for period in 0..passed.min(2) {
            self.new[half(new_period - period)].move_to(known);
        }
        self.new_period.fetch_max(new_period, Relaxed);
    }
}

/// Returns which of the two filters a time has.
fn half(period: u32) -> usize {
    period as usize % 2
}

impl Filter {
    fn new() -> Self {
        Self((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    fn places(&self, bits: [u64; 2]) -> impl Iterator<Item = (&AtomicU64, u64)> {
        bits.into_iter().map(|bits| {
            let bit = bits as usize % BITS;
            (&self.0[bit / 64], 1 << (bit % 64))
        })
    }

    fn contains(&self, bits: [u64; 2]) -> bool {
        self.places(bits).all(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    fn insert(&self, bits: [u64; 2]) {
        for (word, bit) in self.places(bits) {
            // Floods name the same torrents: reads leave the line with all cores.
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    fn move_to(&self, other: &Self) {
        for (word, into) in self.0.iter().zip(&other.0) {
            into.fetch_or(word.swap(0, Relaxed), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> InfoHash {
        let mut hash = [0; 20];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        InfoHash(hash)
    }

    #[test]
    fn torrents_are_new_for_some_minutes_and_known_for_a_day() {
        let refusals = FirstRefusals::new([1; 16]);
        let start = 3 * OLD_S + NEW_S / 2;
        let is_new = |s: u32| refusals.is_new(Tick(start + s), &hash(1));
        assert!((0..=NEW_S).step_by(60).all(is_new));
        assert!((2 * NEW_S..OLD_S).step_by(3600).all(|s| !is_new(s)));
        // As long as it is announced, it stays known.
        assert!((OLD_S..5 * OLD_S).step_by(12 * 3600).all(|s| !is_new(s)));
        assert!(is_new(8 * OLD_S));
        assert!(refusals.is_new(Tick(start + 8 * OLD_S), &hash(2)));
    }

    #[test]
    fn many_torrents_get_the_long_time() {
        let refusals = FirstRefusals::new([1; 16]);
        let is_new = |s: u32, number: u32| refusals.is_new(Tick(s), &hash(number));
        assert!((0..100_000).filter(|number| is_new(0, *number)).count() == 100_000);
        assert!((0..100_000).filter(|number| is_new(3 * NEW_S, *number)).count() == 0);
        let taken_for_old =
            (0..10_000).filter(|number| !is_new(3 * NEW_S, 1_000_000 + number)).count();
        assert!((100..800).contains(&taken_for_old), "{taken_for_old}");
        assert!((0..4_000_000).filter(|number| is_new(3 * NEW_S, *number)).count() > 0);
        let new = (0..10_000).filter(|number| is_new(6 * NEW_S, 9_000_000 + number)).count();
        assert!(new < 100, "{new}");
    }
}
