//! What operators see of torrents and peers, and do to them. No announce waits for any of it for longer
//! than for a batch of others.

use std::net::IpAddr;
use std::sync::Arc;

use swarm::{PeerInfo, TorrentStats};
use types::{InfoHash, Tick};

use crate::Tracker;
use crate::events::Feed;

/// A torrent with its peers, or as many of them as were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrentDetails {
    /// Peers and downloads, and when it came.
    pub figures: TorrentStats,
    /// Whether announces are refused.
    pub frozen: bool,
    /// Its peers; of more than were asked for, a share of each family and role.
    pub peers: Vec<PeerInfo>,
}

impl Tracker {
    /// A torrent with at most `peers_max` of its peers, and at most [`types::limits::INSPECT_PEERS_MAX`].
    pub fn torrent(&self, now: Tick, hash: &InfoHash, peers_max: usize) -> Option<TorrentDetails> {
        let inspect = self.store.inspect(now, hash, peers_max)?;
        let (frozen, figures) = (self.frozen.contains(hash), self.with_downloads(&inspect.stats));
        Some(TorrentDetails { figures, frozen, peers: inspect.peers })
    }

    /// Shows every torrent to `see`, without a lock held. One may be shown twice if others are removed
    /// meanwhile; none is left out.
    pub fn overview(&self, mut see: impl FnMut(&TorrentStats)) {
        self.store.each_torrent(|figures| see(&self.with_downloads(figures)));
    }

    /// Downloads are those that clients are told.
    fn with_downloads(&self, figures: &TorrentStats) -> TorrentStats {
        let mut figures = *figures;
        if self.downloads.is_on() {
            figures.counts.downloads = self.downloads.of(&figures.info_hash);
        }
        figures
    }

    /// Removes a torrent with its peers; says whether there was one. The next announce brings it back,
    /// unless lists forbid it or it is frozen.
    pub fn remove_torrent(&self, hash: &InfoHash) -> bool {
        self.store.remove(hash)
    }

    /// At most `peers_max` peers at `ip` with their torrents; WebTorrent peers are not looked at. Looks
    /// at all peers there are: seconds, if they are many.
    pub fn peers_at(&self, now: Tick, ip: IpAddr, peers_max: usize) -> Vec<(InfoHash, PeerInfo)> {
        self.store.peers_at(now, ip, peers_max)
    }

    /// Removes the peers at `ip` from all torrents; gives their number. As slow as
    /// [`Self::peers_at`].
    pub fn remove_peers_at(&self, now: Tick, ip: IpAddr) -> u64 {
        self.store.remove_peers_at(now, ip)
    }

    /// Refuses announces of a torrent from now on, whether there is one or not, or takes them again.
    /// Its peers stay until they age out, and scrapes are answered. False if more than
    /// [`types::limits::FROZEN_MAX`] torrents would be frozen: then nothing is done.
    pub fn freeze(&self, hash: &InfoHash, frozen: bool) -> bool {
        self.frozen.set(hash, frozen)
    }

    /// All torrents that are frozen, in order.
    pub fn frozen(&self) -> Arc<Vec<InfoHash>> {
        self.frozen.all()
    }

    /// Where torrents are heard to come and go.
    pub fn feed(&self) -> Feed<'_> {
        Feed(&self.store)
    }

    /// By how many seconds peers may be forgotten late.
    pub fn expiry_lag_s(&self, now: Tick) -> u32 {
        self.store.expiry_lag_s(now)
    }

    /// Bytes that torrents and peers may take, if that is bounded.
    pub fn memory_budget(&self) -> Option<u64> {
        self.store.memory_budget()
    }
}
