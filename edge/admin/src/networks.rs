//! Counts of peers by autonomous system and by country. The application makes them; API and metrics read
//! them.

use std::time::Instant;

/// Peers by network, as they were at the last count.
#[derive(Clone, Debug, Default)]
pub struct NetworkStats {
    /// The files that say where a network belongs.
    pub files: Vec<GeoFile>,
    /// Errors of files that cannot be used, as sentences.
    pub problems: Vec<String>,
    /// When the peers were counted. `None` = not yet.
    pub counted_at: Option<Instant>,
    /// Peers with an address, in all torrents.
    pub peers: u64,
    /// Number of these peers that were looked up. If these are not all, the counts are scaled.
    pub sampled: u64,
    /// Counts by system, if there is a file of systems.
    pub systems: Option<NetworkBreakdown>,
    /// Counts by country, if there is a file of countries.
    pub countries: Option<NetworkBreakdown>,
    /// Number of systems, and of countries, that metrics name at most.
    pub metrics_max: usize,
}

/// An MMDB file in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeoFile {
    /// `asn` or `country`.
    pub kind: &'static str,
    /// Database type that the file states, such as `GeoLite2-ASN`.
    pub name: String,
    /// When it was made, in unix time.
    pub built: Option<u64>,
}

/// Counts by something that networks belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkBreakdown {
    /// Those with the most peers first, at most [`NetworkBreakdown::ROWS_MAX`].
    pub rows: Vec<NetworkCount>,
    /// Number of all systems or countries with peers, with a row or without.
    pub total: usize,
    /// Peers of those that have no row.
    pub others: u64,
    /// Peers whose network is not in the file.
    pub unknown: u64,
}

/// The peers of one system or country.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCount {
    /// The system's number, or the country's two letters.
    pub key: String,
    /// The system's name; empty if there is none.
    pub name: String,
    /// Its peers.
    pub peers: u64,
}

impl NetworkBreakdown {
    /// Rows that are kept.
    pub const ROWS_MAX: usize = 1000;

    /// Sorts counts, and keeps those with the most peers.
    pub fn new(mut rows: Vec<NetworkCount>, unknown: u64) -> Self {
        rows.sort_by(|a, b| b.peers.cmp(&a.peers).then_with(|| a.key.cmp(&b.key)));
        let total = rows.len();
        let others = rows.iter().skip(Self::ROWS_MAX).map(|row| row.peers).sum();
        rows.truncate(Self::ROWS_MAX);
        Self { rows, total, others, unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakdowns_keep_the_largest() {
        let row = |number: u64| NetworkCount {
            key: format!("{number:05}"),
            name: String::new(),
            peers: number / 2,
        };
        let counts = NetworkBreakdown::new((0..2003).map(row).collect(), 7);
        assert_eq!((counts.rows.len(), counts.total, counts.unknown), (1000, 2003, 7));
        assert_eq!((&*counts.rows[0].key, &*counts.rows[1].key), ("02002", "02000"));
        let sum: u64 = counts.rows.iter().map(|row| row.peers).sum();
        let all: u64 = (0..2003).map(|number| number / 2).sum();
        assert_eq!(sum + counts.others, all);
    }
}
