//! Counts of a torrent, and the refusal of an early announce.

/// Counts of one address family, or of WebTorrent peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FamilyCounts {
    /// Peers that have the whole torrent.
    pub seeders: u32,
    /// Peers that lack a part of it, including partial seeds.
    pub leechers: u32,
}

/// Counts of one torrent. The answer to an announce counts the announcing peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SwarmCounts {
    /// IPv4 peers.
    pub v4: FamilyCounts,
    /// IPv6 peers.
    pub v6: FamilyCounts,
    /// WebTorrent peers of either address family.
    pub web: FamilyCounts,
    /// Leechers that are partial seeds (BEP 21).
    pub partial_seeds: u32,
    /// Completed downloads; a peer counts once.
    pub downloads: u32,
}

impl SwarmCounts {
    /// Returns BEP 3 `complete`.
    pub fn seeders(&self) -> u32 {
        self.v4.seeders.saturating_add(self.v6.seeders).saturating_add(self.web.seeders)
    }

    /// Returns BEP 3 `incomplete`.
    pub fn leechers(&self) -> u32 {
        self.v4.leechers.saturating_add(self.v6.leechers).saturating_add(self.web.leechers)
    }

    /// Returns BEP 21 `downloaders`: incomplete peers that still download.
    pub fn downloaders(&self) -> u32 {
        self.leechers().saturating_sub(self.partial_seeds)
    }
}

/// The announce came too soon after the peer's last one, and was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSoon {
    /// Seconds since the last one. Ages are kept in units of 16 s, so this may be up to 15 off.
    pub age_s: u32,
}
