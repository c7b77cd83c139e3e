//! The store's public interface: shards, each behind a lock, and batches that are distributed over
//! them.
//!
//! Plain form: lock the torrent's shard, do the announce, unlock. Departures:
//! 1. A batch takes each lock once, for all its announces there, which then go through the shard in
//!    stages (see `shard`). Batches of 32 take 421 ns an announce, single ones 804 ns
//!    (`bench/record/2026-11-21-bench-store.txt`).
//! 2. A shard that another thread has locked is left for later, while there are others to do.
//! 3. The shard and the places inside it come from a keyed hash, so collisions cannot be provoked.

mod inspect;
mod merge;
mod replicate;
mod web;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use primitives::Random;
use primitives::siphash::siphash;
use replication::WEB_REFRESH_S;
use types::{InfoHash, SwarmCounts, Tick, TooSoon, WebPeer, limits};

use crate::shard::{Answer, Exempt, Lifetimes, Shard, StagedAnnounce};
pub use merge::REMOVALS_KEPT_S;
#[cfg(test)]
pub(crate) use replicate::Dump;
pub(crate) use replicate::{StoreWalk, WalkTime};

use crate::{
    Options, PeerCaps, RelayTargets, StoreAnnounce, StoreWebAnnounce, Totals, WebAnnounceSummary,
};

/// Torrents and their peers. Shared by any number of threads.
pub struct Store {
    key: [u8; 16],
    shards: Box<[PaddedShard]>,
    lifetime_s: AtomicU32,
    web_lifetime_s: AtomicU32,
    /// This node's number in its cluster; 0 = there is none.
    node: AtomicU8,
    /// True if merges contradict nothing: see [`Self::set_behind`].
    is_behind: AtomicBool,
    memory_budget: Option<u64>,
    keeps_peer_ids: bool,
}

/// Two cache lines, which processors fetch together: neighbouring locks must not share them.
#[repr(align(128))]
struct PaddedShard(Mutex<Shard>);

/// Lines that the sweep visits under one lock: some tens of microseconds.
const SWEEP_LINES: u32 = 128;
/// The least seconds that a WebTorrent peer of another node is kept after that node last reported it. Nodes
/// report the peers that leave, and nodes that are gone are purged, so this matters for lost messages only.
const WEB_REMOTE_LIFETIME_S: u32 = 900;
/// The seconds, besides a lifetime, for which a node may be silent about one of its WebTorrent peers: it reports
/// a live one at least once in a period of refreshes and an interval, and an interval is less than a lifetime.
/// The rest allows for the way to other nodes.
const WEB_SILENCE_S: u32 = WEB_REFRESH_S + 128;
// Peers with such an interval are reported at each announce.
const _: () = assert!(limits::WEB_INTERVAL_MAX_S + 128 <= WEB_REMOTE_LIFETIME_S);
/// The most shards there can be.
const SHARDS_MAX: usize = 1 << 12;

const _: () = assert!(limits::BATCH_MAX <= u64::BITS as usize);

impl Store {
    /// Returns an empty store.
    pub fn new(options: &Options) -> Self {
        let shards = options.shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let budget = options.memory_budget.map(|bytes| bytes / shards as u64);
        let shard = |_| PaddedShard(Mutex::new(Shard::new(options, budget)));
        Self {
            key: options.hash_key,
            shards: (0..shards).map(shard).collect(),
            lifetime_s: AtomicU32::new(options.peer_lifetime_s),
            web_lifetime_s: AtomicU32::new(options.web_lifetime_s),
            node: AtomicU8::new(0),
            is_behind: AtomicBool::new(false),
            memory_budget: options.memory_budget,
            keeps_peer_ids: options.keep_peer_ids,
        }
    }

