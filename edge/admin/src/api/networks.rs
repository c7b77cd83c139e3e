//! `/stats/networks`: peers by autonomous system and by country.

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::input::{Json, Query, page_limit};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::Shared;
use crate::networks::{NetworkBreakdown, NetworkCount, NetworkStats};
use utoipa::{IntoParams, ToSchema};

pub(super) fn routes() -> Vec<Route> {
    vec![route(
        "GET /stats/networks",
        Scope::StatsRead,
        "Count peers by autonomous system and by country",
        networks,
    )]
}

/// Peers by network. Empty without the files that `[geo]` names.
#[derive(Serialize, ToSchema)]
struct Networks {
    /// The files in use.
    files: Vec<NetworkFile>,
    /// Errors of files that cannot be used.
    problems: Vec<String>,
    /// Seconds since the count; absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_s: Option<f64>,
    /// Peers with an address, in all torrents: one with two torrents counts twice.
    peers: u64,
    /// Number of these peers that were looked up; the counts are scaled to all.
    sampled: u64,
    /// Systems, those with the most peers first.
    systems: Vec<SystemPeers>,
    /// The number of systems with peers.
    systems_total: u64,
    /// Peers whose system is not known.
    systems_unknown: u64,
    /// Countries, those with the most peers first.
    countries: Vec<CountryPeers>,
    /// The number of countries with peers.
    countries_total: u64,
    /// Peers whose country is not known.
    countries_unknown: u64,
}

/// A file that says where networks belong.
#[derive(Serialize, ToSchema)]
struct NetworkFile {
    /// asn or country.
    kind: String,
    /// Database type that the file states, such as GeoLite2-ASN.
    r#type: String,
    /// When it was made, in unix time; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    built: Option<u64>,
}

/// The peers of an autonomous system.
#[derive(Serialize, ToSchema)]
struct SystemPeers {
    asn: u32,
    /// Empty: unknown.
    name: String,
    peers: u64,
}

/// The peers of a country.
#[derive(Serialize, ToSchema)]
struct CountryPeers {
    /// Two capital letters.
    country: String,
    peers: u64,
}

/// Query parameter that limits the rows of a response.
#[derive(Deserialize, IntoParams)]
struct NetworkLimitQuery {
    /// Systems, and as many countries, at most.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

async fn networks(
    State(api): State<Shared>,
    Query(NetworkLimitQuery { limit }): Query<NetworkLimitQuery>,
) -> Result<Json<Networks>, Problem> {
    let limit = page_limit(limit, 100, NetworkBreakdown::ROWS_MAX as u32)? as usize;
    let stats = api.sources().status.networks();
    let NetworkStats { systems, countries, counted_at, peers, sampled, .. } = &*stats;
    let (systems, countries) = (systems.as_ref(), countries.as_ref());
    let total = |counts: Option<&NetworkBreakdown>| counts.map_or(0, |counts| counts.total as u64);
    let unknown = |counts: Option<&NetworkBreakdown>| counts.map_or(0, |counts| counts.unknown);
    let file = |file: &crate::networks::GeoFile| NetworkFile {
        kind: file.kind.into(),
        r#type: file.name.clone(),
        built: file.built,
    };
    Ok(Json(Networks {
        files: stats.files.iter().map(file).collect(),
        problems: stats.problems.clone(),
        age_s: counted_at.map(|counted_at| counted_at.elapsed().as_secs_f64()),
        peers: *peers,
        sampled: *sampled,
        systems: rows(systems, limit).filter_map(SystemPeers::new).collect(),
        systems_total: total(systems),
        systems_unknown: unknown(systems),
        countries: rows(countries, limit).map(CountryPeers::new).collect(),
        countries_total: total(countries),
        countries_unknown: unknown(countries),
    }))
}

fn rows(counts: Option<&NetworkBreakdown>, limit: usize) -> impl Iterator<Item = &NetworkCount> {
    counts.into_iter().flat_map(|counts| &counts.rows).take(limit)
}

impl SystemPeers {
    fn new(row: &NetworkCount) -> Option<Self> {
        Some(Self { asn: row.key.parse().ok()?, name: row.name.clone(), peers: row.peers })
    }
}

impl CountryPeers {
    fn new(row: &NetworkCount) -> Self {
        Self { country: row.key.clone(), peers: row.peers }
    }
}
