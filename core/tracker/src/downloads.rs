//! Download counts that outlive torrents and restarts.
//!
//! The store forgets a torrent's count with the torrent. Where there are durable records, the counts
//! are here, too: one for each torrent that is on an allow list, or was downloaded from several
//! prefixes, up to a limit. Invented torrents have none ([`candidates`]). In a full table, a
//! torrent with few downloads makes room. In a cluster, each node counts what completes at it, and adds what the others
//! have counted. This is the plain form: a sharded [`HashTable`].

mod candidates;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use primitives::IpPrefix;
use primitives::siphash::{siphash, siphash_ip};
use types::{InfoHash, Scope, limits};

use candidates::Candidates;

/// The number of downloads of each torrent. Off, and empty, until [`Downloads::enable`] is called.
pub struct Downloads {
    is_on: AtomicBool,
    /// True if no count makes room for another.
    is_replicated: AtomicBool,
    key: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
    len: AtomicUsize,
    /// Counts of a shard at most.
    shard_max: usize,
}

#[derive(Default)]
struct Shard {
    counts: HashTable<Count>,
    /// Downloads counted here since they were last taken.
    added: HashTable<Count>,
    /// Torrents whose counts made room since they were last taken.
    removed: Vec<InfoHash>,
    candidates: Candidates,
    /// The bucket up to which counts were compared to make room.
    hand: usize,
}

/// A change of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadsChange {
    /// A torrent's count made room for another.
    Removed(InfoHash),
    /// Downloads of a torrent that were counted here since the last call, or since its count was removed.
    Added(InfoHash, u32),
}

