//! `/lists/allow`, `/lists/deny`: which torrents are served, beside the lists of files.

use std::sync::Arc;

use axum::body::{Body as Bytes, Bytes as Piece};
use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use futures_util::stream::try_unfold;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracker::Tracker;
use tracker::access::LiveList;
use types::InfoHash;
use types::limits::ACCESS_ENTRIES_MAX;
use utoipa::{IntoParams, ToSchema};

use super::auth::Caller;
use super::describe::{Input, Operation, Output};
use super::input::{Json, NoContent, PathParam, PathSegment, Query, media_type};
use super::keys::limit;
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::{Api, Shared};
use crate::records::tables::lists::{self, List};
use reader::Reader;

mod reader;

/// Entries on a page.
const PAGE_MAX: u32 = 10_000;
/// Entries in one commit: others' changes wait no longer than these take.
const CHUNK: usize = 50_000;
/// Entries in one request: 100 MB.
const ENTRIES_MAX: usize = 5_000_000;
/// Bytes in one request: so many entries of the longest kind.
const BYTES_MAX: usize = ENTRIES_MAX * 68;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{ListsRead, ListsWrite};
    vec![
        route(
            "GET /lists/{list}",
            ListsRead,
            "Entries, page by page, or all of them as text",
            read,
        ),
        route("POST /lists/{list}", ListsWrite, "Add entries, as many as there are", add_many),
        route(
            "DELETE /lists/{list}",
            ListsWrite,
            "Remove the entries that the body names",
            remove_many,
        ),
        route("PUT /lists/{list}/{hash}", ListsWrite, "Add an entry", put),
        route("DELETE /lists/{list}/{hash}", ListsWrite, "Remove an entry", remove),
    ]
}

impl PathSegment for List {
    const NAME: &'static str = "list";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Err("allow or deny is due".into()),
        }
    }

    fn schema() -> Value {
        json!({ "type": "string", "enum": ["allow", "deny"] })
    }
}

impl List {
    /// Its image.
    fn live_list(self, tracker: &Tracker) -> &LiveList {
        match self {
            Self::Allow => tracker.allowed(),
            _ => tracker.denied(),
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            _ => "deny",
        }
    }
}

/// Some entries.
#[derive(Serialize, ToSchema)]
struct EntryPage {
    /// 40 hex digits each.
    entries: Vec<String>,
    /// The next page's cursor; absent: this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many there are in all.
    total: u64,
}

/// What a change has come to.
#[derive(Serialize, ToSchema)]
struct ListChange {
    /// Entries that were named.
    named: u64,
    /// Entries that were added, or removed.
    changed: u64,
    /// How many there are now.
    total: u64,
}

/// Which page.
#[derive(Deserialize, IntoParams)]
struct EntryPageQuery {
    /// What the page before gave as `next`.
    #[param(pattern = "^[0-9a-f]{40}$", nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 10000, nullable = false)]
    limit: Option<u32>,
}

/// Whether the client wants text rather than JSON.
struct WantsText(bool);

impl<S: Sync> axum::extract::FromRequestParts<S> for WantsText {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Problem> {
        let accepts = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        Ok(Self(accepts.is_some_and(|kinds| kinds.trim_start().starts_with("text/plain"))))
    }
}

impl Input for WantsText {}

/// A page in JSON, or all as text.
enum Entries {
    Page(EntryPage),
    Text(Response),
}

impl IntoResponse for Entries {
    fn into_response(self) -> Response {
        match self {
            Self::Page(page) => Json(page).into_response(),
            Self::Text(response) => response,
        }
    }
}

impl Output for Entries {
    fn describe(operation: &mut Operation) {
        let page = operation.schema::<EntryPage>();
        let text = json!({ "type": "string", "description": "All entries, one on a line" });
        let content = [("application/json", page), ("text/plain", text)];
        operation.response(200, "A page; with `Accept: text/plain` everything.", &content);
    }
}

async fn read(
    State(api): State<Shared>,
    PathParam(list): PathParam<List>,
    WantsText(wants_text): WantsText,
    Query(query): Query<EntryPageQuery>,
) -> Result<Entries, Problem> {
    let limit = limit(query.limit, 1000, PAGE_MAX)?;
    let after = query.cursor.map(|hash| InfoHash::parse(&hash)).transpose();
    let after = after.map_err(|due| Problem::bad_request(format!("cursor: {due}")))?;
    if wants_text {
        return Ok(Entries::Text(export(api, list, after)));
    }
    let hashes = api.records().read(move |db| lists::page(db, list, after, limit)).await?;
    let next = hashes.last().filter(|_| hashes.len() == limit as usize);
    let next = next.map(InfoHash::to_string);
    let entries = hashes.iter().map(InfoHash::to_string).collect();
    Ok(Entries::Page(EntryPage {
        entries,
        next,
        total: list.live_list(api.tracker()).len() as u64,
    }))
}

