//! Responses of trackers, in the same form for every protocol.

use std::net::{IpAddr, SocketAddr};

use types::InfoHash;

/// The response to an announce. Fields that the protocol lacks or the tracker omits are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnounceResponse {
    /// Seconds until the next announce.
    pub interval_s: Option<u64>,
    /// Minimum seconds between announces.
    pub min_interval_s: Option<u64>,
    /// Seeders in the swarm.
    pub seeders: Option<u64>,
    /// Leechers in the swarm.
    pub leechers: Option<u64>,
    /// Completed downloads.
    pub downloads: Option<u64>,
    /// Addresses of other peers; empty for WebTorrent, which sends none.
    pub peers: Vec<SocketAddr>,
    /// This client's address as the tracker sees it.
    pub external_ip: Option<IpAddr>,
    /// A warning to show to the user.
    pub warning: Option<String>,
    /// A protocol violation that some clients do not tolerate.
    pub violation: Option<String>,
}

/// The counts of a torrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrapeStats {
    /// Seeders in the swarm.
    pub seeders: u64,
    /// Completed downloads, if the tracker reports them.
    pub downloads: Option<u64>,
    /// Leechers in the swarm.
    pub leechers: u64,
}

/// The counts of one torrent in the response to a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeEntry {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Its counts.
    pub stats: ScrapeStats,
}

impl ScrapeEntry {
    /// Returns the counts of each hash, in the order of `hashes`. `None` for torrents that `entries` lacks.
    pub(crate) fn in_order_of(hashes: &[InfoHash], entries: &[Self]) -> Vec<Option<ScrapeStats>> {
        let stats = |hash: &InfoHash| {
            entries.iter().find(|entry| entry.info_hash == *hash).map(|entry| entry.stats)
        };
        hashes.iter().map(stats).collect()
    }
}

/// The violation of a compact peer list whose length is no multiple of a peer's.
pub(crate) const TRUNCATED_PEERS: &str = "the peer list ends within a peer";

/// Returns a number and its noun, such as "1 seeder". `None` is a number that the tracker did not send.
pub fn counted(count: Option<u64>, noun: &str) -> String {
    match count {
        Some(1) => format!("1 {noun}"),
        Some(count) => format!("{count} {noun}s"),
        None => format!("? {noun}s"),
    }
}
