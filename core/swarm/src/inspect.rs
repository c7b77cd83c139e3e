//! What can be seen of torrents and peers by who does not announce.

use std::net::SocketAddr;

use types::{InfoHash, PeerId, Role, SwarmCounts, Tick};

/// A torrent in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorrentStats {
    /// Which.
    pub info_hash: InfoHash,
    /// Peers and downloads.
    pub counts: SwarmCounts,
    /// When it came, less up to 17 minutes.
    pub first_seen: Tick,
}

/// A torrent with its peers, or as many of them as were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrentDetails {
    /// Peers and downloads, and when it came.
    pub stats: TorrentStats,
    /// Its peers; of more than were asked for, a share of each family and role.
    pub peers: Vec<PeerInfo>,
}

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Where it can be reached; nothing is kept of where WebTorrent peers are.
    pub address: Option<SocketAddr>,
    /// What it is to its swarm.
    pub role: Role,
    /// Seconds since its last announce, less up to 16.
    pub age_s: u32,
    /// What it calls itself: of WebTorrent peers, and of others if their ids are kept.
    pub id: Option<PeerId>,
}
