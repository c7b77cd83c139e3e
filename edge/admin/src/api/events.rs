//! `/events`: a live stream of events (server-sent events, HTML Living Standard).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event as Line;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;
use tracker::TorrentEvent;

use super::handler::*;
use crate::events::{Event, EventKind};

/// Concurrent streams: fewer than of statistics, which every page of the dashboard reads.
pub(super) const STREAMS_MAX: usize = 16;

pub(super) fn routes() -> Vec<Route> {
    vec![route("GET /events", Scope::EventsRead, "Stream events as they happen", listen)]
}

/// Query parameter that selects the events to stream.
#[derive(Deserialize, IntoParams)]
struct EventsQuery {
    /// Kinds, separated by commas; absent: all.
    #[param(pattern = "^[a-z_]+(,[a-z_]+)*$", example = "completed,ban", nullable = false)]
    kinds: Option<String>,
}

/// A stream of events.
pub(super) enum EventStream {}

fn parse_kinds(names: &str) -> Result<HashSet<EventKind>, Problem> {
    let parse = |name: &str| {
        EventKind::from_label(name).ok_or_else(|| {
            let known = EventKind::all().map(EventKind::label).collect::<Vec<_>>().join(", ");
            Problem::bad_request(format!("kinds: expected some of {known}, found `{name}`"))
        })
    };
    names.split(',').map(parse).collect()
}

async fn listen(
    State(api): State<Shared>,
    caller: Caller,
    Query(EventsQuery { kinds: names }): Query<EventsQuery>,
) -> Result<Raw<EventStream>, Problem> {
    let wanted = match names {
        Some(names) => parse_kinds(&names)?,
        None => EventKind::all().collect(),
    };
    let permit = api.event_streams.open(caller.token)?;
    let events = api.hub().subscribe();
    let lines = unfold((events, wanted), |(mut events, wanted)| async move {
        let line = next_line(&mut events, &wanted).await?;
        Some((line, (events, wanted)))
    });
    Ok(Raw::new(permit.respond(api, caller, lines)))
}

/// Period at which events of torrents are fetched from the tracker.
const FETCH_PERIOD: Duration = Duration::from_millis(200);

/// Publishes events of torrents, and failures of the records, for ever. Both only while there are
/// subscribers.
pub(super) async fn forward_tracker_events(api: &Api) {
    let mut ticks = tokio::time::interval(FETCH_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_enabled, mut failures) = (false, 0);
    let mut events = Vec::new();
    loop {
        ticks.tick().await;
        let store = api.tracker().store();
        let wanted = api.hub().has_subscribers();
        if wanted != is_enabled {
            is_enabled = wanted;
            store.listen(wanted);
        }
        if !wanted {
            continue;
        }
        let missed = store.take_events(&mut events);
        for event in events.drain(..) {
            let (kind, hash) = match event {
                TorrentEvent::Added(hash) => (EventKind::TorrentAdded, hash),
                TorrentEvent::Removed(hash) => (EventKind::TorrentRemoved, hash),
                TorrentEvent::Completed(hash) => (EventKind::Completed, hash),
            };
            api.hub().publish(kind, json!({ "info_hash": hash.to_string() }));
        }
        if missed > 0 {
            let message = "events of torrents were dropped: too many at once";
            api.hub().publish(EventKind::Warning, json!({ "message": message, "missed": missed }));
        }
        let now = api.records().health().serious_failures();
        if std::mem::replace(&mut failures, now) < now {
            let message = "the records cannot be written";
            api.hub().publish(EventKind::Warning, json!({ "message": message, "failures": now }));
        }
    }
}

/// Waits for the next event of a wanted kind; `None` at the end.
async fn next_line(events: &mut Receiver<Arc<Event>>, wanted: &HashSet<EventKind>) -> Option<Line> {
    loop {
        match events.recv().await {
            Ok(event) if wanted.contains(&event.kind) => {
                let data = event.to_json();
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
