//! WebTorrent peers of other nodes: merging what their nodes report, and removing all peers of a node.

use std::net::Ipv4Addr;

use primitives::siphash::siphash;
use replication::block::{WebChange, Word};
use replication::{MergeClock, Merged, Report, Verdict};
use types::{InfoHash, WebPeer};

use crate::role::SetRole;
use crate::shard::Shard;
use crate::web::{Host, WebEntry, WebKnown};

/// A walk over the peers of one node in a shard.
pub(crate) struct WebWalk {
    node: u8,
    /// The current torrent; `None` before the first.
    torrent: Option<InfoHash>,
    /// The current role, and how many of its peers have not been visited. They are visited from the last to
    /// the first: where one is removed, the last one takes its place, and has been visited.
    role: SetRole,
    left: usize,
}

impl WebWalk {
    pub(crate) fn new(node: u8) -> Self {
        Self { node, torrent: None, role: SetRole::Seeders, left: 0 }
    }
}

/// A peer that a walk has found.
struct FoundWeb {
    info_hash: InfoHash,
    number: u32,
    peer: WebPeer,
    known: WebKnown,
}

impl Shard {
    /// Merges peers of a torrent; `hash` is the info hash's under the store's key.
    pub(crate) fn merge_web(
        &mut self,
        clock: MergeClock,
        hash: u64,
        peers: impl Iterator<Item = WebChange>,
        merged: &mut Merged,
    ) {
        for change in peers {
            match clock.report(change.word) {
                Some(report) => self.merge_web_peer(clock, hash, &change, &report, merged),
                None => merged.old += 1,
            }
        }
    }

    fn merge_web_peer(
        &mut self,
        clock: MergeClock,
        hash: u64,
        change: &WebChange,
        report: &Report,
        merged: &mut Merged,
    ) {
        let peer = change.peer;
        let host = self.host_of(change.address);
        let found = self.find(&change.info_hash, hash);
        let known = found.and_then(|number| self.web_torrent(number).find(&peer));
        let role = report.word.role().into();
        // 1. Decide what is stored of the peer.
        let new = match known {
            Some(known) => match clock.judge(known.entry.meta, report) {
                Verdict::Keep(meta) => {
                    WebKnown { entry: WebEntry { meta, ..known.entry }, ..known }
                }
                Verdict::Replace(meta) => {
                    merged.peers += 1;
                    WebKnown { role, entry: WebEntry { meta, host } }
                }
                Verdict::Remove => {
                    merged.gone += 1;
                    found.and_then(|number| self.web_torrent(number).remove(&peer));
                    return;
                }
            },
            None if report.word.is_gone() => return,
            None if !self.may_store_web(host) => {
                merged.full += 1;
                return;
            }
            None => {
                merged.peers += 1;
                WebKnown { role, entry: WebEntry { meta: report.meta, host } }
            }
        };
        // 2. Store it. Caps are the business of the node that serves the client: here they do not count the peer.
        let number = found.unwrap_or_else(|| {
            merged.torrents += 1;
            self.create(clock.now, change.info_hash, hash)
        });
        self.web_torrent(number).put(peer, new, false);
        // 3. Count its download.
        if report.word.is_completed() && !known.is_some_and(|known| known.entry.meta.is_counted()) {
            self.records.at_mut(number).count_download();
        }
    }

    /// Removes what the next steps of a walk find, and counts it in `purged`. Returns false if nothing is left.
    pub(crate) fn purge_web(&mut self, walk: &mut WebWalk, steps: usize, purged: &mut u64) -> bool {
        self.walk_web(walk, steps, |shard, found| {
            shard.web_torrent(found.number).remove(&found.peer);
            *purged += 1;
        })
    }

    /// Keeps what the next steps of a walk find as changes. Returns false if nothing is left.
    pub(crate) fn tell_web_again(&mut self, walk: &mut WebWalk, steps: usize) -> bool {
        self.walk_web(walk, steps, |shard, found| {
            let FoundWeb { info_hash, peer, known, .. } = found;
            let WebEntry { meta, host } = known.entry;
            shard.web_changes.push(|| WebChange {
                info_hash,
                peer,
                address: host.map_or_else(|| Ipv4Addr::UNSPECIFIED.into(), Host::address),
                word: Word::present(0, known.role.of_peer(meta), meta.is_counted()),
            });
        })
    }

    /// Does the next steps of a walk: each visits a peer or moves on. Returns false if nothing is left.
    fn walk_web(
        &mut self,
        walk: &mut WebWalk,
        steps: usize,
        mut visit: impl FnMut(&mut Self, FoundWeb),
    ) -> bool {
        for _ in 0..steps {
            let Some(at) = walk.left.checked_sub(1) else {
                if !self.next_web_set(walk) {
                    return false;
                }
                continue;
            };
            let Some(info_hash) = walk.torrent else { return false };
            let swarm = self.web.get(&info_hash);
            let len = swarm.map_or(0, |swarm| swarm.peers(walk.role).len());
            // Some may have left meanwhile.
            walk.left = at.min(len);
            let stored = swarm.and_then(|swarm| swarm.get_index(walk.role, at));
            let hash = siphash::<1, 3>(&self.key, &info_hash.0);
            if let Some((peer, entry)) = stored
                && peer.connection.node() == walk.node
                && let Some(number) = self.find(&info_hash, hash)
            {
                let known = WebKnown { role: walk.role, entry };
                visit(self, FoundWeb { info_hash, number, peer, known });
            }
        }
        true
    }

    /// Moves a walk on to the next role or torrent. Returns false if there is none.
    fn next_web_set(&self, walk: &mut WebWalk) -> bool {
        use std::ops::Bound::{Excluded, Unbounded};
        if walk.torrent.is_some() && walk.role == SetRole::Seeders {
            walk.role = SetRole::Leechers;
        } else {
            let from = walk.torrent.map_or(Unbounded, Excluded);
            let Some((next, _)) = self.web.range((from, Unbounded)).next() else { return false };
            (walk.torrent, walk.role) = (Some(*next), SetRole::Seeders);
        }
        let swarm = walk.torrent.and_then(|torrent| self.web.get(&torrent));
        walk.left = swarm.map_or(0, |swarm| swarm.peers(walk.role).len());
        true
    }
}
