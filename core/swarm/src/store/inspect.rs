//! Inspection and removal for operators. No step holds a lock for longer than a batch of announces
//! does.

use std::net::IpAddr;

use types::{InfoHash, Tick, limits};

use super::{Store, unlock};
use crate::shard::{Found, Part, Walk};
use crate::{PeerInfo, TorrentDetails, TorrentEvent, TorrentStats};

/// Torrents read under one lock: some microseconds, because records are contiguous.
const STEP_TORRENTS: u32 = 256;
/// Lines of peers visited or freed under one lock: some tens of microseconds.
const STEP_LINES: u32 = 128;

impl Store {
    /// Calls `visit` with every torrent, without holding a lock. A torrent that moves meanwhile
    /// because another was removed may be visited twice; none that exists all the time is missed.
    pub fn each_torrent(&self, visit: impl FnMut(&TorrentStats)) {
        self.each_torrent_where(|_| true, visit);
    }

    /// The same for torrents whose info hash `is_wanted`, which is called with a lock held: it must be
    /// quick.
    pub fn each_torrent_where(
        &self,
        is_wanted: impl Fn(&InfoHash) -> bool,
        mut visit: impl FnMut(&TorrentStats),
    ) {
        let mut rows = Vec::with_capacity(STEP_TORRENTS as usize);
        for shard in 0..self.shards.len() {
            let mut end = u32::MAX;
            while end > 0 {
                let held = self.lock(shard);
                end = held.stats(end, STEP_TORRENTS, &is_wanted, &mut rows);
                unlock(held);
                rows.drain(..).for_each(|row| visit(&row));
            }
        }
    }

    /// Returns a torrent with at most `peers_max` of its peers, and at most
    /// [`limits::INSPECT_PEERS_MAX`].
    pub fn inspect(
        &self,
        now: Tick,
        info_hash: &InfoHash,
        peers_max: usize,
    ) -> Option<TorrentDetails> {
        let hash = self.hash(info_hash);
        let peers_max = peers_max.min(limits::INSPECT_PEERS_MAX);
        self.lock(self.shard_of(hash)).inspect(now, info_hash, hash, peers_max)
    }

    /// Removes a torrent with all its peers. Returns whether it existed. The next announce creates
    /// it anew.
    pub fn remove(&self, info_hash: &InfoHash) -> bool {
        let hash = self.hash(info_hash);
        let mut was_there = false;
        let mut part = Part::default();
        loop {
            let mut shard = self.lock(self.shard_of(hash));
            let removed = shard.remove_some(info_hash, hash, &mut part, STEP_LINES);
            unlock(shard);
            match removed {
                Some(false) => was_there = true,
                Some(true) => return true,
                None => return was_there,
            }
        }
    }

    /// Returns up to `peers_max` peers at an address, on any port, each with its torrent.
    /// WebTorrent peers are not included. Walks over all peers; one that announces meanwhile may be
    /// missed or found twice.
    pub fn peers_at(&self, now: Tick, ip: IpAddr, peers_max: usize) -> Vec<(InfoHash, PeerInfo)> {
        let mut peers = Vec::new();
        self.retain_at(ip, |found| {
            if peers.len() < peers_max {
                peers.push((found.info_hash, found.info(now)));
            }
            false
        });
        peers
    }

    /// Removes the peers at an address and returns how many there were. One that announces
    /// meanwhile may stay.
    pub fn remove_peers_at(&self, ip: IpAddr) -> u64 {
        let mut gone = 0;
        self.retain_at(ip, |_| {
            gone += 1;
            true
        });
        gone
    }

    /// Removes the peers at an address for which `is_gone` returns true. It is called with a lock held.
    fn retain_at(&self, ip: IpAddr, mut is_gone: impl FnMut(Found) -> bool) {
        let ip = Some(ip.to_canonical());
        for shard in 0..self.shards.len() {
            let mut walk = Walk::default();
            while walk.has_more() {
                let mut held = self.lock(shard);
                held.retain_peers(&mut walk, STEP_LINES, ip, &mut is_gone);
                unlock(held);
            }
        }
    }

    /// Calls `visit` with the address of every peer in every torrent, without holding a lock. WebTorrent
    /// peers have none. A peer that announces meanwhile may be missed or visited twice.
    pub fn each_address(&self, mut visit: impl FnMut(IpAddr)) {
        let mut addresses = Vec::new();
        for shard in 0..self.shards.len() {
            let mut walk = Walk::default();
            while walk.has_more() {
                let mut held = self.lock(shard);
                held.retain_peers(&mut walk, STEP_LINES, None, |found| {
                    addresses.push(found.peer.socket_addr().ip());
                    false
                });
                unlock(held);
                addresses.drain(..).for_each(&mut visit);
            }
        }
    }

    /// Starts keeping events, about [`limits::EVENTS_MAX`] until they are taken; or stops and drops
    /// them.
    pub fn listen(&self, listens: bool) {
        let room = if listens { limits::EVENTS_MAX.div_ceil(self.shards.len()) } else { 0 };
        self.each_shard(|shard| shard.events.set_capacity(room));
    }

    /// Moves kept events to `events`; those of one torrent are in order. Returns how many were lost
    /// because the queues were full.
    pub fn take_events(&self, events: &mut Vec<TorrentEvent>) -> u64 {
        (0..self.shards.len()).map(|shard| self.lock(shard).events.drain_into(events)).sum()
    }
}
