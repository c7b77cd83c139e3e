//! Torrents and peers as operators see them.

use std::net::SocketAddr;

use types::{InfoHash, PeerId, Role, SwarmCounts, Tick};

/// A torrent's counts and age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorrentStats {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Peers and downloads.
    pub counts: SwarmCounts,
    /// When its first peer came, up to 17 minutes early.
    pub first_seen: Tick,
}

/// A torrent with its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorrentDetails {
    /// Its counts and age.
    pub stats: TorrentStats,
    /// Its peers, up to the number requested, in proportion to their families and roles.
    pub peers: Vec<PeerInfo>,
}

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its address; `None` for WebTorrent peers, whose addresses are not kept.
    pub address: Option<SocketAddr>,
    /// Its role.
    pub role: Role,
    /// Seconds since its last announce, up to 16 less.
    pub age_s: u32,
    /// Its id: always known of WebTorrent peers, of others only if ids are kept.
    pub id: Option<PeerId>,
}