struct Count {
    info_hash: InfoHash,
    count: u32,
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
            len: AtomicUsize::default(),
            shard_max,
        }
    }

    /// Counts downloads here from now on, and reports these counts to clients.
    pub fn enable(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Keeps all counts from now on: other nodes of a cluster have them, too. In a full table, torrents without a count get
    /// none.
    pub fn replicate(&self) {
        self.is_replicated.store(true, Ordering::Relaxed);
    }

    /// Adds durable counts, or what other nodes have counted. Those that find no room are removed, as
    /// [`Self::take_changed`] reports.
    pub fn add(&self, counts: impl Iterator<Item = (InfoHash, u32)>) {
        for (info_hash, added) in counts {
            let hash = self.hash(&info_hash);
            let mut shard = self.shard(hash);
            match shard.counts.find_mut(hash, |it| it.info_hash == info_hash) {
                Some(Count { count, .. }) => *count = count.saturating_add(added),
                None => self.insert(&mut shard, hash, Count { info_hash, count: added }),
            }
        }
    }

    /// Raises a torrent's count to `durable`, which another process has written, plus the downloads counted here since counts
    /// were last taken. Never lowers a count.
    pub fn raise_to(&self, info_hash: InfoHash, durable: u32) {
        let hash = self.hash(&info_hash);
        let mut shard = self.shard(hash);
        let added = shard.added.find(hash, |it| it.info_hash == info_hash);
        let least = durable.saturating_add(added.map_or(0, |it| it.count));
        match shard.counts.find_mut(hash, |it| it.info_hash == info_hash) {
            Some(Count { count, .. }) => *count = least.max(*count),
            None => self.insert(&mut shard, hash, Count { info_hash, count: least }),
        }
    }

    /// Calls `see` with what changed here since the last call, in an order that can be repeated elsewhere.
    pub fn take_changed(&self, mut see: impl FnMut(DownloadsChange)) {
        for shard in &self.shards {
            let shard = &mut *shard.lock();
            shard.removed.drain(..).for_each(|torrent| see(DownloadsChange::Removed(torrent)));
            let added = shard.added.drain();
            added.for_each(|it| see(DownloadsChange::Added(it.info_hash, it.count)));
        }
    }

    /// Returns the durable number of downloads of a torrent.
    pub fn of(&self, info_hash: &InfoHash) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let hash = self.hash(info_hash);
        let shard = self.shard(hash);
        shard.counts.find(hash, |it| it.info_hash == *info_hash).map_or(0, |it| it.count)
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

    /// Raises the store's count of a torrent, which may be the only one, to the durable one. In a cluster, the durable one
    /// counts if there is one: a node that starts reads the log of the last minutes again, and its store counts downloads
    /// of peers that have stopped since twice.
    #[inline]
    pub(crate) fn raise(&self, info_hash: &InfoHash, downloads: &mut u32) {
        if self.is_on() {
            let durable = self.of(info_hash);
            let is_exact = durable > 0 && self.is_replicated.load(Ordering::Relaxed);
            *downloads = if is_exact { durable } else { durable.max(*downloads) };
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
        let is_counted = match shard.counts.find_mut(hash, |it| it.info_hash == *info_hash) {
            Some(known) => {
                known.count = known.count.saturating_add(1);
                true
            }
            None => false,
        };
        let added = match is_counted {
            true => 1,
            false if self.is_full(&shard) => return,
            false => {
                let first = if is_listed { Some(1) } else { self.note(&mut shard, hash, from) };
                let Some(count) = first else { return };
                self.insert(&mut shard, hash, Count { info_hash: *info_hash, count });
                count
            }
        };
        shard
            .added
            .entry(hash, |it| it.info_hash == *info_hash, |it| self.hash(&it.info_hash))
            .and_modify(|it| it.count = it.count.saturating_add(added))
            .or_insert(Count { info_hash: *info_hash, count: added });
    }

    /// Returns true if a shard has no room for another torrent that is downloaded here.
    fn is_full(&self, shard: &Shard) -> bool {
        self.is_replicated.load(Ordering::Relaxed) && shard.counts.len() >= self.shard_max
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

    /// Inserts a count that is new. In a full shard, another one makes room, unless counts are replicated.
    fn insert(&self, shard: &mut Shard, hash: u64, count: Count) {
        if shard.counts.len() >= self.shard_max && !self.is_replicated.load(Ordering::Relaxed) {
            self.make_room(shard);
        } else {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        shard.counts.insert_unique(hash, count, |it| self.hash(&it.info_hash));
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

    /// Removes the lowest of the next [`COMPARED`] counts.
    fn make_room(&self, shard: &mut Shard) {
        let buckets = shard.counts.num_buckets();
        let turn = (1..=buckets).map(|step| (shard.hand + step) % buckets);
        let counts = turn.filter_map(|at| Some((at, shard.counts.get_bucket(at)?.count)));
        let mut lowest: Option<(usize, u32)> = None;
        let mut last = shard.hand;
        for (at, count) in counts.take(COMPARED) {
            last = at;
            if lowest.is_none_or(|(_, least)| count < least) {
                lowest = Some((at, count));
            }
        }
        shard.hand = last;
        let Some((at, _)) = lowest else { return };
        if let Ok(entry) = shard.counts.get_bucket_entry(at) {
            let (Count { info_hash, .. }, _) = entry.remove();
            let hash = self.hash(&info_hash);
            if let Ok(added) = shard.added.find_entry(hash, |it| it.info_hash == info_hash) {
                added.remove();
            }
            shard.removed.push(info_hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use super::*;
    use primitives::Random;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));

    /// Counts as the records have them: changes are applied in their order.
    fn record(downloads: &Downloads, records: &mut BTreeMap<InfoHash, u32>) {
        downloads.take_changed(|change| match change {
            DownloadsChange::Removed(torrent) => drop(records.remove(&torrent)),
            DownloadsChange::Added(torrent, added) => *records.entry(torrent).or_default() += added,
        });
    }

    #[test]
    fn agrees_with_a_map() {
        let downloads = Downloads::new([1; 16]);
        let mut random = Random::new(1);
        let mut one = || InfoHash([random.below(200) as u8; 20]);
        downloads.count(&one(), HOME, true);
        assert!(downloads.is_empty() && !downloads.is_on());
        downloads.enable();
        let (mut twin, mut records) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..50 {
            for _ in 0..round {
                let hash = one();
                downloads.count(&hash, HOME, true);
                *twin.entry(hash).or_insert(0) += 1;
            }
            record(&downloads, &mut records);
            assert_eq!(records, twin);
        }
        assert_eq!(downloads.len(), twin.len());
        assert!(twin.iter().all(|(hash, count)| downloads.of(hash) == *count));
        assert_eq!(downloads.of(&InfoHash([255; 20])), 0);
    }

    #[test]
    fn invented_torrents_have_no_count() {
        let downloads = Downloads::new([1; 16]);
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
        assert!(downloads.is_empty());
        // Three networks, one of them twice.
        let torrent = InfoHash([9; 20]);
        let by = |last| downloads.count(&torrent, [last, 1, 1, 1].into(), false);
        [1, 2, 1].into_iter().for_each(by);
        assert_eq!(downloads.of(&torrent), 0);
        by(8);
        assert_eq!((downloads.of(&torrent), downloads.len()), (4, 1));
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
                assert_eq!(records.len(), downloads.len());
            }
        }
        assert!(downloads.len() <= 4 * SHARDS);
        let kept = held.iter().filter(|hash| downloads.of(hash) == 3).count();
        assert!(kept * 100 >= held.len() * 99, "{kept} of {}", held.len());
        // Counts that find no room at the start leave the records, too.
        record(&downloads, &mut records);
        let again = Downloads::with_shards([2; 16], 4);
        again.add(records.clone().into_iter());
        record(&again, &mut records);
        assert_eq!(records.len(), again.len());
        assert!(records.iter().all(|(hash, count)| again.of(hash) == *count));
    }

    #[test]
    fn counts_of_the_start_and_of_other_nodes_are_not_changes() {
        let downloads = Downloads::new([1; 16]);
        let [a, b] = [1, 2].map(|byte| InfoHash([byte; 20]));
        downloads.add([(a, 7), (b, u32::MAX)].into_iter());
        downloads.enable();
        let mut records = BTreeMap::new();
        record(&downloads, &mut records);
        assert!(records.is_empty());
        downloads.count(&a, HOME, false);
        downloads.count(&b, HOME, false);
        downloads.add([(a, 3)].into_iter());
        record(&downloads, &mut records);
        assert_eq!(records, [(a, 1), (b, 1)].into());
        assert_eq!([downloads.of(&a), downloads.of(&b)], [11, u32::MAX]);
    }

    #[test]
    fn counts_of_another_process_include_what_was_taken_here() {
        let downloads = Downloads::new([1; 16]);
        downloads.enable();
        let [a, b] = [1, 2].map(|byte| InfoHash([byte; 20]));
        let mut records = BTreeMap::new();
        downloads.count(&a, HOME, true);
        record(&downloads, &mut records);
        // Three of another process; one of here that is not taken yet.
        downloads.count(&a, HOME, true);
        downloads.raise_to(a, 4);
        downloads.raise_to(b, 7);
        assert_eq!([downloads.of(&a), downloads.of(&b)], [5, 7]);
        downloads.raise_to(a, 2);
        assert_eq!(downloads.of(&a), 5);
        record(&downloads, &mut records);
        assert_eq!(records, [(a, 2)].into());
    }

    #[test]
    fn replicated_counts_make_no_room() {
        let downloads = Downloads::with_shards([1; 16], 1);
        downloads.enable();
        downloads.replicate();
        let torrents = |byte: u8| {
            (0..=255).map(move |low| InfoHash([byte, low].repeat(10).try_into().unwrap()))
        };
        (0..20).flat_map(torrents).for_each(|torrent| downloads.count(&torrent, HOME, true));
        assert!(downloads.len() <= SHARDS);
        // Counts of other nodes are added all the same.
        let theirs: Vec<InfoHash> = (20..40).flat_map(torrents).collect();
        downloads.add(theirs.iter().map(|torrent| (*torrent, 5)));
        assert!(theirs.iter().all(|torrent| downloads.of(torrent) == 5));
        let mut records = BTreeMap::new();
        record(&downloads, &mut records);
        assert!(records.keys().all(|torrent| !theirs.contains(torrent)));
        assert!(records.iter().all(|(torrent, count)| downloads.of(torrent) == *count));
    }

    #[test]
    fn in_a_cluster_durable_counts_are_what_is_reported() {
        let downloads = Downloads::with_shards([1; 16], 8);
        downloads.enable();
        let [known, unknown] = [InfoHash([1; 20]), InfoHash([2; 20])];
        downloads.add([(known, 3)].into_iter());
        let reported = |info_hash, mut count| {
            downloads.raise(&info_hash, &mut count);
            count
        };
        assert_eq!([reported(known, 2), reported(known, 5), reported(unknown, 5)], [3, 5, 5]);
        downloads.replicate();
        // The store may have counted some twice.
        assert_eq!([reported(known, 2), reported(known, 5), reported(unknown, 5)], [3, 3, 5]);
    }
}
