//! `/stats/history` and `/torrents/{hash}/history`: statistics of the last 90 days.

use std::time::SystemTime;

use axum::extract::State;
use serde::Deserialize;

use super::input::{Json, PathParam, Query};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::Shared;
use crate::clock::since_epoch;
use crate::recorder::{HistorySpan, StatsHistory, TorrentHistory};
use types::InfoHash;
use utoipa::IntoParams;

pub(super) fn routes() -> Vec<Route> {
    let summary = "Show statistics over time: the last ten minutes to 90 days";
    vec![
        route("GET /stats/history", Scope::StatsRead, summary, history),
        route(
            "GET /torrents/{hash}/history",
            Scope::TorrentsRead,
            "Show a torrent's seeders, leechers and downloads over time, and follow it from now on",
            torrent_history,
        ),
    ]
}

/// Query parameter that selects the span of time.
#[derive(Deserialize, IntoParams)]
struct HistoryQuery {
    /// Length of the span, which ends now: 10m, 1h, 6h, 1d, 7d or 90d.
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

async fn torrent_history(
    State(api): State<Shared>,
    PathParam(hash): PathParam<InfoHash>,
    Query(HistoryQuery { span }): Query<HistoryQuery>,
) -> Result<Json<TorrentHistory>, Problem> {
    // Others would displace torrents that there are.
    if api.tracker().torrent(api.tick(), &hash, 0).is_some() {
        api.recorder.follow(hash);
    }
    let now = since_epoch(SystemTime::now()).as_secs();
    Ok(Json(api.recorder.torrent(&hash, span, now)))
}
