//! The small interface through which changes and walks leave a store.

use types::{PeerId, Tick};

use crate::block::{Change, WebChange};

/// The time of a step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkTime {
    /// The present tick.
    pub now: Tick,
    /// Unix minutes at tick 0.
    pub epoch_min: u32,
}

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// True if the walk has visited everything.
    pub is_complete: bool,
    /// Changes of the visited shard that were lost since they were last taken.
    pub missed: u64,
}

/// A store whose changes and peers leave as blocks.
pub trait ReplicatedStore {
    /// The progress of a walk over all torrents and peers, or over those that announced recently. The default is at the
    /// beginning of a walk over all.
    type Walk: Default;

    /// Returns how many shards there are.
    fn shards(&self) -> usize;

    /// Returns true if the store keeps peer ids.
    fn keeps_peer_ids(&self) -> bool;

    /// Keeps changes of peers from now on, about `capacity` of them until they are taken; 0 drops all and
    /// stops. Changes are: a peer came, changed its role, completed its download, or was removed other
    /// than by the sweep. Merged peers are no changes, and neither are WebTorrent peers.
    fn keep_changes(&self, capacity: usize);

    /// Moves the changes of a shard to `changes`, in order, and the ids of their peers to `ids` if the
    /// store keeps ids; removed peers have an id of zeros. Returns how many changes were lost since the
    /// last call because there was no room.
    ///
    /// Both vectors must be empty. They are swapped for the shard's, so pass the same ones again:
    /// nothing is allocated then.
    fn take_changes(&self, shard: usize, changes: &mut Vec<Change>, ids: &mut Vec<PeerId>) -> u64;

    /// Moves the changes of WebTorrent peers to `changes`, those of a torrent in order. Returns how many were
    /// lost since the last call because there was no room.
    fn take_web_changes(&self, changes: &mut Vec<WebChange>) -> u64;

    /// Moves the changes of WebTorrent peers to `changes`, and after those of a torrent all of this node's WebTorrent
    /// peers in it, as if they had just come: other nodes may have removed them. Returns how many changes were lost
    /// since the last call because there was no room.
    fn take_all_web(&self, changes: &mut Vec<WebChange>) -> u64;

    /// Returns a walk over the peers that have announced in the `age_s` seconds before `now`; up to a unit of
    /// age earlier are visited, too. Torrents without such peers are left out.
    fn walk_since(now: Tick, age_s: u32) -> Self::Walk;

    /// Does a step of a walk, some tens of microseconds under one lock: takes the changes of the shard that
    /// it visits, as [`Self::take_changes`] does, and then appends the groups of the torrents visited to
    /// `body`, less than 64 KiB. Written in this order, they say what happened in order.
    ///
    /// Everything that is in the store from the beginning of a walk to its end is visited at least once, or a
    /// change reports its new role. After a walk is complete the next call begins another.
    fn walk(
        &self,
        time: WalkTime,
        walk: &mut Self::Walk,
        changes: &mut Vec<Change>,
        ids: &mut Vec<PeerId>,
        body: &mut Vec<u8>,
    ) -> Walked;
}
