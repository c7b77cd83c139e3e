//! WebTorrent peers of nodes: merging what other nodes report, and finding all peers of a node.

use std::net::Ipv4Addr;

use primitives::siphash::siphash;
use replication::block::{WebChange, Word};
use replication::{MergeClock, Merged, Report, Verdict};
use types::{InfoHash, WebPeer};

use crate::role::SetRole;
use crate::shard::Shard;
use crate::web::{Host, WebEntry, WebKnown};

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

    /// Returns the first torrent after `after` that has WebTorrent peers, and those of `node` in it; `None` if there is
    /// none.
    pub(crate) fn next_web_peers(
        &self,
        after: Option<InfoHash>,
        node: u8,
    ) -> Option<(InfoHash, Vec<WebPeer>)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let (info_hash, swarm) = self.web.range((from, Unbounded)).next()?;
        let peers = SetRole::BOTH.into_iter().flat_map(|role| swarm.peers(role));
        let of_node = peers.map(|(peer, _)| *peer).filter(|it| it.connection.node() == node);
        Some((*info_hash, of_node.collect()))
    }

    /// Removes a peer without a change. Returns true if it was there.
    pub(crate) fn purge_web(&mut self, info_hash: &InfoHash, peer: &WebPeer) -> bool {
        let hash = siphash::<1, 3>(&self.key, &info_hash.0);
        let found = self.find(info_hash, hash);
        found.is_some_and(|number| self.web_torrent(number).remove(peer).is_some())
    }

    /// Keeps the present state of a peer as a change, if it is there.
    pub(crate) fn tell_web_again(&mut self, info_hash: InfoHash, peer: WebPeer) {
        let known = self.web.get(&info_hash).and_then(|swarm| swarm.find(&peer));
        let Some(WebKnown { role, entry: WebEntry { meta, host } }) = known else { return };
        self.web_changes.push(|| WebChange {
            info_hash,
            peer,
            address: host.map_or_else(|| Ipv4Addr::UNSPECIFIED.into(), Host::address),
            word: Word::present(0, role.of_peer(meta), meta.is_counted()),
        });
    }
}
