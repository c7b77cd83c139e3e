//! `/stats/networks`: peers by autonomous system and by country.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{Json, Query, Raw, page_limit};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::Shared;
use utoipa::IntoParams;

/// Systems, and countries, in a response.
const ROWS_MAX: u32 = 1000;

pub(super) fn routes() -> Vec<Route> {
    vec![route(
        "GET /stats/networks",
        Scope::StatsRead,
        "Count peers by autonomous system and by country",
        networks,
    )]
}

/// Query parameter that limits the rows of a response.
#[derive(Deserialize, IntoParams)]
struct NetworkLimitQuery {
    /// Systems, and as many countries, at most.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Peers by network.
pub(super) enum NetworkState {}

async fn networks(
    State(api): State<Shared>,
    Query(NetworkLimitQuery { limit }): Query<NetworkLimitQuery>,
) -> Result<Raw<NetworkState>, Problem> {
    let limit = page_limit(limit, 100, ROWS_MAX)? as usize;
    let mut networks =
        api.sources().subsystems.read("geo").map_or_else(no_networks, |it| it.to_json());
    for rows in ["systems", "countries"] {
        if let Some(rows) = networks[rows].as_array_mut() {
            rows.truncate(limit);
        }
    }
    Ok(Raw::new(Json(networks)))
}

/// Returns the response of a build without the feature `geo`.
fn no_networks() -> Value {
    json!({
        "files": [], "problems": [], "peers": 0, "sampled": 0,
        "systems": [], "systems_total": 0, "systems_unknown": 0,
        "countries": [], "countries_total": 0, "countries_unknown": 0,
    })
}
