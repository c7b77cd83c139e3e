//! `/sources`: the course of the figures, and how it goes on (server-sent events).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{StreamExt, iter, unfold};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::describe::{Operation, Output};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use crate::recorder::StatsMessage;

/// Streams at once: half of the connections that the admin listener has.
const STREAMS_MAX: usize = 32;
/// How long a stream is silent at most: a sample is told each second.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

static STREAM_PERMITS: Semaphore = Semaphore::const_new(STREAMS_MAX);

pub(super) fn routes() -> Vec<Route> {
    vec![route(
        "GET /figures",
        Scope::StatsRead,
        "The course of the figures, as it goes on",
        listen,
    )]
}

/// A stream of figures.
struct StatsStream(Response);

impl IntoResponse for StatsStream {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Output for StatsStream {
    fn describe(operation: &mut Operation) {
        let text = json!({
            "type": "string",
            "description": "Events `history` (the names of the figures, ten minutes of seconds and a \
                day of minutes) and `tables`, then `sample` each second and `tables` every five, with \
                data in JSON.",
        });
        operation.response(
            200,
            "Figures, until the client leaves.",
            &[("text/event-stream", text)],
        );
    }
}

fn line(told: &StatsMessage) -> Result<Line, Infallible> {
    Ok(Line::default().event(told.name).data(&told.data))
}

async fn listen(State(api): State<Shared>) -> Result<StatsStream, Problem> {
    // It is given back with the stream.
    let permit = STREAM_PERMITS
        .try_acquire()
        .map_err(|_| Problem::too_many(format!("{STREAMS_MAX} streams are the most"), 10))?;
    let (history, receiver) = api.recorder.listen();
    let first = iter(history.into_iter().map(|told| line(&told)));
    let rest = unfold((receiver, permit), |(mut receiver, permit)| async move {
        loop {
            let told: Arc<StatsMessage> = match receiver.recv().await {
                Ok(told) => told,
                // The next sample tells how it is.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return None,
            };
            return Some((line(&told), (receiver, permit)));
        }
    });
    let lines = first.chain(rest);
    Ok(StatsStream(
        Sse::new(lines).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response(),
    ))
}
