//! Download counts that outlive torrents and restarts.
//!
//! The store forgets a torrent's count with the torrent. Where there are durable records, the counts
//! are here, too: one for each torrent that is on an allow list, or was downloaded from several
//! prefixes, up to a limit. Invented torrents have none ([`candidates`]). In a full table, a
//! torrent with few downloads makes room. This is the plain form: a sharded [`HashTable`].

mod candidates;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use primitives::IpPrefix;
use primitives::siphash::{siphash, siphash_ip};
use types::{InfoHash, Scope, limits};

use candidates::Candidates;

/// The number of downloads of each torrent. Off, and empty, until [`Downloads::enable`] is called.
pub struct Downloads {
    is_on: AtomicBool,
    /// True if announces do not count.
    is_replicated: AtomicBool,
    key: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
    /// Counts of a shard at most.
    shard_max: usize,
}

#[derive(Default)]
struct Shard {
    counts: HashTable<Count>,
    /// Torrents whose counts have changed, or were removed, since they were last taken.
    changed: HashTable<InfoHash>,
    candidates: Candidates,
}

struct Count {
    info_hash: InfoHash,
    downloads: u32,
}

const _: () = assert!(size_of::<Count>() == 24);

/// A power of two.
const SHARDS: usize = 1024;
/// Counts that are compared to find one that makes room.
const COMPARED: usize = 64;

