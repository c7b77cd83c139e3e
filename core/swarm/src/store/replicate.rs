//! Changes and walks, which leave the store as blocks, and merging, which brings them back.

use std::ops::Range;

use primitives::Random;
use types::{PeerId, Tick};

use super::Store;
use crate::block::{Change, Groups};

/// The progress of a walk over all torrents and peers.
#[derive(Clone, Debug, Default)]
pub struct StoreWalk {
    /// The shard that the next step visits.
    pub(crate) shard: usize,
}

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Whether the walk has visited everything.
    pub is_complete: bool,
    /// Changes of the visited shard that were lost since they were last taken.
    pub missed: u64,
}

/// When blocks are from, on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeTime {
    /// The present tick.
    pub now: Tick,
    /// Seconds that count as passed since the block was cut.
    pub cut_ago_s: u32,
    /// Unix minutes at tick 0.
    pub epoch_min: u32,
}

/// What merging did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Peers stored or renewed.
    pub peers: u64,
    /// Torrents created.
    pub torrents: u64,
    /// Peers removed, because they were gone.
    pub gone: u64,
    /// Peers skipped, because their lifetime has passed.
    pub old: u64,
    /// Peers skipped, because there is no memory for them.
    pub full: u64,
}

impl Store {
    /// Keeps changes of peers from now on, up to `capacity` of them until they are taken; 0 drops all and
    /// stops. Changes are: a peer came, changed its role, completed its download, or was removed other
    /// than by expiry. Merged peers are no changes, and neither are WebTorrent peers.
    pub fn keep_changes(&self, _capacity: usize) {
        todo!()
    }

    /// Moves the changes of a shard to `changes`, in order, and the ids of their peers to `ids` if the
    /// store keeps ids. Both must be empty. Returns how many changes were lost since the last call because
    /// there was no room.
    pub fn take_changes(
        &self,
        _shard: usize,
        _changes: &mut Vec<Change>,
        _ids: &mut Vec<PeerId>,
    ) -> u64 {
        todo!()
    }

    /// Returns how many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Whether the store keeps peer ids.
    pub fn keeps_peer_ids(&self) -> bool {
        todo!()
    }

    /// Does a step of a walk, some tens of microseconds under one lock: takes the changes of the shard that
    /// it visits, as [`Store::take_changes`] does, and then appends the groups of the torrents visited to
    /// `body`, less than 64 KiB. Written in this order, they say what happened in order.
    ///
    /// Whatever is in the store from the beginning of a walk to its end is visited at least once.
    /// `epoch_min` is the unix minute at tick 0.
    pub fn walk(
        &self,
        _now: Tick,
        _epoch_min: u32,
        _walk: &mut StoreWalk,
        _changes: &mut Vec<Change>,
        _ids: &mut Vec<PeerId>,
        _body: &mut Vec<u8>,
    ) -> Walked {
        todo!()
    }

    /// Returns about how many bytes the groups of a whole walk take.
    pub fn walk_bytes(&self) -> u64 {
        todo!()
    }

    /// Applies what groups say of torrents in `shards`. A peer that has announced since a group was true
    /// stays as it is; of equal marks the later one wins. Peers past their lifetime are skipped.
    pub fn merge(
        &self,
        _time: MergeTime,
        _random: &mut Random,
        _groups: Groups<'_>,
        _shards: Range<usize>,
    ) -> Merged {
        todo!()
    }

    /// Remembers, while it is on, which peers stop, so that merging older blocks does not bring them back.
    pub fn remember_stopped(&self, _is_on: bool) {
        todo!()
    }
}
