//! The store as its callers see it: shards, each behind a lock, and batches that are spread over them.
//!
//! Plain form: lock the torrent's shard, do the announce, unlock. Departures:
//! 1. A batch takes each lock once, for all its jobs there, which then go through the shard in stages
//!    (see `shard`).
//! 2. A shard that another thread holds is left for later, while there are others to do.
//! 3. Both the shard and the places inside come from a keyed hash: nobody outside can aim.

mod inspect;

use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use primitives::Random;
use primitives::memory::Region;
use primitives::siphash::siphash;
use types::{InfoHash, StoreSink, SwarmCounts, Tick, TooSoon, WebPeer, limits};

use crate::shard::{Draft, Lifetimes, Shard};
use crate::{Options, RelayTargets, StoreAnnounce, StoreWebAnnounce, Totals, WebAnnounceSummary};

/// Torrents and their peers, for any number of threads.
pub struct Store {
    key: [u8; 16],
    shards: Box<[Place]>,
    lifetime_s: AtomicU32,
    web_lifetime_s: AtomicU32,
    memory_budget: Option<u64>,
}

/// Two cache lines, which processors fetch together: neighbours' locks must not share them.
#[repr(align(128))]
struct Place(Mutex<Shard>);

/// Lines looked at under one lock by the sweep: some tens of microseconds.
const SWEEP_LINES: u32 = 128;
/// The most shards there can be.
const SHARDS_MAX: usize = 1 << 12;

const _: () = assert!(limits::BATCH_MAX <= u64::BITS as usize);

impl Store {
    /// An empty store.
    pub fn new(options: &Options) -> Self {
        let shards = options.shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let budget = options.memory_budget.map(|bytes| bytes / shards as u64);
        let shard = |_| Place(Mutex::new(Shard::new(options, budget)));
        Self {
            key: options.hash_key,
            shards: (0..shards).map(shard).collect(),
            lifetime_s: AtomicU32::new(options.peer_lifetime_s),
            web_lifetime_s: AtomicU32::new(options.web_lifetime_s),
            memory_budget: options.memory_budget,
        }
    }

    /// Does every job and answers it; at most [`limits::BATCH_MAX`] jobs go through together, longer
    /// slices in turns. Jobs on one torrent are done in order; the answers come in any order.
    pub fn announce(
        &self,
        now: Tick,
        random: &mut Random,
        jobs: &[StoreAnnounce],
        sink: &mut impl StoreSink,
    ) {
        for (turn, jobs) in jobs.chunks(limits::BATCH_MAX).enumerate() {
            let mut hashes = [0; limits::BATCH_MAX];
            // Sorted by shard, and by number within: jobs on one torrent are done in order.
            let mut order = [0; limits::BATCH_MAX];
            for (at, job) in jobs.iter().enumerate() {
                hashes[at] = self.hash(&job.info_hash);
                order[at] = self.shard_of(hashes[at]) * limits::BATCH_MAX + at;
            }
            let order = &mut order[..jobs.len()];
            order.sort_unstable();
            let mut drafts: ArrayVec<Draft<'_>, { limits::BATCH_MAX }> = ArrayVec::new();
            for at in order.iter().map(|place| place % limits::BATCH_MAX) {
                let number = turn * limits::BATCH_MAX + at;
                drafts.push(Draft::new(number, &jobs[at], hashes[at], random.next()));
            }
            self.spread(now, &mut drafts, sink);
        }
    }

