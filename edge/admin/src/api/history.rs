//! `/stats/history`: statistics of the last seven days.

use std::time::SystemTime;

use axum::extract::State;
use serde::Deserialize;

use super::input::{Json, Query};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::Shared;
use crate::clock::since_epoch;
use crate::recorder::{HistorySpan, StatsHistory};
use utoipa::IntoParams;

pub(super) fn routes() -> Vec<Route> {
    let summary = "Show statistics over time: the last ten minutes to seven days";
    vec![route("GET /stats/history", Scope::StatsRead, summary, history)]
}

/// Query parameter that selects the span of time.
#[derive(Deserialize, IntoParams)]
struct HistoryQuery {
    /// Length of the span, which ends now: 10m, 1h, 6h, 1d or 7d.
    #[serde(default)]
    #[param(inline)]
    span: HistorySpan,
}

async fn history(
    State(api): State<Shared>,
    Query(HistoryQuery { span }): Query<HistoryQuery>,
) -> Result<Json<StatsHistory>, Problem> {
    // The clock of the samples.
    let now = since_epoch(SystemTime::now()).as_secs();
    Ok(Json(api.recorder.span(span, now)))
}
