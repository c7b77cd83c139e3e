//! WebTorrent peers of other nodes: merging what their nodes report, and removing all peers of a node.

use primitives::siphash::siphash;
use replication::block::WebChange;
use replication::{Counting, MergeClock, MergeTime, Merged, Report, Verdict};
use types::{InfoHash, WebPeer};

use crate::role::SetRole;
use crate::shard::Shard;
use crate::web::{Host, WebEntry, WebKnown};

/// A call of [`crate::Store::merge_web`]: its time, and its results so far.
pub(crate) struct WebMerger {
    clock: MergeClock,
    counting: Counting,
    pub(crate) merged: Merged,
}

impl WebMerger {
    pub(crate) fn new(time: MergeTime, counting: Counting, lifetime_s: u32) -> Self {
        Self { clock: MergeClock::new(time, lifetime_s), counting, merged: Merged::default() }
    }
}

/// The progress of removing all peers of a node from a shard.
pub(crate) struct WebPurge {
    node: u8,
    /// The current torrent; `None` before the first.
    torrent: Option<InfoHash>,
    /// The current role, and how many of its peers have not been visited. They are visited from the last to
    /// the first: where one is removed, the last one takes its place, and has been visited.
    role: SetRole,
    left: usize,
    pub(crate) purged: u64,
}

impl WebPurge {
    pub(crate) fn new(node: u8) -> Self {
        Self { node, torrent: None, role: SetRole::Seeders, left: 0, purged: 0 }
    }
}

impl Shard {
    /// Merges peers of a torrent; `hash` is the info hash's under the store's key.
    pub(crate) fn merge_web(
        &mut self,
        merger: &mut WebMerger,
        info_hash: &InfoHash,
        hash: u64,
        peers: impl Iterator<Item = WebChange>,
    ) {
        for change in peers {
            let is_completed = change.word.is_completed();
            let counts_each = is_completed && merger.counting == Counting::Each;
            let report = merger.clock.report(change.word);
            merger.merged.old += u64::from(report.is_none());
            let found = self.find(info_hash, hash);
            let is_needed = counts_each || report.is_some_and(|report| !report.is_gone);
            let host = self.host_of(change.address);
            let found = match found {
                None if is_needed && self.may_store_web(host) => {
                    merger.merged.torrents += 1;
                    Some(self.create(merger.clock.now, *info_hash, hash))
                }
                found => found,
            };
            let Some(number) = found else {
                merger.merged.full += u64::from(is_needed);
                continue;
            };
            if counts_each {
                self.count_merged_at(number);
            }
            if let Some(report) = report {
                self.merge_web_peer(merger, number, (change.peer, host), &report);
            }
        }
    }

    fn merge_web_peer(
        &mut self,
        merger: &mut WebMerger,
        number: u32,
        (peer, host): (WebPeer, Option<Host>),
        report: &Report,
    ) {
        let mut torrent = self.web_torrent(number);
        let known = torrent.find(&peer);
        let was_counted = known.is_some_and(|known| known.entry.meta.is_counted());
        // Caps are the business of the node that serves the client: here they do not count the peer.
        match known {
            Some(known) => match merger.clock.judge(known.entry.meta, report) {
                Verdict::Keep(meta) => {
                    let entry = WebEntry { meta, ..known.entry };
                    torrent.put(peer, WebKnown { entry, ..known }, false);
                }
                Verdict::Replace(meta) => {
                    merger.merged.peers += 1;
                    let entry = WebEntry { meta, host };
                    torrent.put(peer, WebKnown { role: report.role.into(), entry }, false);
                }
                Verdict::Remove => {
                    merger.merged.gone += 1;
                    torrent.remove(&peer);
                    return;
                }
            },
            None if report.is_gone => return,
            None if !self.may_store_web(host) => {
                merger.merged.full += 1;
                return;
            }
            None => {
                merger.merged.peers += 1;
                let entry = WebEntry { meta: report.meta, host };
                self.web_torrent(number).put(
                    peer,
                    WebKnown { role: report.role.into(), entry },
                    false,
                );
            }
        }
        if merger.counting == Counting::ByPeer && report.is_completed && !was_counted {
            self.count_merged_at(number);
        }
    }

    /// Visits the next `count` peers of a purge, and some torrents. Returns false if none are left.
    pub(crate) fn purge_web(&mut self, purge: &mut WebPurge, count: usize) -> bool {
        for _ in 0..count {
            let Some(at) = purge.left.checked_sub(1) else {
                if !self.next_to_purge(purge) {
                    return false;
                }
                continue;
            };
            let Some(info_hash) = purge.torrent else { return false };
            let swarm = self.web.get(&info_hash);
            let len = swarm.map_or(0, |swarm| swarm.peers(purge.role).len());
            // Some may have left meanwhile.
            purge.left = at.min(len);
            let found = swarm.and_then(|swarm| swarm.get_index(purge.role, at));
            let hash = siphash::<1, 3>(&self.key, &info_hash.0);
            if let Some((peer, _)) = found
                && peer.connection.node() == purge.node
                && let Some(number) = self.find(&info_hash, hash)
            {
                self.web_torrent(number).remove(&peer);
                purge.purged += 1;
            }
        }
        true
    }

    /// Moves a purge on to the next role or torrent. Returns false if there is none.
    fn next_to_purge(&self, purge: &mut WebPurge) -> bool {
        use std::ops::Bound::{Excluded, Unbounded};
        if purge.torrent.is_some() && purge.role == SetRole::Seeders {
            purge.role = SetRole::Leechers;
        } else {
            let from = purge.torrent.map_or(Unbounded, Excluded);
            let Some((next, _)) = self.web.range((from, Unbounded)).next() else { return false };
            (purge.torrent, purge.role) = (Some(*next), SetRole::Seeders);
        }
        let swarm = purge.torrent.and_then(|torrent| self.web.get(&torrent));
        purge.left = swarm.map_or(0, |swarm| swarm.peers(purge.role).len());
        true
    }
}
