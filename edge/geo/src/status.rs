//! Counts of peers by autonomous system and by country, as the API and metrics show them.

use std::time::Instant;

use serde::{Serialize, Serializer};
use subsystem::{HealthItem, Page, Subsystem, Value, escape, json};
use utoipa::ToSchema;

/// Rows that are kept of systems, and of countries.
pub const ROWS_MAX: usize = 1000;

/// Peers by network. Empty without the files that `[geo]` names.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = Networks)]
pub struct NetworkStatus {
    /// The files in use.
    pub files: Vec<NetworkFile>,
    /// Errors of files that cannot be used.
    pub problems: Vec<String>,
    /// Seconds since the count; absent before the first one.
    #[serde(rename = "age_s", serialize_with = "age_s", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub counted_at: Option<Instant>,
    /// Peers with an address, in all torrents: one with two torrents counts twice.
    pub peers: u64,
    /// Number of these peers that were looked up; the counts are scaled to all.
    pub sampled: u64,
    /// Systems, those with the most peers first.
    pub systems: Vec<SystemPeers>,
    /// The number of systems with peers.
    pub systems_total: u64,
    /// Peers whose system is not known.
    pub systems_unknown: u64,
    /// Countries, those with the most peers first.
    pub countries: Vec<CountryPeers>,
    /// The number of countries with peers.
    pub countries_total: u64,
    /// Peers whose country is not known.
    pub countries_unknown: u64,
}

/// Number of systems, and of countries, that metrics name at most: each is a series of the monitoring system.
const METRICS_MAX: usize = 20;

/// A file that says where networks belong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NetworkFile {
    /// asn or country.
    pub kind: &'static str,
    /// Database type that the file states, such as GeoLite2-ASN.
    pub r#type: String,
    /// When it was made, in unix time; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built: Option<u64>,
}

/// The peers of an autonomous system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SystemPeers {
    /// Its number.
    pub asn: u32,
    /// Empty: unknown.
    pub name: String,
    /// Its peers.
    pub peers: u64,
}

/// The peers of a country.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CountryPeers {
    /// Two capital letters.
    pub country: String,
    /// Its peers.
    pub peers: u64,
}

fn age_s<S: Serializer>(counted_at: &Option<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
    counted_at.map(|counted_at| counted_at.elapsed().as_secs_f64()).serialize(serializer)
}

impl Subsystem for NetworkStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn metrics(&self, page: &mut Page) {
        let has = |kind: &str| self.files.iter().any(|file| file.kind == kind);
        if has("asn") {
            let help = "Peers with an address by autonomous system, those with the most peers.";
            let rows = self.systems.iter().map(|row| (row.asn.to_string(), row.peers));
            let samples = self.samples(rows, self.systems_unknown);
            page.by_label("tidegate_peers_by_system", "gauge", help, "asn", samples);
        }
        if has("country") {
            let help = "Peers with an address by country, those with the most peers.";
            let rows = self.countries.iter().map(|row| (row.country.clone(), row.peers));
            let samples = self.samples(rows, self.countries_unknown);
            page.by_label("tidegate_peers_by_country", "gauge", help, "country", samples);
        }
    }

    fn problems(&self) -> Vec<HealthItem> {
        Vec::new()
    }
}

impl NetworkStatus {
    /// Returns the rows with the most peers, and the sum of the others among all that were looked up.
    fn samples(
        &self,
        rows: impl Iterator<Item = (String, u64)>,
        unknown: u64,
    ) -> Vec<(String, u64)> {
        let rows = rows.take(METRICS_MAX).map(|(key, peers)| (escape(&key), peers));
        let mut samples: Vec<_> = rows.collect();
        let named: u64 = samples.iter().map(|(_, peers)| peers).sum();
        let others = self.peers.saturating_sub(unknown).saturating_sub(named);
        samples.extend([("other".into(), others), ("unknown".into(), unknown)]);
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_the_largest() {
        let system = |asn, peers| SystemPeers { asn, name: "x".into(), peers };
        let status = NetworkStatus {
            files: vec![NetworkFile { kind: "asn", r#type: "x".into(), built: None }],
            peers: 45,
            systems: (0..METRICS_MAX as u32 + 1).map(|number| system(64500 + number, 2)).collect(),
            systems_unknown: 3,
            ..NetworkStatus::default()
        };
        let mut page = Page::default();
        status.metrics(&mut page);
        let text = page.into_text();
        let found = text.lines().filter(|line| line.starts_with("tidegate_peers_by_"));
        let named = (64500..64520).map(|asn: u32| (asn.to_string(), 2));
        let expected = named
            .chain([("other".into(), 2), ("unknown".into(), 3)])
            .map(|(asn, peers)| format!("tidegate_peers_by_system{{asn=\"{asn}\"}} {peers}"));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