impl Downloads {
    /// Returns an empty table. `key` keeps clients from aiming at shards.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self::with_shards(key, limits::DOWNLOADS_MAX / SHARDS)
    }

    fn with_shards(key: [u8; 16], shard_max: usize) -> Self {
        Self {
            is_on: AtomicBool::default(),
            is_replicated: AtomicBool::default(),
            key,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_max,
        }
    }

    /// Counts downloads here from now on, and reports these counts to clients.
    pub fn enable(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Leaves counting to [`Tracker::count_replicated_download`](crate::Tracker::count_replicated_download):
    /// announces change only the store's counts.
    pub fn replicate(&self) {
        self.is_replicated.store(true, Ordering::Relaxed);
    }

    /// Returns true if announces do not count here.
    pub(crate) fn is_replicated(&self) -> bool {
        self.is_replicated.load(Ordering::Relaxed)
    }

    /// Loads durable counts. Of two counts for a torrent, the larger one stays. Those that find no room
    /// are removed, as [`Self::take_changed`] reports.
    pub fn load(&self, counts: impl Iterator<Item = (InfoHash, u32)>) {
        for (info_hash, downloads) in counts {
            let hash = self.hash(&info_hash);
            let mut shard = self.shard(hash);
            match shard.find(hash, &info_hash) {
                Some(count) => count.downloads = count.downloads.max(downloads),
                None => self.insert(&mut shard, hash, Count { info_hash, downloads }),
            }
        }
    }

    /// Appends the counts that have changed since the last call to `into`, each once; 0 means that a torrent's
    /// count was removed.
    pub fn take_changed(&self, into: &mut Vec<(InfoHash, u32)>) {
        for shard in &self.shards {
            let Shard { counts, changed, .. } = &mut *shard.lock();
            for info_hash in changed.drain() {
                let count = counts.find(self.hash(&info_hash), |it| it.info_hash == info_hash);
                into.push((info_hash, count.map_or(0, |it| it.downloads)));
            }
        }
    }

    /// Returns the durable number of downloads of a torrent.
    pub fn of(&self, info_hash: &InfoHash) -> u32 {
        let hash = self.hash(info_hash);
        self.shard(hash).find(hash, info_hash).map_or(0, |it| it.downloads)
    }

    /// Returns whether downloads are counted here.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Raises the store's count of a torrent, which may be the only one, to the durable one.
    #[inline]
    pub(crate) fn raise(&self, info_hash: &InfoHash, downloads: &mut u32) {
        if self.is_on() {
            *downloads = self.of(info_hash).max(*downloads);
        }
    }

    /// Counts a download by a peer at `from`, if downloads are counted here. `is_listed` is true if the
    /// torrent is on an allow list.
    pub(crate) fn count(&self, info_hash: &InfoHash, from: IpAddr, is_listed: bool) {
        if !self.is_on() {
            return;
        }
        let hash = self.hash(info_hash);
        let mut shard = self.shard(hash);
        if let Some(count) = shard.find(hash, info_hash) {
            count.downloads = count.downloads.saturating_add(1);
        } else {
            let first = if is_listed { Some(1) } else { self.note(&mut shard, hash, from) };
            let Some(downloads) = first else { return };
            self.insert(&mut shard, hash, Count { info_hash: *info_hash, downloads });
        }
        self.note_change(&mut shard, hash, *info_hash);
    }

    /// Notes a download of a torrent without a count. Returns the downloads so far once enough prefixes have
    /// downloaded the torrent to give it one.
    fn note(&self, shard: &mut Shard, hash: u64, from: IpAddr) -> Option<u32> {
        let [bits_v4, bits_v6] = match Scope::of(from) {
            Scope::Public => [limits::DOWNLOAD_PREFIX_V4, limits::DOWNLOAD_PREFIX_V6],
            // Hosts of a local network are the operator's own: each counts for itself.
            _ => [u8::MAX; 2],
        };
        let prefix = IpPrefix::of_client(from, bits_v4, bits_v6).address();
        let prefix = siphash_ip::<1, 3>(&self.key, prefix) as u32;
        shard.candidates.note(limits::DOWNLOAD_CANDIDATES_MAX / SHARDS, hash, prefix)
    }

    /// Inserts a count that is new. In a full shard, the lowest of the [`COMPARED`] counts that follow in its table
    /// makes room.
    fn insert(&self, shard: &mut Shard, hash: u64, count: Count) {
        if shard.counts.len() >= self.shard_max {
            let buckets = shard.counts.num_buckets();
            let places = (0..buckets).map(|step| (hash as usize).wrapping_add(step) % buckets);
            let counts = places.filter_map(|at| Some((at, shard.counts.get_bucket(at)?.downloads)));
            let lowest = counts.take(COMPARED).min_by_key(|(_, downloads)| *downloads);
            if let Some((at, _)) = lowest
                && let Ok(entry) = shard.counts.get_bucket_entry(at)
            {
                let (Count { info_hash, .. }, _) = entry.remove();
                self.note_change(shard, self.hash(&info_hash), info_hash);
            }
        }
        shard.counts.insert_unique(hash, count, |it| self.hash(&it.info_hash));
    }

    fn note_change(&self, shard: &mut Shard, hash: u64, info_hash: InfoHash) {
        let changed = &mut shard.changed;
        changed.entry(hash, |it| *it == info_hash, |it| self.hash(it)).or_insert(info_hash);
    }

    #[inline]
    fn hash(&self, info_hash: &InfoHash) -> u64 {
        siphash::<1, 3>(&self.key, &info_hash.0)
    }

    /// Locks the shard that the middle bits choose: its table uses the lowest and the highest.
    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 40) as usize % SHARDS].lock()
    }
}

