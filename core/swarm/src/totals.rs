//! The store in figures.

/// Peers of one address family, or of WebTorrent, in the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyTotals {
    /// Peers that have everything.
    pub seeders: u64,
    /// Peers that miss something, partial seeds included.
    pub leechers: u64,
}

/// What a store holds. Kept up to date as announces come, so that reading it walks nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Torrents, those included whose peers have gone but whose downloads are still remembered.
    pub torrents: u64,
    /// IPv4 peers.
    pub v4: FamilyTotals,
    /// IPv6 peers.
    pub v6: FamilyTotals,
    /// WebTorrent peers, of whatever family.
    pub web: FamilyTotals,
    /// Those of the leechers that are partial seeds (BEP 21).
    pub partial_seeds: u64,
    /// Downloads counted since the start; never falls.
    pub downloads: u64,
    /// Peers that aged out since the start; never falls.
    pub expired: u64,
    /// Bytes in which torrents and peers are now.
    pub memory_used: u64,
    /// Bytes the store has taken from the system and not given back.
    pub memory_reserved: u64,
    /// Announces of new peers that were not stored because the memory budget was used up, since
    /// the start; never falls.
    pub refused_for_memory: u64,
}

impl Totals {
    /// The sum of two parts of a store.
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
            memory_used: self.memory_used + other.memory_used,
            memory_reserved: self.memory_reserved + other.memory_reserved,
            refused_for_memory: self.refused_for_memory + other.refused_for_memory,
        }
    }
}
