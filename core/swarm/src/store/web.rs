//! WebTorrent peers of all nodes of a cluster.
//!
//! A peer belongs to the node that holds its connection. Other nodes have it in the same maps and choose it for
//! offers like their own. They remove it when its node reports that it left, or has not reported it for a while.

use std::ops::Range;
use std::sync::atomic::Ordering;

use replication::block::{WebChange, WebGroups};
use replication::{MergeClock, MergeTime, Merged};
use types::{InfoHash, WebPeer};

use super::{Store, unlock};
use crate::shard::Shard;

/// Peers merged under one lock: some tens of microseconds.
const LOCK_PEERS: usize = 64;

impl Store {
    /// Sets the number of this node in its cluster, which is in the keys of its connections; 0 = there is no
    /// cluster. Call before there are WebTorrent peers.
    pub fn set_node(&self, node: u8) {
        self.node.store(node, Ordering::Relaxed);
    }

    /// Returns true if a WebTorrent peer is stored: it has not expired since its last announce, and no other peer took
    /// its place.
    pub fn has_web(&self, info_hash: &InfoHash, peer: &WebPeer) -> bool {
        let hash = self.hash(info_hash);
        let mut shard = self.lock(self.shard_of(hash));
        let has = shard.has_web(info_hash, peer, hash);
        unlock(shard);
        has
    }

    /// Keeps changes of this node's WebTorrent peers from now on, about `capacity` of them until they are
    /// taken; 0 drops all and stops. Changes are: a peer came, left, changed its role, completed its
    /// download, or announced again after some time (see [`replication::WEB_REFRESH_S`]). Expiry is no change, and
    /// neither is the removal of a torrent.
    pub fn keep_web_changes(&self, capacity: usize) {
        let room = capacity.div_ceil(self.shards.len());
        self.each_shard(|shard| shard.web_changes.set_capacity(room));
    }

    /// Applies what another node reports of its WebTorrent peers in `shards`, as [`Store::merge`] does for IP
    /// peers. This node's own groups are ignored. Merged peers are no changes.
    pub fn merge_web(
        &self,
        time: MergeTime,
        groups: WebGroups<'_>,
        shards: Range<usize>,
    ) -> Merged {
        if groups.node() == self.node.load(Ordering::Relaxed) {
            return Merged::default();
        }
        let lifetime_s = self.lifetimes().web_remote_s;
        let clock = MergeClock::new(time, lifetime_s);
        let mut merged = Merged::default();
        for group in groups {
            let hash = self.hash(&group.info_hash);
            let at = self.shard_of(hash);
            let mut peers = group.peers;
            while peers.len() > 0 && shards.contains(&at) {
                let mut shard = self.lock(at);
                shard.merge_web(clock, hash, peers.by_ref().take(LOCK_PEERS), &mut merged);
                unlock(shard);
            }
        }
        merged
    }

    /// Removes all WebTorrent peers of another node, a few under each lock. Returns how many there were.
    pub fn purge_web_node(&self, node: u8) -> u64 {
        let mut purged = 0;
        self.each_web_of(node, |shard, info_hash, peers| {
            let gone = peers.iter().filter(|peer| shard.purge_web(&info_hash, peer));
            purged += gone.count() as u64;
        });
        purged
    }

    /// Moves the changes of WebTorrent peers to `changes`, and after those of a torrent all of this node's WebTorrent
    /// peers in it, as if they had just come: other nodes may have removed them. Returns how many changes were lost
    /// since the last call because there was no room.
    pub(crate) fn take_all_web(&self, changes: &mut Vec<WebChange>) -> u64 {
        let mut missed = 0;
        self.each_web_of(self.node.load(Ordering::Relaxed), |shard, info_hash, peers| {
            // Earlier changes precede the present state.
            missed += shard.web_changes.drain_into(changes);
            peers.iter().for_each(|peer| shard.tell_web_again(info_hash, *peer));
            missed += shard.web_changes.drain_into(changes);
        });
        // Of shards without peers of this node.
        missed + self.take_web_changes(changes)
    }

    /// Calls `visit` with all peers of a node, a few of a torrent under each lock. Some of them may have left meanwhile.
    fn each_web_of(&self, node: u8, mut visit: impl FnMut(&mut Shard, InfoHash, &[WebPeer])) {
        for shard in 0..self.shards.len() {
            let mut last = None;
            loop {
                let found = self.lock(shard).next_web_peers(last, node);
                let Some((info_hash, peers)) = found else { break };
                for peers in peers.chunks(LOCK_PEERS) {
                    let mut shard = self.lock(shard);
                    visit(&mut shard, info_hash, peers);
                    unlock(shard);
                }
                last = Some(info_hash);
            }
        }
    }
}