/// All entries behind `after`, a page at a time: no look holds up what the writer tidies away.
fn export(api: Shared, list: List, after: Option<InfoHash>) -> Response {
    let pages = try_unfold((api, Some(after)), move |(api, after)| async move {
        let Some(after) = after else { return Ok(None) };
        let page = api.records().read(move |db| lists::page(db, list, after, PAGE_MAX)).await;
        // The client sees a body that ends too soon.
        let page = page.map_err(|failure| std::io::Error::other(failure.to_string()))?;
        let mut text = String::with_capacity(page.len() * 41);
        page.iter().for_each(|hash| text += &format!("{hash}\n"));
        let next = page.last().filter(|_| page.len() == PAGE_MAX as usize).map(|hash| Some(*hash));
        Ok::<_, std::io::Error>(Some((Piece::from(text), (api, next))))
    });
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], Bytes::from_stream(pages)).into_response()
}

/// The hashes of a body, read as they come.
struct Hashes(Vec<InfoHash>);

impl FromRequest<Shared> for Hashes {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        let mut reader = reader(request.headers())?;
        let mut pieces = request.into_body().into_data_stream();
        let mut bytes = 0;
        let fault = |fault: String| Problem::bad_request(format!("the body: {fault}"));
        loop {
            let piece = pieces.try_next().await;
            let piece = piece.map_err(|_| fault("the connection broke".into()))?;
            let Some(piece) = piece else { break };
            bytes += piece.len();
            reader.read(&piece).map_err(fault)?;
            if reader.len() > ENTRIES_MAX || bytes > BYTES_MAX {
                return Err(Problem::too_large(BYTES_MAX));
            }
        }
        let mut hashes = reader.end().map_err(fault)?;
        if hashes.is_empty() {
            return Err(fault("at least one info hash is due".into()));
        }
        // Sorted ones are written fastest.
        hashes.sort_unstable();
        hashes.dedup();
        Ok(Self(hashes))
    }
}

fn reader(headers: &HeaderMap) -> Result<Reader, Problem> {
    match media_type(headers).as_str() {
        "application/json" => Ok(Reader::json()),
        "text/plain" => Ok(Reader::text()),
        _ => Err(Problem::media_type("application/json or text/plain")),
    }
}

impl Input for Hashes {
    fn describe(operation: &mut Operation) {
        let hash = InfoHash::schema();
        let array = json!({ "type": "array", "minItems": 1, "items": hash });
        let text = json!({
            "type": "string",
            "description": "Info hashes, one on a line; # begins a comment",
            "pattern": "^([0-9a-f]{40}\\n)+$",
        });
        operation.body(&[("application/json", array), ("text/plain", text)]);
    }
}

/// Adds or removes entries, chunk by chunk. Each chunk is acknowledged, and in force, by itself: who
/// is told of a failure may do it all again.
async fn edit(
    api: &Shared,
    list: List,
    hashes: Vec<InfoHash>,
    adds: bool,
) -> Result<ListChange, Problem> {
    let named = hashes.len() as u64;
    let mut changed = 0;
    for chunk in hashes.chunks(CHUNK) {
        let (hashes, image, shared) = (chunk.to_vec(), chunk.to_vec(), Arc::clone(api));
        let change = move |db: &rusqlite::Connection| {
            if adds { lists::insert(db, list, &hashes) } else { lists::remove(db, list, &hashes) }
        };
        let put = move |_: &usize| {
            let entries = list.live_list(shared.tracker());
            let _ = if adds { entries.insert(&image) } else { entries.remove(&image) };
        };
        let made = api.records().change(change, put).await;
        changed += made.map_err(|failure| {
            Problem::unavailable(format!("{failure}; {changed} entries were changed before that"))
        })? as u64;
    }
    Ok(ListChange { named, changed, total: list.live_list(api.tracker()).len() as u64 })
}

async fn add_many(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    Hashes(hashes): Hashes,
) -> Result<Json<ListChange>, Problem> {
    check_room(&api, list, hashes.len())?;
    let outcome = edit(&api, list, hashes, true).await?;
    audit(&api, &caller, list, "added", outcome.changed);
    Ok(Json(outcome))
}

async fn remove_many(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    Hashes(hashes): Hashes,
) -> Result<Json<ListChange>, Problem> {
    let outcome = edit(&api, list, hashes, false).await?;
    audit(&api, &caller, list, "removed", outcome.changed);
    Ok(Json(outcome))
}

async fn put(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    check_room(&api, list, 1)?;
    edit(&api, list, vec![hash], true).await?;
    api.audit(&caller, format_args!("added {hash} to the {} list", list.label()));
    Ok(NoContent)
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    if edit(&api, list, vec![hash], false).await?.changed == 0 {
        return Err(Problem::not_found("the API has not put this hash on the list"));
    }
    api.audit(&caller, format_args!("removed {hash} from the {} list", list.label()));
    Ok(NoContent)
}

fn check_room(api: &Api, list: List, more: usize) -> Result<(), Problem> {
    if list.live_list(api.tracker()).len() + more > ACCESS_ENTRIES_MAX {
        return Err(Problem::conflict(format!("{ACCESS_ENTRIES_MAX} entries are the most")));
    }
    Ok(())
}

fn audit(api: &Api, caller: &Caller, list: List, done: &str, count: u64) {
    api.audit(caller, format_args!("{done} {count} entries of the {} list", list.label()));
}
