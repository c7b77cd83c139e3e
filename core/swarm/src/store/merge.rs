//! Merging: applying what blocks report of torrents and peers.
//!
//! Plain form: for each peer of each group, what an announce does without an answer. Departures:
//! 1. Groups are sorted by shard, a few hundred at a time, so that a lock is taken once for several.
//! 2. They go through the shard in stages, as announces do (see `shard::merge`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use primitives::Random;
use replication::block::Groups;
use replication::{MergeTime, Merged, Removals};

use super::{Store, unlock};
use crate::shard::{Merger, StagedGroup};

/// Groups that are sorted at a time: with dozens of shards several for each, and their peers still fit
/// the second-level cache.
const BATCH: usize = 512;

/// The shortest time for which removals are remembered, in seconds.
pub const REMOVALS_KEPT_S: u32 = 60;

/// Groups, and their places sorted by shard.
type Batch<'a> = ArrayVec<StagedGroup<'a>, BATCH>;

impl Store {
    /// Applies what groups report of torrents in `shards`. A peer that has announced since the time of a report
    /// stays as it is; of equally old reports the later one wins. Peers past their lifetime are skipped.
    ///
    /// A completed download counts for its torrent if the peer is there and its download was not counted before. Merged
    /// peers are neither changes nor downloads of this store; a new torrent is an event.
    pub fn merge(
        &self,
        time: MergeTime,
        random: &mut Random,
        groups: Groups<'_>,
        shards: Range<usize>,
    ) -> Merged {
        let lifetime_s = self.lifetime_s.load(Ordering::Relaxed);
        let is_behind = self.is_behind.load(Ordering::Relaxed);
        let mut merger = Merger::new(time, lifetime_s, is_behind, random.next());
        let mut batch = Batch::new();
        for group in groups {
            let hash = self.hash(&group.info_hash);
            if shards.contains(&self.shard_of(hash)) {
                batch.push(StagedGroup::new(group, hash));
                if batch.is_full() {
                    self.merge_batch(&mut merger, &mut batch);
                }
            }
        }
        self.merge_batch(&mut merger, &mut batch);
        merger.merged
    }

    /// Merges groups and removes them from `batch`.
    fn merge_batch(&self, merger: &mut Merger, batch: &mut Batch<'_>) {
        // Sorted by shard, then by index, which keeps groups of one torrent in order.
        let place =
            |(at, staged): (usize, &StagedGroup<'_>)| self.shard_of(staged.hash) * BATCH + at;
        let mut order: ArrayVec<usize, BATCH> = batch.iter().enumerate().map(place).collect();
        order.sort_unstable();
        for places in order.chunk_by_mut(|a, b| *a / BATCH == *b / BATCH) {
            let Some(shard) = places.first().map(|place| place / BATCH) else { continue };
            places.iter_mut().for_each(|place| *place %= BATCH);
            let mut rest = &*places;
            while !rest.is_empty() {
                let mut shard = self.lock(shard);
                let done = shard.merge(merger, batch, rest);
                unlock(shard);
                rest = &rest[done..];
            }
        }
        batch.clear();
    }

    /// Contradicts no removals while `is_behind`: blocks that are read now are older than what other nodes know, and a
    /// later one may remove the same peer again. A walk has to tell of the peers that stay.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }

    /// Begins or ends remembering the peers that blocks report as gone, so that older blocks do not bring them
    /// back: blocks of other nodes may come late, or twice. Stops at this node come back as blocks, too.
    pub fn remember_removals(&self, is_on: bool) {
        self.each_shard(|shard| remember(&mut shard.removals, is_on));
    }

    /// Forgets the removals that were remembered before the last call. Call it once in [`REMOVALS_KEPT_S`]: the
    /// caller drops blocks that come later than that.
    pub fn forget_removals(&self) {
        self.each_shard(|shard| shard.removals.as_mut().map(Removals::forget));
    }

    /// Begins or ends remembering the peers that stop, so that merging older blocks does not bring them back.
    pub fn remember_stopped(&self, is_on: bool) {
        self.each_shard(|shard| remember(&mut shard.stopped, is_on));
    }
}

/// Begins or ends remembering something. Returns what is forgotten.
fn remember<T: Default>(memory: &mut Option<T>, is_on: bool) -> Option<T> {
    if is_on {
        memory.get_or_insert_default();
        return None;
    }
    memory.take()
}