impl Shard {
    fn find(&mut self, hash: u64, info_hash: &InfoHash) -> Option<&mut Count> {
        self.counts.find_mut(hash, |it| it.info_hash == *info_hash)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use super::*;
    use primitives::Random;

    fn len(downloads: &Downloads) -> usize {
        downloads.shards.iter().map(|shard| shard.lock().counts.len()).sum()
    }

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));

    /// Counts as the records have them: changes are applied in their order.
    fn record(downloads: &Downloads, records: &mut BTreeMap<InfoHash, u32>) {
        let mut changed = Vec::new();
        downloads.take_changed(&mut changed);
        for (hash, count) in changed {
            if count == 0 {
                records.remove(&hash);
            } else {
                records.insert(hash, count);
            }
        }
    }

    #[test]
    fn invented_torrents_have_no_count() {
        let downloads = Downloads::new([1; 16]);
        downloads.count(&InfoHash([8; 20]), HOME, true);
        assert_eq!(len(&downloads), 0, "off");
        downloads.enable();
        // One host: an address of each family, and all that its networks have.
        for number in 0..30_000_u32 {
            let mut hash = [0; 20];
            hash[..4].copy_from_slice(&number.to_be_bytes());
            let [.., high, low] = number.to_be_bytes();
            let v6 = [0x2001, 0x41d0, 7, number as u16, 0, 0, 0, number as u16];
            for from in [IpAddr::from([8, 8, 8, low]), v6.into(), IpAddr::from([8, 8, 8, high])] {
                downloads.count(&InfoHash(hash), from, false);
            }
        }
        assert_eq!(len(&downloads), 0);
        // Three networks, one of them twice.
        let torrent = InfoHash([9; 20]);
        let by = |last| downloads.count(&torrent, [last, 1, 1, 1].into(), false);
        [1, 2, 1].into_iter().for_each(by);
        assert_eq!(downloads.of(&torrent), 0);
        by(8);
        assert_eq!((downloads.of(&torrent), len(&downloads)), (4, 1));
        by(8);
        let mut records = BTreeMap::new();
        record(&downloads, &mut records);
        assert_eq!(records, [(torrent, 5)].into());
        // Hosts of the own network count one by one, and whatever is listed counts at once.
        let [local, listed] = [7, 8].map(|byte| InfoHash([byte; 20]));
        (1..4).for_each(|host| downloads.count(&local, [10, 0, 0, host].into(), false));
        downloads.count(&listed, HOME, true);
        assert_eq!([downloads.of(&local), downloads.of(&listed)], [3, 1]);
    }

    #[test]
    fn low_counts_make_room_and_leave_the_records() {
        let downloads = Downloads::with_shards([1; 16], 4);
        downloads.enable();
        let mut random = Random::new(1);
        let mut records = BTreeMap::new();
        let mut hash = || {
            let mut hash = [0; 20];
            hash[..8].copy_from_slice(&random.next().to_be_bytes());
            InfoHash(hash)
        };
        let popular: Vec<InfoHash> = (0..500).map(|_| hash()).collect();
        for hash in popular.iter().cycle().take(popular.len() * 3) {
            downloads.count(hash, HOME, true);
        }
        let held: Vec<_> = popular.iter().filter(|hash| downloads.of(hash) == 3).collect();
        assert!(held.len() > 450, "{} of 500", held.len());
        for round in 0..20 {
            let new: Vec<InfoHash> = (0..1000).map(|_| hash()).collect();
            for hash in &new {
                downloads.count(hash, HOME, true);
                assert_eq!(downloads.of(hash), 1, "there is always room");
            }
            // Some are removed and counted again before they are recorded.
            new.iter().rev().take(10).for_each(|hash| downloads.count(hash, HOME, true));
            if round % 3 == 0 {
                record(&downloads, &mut records);
                assert!(records.iter().all(|(hash, count)| downloads.of(hash) == *count));
                assert_eq!(records.len(), len(&downloads));
            }
        }
        assert!(len(&downloads) <= 4 * SHARDS);
        let kept = held.iter().filter(|hash| downloads.of(hash) == 3).count();
        assert!(kept * 100 >= held.len() * 99, "{kept} of {}", held.len());
        // Counts that find no room at the start leave the records, too.
        record(&downloads, &mut records);
        let again = Downloads::with_shards([2; 16], 4);
        again.load(records.clone().into_iter());
        record(&again, &mut records);
        assert_eq!(records.len(), len(&again));
        assert!(records.iter().all(|(hash, count)| again.of(hash) == *count));
    }

    #[test]
    fn loaded_counts_go_on_and_are_not_changes() {
        let downloads = Downloads::new([1; 16]);
        let [a, b] = [1, 2].map(|byte| InfoHash([byte; 20]));
        downloads.load([(a, 7), (b, u32::MAX)].into_iter());
        downloads.enable();
        let mut records = BTreeMap::new();
        record(&downloads, &mut records);
        assert!(records.is_empty());
        [a, b].iter().for_each(|hash| downloads.count(hash, HOME, false));
        downloads.load([(a, 3)].into_iter());
        record(&downloads, &mut records);
        assert_eq!(records, [(a, 8), (b, u32::MAX)].into(), "saturates");
    }
}
