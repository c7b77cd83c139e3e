//! Changes and walks, which leave the store as blocks.

use replication::AGE_UNIT_S;
use replication::block::{Change, WebChange};
use types::{PackedV4, PackedV6, PeerId, Tick};

use super::{Store, unlock};
use crate::changes::ChangeQueue;
use crate::shard::{Walk, WalkOutput};
use crate::{FamilyTotals, Totals};

#[cfg(test)]
pub(crate) type Dump = std::collections::BTreeMap<
    (types::InfoHash, types::PeerKey),
    (types::Role, replication::PeerMeta, PeerId),
>;

/// The progress of a walk over all torrents and peers, or over those that announced recently.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreWalk {
    /// The shard that the next step visits.
    shard: usize,
    torrents: Walk,
    /// Peers that announced before this unit, counted from tick 0, are left out. It may be before tick 0.
    since: Option<i64>,
}

/// Lines visited under one lock: some tens of microseconds.
const STEP_LINES: u32 = 128;
/// A step appends less than this.
const STEP_BYTES: usize = 64 * 1024;
/// A group's bytes before its peers.
const GROUP_BYTES: u64 = 32 - 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkTime {
    pub(crate) now: Tick,
    /// Unix minutes at tick 0.
    pub(crate) epoch_min: u32,
}

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// True if the walk has visited everything.
    pub(crate) is_complete: bool,
    /// Changes of the visited shard that were lost since they were last taken.
    pub(crate) missed: u64,
}

impl StoreWalk {
    /// Returns a walk over the peers that have announced in the `age_s` seconds before `now`; up to a unit of
    /// age earlier are visited, too. Torrents without such peers are left out.
    pub(crate) fn since(now: Tick, age_s: u32) -> Self {
        let unit = i64::from(AGE_UNIT_S);
        let since = (i64::from(now.0) - i64::from(age_s)).div_euclid(unit);
        Self { since: Some(since), ..Self::default() }
    }
}

impl Store {
    /// Returns how many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns true if the store keeps peer ids.
    pub fn keeps_peer_ids(&self) -> bool {
        self.keeps_peer_ids
    }

    /// Keeps changes of peers from now on, about `capacity` of them until they are taken; 0 drops all and
    /// stops. Changes are: a peer came, changed its role, completed its download, or was removed other
    /// than by the sweep. Merged peers are no changes, and neither are WebTorrent peers.
    pub fn keep_changes(&self, capacity: usize) {
        let room = capacity.div_ceil(self.shards.len());
        for shard in 0..self.shards.len() {
            // Allocate and drop without the lock.
            let mut queue = ChangeQueue::new(room, self.keeps_peer_ids);
            std::mem::swap(&mut self.lock(shard).changes, &mut queue);
        }
    }

    /// Moves the changes of a shard to `changes`, in order, and the ids of their peers to `ids` if the
    /// store keeps ids; removed peers have an id of zeros. Returns how many changes were lost since the
    /// last call because there was no room.
    ///
    /// Both vectors must be empty. They are swapped for the shard's, so pass the same ones again:
    /// nothing is allocated then.
    pub fn take_changes(
        &self,
        shard: usize,
        changes: &mut Vec<Change>,
        ids: &mut Vec<PeerId>,
    ) -> u64 {
        self.lock(shard).changes.take(changes, ids)
    }

    /// Moves the changes of WebTorrent peers to `changes`, those of a torrent in order. Returns how many were
    /// lost since the last call because there was no room.
    pub fn take_web_changes(&self, changes: &mut Vec<WebChange>) -> u64 {
        let shards = 0..self.shards.len();
        shards.map(|shard| self.lock(shard).web_changes.drain_into(changes)).sum()
    }

    /// Does a step of a walk, some tens of microseconds under one lock: takes the changes of the shard that
    /// it visits, as [`Self::take_changes`] does, and then appends the groups of the torrents visited to
    /// `body`, less than 64 KiB. Written in this order, they say what happened in order.
    ///
    /// Everything that is in the store from the beginning of a walk to its end is visited at least once, or a
    /// change reports its new role. After a walk is complete the next call begins another.
    pub(crate) fn walk(
        &self,
        time: WalkTime,
        walk: &mut StoreWalk,
        changes: &mut Vec<Change>,
        ids: &mut Vec<PeerId>,
        body: &mut Vec<u8>,
    ) -> Walked {
        // Without the lock.
        body.reserve(STEP_BYTES);
        let age_max = walk.since.map(|since| {
            // In units, so that peers from the beginning of the first one are visited, too.
            u32::try_from(i64::from(time.now.0 / AGE_UNIT_S) - since).unwrap_or(0)
        });
        let mut output = WalkOutput { time, age_max, body };
        let mut shard = self.lock(walk.shard);
        let missed = shard.changes.take(changes, ids);
        let has_more = shard.walk(&mut walk.torrents, STEP_LINES, &mut output);
        unlock(shard);
        if !has_more {
            let shard = (walk.shard + 1) % self.shards.len();
            *walk = StoreWalk { shard, torrents: Walk::default(), since: walk.since };
        }
        Walked { is_complete: !has_more && walk.shard == 0, missed }
    }

    /// Keeps refreshes among the changes from now on, as long as changes are kept: of a peer that announces
    /// without a change, the first announce in each period of `period_units` units of age, a power of two;
    /// 0 stops it. Contradictions of other nodes are kept, too: a stop of a peer that is not known here, and the
    /// state of a peer that has announced since the time at which a block reports it as gone.
    /// [`replication::refresh_period_units`] returns the longest period with which no live peer expires at other nodes.
    ///
    /// # Panics
    ///
    /// Panics if the period is neither 0 nor a power of two.
    pub fn keep_refreshes(&self, period_units: u32) {
        assert!(
            period_units == 0 || period_units.is_power_of_two(),
            "expected a power of two, found {period_units}"
        );
        self.each_shard(|shard| shard.refresh_period = period_units);
    }

    /// Returns about how many bytes the groups of a whole walk take.
    pub fn walk_bytes(&self) -> u64 {
        let Totals { torrents, v4, v6, .. } = self.totals();
        let id = if self.keeps_peer_ids { size_of::<PeerId>() as u64 } else { 0 };
        let of = |peers: FamilyTotals, entry: usize| {
            (peers.seeders + peers.leechers) * (entry as u64 + id)
        };
        torrents * GROUP_BYTES + of(v4, size_of::<PackedV4>()) + of(v6, size_of::<PackedV6>())
    }

    /// Returns every peer.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> Dump {
        let mut peers = Dump::new();
        for shard in 0..self.shards.len() {
            self.lock(shard).each_peer(&mut |peer, what| {
                assert!(peers.insert(peer, what).is_none(), "a peer twice");
            });
        }
        peers
    }
}
