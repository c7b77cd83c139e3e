//! Operators' view of torrents and peers, and their changes to them. An announce never waits for these
//! longer than for a batch of other announces.

use std::net::IpAddr;
use std::sync::Arc;

use swarm::{PeerInfo, TorrentStats};
use types::{InfoHash, Tick};

use crate::Tracker;
use crate::events::EventStream;

/// A torrent with some or all of its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrentDetails {
    /// Counts of peers and downloads, and when the torrent was first seen.
    pub stats: TorrentStats,
    /// True if its announces are refused.
    pub frozen: bool,
    /// Its peers; if there are more than were asked for, a share of each family and role.
    pub peers: Vec<PeerInfo>,
}

impl Tracker {
    /// Returns a torrent with at most `peers_max` of its peers, and at most
    /// [`types::limits::INSPECT_PEERS_MAX`].
    pub fn torrent(&self, now: Tick, hash: &InfoHash, peers_max: usize) -> Option<TorrentDetails> {
        let details = self.store.inspect(now, hash, peers_max)?;
        let (frozen, stats) = (self.frozen.contains(hash), self.with_downloads(&details.stats));
        Some(TorrentDetails { stats, frozen, peers: details.peers })
    }

    /// Calls `see` with every torrent, without holding a lock. A torrent may come twice if others are
    /// removed meanwhile; none is left out.
    pub fn overview(&self, mut see: impl FnMut(&TorrentStats)) {
        self.store.each_torrent(|stats| see(&self.with_downloads(stats)));
    }

    /// Raises the store's count of downloads to the durable one, as clients get it.
    fn with_downloads(&self, stats: &TorrentStats) -> TorrentStats {
        let mut stats = *stats;
        self.downloads.raise(&stats.info_hash, &mut stats.counts.downloads);
        stats
    }

    /// Removes a torrent with its peers. Returns whether it existed. The next announce adds it again,
    /// unless lists refuse it or it is frozen.
    pub fn remove_torrent(&self, hash: &InfoHash) -> bool {
        self.store.remove(hash)
    }

    /// Returns at most `peers_max` peers at `ip` with their torrents, without WebTorrent peers. Visits
    /// all peers: takes seconds if there are many.
    pub fn peers_at(&self, now: Tick, ip: IpAddr, peers_max: usize) -> Vec<(InfoHash, PeerInfo)> {
        self.store.peers_at(now, ip, peers_max)
    }

    /// Calls `visit` with the address of every peer in every torrent, without WebTorrent peers, and without
    /// holding a lock. As slow as [`Self::peers_at`].
    pub fn each_address(&self, visit: impl FnMut(IpAddr)) {
        self.store.each_address(visit);
    }

    /// Removes the peers at `ip` from all torrents, and returns their number. As slow as
    /// [`Self::peers_at`].
    pub fn remove_peers_at(&self, now: Tick, ip: IpAddr) -> u64 {
        self.store.remove_peers_at(now, ip)
    }

    /// Freezes a torrent, known or not: refuses its announces from now on. Or unfreezes it. Peers of a
    /// frozen torrent stay until they time out, and scrapes are answered.
    ///
    /// Returns false, and does nothing, if that would freeze more than [`types::limits::FROZEN_MAX`].
    pub fn freeze(&self, hash: &InfoHash, frozen: bool) -> bool {
        self.frozen.set(hash, frozen)
    }

    /// Returns all frozen torrents, sorted.
    pub fn frozen(&self) -> Arc<Vec<InfoHash>> {
        self.frozen.all()
    }

    /// Returns the stream of torrents' events.
    pub fn event_stream(&self) -> EventStream<'_> {
        EventStream(&self.store)
    }

    /// Returns by how many seconds peers may be removed late.
    pub fn expiry_lag_s(&self, now: Tick) -> u32 {
        self.store.expiry_lag_s(now)
    }

    /// Returns the bytes that torrents and peers may take; `None` = unlimited.
    pub fn memory_budget(&self) -> Option<u64> {
        self.store.memory_budget()
    }
}