    /// Does every announce, and calls `answer` once for each, with its slot, in any order. The lock of the torrent's
    /// shard is held meanwhile, so `answer` must not call the store. It gets an error for an announce that comes too
    /// soon, which changes nothing.
    ///
    /// Up to [`limits::BATCH_MAX`] announces go through together; longer slices are split. Announces of one torrent
    /// are done in order.
    pub fn announce(
        &self,
        now: Tick,
        random: &mut Random,
        announces: &[StoreAnnounce],
        answer: &mut impl FnMut(u8, Result<Answer<'_>, TooSoon>),
    ) {
        for announces in announces.chunks(limits::BATCH_MAX) {
            let mut hashes = [0; limits::BATCH_MAX];
            // Sorted by shard, then by index, which keeps announces of one torrent in order.
            let mut order = [0; limits::BATCH_MAX];
            for (at, announce) in announces.iter().enumerate() {
                hashes[at] = self.hash(&announce.info_hash);
                order[at] = self.shard_of(hashes[at]) * limits::BATCH_MAX + at;
            }
            let order = &mut order[..announces.len()];
            order.sort_unstable();
            let mut batch: ArrayVec<StagedAnnounce<'_>, { limits::BATCH_MAX }> = ArrayVec::new();
            for at in order.iter().map(|position| position % limits::BATCH_MAX) {
                batch.push(StagedAnnounce::new(&announces[at], hashes[at], random.next()));
            }
            self.dispatch(now, &mut batch, answer);
        }
    }

    /// Passes announces, which must be sorted by shard, to their shards.
    fn dispatch(
        &self,
        now: Tick,
        batch: &mut [StagedAnnounce<'_>],
        answer: &mut impl FnMut(u8, Result<Answer<'_>, TooSoon>),
    ) {
        // First the shards that are free. Bit n of `busy` stands for the n-th group.
        let mut busy = 0_u64;
        let groups = batch.chunk_by_mut(|a, b| self.shard_of(a.hash) == self.shard_of(b.hash));
        for (number, group) in groups.enumerate() {
            match group.first().and_then(|staged| self.try_lock(self.shard_of(staged.hash))) {
                Some(mut shard) => shard.announce(now, group, answer),
                None => busy |= 1 << number,
            }
        }
        if busy == 0 {
            return;
        }
        // Then the rest, waiting for each lock.
        let groups = batch.chunk_by_mut(|a, b| self.shard_of(a.hash) == self.shard_of(b.hash));
        for (_, group) in groups.enumerate().filter(|(number, _)| busy & (1 << number) != 0) {
            if let Some(shard) = group.first().map(|staged| self.shard_of(staged.hash)) {
                self.lock(shard).announce(now, group, answer);
            }
        }
    }

    /// Does a WebTorrent announce. Returns the torrent's counts, and puts the peers that should get
    /// the offers into `targets`, distinct and in random order.
    ///
    /// # Errors
    ///
    /// Fails and changes nothing if the announce comes too soon.
    pub fn announce_web(
        &self,
        now: Tick,
        random: &mut Random,
        announce: &StoreWebAnnounce,
        targets: &mut RelayTargets,
    ) -> Result<WebAnnounceSummary, TooSoon> {
        let hash = self.hash(&announce.info_hash);
        self.lock(self.shard_of(hash)).announce_web(now, random, announce, hash, targets)
    }

    /// Removes a WebTorrent peer, if present.
    pub fn leave_web(&self, info_hash: &InfoHash, peer: WebPeer) {
        let hash = self.hash(info_hash);
        self.lock(self.shard_of(hash)).leave_web(info_hash, peer, hash);
    }

    /// Writes the counts of each torrent to the same index of `counts`; zeros for unknown torrents.
    pub fn scrape(&self, info_hashes: &[InfoHash], counts: &mut [SwarmCounts]) {
        for (info_hash, counts) in info_hashes.iter().zip(counts) {
            let hash = self.hash(info_hash);
            *counts = self.lock(self.shard_of(hash)).counts(info_hash, hash);
        }
    }

    /// Does one of `parts` parts of a pass that removes expired peers. When memory is short, removes
    /// peers of the largest networks, too, except those at [exempt](Store::set_exempt) addresses.
    pub fn sweep(&self, now: Tick, parts: u32) {
        let lifetimes = self.lifetimes();
        for shard in 0..self.shards.len() {
            let lines = self.lock(shard).pass_lines();
            // One step more than needed, so that passes end.
            let steps = lines / u64::from(parts.max(1)) / u64::from(SWEEP_LINES) + 1;
            for _ in 0..steps {
                let mut shard = self.lock(shard);
                shard.sweep(now, lifetimes, SWEEP_LINES);
                unlock(shard);
            }
        }
    }

    fn lifetimes(&self) -> Lifetimes {
        let web_s = self.web_lifetime_s.load(Ordering::Relaxed);
        Lifetimes {
            plain_s: self.lifetime_s.load(Ordering::Relaxed),
            web_s,
            web_remote_s: WEB_REMOTE_LIFETIME_S.max(web_s.saturating_add(WEB_SILENCE_S)),
            node: self.node.load(Ordering::Relaxed),
        }
    }

    /// Sets the seconds that peers, and WebTorrent peers, are kept from now on.
    pub fn set_lifetimes(&self, plain_s: u32, web_s: u32) {
        self.lifetime_s.store(plain_s, Ordering::Relaxed);
        self.web_lifetime_s.store(web_s, Ordering::Relaxed);
    }

    /// Sets the caps for peers that blocks bring from now on; announces have their own. None at first.
    pub fn set_merge_caps(&self, caps: PeerCaps) {
        self.each_shard(|shard| shard.merge_caps = caps);
    }

    /// Sets the function that tells whether an address is exempt from caps. It is called rarely, with a lock
    /// held: for the peers of a host or network that has reached a cap. Without it no stored peer is exempt.
    pub fn set_exempt(&self, is_exempt: impl Fn(IpAddr) -> bool + Send + Sync + 'static) {
        let is_exempt: Arc<Exempt> = Arc::new(is_exempt);
        self.each_shard(|shard| shard.exempt.replace(is_exempt.clone()));
    }

    /// Returns what the store holds.
    pub fn totals(&self) -> Totals {
        let shards = (0..self.shards.len()).map(|shard| self.lock(shard).totals());
        shards.fold(Totals::default(), Totals::plus)
    }

    /// Returns how many peers are counted for their networks.
    #[cfg(test)]
    pub(crate) fn counted_peers(&self) -> u64 {
        (0..self.shards.len()).map(|shard| self.lock(shard).networks.total()).sum()
    }

    /// Returns how many peer ids are kept.
    #[cfg(test)]
    pub(crate) fn kept_ids(&self) -> usize {
        (0..self.shards.len()).map(|shard| self.lock(shard).kept_ids()).sum()
    }

    /// Returns the bytes that the store may take, if limited.
    pub fn memory_budget(&self) -> Option<u64> {
        self.memory_budget
    }

    /// Returns by how many seconds a peer may expire late: the seconds since the sweep last visited
    /// every peer.
    pub fn expiry_lag_s(&self, now: Tick) -> u32 {
        let lags = (0..self.shards.len()).map(|shard| self.lock(shard).lag_s(now));
        lags.fold(0, u32::max)
    }

    #[inline]
    pub(crate) fn hash(&self, info_hash: &InfoHash) -> u64 {
        siphash::<1, 3>(&self.key, &info_hash.0)
    }

    /// Takes the lower bits; the index uses the upper ones.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        hash as usize & (self.shards.len() - 1)
    }

    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    /// Calls `change` with each shard, locked. Drops what it returns after unlocking, because that may take long.
    fn each_shard<T>(&self, mut change: impl FnMut(&mut Shard) -> T) {
        for shard in 0..self.shards.len() {
            let replaced = change(&mut self.lock(shard));
            drop(replaced);
        }
    }

    fn try_lock(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards[shard].0.try_lock()
    }
}

/// Unlocks a shard between two steps. A waiting announce gets the lock before the next step does.
fn unlock(mut shard: MutexGuard<'_, Shard>) {
    let released = shard.take_released();
    MutexGuard::unlock_fair(shard);
    // Unmapping takes long, so it happens without the lock.
    drop(released);
}
