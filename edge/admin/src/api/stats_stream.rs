//! `/stats/stream`: recent statistics and live updates (server-sent events).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{StreamExt, iter, unfold};
use tokio::sync::broadcast::error::RecvError;

use super::auth::Caller;
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::Shared;
use crate::recorder::StatsMessage;

/// Concurrent streams: a quarter of the connections of the admin listeners.
pub(super) const STREAMS_MAX: usize = 32;
/// Interval of keep-alive comments. Samples come each second anyway.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn routes() -> Vec<Route> {
    vec![route(
        "GET /stats/stream",
        Scope::StatsRead,
        "Stream statistics: recent history, then live samples",
        listen,
    )]
}

/// A stream of statistics.
pub(super) struct StatsStream(Response);

impl IntoResponse for StatsStream {
    fn into_response(self) -> Response {
        self.0
    }
}

fn line(message: &StatsMessage) -> Result<Line, Infallible> {
    Ok(Line::default().event(message.name).data(&message.data))
}

async fn listen(State(api): State<Shared>, caller: Caller) -> Result<StatsStream, Problem> {
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
    let lines = first.chain(rest).take_until(Box::pin(permit.ended(api, caller)));
    Ok(StatsStream(
        Sse::new(lines).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response(),
    ))
}
