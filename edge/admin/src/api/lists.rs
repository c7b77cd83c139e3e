//! `/lists/allow`, `/lists/deny`: info hashes on the access lists. Entries of list files are shown, too; only those
//! of the API can be changed. `/lists` says how the lists of the configuration are.

use std::sync::Arc;

use axum::body::{Body as Bytes, Bytes as Piece};
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream::try_unfold;
use futures_util::{StreamExt, TryStreamExt};
use tracker::Tracker;
use tracker::access::HashList;
use types::InfoHash;
use types::limits::ACCESS_ENTRIES_MAX;

use super::handler::*;
use super::input::{accepts, check_room, media_type, page_limit};
use crate::records::RecordOp;
use crate::records::tables::lists::{self, HashRange, List};
use crate::torrent_list::HashPrefix;
use files::FilePage;
pub use reader::Reader;

mod files;
mod reader;

/// Entries on one page.
const PAGE_MAX: u32 = 10_000;
/// Entries in one commit. Other changes wait for at most one commit.
const CHUNK: usize = 50_000;
/// Entries in one request: 100 MB.
const ENTRIES_MAX: usize = 5_000_000;
/// Bytes in one request: that many entries of the longest form.
const BYTES_MAX: usize = ENTRIES_MAX * 68;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{ListsRead, ListsWrite};
    vec![
        route("GET /lists", ListsRead, "Show how the lists of the configuration are", show),
        route("GET /lists/{list}", ListsRead, "List entries: a page as JSON, or all as text", read),
        route("POST /lists/{list}", ListsWrite, "Add entries", add_many),
        route("DELETE /lists/{list}", ListsWrite, "Remove the entries in the body", remove_many),
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
            _ => Err("expected `allow` or `deny`".into()),
        }
    }
}

impl List {
    /// Returns the number of entries that the API can change.
    fn entries(self, tracker: &Tracker) -> usize {
        self.live_list(tracker).map_or(0, HashList::len)
    }

    fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            _ => "deny",
        }
    }
}

/// A page of entries.
#[derive(Serialize, ToSchema)]
pub(super) struct EntryPage {
    /// Info hashes, 40 hex digits each.
    entries: Vec<String>,
    /// Those of `entries` that are in a list file only: the API cannot remove them.
    files: Vec<FileEntry>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The number of entries that match.
    total: u64,
}

/// An entry of a list file.
#[derive(Serialize, ToSchema)]
struct FileEntry {
    /// 40 hex digits.
    info_hash: String,
    /// The path of the file, or of the folder of torrent files.
    file: String,
}

/// The outcome of a change.
#[derive(Serialize, ToSchema)]
struct ListChange {
    /// Distinct entries in the request.
    requested: u64,
    /// Entries that were added or removed.
    changed: u64,
    /// The number of all entries now, with those of files.
    total: u64,
}

/// Query parameters of a page of entries.
#[derive(Deserialize, IntoParams)]
struct EntryPageQuery {
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9a-f]{40}$", nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 10000, nullable = false)]
    limit: Option<u32>,
    /// Only entries that begin with these hex digits.
    #[param(pattern = "^[0-9a-f]{0,40}$", nullable = false)]
    q: Option<String>,
    /// `text`: all entries as text, with a file name for a browser, whatever `Accept` says.
    #[param(inline, nullable = false)]
    format: Option<EntryFormat>,
}

/// The form of a response.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum EntryFormat {
    Json,
    Text,
}

/// A page as JSON, or all entries as text.
pub(super) enum Entries {}

/// The state of the lists that the configuration names.
pub(super) enum ListsState {}

async fn show(State(api): State<Shared>) -> Result<Raw<ListsState>, Problem> {
    let lists = api.sources().subsystems.read("lists");
    let lists = lists.ok_or_else(|| Problem::unavailable("the tracker is starting"))?;
    Ok(Raw::new(Json(lists.to_json())))
}

async fn read(
    State(api): State<Shared>,
    PathParam(list): PathParam<List>,
    headers: HeaderMap,
    Query(query): Query<EntryPageQuery>,
) -> Result<Raw<Entries>, Problem> {
    let limit = page_limit(query.limit, 1000, PAGE_MAX)?;
    let after = query.cursor.map(|hash| InfoHash::parse(&hash)).transpose();
    let after = after.map_err(|error| Problem::bad_request(format!("cursor: {error}")))?;
    let prefix = HashPrefix::parse(&query.q.unwrap_or_default());
    let prefix = prefix.ok_or_else(|| Problem::bad_request("q: expected up to 40 hex digits"))?;
    let wants_text = || accepts(&headers, "text/plain");
    if query.format.map_or_else(wants_text, |format| format == EntryFormat::Text) {
        return Ok(Raw::new(export(api, list, prefix.bounds(), after)));
    }
    let range = prefix.bounds();
    let is_all = prefix == HashPrefix::default();
    let total = is_all.then(|| list.entries(api.tracker()) as u64);
    let find = move |api: &Api| FilePage::find(api.tracker(), list, range, after, limit as usize);
    let in_files = api.blocking(find).await?;
    let read = move |db: &rusqlite::Connection| {
        let total = total.map_or_else(|| lists::count(db, list, range), Ok)?;
        Ok((lists::search(db, list, range, after, limit)?, total))
    };
    let (mut hashes, total) = api.records().read(read).await?;
    hashes.extend(in_files.rows.iter().map(|(hash, _)| *hash));
    hashes.sort_unstable();
    hashes.truncate(limit as usize);
    let is_here = |hash: &InfoHash| hashes.last().is_some_and(|last| hash <= last);
    let files = in_files.rows.iter().filter(|(hash, _)| is_here(hash));
    let files = files
        .map(|(hash, list)| FileEntry { info_hash: hash.to_string(), file: list.source().into() });
    let files = files.collect();
    let next = hashes.last().filter(|_| hashes.len() == limit as usize);
    let next = next.map(InfoHash::to_string);
    let entries = hashes.iter().map(InfoHash::to_string).collect();
    Ok(Raw::new(Json(EntryPage { entries, files, next, total: total + in_files.total })))
}

