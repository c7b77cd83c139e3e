//! Operators' view of torrents and peers, and their changes to them. An announce never waits for these
//! longer than for a batch of other announces.

use std::slice;

use swarm::{PeerInfo, TorrentStats};
use types::{InfoHash, Tick, limits};

use crate::Tracker;
use crate::access::HashList;

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

    /// Freezes a torrent, known or not, or unfreezes it. The announces of a frozen torrent are refused; its peers
    /// stay until they time out, and scrapes are answered.
    ///
    /// Returns false, and does nothing, if that would freeze more than [`types::limits::FROZEN_MAX`].
    pub fn freeze(&self, hash: &InfoHash, frozen: bool) -> bool {
        if !frozen {
            self.frozen.remove(slice::from_ref(hash));
            return true;
        }
        let has_room = self.frozen.len() < limits::FROZEN_MAX || self.frozen.contains(hash);
        if has_room {
            self.frozen.insert(slice::from_ref(hash));
        }
        has_room
    }

    /// Returns the frozen torrents.
    pub fn frozen(&self) -> &HashList {
        &self.frozen
    }
}
