//! Download counts that outlive torrents and restarts.
//!
//! The store forgets a torrent's count with the torrent. Where there are durable records, the counts
//! are here instead: one for each torrent that was ever downloaded, up to a limit. This is the plain
//! form: a sharded [`HashTable`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use primitives::siphash::siphash;
use types::{InfoHash, limits};

/// The number of downloads of each torrent. Off, and empty, until [`Downloads::enable`] is called.
pub struct Downloads {
    is_on: AtomicBool,
    key: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
    len: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    counts: HashTable<Count>,
    /// Torrents whose counts have changed since they were last taken.
    changed: Vec<InfoHash>,
}

struct Count {
    info_hash: InfoHash,
    /// The count in 31 bits. The highest bit is set if the torrent is in the shard's `changed`.
    word: u32,
}

const CHANGED: u32 = 1 << 31;

const _: () = assert!(size_of::<Count>() == 24);

/// A power of two.
const SHARDS: usize = 1024;

impl Downloads {
    /// Returns an empty table. `key` keeps clients from aiming at shards.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            is_on: AtomicBool::default(),
            key,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::default(),
        }
    }

    /// Counts downloads here from now on, and reports these counts to clients.
    pub fn enable(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Loads durable counts. Of two counts for a torrent, the larger one stays.
    pub fn load(&self, counts: impl Iterator<Item = (InfoHash, u32)>) {
        for (info_hash, loaded) in counts {
            self.change(&info_hash, |word| {
                (word & CHANGED) | (word & !CHANGED).max(loaded & !CHANGED)
            });
        }
    }

    /// Appends the counts that have changed since the last call to `into`, each once.
    pub fn take_changed(&self, into: &mut Vec<(InfoHash, u32)>) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            for info_hash in shard.changed.drain(..) {
                let hash = self.hash(&info_hash);
                if let Some(count) = shard.counts.find_mut(hash, |it| it.info_hash == info_hash) {
                    count.word &= !CHANGED;
                    into.push((info_hash, count.word));
                }
            }
        }
    }

    /// Returns the number of downloads of a torrent.
    pub fn of(&self, info_hash: &InfoHash) -> u32 {
        let hash = self.hash(info_hash);
        let shard = self.shard(hash);
        shard.counts.find(hash, |it| it.info_hash == *info_hash).map_or(0, |it| it.word & !CHANGED)
    }

    /// Returns the number of torrents with a count.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether no torrent has a count.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether downloads are counted here.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts a download, if downloads are counted here.
    pub(crate) fn count(&self, info_hash: &InfoHash) {
        if !self.is_on() {
            return;
        }
        let mut is_new_change = false;
        let shard = self.change(info_hash, |word| {
            is_new_change = word & CHANGED == 0;
            CHANGED | (word & !CHANGED).saturating_add(1).min(!CHANGED)
        });
        if let Some(mut shard) = shard.filter(|_| is_new_change) {
            shard.changed.push(*info_hash);
        }
    }

    /// Replaces a torrent's word, which is 0 at first. Returns its shard, or `None` if that is full.
    fn change(
        &self,
        info_hash: &InfoHash,
        change: impl FnOnce(u32) -> u32,
    ) -> Option<MutexGuard<'_, Shard>> {
        let hash = self.hash(info_hash);
        let mut shard = self.shard(hash);
        if let Some(count) = shard.counts.find_mut(hash, |it| it.info_hash == *info_hash) {
            count.word = change(count.word);
            return Some(shard);
        }
        if shard.counts.len() >= limits::DOWNLOADS_MAX / SHARDS {
            return None;
        }
        let count = Count { info_hash: *info_hash, word: change(0) };
        shard.counts.insert_unique(hash, count, |it| self.hash(&it.info_hash));
        self.len.fetch_add(1, Ordering::Relaxed);
        Some(shard)
    }

    #[inline]
    fn hash(&self, info_hash: &InfoHash) -> u64 {
        siphash::<1, 3>(&self.key, &info_hash.0)
    }

    /// Chosen by the middle bits: a shard's table uses the lowest and the highest.
    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 40) as usize % SHARDS].lock()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use primitives::Random;

    #[test]
    fn agrees_with_a_map() {
        let downloads = Downloads::new([1; 16]);
        let mut random = Random::new(1);
        let mut one = || InfoHash([random.below(200) as u8; 20]);
        downloads.count(&one());
        assert!(downloads.is_empty() && !downloads.is_on());
        downloads.enable();
        let mut twin = BTreeMap::new();
        for round in 0..50 {
            let mut changed = BTreeMap::new();
            for _ in 0..round {
                let hash = one();
                downloads.count(&hash);
                *twin.entry(hash).or_insert(0) += 1;
                changed.insert(hash, twin[&hash]);
            }
            let mut taken = Vec::new();
            downloads.take_changed(&mut taken);
            taken.sort_unstable();
            assert_eq!(taken, changed.into_iter().collect::<Vec<_>>());
        }
        assert_eq!(downloads.len(), twin.len());
        assert!(twin.iter().all(|(hash, count)| downloads.of(hash) == *count));
        assert_eq!(downloads.of(&InfoHash([255; 20])), 0);
    }

    #[test]
    fn loaded_counts_go_on_and_are_not_changes() {
        let downloads = Downloads::new([1; 16]);
        let [a, b] = [1, 2].map(|byte| InfoHash([byte; 20]));
        downloads.load([(a, 7), (b, u32::MAX)].into_iter());
        downloads.enable();
        downloads.count(&a);
        downloads.count(&b);
        downloads.load([(a, 3)].into_iter());
        let mut taken = Vec::new();
        downloads.take_changed(&mut taken);
        taken.sort_unstable();
        assert_eq!(taken, [(a, 8), (b, !CHANGED)], "saturates at 31 bits");
        downloads.take_changed(&mut taken);
        assert_eq!(taken.len(), 2);
    }
}