    /// Takes the jobs, which are sorted by shard, to their shards.
    fn spread(&self, now: Tick, drafts: &mut [Draft<'_>], sink: &mut impl StoreSink) {
        // First what can be had at once. A group is known by the bit of its place.
        let mut busy = 0_u64;
        let groups = drafts.chunk_by_mut(|a, b| self.shard_of(a.hash) == self.shard_of(b.hash));
        for (place, group) in groups.enumerate() {
            match group.first().and_then(|draft| self.try_lock(self.shard_of(draft.hash))) {
                Some(mut shard) => shard.announce(now, group, sink),
                None => busy |= 1 << place,
            }
        }
        if busy == 0 {
            return;
        }
        // Then the rest, waiting for each lock.
        let groups = drafts.chunk_by_mut(|a, b| self.shard_of(a.hash) == self.shard_of(b.hash));
        for (_, group) in groups.enumerate().filter(|(place, _)| busy & (1 << place) != 0) {
            if let Some(shard) = group.first().map(|draft| self.shard_of(draft.hash)) {
                self.lock(shard).announce(now, group, sink);
            }
        }
    }

    /// Does a WebTorrent announce: gives the torrent's figures, and puts the peers to which the asker's
    /// offers should go into `chosen`, each once and in random order. Nothing is done for one that comes
    /// too soon.
    pub fn announce_web(
        &self,
        now: Tick,
        random: &mut Random,
        job: &StoreWebAnnounce,
        chosen: &mut RelayTargets,
    ) -> Result<WebAnnounceSummary, TooSoon> {
        let hash = self.hash(&job.info_hash);
        self.lock(self.shard_of(hash)).announce_web(now, random, job, hash, chosen)
    }

    /// Removes a WebTorrent peer, if it is there.
    pub fn leave_web(&self, info_hash: &InfoHash, peer: WebPeer) {
        let hash = self.hash(info_hash);
        self.lock(self.shard_of(hash)).leave_web(info_hash, peer, hash);
    }

    /// Writes the figures of each torrent to the same place of `counts`; zeros for an unknown one.
    pub fn scrape(&self, info_hashes: &[InfoHash], counts: &mut [SwarmCounts]) {
        for (info_hash, counts) in info_hashes.iter().zip(counts) {
            let hash = self.hash(info_hash);
            *counts = self.lock(self.shard_of(hash)).counts(info_hash, hash);
        }
    }

    /// Does one of `parts` parts of a pass over everything, in which aged peers go.
    pub fn sweep(&self, now: Tick, parts: u32) {
        let lifetimes = Lifetimes {
            plain_s: self.lifetime_s.load(Ordering::Relaxed),
            web_s: self.web_lifetime_s.load(Ordering::Relaxed),
        };
        for shard in 0..self.shards.len() {
            let lines = self.lock(shard).pass_lines();
            // One step more than is due, so that passes end.
            let steps = lines / u64::from(parts.max(1)) / u64::from(SWEEP_LINES) + 1;
            for _ in 0..steps {
                let mut shard = self.lock(shard);
                shard.sweep(now, lifetimes, SWEEP_LINES);
                let released = shard.released();
                // To an announce that waits, before the next step takes it again.
                MutexGuard::unlock_fair(shard);
                // Given back to the system only now: that takes longer than anybody should wait.
                drop(released);
            }
            self.prepare_memory(shard);
        }
    }

    /// Sees to it that a shard's tables come to lie in huge pages.
    fn prepare_memory(&self, shard: usize) {
        let wanted = self.lock(shard).wanted_lines();
        if let Some(prepared) = wanted.map(Region::prepared) {
            let mut shard = self.lock(shard);
            let released = shard.supply(prepared);
            MutexGuard::unlock_fair(shard);
            drop(released);
        }
    }

    /// Peers, and WebTorrent peers, are kept so many seconds from now on.
    pub fn set_lifetimes(&self, plain_s: u32, web_s: u32) {
        self.lifetime_s.store(plain_s, Ordering::Relaxed);
        self.web_lifetime_s.store(web_s, Ordering::Relaxed);
    }

    /// What the store holds.
    pub fn totals(&self) -> Totals {
        let shards = (0..self.shards.len()).map(|shard| self.lock(shard).totals());
        shards.fold(Totals::default(), Totals::plus)
    }

    /// Bytes that it may take, if that is bounded.
    pub fn memory_budget(&self) -> Option<u64> {
        self.memory_budget
    }

    /// By how many seconds a peer may be forgotten late: since when the sweep has looked at every one.
    pub fn expiry_lag_s(&self, now: Tick) -> u32 {
        let lags = (0..self.shards.len()).map(|shard| self.lock(shard).lag_s(now));
        lags.max().unwrap_or_default()
    }

    #[inline]
    fn hash(&self, info_hash: &InfoHash) -> u64 {
        siphash::<1, 3>(&self.key, &info_hash.0)
    }

    /// The lower bits; the index uses the upper ones.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        hash as usize & (self.shards.len() - 1)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    fn try_lock(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards[shard].0.try_lock()
    }
}
