//! `/site` and `/accounting`: the site whose users announce, and the feed of what they transferred.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::Event as Line;
use futures_util::stream::unfold;

use super::handler::*;
use super::input::{accepts, page_limit};
use crate::site::{FeedBatch, FeedError, SiteSource};

/// Batches in one response. Each has what was announced in some seconds.
const BATCHES_MAX: u32 = 1000;
/// Bytes after which a response ends, whatever the limit.
const BYTES_MAX: usize = 16 << 20;
/// Batches that a stream reads at a time.
const STREAM_BATCHES: usize = 16;
/// The pause before a stream looks for the next batch.
const PERIOD: Duration = Duration::from_secs(1);
/// Bytes of a cursor.
const CURSOR_LEN_MAX: usize = 64;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{AccountingRead, AccountingWrite, StatsRead};
    let confirm_summary = "Confirm batches of the feed, which are deleted then";
    vec![
        route("GET /site", StatsRead, "Show the part of the tracker for its site", show),
        route(
            "GET /accounting",
            AccountingRead,
            "Read what users transferred, batch by batch",
            read,
        ),
        route("POST /accounting/confirm", AccountingWrite, confirm_summary, confirm),
    ]
}

/// The batches to return.
#[derive(Deserialize, IntoParams)]
struct FeedQuery {
    /// The cursor of the last batch that the reader has; absent: from the oldest one that is kept.
    #[param(max_length = 64, nullable = false)]
    after: Option<String>,
    /// Batches in a response; of a stream, this means nothing.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// The batches that a reader has stored.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Confirmation {
    /// The cursor of the last one.
    #[schema(max_length = 64)]
    cursor: String,
}

/// Batches as lines of JSON, or a stream of them.
pub(super) enum Feed {}

/// The state of the site's part of the tracker.
pub(super) enum SiteState {}

async fn show(State(api): State<Shared>) -> Result<Raw<SiteState>, Problem> {
    let site = api.sources().subsystems.read("site").ok_or_else(no_site)?;
    Ok(Raw::new(Json(site.to_json())))
}

async fn read(
    State(api): State<Shared>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<FeedQuery>,
) -> Result<Raw<Feed>, Problem> {
    let limit = page_limit(query.limit, 100, BATCHES_MAX)?;
    // A client whose connection was interrupted continues behind what it has.
    let last_event_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let after = query.after.or_else(|| last_event_id.map(String::from));
    if accepts(&headers, "text/event-stream") {
        return follow(api, caller, after).await;
    }
    let batches = batches(&source(&api)?, after, limit as usize).await?;
    let mut text = String::new();
    for batch in batches {
        text += &batch.json;
        text.push('\n');
        if text.len() >= BYTES_MAX {
            break;
        }
    }
    Ok(Raw::new(([(CONTENT_TYPE, "application/x-ndjson")], text)))
}

/// Streams batches as they are made.
async fn follow(api: Shared, caller: Caller, after: Option<String>) -> Result<Raw<Feed>, Problem> {
    let source = source(&api)?;
    // Mistakes get an answer before the stream begins.
    let first = batches(&source, after.clone(), STREAM_BATCHES).await?;
    let permit = api.event_streams.open(caller.token)?;
    let state = FeedStream { source, after, ready: first.into() };
    let lines = unfold(state, |mut state| async move {
        let batch = state.next().await?;
        let line = Line::default().event("batch").id(batch.cursor).data(batch.json);
        Some((line, state))
    });
    Ok(Raw::new(permit.respond(api, caller, lines)))
}

/// A stream of batches.
struct FeedStream {
    source: Arc<dyn SiteSource>,
    after: Option<String>,
    ready: std::collections::VecDeque<FeedBatch>,
}

impl FeedStream {
    /// Waits for the next batch. Returns `None` if the feed can no longer be read: the client gets the reason when it
    /// connects again.
    async fn next(&mut self) -> Option<FeedBatch> {
        while self.ready.is_empty() {
            tokio::time::sleep(PERIOD).await;
            self.ready =
                batches(&self.source, self.after.clone(), STREAM_BATCHES).await.ok()?.into();
        }
        let batch = self.ready.pop_front()?;
        self.after = Some(batch.cursor.clone());
        Some(batch)
    }
}

async fn confirm(
    State(api): State<Shared>,
    Body(Confirmation { cursor }): Body<Confirmation>,
) -> Result<NoContent, Problem> {
    let source = source(&api)?;
    check_cursor(Some(&cursor))?;
    blocking(move || source.confirm_feed(&cursor)).await?;
    Ok(NoContent)
}

async fn batches(
    source: &Arc<dyn SiteSource>,
    after: Option<String>,
    limit: usize,
) -> Result<Vec<FeedBatch>, Problem> {
    check_cursor(after.as_deref())?;
    let source = Arc::clone(source);
    blocking(move || source.read_feed(after.as_deref(), limit)).await
}

/// Does what may wait for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FeedError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| Problem::shutting_down())?;
    done.map_err(|error| match error {
        FeedError::NoFeed => Problem::not_found(
            "no feed: the site's own database gets what users transferred; site.kind = \"feed\" has one",
        ),
        FeedError::BadCursor(text) => Problem::bad_request(text),
        FeedError::Failed(text) => Problem::unavailable(text),
    })
}

fn check_cursor(cursor: Option<&str>) -> Result<(), Problem> {
    let is_long = cursor.is_some_and(|cursor| cursor.len() > CURSOR_LEN_MAX);
    let text = || format!("cursor: expected at most {CURSOR_LEN_MAX} characters");
    if is_long { Err(Problem::bad_request(text())) } else { Ok(()) }
}

fn source(api: &Shared) -> Result<Arc<dyn SiteSource>, Problem> {
    api.sources().site.get().cloned().ok_or_else(no_site)
}

fn no_site() -> Problem {
    Problem::not_found("no site: set site.kind and restart, so that users are accounted for one")
}
