//! `/stats/history` and `/torrents/{hash}/history`: statistics of the last 90 days. `/stats/stream`: recent ones, and
//! live updates (server-sent events).

use std::sync::Arc;
use std::time::SystemTime;

use axum::response::sse::Event as Line;
use futures_util::stream::{StreamExt, iter, unfold};
use tokio::sync::broadcast::error::RecvError;

use super::handler::*;
use crate::clock::since_epoch;
use crate::recorder::{HistorySpan, StatsHistory, StatsMessage, TorrentHistory};
use types::InfoHash;

/// Concurrent streams: a quarter of the connections of the admin listeners.
pub(super) const STREAMS_MAX: usize = 32;

pub(super) fn routes() -> Vec<Route> {
    let live = "Stream statistics: recent history, then live samples";
    let summary = "Show statistics over time: the last ten minutes to 90 days";
    vec![
        route("GET /stats/stream", Scope::StatsRead, live, stream),
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

/// A stream of statistics.
pub(super) enum StatsStream {}

fn line(message: &StatsMessage) -> Line {
    Line::default().event(message.name).data(&message.data)
}

async fn stream(State(api): State<Shared>, caller: Caller) -> Result<Raw<StatsStream>, Problem> {
    let permit = api.stats_streams.open(caller.token)?;
    let (history, receiver) = api.recorder.subscribe();
    let first = iter(history.into_iter().map(|message| line(&message)));
    let rest = unfold(receiver, |mut receiver| async move {
        loop {
            let message: Arc<StatsMessage> = match receiver.recv().await {
                Ok(message) => message,
                // Missed samples are not repeated: the next one is current.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return None,
            };
            return Some((line(&message), receiver));
        }
    });
    Ok(Raw::new(permit.respond(api, caller, first.chain(rest))))
}
