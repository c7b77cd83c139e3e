//! `/events`: what happens, as it happens (server-sent events, HTML Living Standard).

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;
use tracker::events::Event as TorrentEvent;
use utoipa::IntoParams;

use super::describe::{Operation, Output};
use super::input::Query;
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::{Api, Shared};
use crate::events::{Event, EventKind};

/// Streams at once: they hold connections that others may need.
const STREAMS_MAX: usize = 16;
/// How long a stream is silent at most. Shorter than a silent connection lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

static STREAM_PERMITS: Semaphore = Semaphore::const_new(STREAMS_MAX);

pub(super) fn routes() -> Vec<Route> {
    vec![route("GET /events", Scope::EventsRead, "What happens, as it happens", listen)]
}

/// Which events.
#[derive(Deserialize, IntoParams)]
struct EventsQuery {
    /// Kinds with commas between them; without it all.
    #[param(pattern = "^[a-z_]+(,[a-z_]+)*$", example = "completed,ban", nullable = false)]
    kinds: Option<String>,
}

/// A stream of events.
struct EventStream(Response);

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Output for EventStream {
    fn describe(operation: &mut Operation) {
        let event = operation.schema::<Event>();
        let text = json!({
            "type": "string",
            "description": "Lines `id:`, `event:` and `data:`. The data is an Event in JSON. An event \
                `missed` says how many were not taken in time.",
            "contentSchema": event,
        });
        operation.response(200, "Events, until the client leaves.", &[("text/event-stream", text)]);
    }
}

/// Reads names of kinds.
pub(super) fn kinds<'a>(
    names: impl Iterator<Item = &'a str>,
) -> Result<HashSet<EventKind>, Problem> {
    let one = |name: &str| {
        let found = EventKind::ALL.into_iter().find(|kind| kind.label() == name);
        found.ok_or_else(|| {
            let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.label()).collect();
            Problem::bad_request(format!("kinds: one of {} is due", known.join(", ")))
        })
    };
    names.map(one).collect()
}

async fn listen(
    State(api): State<Shared>,
    Query(EventsQuery { kinds: names }): Query<EventsQuery>,
) -> Result<EventStream, Problem> {
    let wanted = match names {
        Some(names) => kinds(names.split(','))?,
        None => EventKind::ALL.into(),
    };
    // It is given back with the stream.
    let permit = STREAM_PERMITS
        .try_acquire()
        .map_err(|_| Problem::too_many(format!("{STREAMS_MAX} streams are the most"), 10))?;
    let listener = api.hub.listen();
    let lines = unfold((listener, wanted, permit), |(mut listener, wanted, permit)| async move {
        let line = next(&mut listener, &wanted).await?;
        Some((Ok::<_, Infallible>(line), (listener, wanted, permit)))
    });
    Ok(EventStream(
        Sse::new(lines).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response(),
    ))
}

/// How often what happened to torrents is fetched.
const FETCH_PERIOD: Duration = Duration::from_millis(200);

/// Tells what happens to torrents while somebody listens, and of trouble with the records; for ever.
pub(super) async fn forward_tracker_events(api: &Api) {
    let mut turns = tokio::time::interval(FETCH_PERIOD);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_listening, mut failures) = (false, 0);
    let mut events = Vec::new();
    loop {
        turns.tick().await;
        let feed = api.tracker().feed();
        let wanted = api.hub.has_subscribers();
        if wanted != is_listening {
            is_listening = wanted;
            if wanted { feed.listen() } else { feed.stop() }
        }
        if !wanted {
            continue;
        }
        let missed = feed.take(&mut events);
        for event in events.drain(..) {
            let (kind, hash) = match event {
                TorrentEvent::Added(hash) => (EventKind::TorrentAdded, hash),
                TorrentEvent::Removed(hash) => (EventKind::TorrentRemoved, hash),
                TorrentEvent::Completed(hash) => (EventKind::Completed, hash),
            };
            api.hub.publish(kind, json!({ "info_hash": hash.to_string() }));
        }
        if missed > 0 {
            let text = "more happened to torrents than could be told";
            api.hub.publish(EventKind::Warning, json!({ "text": text, "missed": missed }));
        }
        let now = api.records().health().serious_failures();
        if std::mem::replace(&mut failures, now) < now {
            let text = "the records cannot be written";
            api.hub.publish(EventKind::Warning, json!({ "text": text, "failures": now }));
        }
    }
}

/// The next line of a stream; `None` at its end.
async fn next(listener: &mut Receiver<Arc<Event>>, wanted: &HashSet<EventKind>) -> Option<Line> {
    loop {
        match listener.recv().await {
            Ok(event) if wanted.contains(&event.kind) => {
                let data = serde_json::to_string(&*event).unwrap_or_default();
                let line = Line::default().event(event.kind.label()).id(event.id.to_string());
                return Some(line.data(data));
            }
            Ok(_) => {}
            Err(RecvError::Lagged(count)) => {
                return Some(Line::default().event("missed").data(count.to_string()));
            }
            Err(RecvError::Closed) => return None,
        }
    }
}