/// Streams all entries of `range` after `after`: those of the API one page per read, so that no read delays the
/// checkpoints of the writer, then those of files with a comment that names the file.
fn export(api: Shared, list: List, range: HashRange, after: Option<InfoHash>) -> Response {
    let parts = files::Parts::new(Arc::clone(&api), list, range, after);
    let files = futures_util::stream::iter(parts.map(|text| Ok(Piece::from(text))));
    let pages = try_unfold((api, Some(after)), move |(api, after)| async move {
        let Some(after) = after else { return Ok(None) };
        let page =
            api.records().read(move |db| lists::search(db, list, range, after, PAGE_MAX)).await;
        // The client sees a truncated body.
        let page = page.map_err(|error| std::io::Error::other(error.to_string()))?;
        let mut text = String::with_capacity(page.len() * 41);
        page.iter().for_each(|hash| text += &format!("{hash}\n"));
        let next = page.last().filter(|_| page.len() == PAGE_MAX as usize).map(|hash| Some(*hash));
        Ok::<_, std::io::Error>(Some((Piece::from(text), (api, next))))
    });
    let pages = pages.chain(files);
    let file = format!("attachment; filename=\"tidegate-{}.txt\"", list.label());
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8".into()), (CONTENT_DISPOSITION, file)];
    (headers, Bytes::from_stream(pages)).into_response()
}

/// The info hashes of a body, parsed while it arrives.
pub(super) struct InfoHashes(pub(super) Vec<InfoHash>);

impl FromRequest<Shared> for InfoHashes {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Problem> {
        let mut reader = reader(request.headers())?;
        let mut pieces = request.into_body().into_data_stream();
        let mut bytes = 0;
        let bad = |reason: String| Problem::bad_request(format!("body: {reason}"));
        loop {
            let piece = pieces.try_next().await;
            let piece = piece.map_err(|_| bad("the connection was closed early".into()))?;
            let Some(piece) = piece else { break };
            bytes += piece.len();
            reader.read(&piece).map_err(bad)?;
            if reader.len() > ENTRIES_MAX || bytes > BYTES_MAX {
                return Err(Problem::too_large(BYTES_MAX));
            }
        }
        let mut hashes = reader.end().map_err(bad)?;
        if hashes.is_empty() {
            return Err(bad("expected at least one info hash".into()));
        }
        // Sorted hashes are inserted fastest.
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

/// Adds or removes entries in chunks. Each chunk is committed and applied by itself; after an error the client
/// may repeat the whole request.
async fn edit(
    api: &Shared,
    list: List,
    hashes: Vec<InfoHash>,
    adds: bool,
) -> Result<ListChange, Problem> {
    let requested = hashes.len() as u64;
    let mut changed = 0;
    for chunk in hashes.chunks(CHUNK) {
        let made = api.records().change_all(RecordOp::list(list, chunk, adds)).await;
        changed += made.map_err(|error| {
            Problem::unavailable(format!(
                "{error}; {changed} entries were changed before the error"
            ))
        })? as u64;
    }
    Ok(ListChange { requested, changed, total: list.all_entries(api.tracker()) as u64 })
}

async fn add_many(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    InfoHashes(hashes): InfoHashes,
) -> Result<Json<ListChange>, Problem> {
    check_entries(&api, list, hashes.len())?;
    let outcome = edit(&api, list, hashes, true).await?;
    let (count, list) = (outcome.changed, list.label());
    api.audit(&caller, format_args!("added {count} entries to the {list} list"));
    Ok(Json(outcome))
}

async fn remove_many(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    InfoHashes(hashes): InfoHashes,
) -> Result<Json<ListChange>, Problem> {
    let outcome = edit(&api, list, hashes, false).await?;
    let (count, list) = (outcome.changed, list.label());
    api.audit(&caller, format_args!("removed {count} entries from the {list} list"));
    Ok(Json(outcome))
}

async fn put(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(list): PathParam<List>,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    check_entries(&api, list, 1)?;
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
        return Err(Problem::not_found(format!("{hash} is not on the list, or only in its file")));
    }
    api.audit(&caller, format_args!("removed {hash} from the {} list", list.label()));
    Ok(NoContent)
}

fn check_entries(api: &Api, list: List, more: usize) -> Result<(), Problem> {
    let wanted = list.entries(api.tracker()) + more;
    check_room(wanted, ACCESS_ENTRIES_MAX, "entries", "remove some first")
}
