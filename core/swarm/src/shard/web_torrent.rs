//! A torrent's WebTorrent peers. [`WebTorrentMut`] does for them what [`super::torrent`] does for the others.

use std::collections::BTreeMap;

use types::{InfoHash, WebPeer};

use super::Shard;
use super::memory::Networks;
use crate::Totals;
use crate::record::Record;
use crate::web::{WebKnown, WebSwarm};

/// A cursor for the WebTorrent peers of one torrent.
pub(super) struct WebTorrentMut<'a> {
    record: &'a mut Record,
    swarms: &'a mut BTreeMap<InfoHash, WebSwarm>,
    key: &'a [u8; 16],
    networks: &'a mut Networks,
    totals: &'a mut Totals,
}

impl Shard {
    pub(super) fn web_torrent(&mut self, number: u32) -> WebTorrentMut<'_> {
        WebTorrentMut {
            record: self.records.at_mut(number),
            swarms: &mut self.web,
            key: &self.key,
            networks: &mut self.networks,
            totals: &mut self.totals,
        }
    }
}

impl WebTorrentMut<'_> {
    /// Returns the peers; `None` if there are none.
    pub(super) fn swarm(&self) -> Option<&WebSwarm> {
        self.swarms.get(&self.record.info_hash).filter(|_| self.record.has_web())
    }

    pub(super) fn find(&self, peer: &WebPeer) -> Option<WebKnown> {
        self.swarm()?.find(peer)
    }

    /// Stores a peer in place of what is stored of it. Caps count it if it `is_own`.
    pub(super) fn put(&mut self, peer: WebPeer, new: WebKnown, is_own: bool) {
        self.record.set_has_web(true);
        let key = *self.key;
        let swarm = self.swarms.entry(self.record.info_hash).or_insert_with(|| WebSwarm::new(key));
        let old = swarm.insert(peer, new, is_own);
        if let Some(old) = old {
            self.count_removed(old);
        }
        self.count_added(new);
    }

    /// Removes a peer. Returns what was stored of it.
    pub(super) fn remove(&mut self, peer: &WebPeer) -> Option<WebKnown> {
        let swarm = self.swarms.get_mut(&self.record.info_hash)?;
        let gone = swarm.remove(peer)?;
        if swarm.is_empty() {
            self.swarms.remove(&self.record.info_hash);
            self.record.set_has_web(false);
        }
        self.count_removed(gone);
        Some(gone)
    }

    fn count_added(&mut self, WebKnown { role, entry }: WebKnown) {
        entry.host.into_iter().for_each(|host| self.networks.add_web(host));
        *self.totals.web.of_mut(role) += 1;
        if entry.meta.is_partial() {
            self.record.partial_seeds += 1;
            self.totals.partial_seeds += 1;
        }
    }

    fn count_removed(&mut self, WebKnown { role, entry }: WebKnown) {
        entry.host.into_iter().for_each(|host| self.networks.remove_web(host));
        *self.totals.web.of_mut(role) -= 1;
        if entry.meta.is_partial() {
            self.record.partial_seeds -= 1;
            self.totals.partial_seeds -= 1;
        }
    }
}
