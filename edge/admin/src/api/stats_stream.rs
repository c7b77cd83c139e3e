//! `/stats/stream`: recent statistics and live updates (server-sent events).

use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::Event as Line;
use futures_util::stream::{StreamExt, iter, unfold};
use tokio::sync::broadcast::error::RecvError;

use super::auth::Caller;
use super::input::Raw;
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::Shared;
use crate::recorder::StatsMessage;

/// Concurrent streams: a quarter of the connections of the admin listeners.
pub(super) const STREAMS_MAX: usize = 32;

pub(super) fn routes() -> Vec<Route> {
    vec![route(
        "GET /stats/stream",
        Scope::StatsRead,
        "Stream statistics: recent history, then live samples",
        listen,
    )]
}

/// A stream of statistics.
pub(super) enum StatsStream {}

fn line(message: &StatsMessage) -> Line {
    Line::default().event(message.name).data(&message.data)
}

async fn listen(State(api): State<Shared>, caller: Caller) -> Result<Raw<StatsStream>, Problem> {
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
