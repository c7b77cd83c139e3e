//! Totals of the store.

use crate::role::SetRole;

/// Peers of one address family, or of WebTorrent, in the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyTotals {
    /// Peers that have the whole torrent.
    pub seeders: u64,
    /// Peers that lack a part of it, including partial seeds.
    pub leechers: u64,
}

impl FamilyTotals {
    /// Returns the number of peers of a role.
    #[inline]
    pub(crate) fn of_mut(&mut self, role: SetRole) -> &mut u64 {
        match role {
            SetRole::Seeders => &mut self.seeders,
            SetRole::Leechers => &mut self.leechers,
        }
    }
}

/// Totals of a store's contents. Updated with each announce, so reading them walks nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Torrents, including those without peers whose download counts are still kept.
    pub torrents: u64,
    /// IPv4 peers.
    pub v4: FamilyTotals,
    /// IPv6 peers.
    pub v6: FamilyTotals,
    /// WebTorrent peers of either address family.
    pub web: FamilyTotals,
    /// Leechers that are partial seeds (BEP 21).
    pub partial_seeds: u64,
    /// Downloads counted since the start; never decreases.
    pub downloads: u64,
    /// Peers expired since the start; never decreases.
    pub expired: u64,
    /// Peers replaced by new ones of the same host or network, since the start; never decreases.
    pub replaced: u64,
    /// Peers removed because memory was short and their network had too many, since the start; never
    /// decreases.
    pub evicted: u64,
    /// Bytes in use by torrents and peers.
    pub memory_used: u64,
    /// Bytes taken from the system and not returned.
    pub memory_reserved: u64,
    /// Announces of new peers that were not stored because the memory budget was used up, since the
    /// start; never decreases.
    pub refused_for_memory: u64,
    /// Announces of new peers that were not stored because their network had used up its share of
    /// the budget, since the start; never decreases.
    pub refused_for_share: u64,
}

impl Totals {
    /// Returns the sum of two parts of a store.
    pub(crate) fn plus(self, other: Self) -> Self {
        let family = |a: FamilyTotals, b: FamilyTotals| FamilyTotals {
            seeders: a.seeders + b.seeders,
            leechers: a.leechers + b.leechers,
        };
        Self {
            torrents: self.torrents + other.torrents,
            v4: family(self.v4, other.v4),
            v6: family(self.v6, other.v6),
            web: family(self.web, other.web),
            partial_seeds: self.partial_seeds + other.partial_seeds,
            downloads: self.downloads + other.downloads,
            expired: self.expired + other.expired,
            replaced: self.replaced + other.replaced,
            evicted: self.evicted + other.evicted,
            memory_used: self.memory_used + other.memory_used,
            memory_reserved: self.memory_reserved + other.memory_reserved,
            refused_for_memory: self.refused_for_memory + other.refused_for_memory,
            refused_for_share: self.refused_for_share + other.refused_for_share,
        }
    }
}
