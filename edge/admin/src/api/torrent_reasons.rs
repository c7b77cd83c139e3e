//! `/reasons`, and a torrent's own reason below `/torrents/{hash}/access`: torrents that are refused with texts that
//! clients show.

use types::limits::{NOTICE_LEN_MAX, TORRENT_REASONS_MAX};
use types::{InfoHash, Notice};

use super::handler::*;
use super::input::{check_count, check_room, page_limit};
use super::lists::InfoHashes;
use crate::records::RecordOp;
use crate::records::tables::torrent_reasons::{self, ReasonRow};

/// Torrents on one page.
const PAGE_MAX: u32 = 10_000;
/// Torrents in one request with reasons.
const MANY_MAX: usize = 1000;
/// Bytes in one request: that many torrents with the longest reasons, and white space.
const BYTES_MAX: usize = 512 * 1024;
/// Torrents in one change: with the longest reasons it fits one message to the other nodes of a cluster.
const CHUNK: usize = 500;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{TorrentsRead, TorrentsWrite};
    vec![
        route(
            "PUT /torrents/{hash}/access",
            TorrentsWrite,
            "Refuse a torrent, known or not, with a reason that clients show",
            refuse,
        ),
        route(
            "DELETE /torrents/{hash}/access",
            TorrentsWrite,
            "Serve a torrent again that was refused with a reason",
            serve,
        ),
        route("GET /reasons", TorrentsRead, "List torrents that are refused with reasons", list),
        route(
            "POST /reasons",
            TorrentsWrite,
            "Refuse up to 1000 torrents with reasons",
            refuse_many,
        ),
        route("DELETE /reasons", TorrentsWrite, "Serve the torrents in the body again", serve_many),
    ]
}

/// The reason of a torrent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Reason {
    /// The failure reason that clients show.
    #[schema(pattern = "^[ !#-\\[\\]-~]{1,200}$")]
    reason: String,
}

/// A torrent that is refused with a reason.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RefusedTorrent {
    /// 40 hex digits.
    #[schema(pattern = "^[0-9a-f]{40}$")]
    info_hash: String,
    /// The failure reason that clients show.
    #[schema(pattern = "^[ !#-\\[\\]-~]{1,200}$")]
    reason: String,
}

/// Torrents to refuse; if one is malformed, none is refused.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RefusedTorrents {
    #[schema(min_items = 1, max_items = 1000)]
    torrents: Vec<RefusedTorrent>,
}

/// A page of torrents, sorted by info hash.
#[derive(Serialize, ToSchema)]
struct ReasonPage {
    torrents: Vec<RefusedTorrent>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The number of all torrents with a reason.
    total: u64,
}

/// The outcome of a change of many torrents.
#[derive(Serialize, ToSchema)]
struct ReasonChange {
    /// Torrents that were changed.
    changed: u64,
    /// The number of all torrents with a reason now.
    total: u64,
}

/// Query parameters of a page of reasons.
#[derive(Deserialize, IntoParams)]
struct ReasonPageQuery {
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9a-f]{40}$", nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 10000, nullable = false)]
    limit: Option<u32>,
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<ReasonPageQuery>,
) -> Result<Json<ReasonPage>, Problem> {
    let limit = page_limit(query.limit, 1000, PAGE_MAX)?;
    let after = query.cursor.map(|hash| parse("cursor", &hash)).transpose()?;
    let rows = api.records().read(move |db| torrent_reasons::page(db, after, limit)).await?;
    let last = rows.last().filter(|_| rows.len() == limit as usize);
    let next = last.map(|row| row.info_hash.to_string());
    let shown = |row: ReasonRow| {
        let ReasonRow { info_hash, reason } = row;
        RefusedTorrent { info_hash: info_hash.to_string(), reason }
    };
    let torrents = rows.into_iter().map(shown).collect();
    Ok(Json(ReasonPage { torrents, next, total: total(&api) }))
}

async fn refuse(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(info_hash): PathParam<InfoHash>,
    Body(Reason { reason }): Body<Reason>,
) -> Result<NoContent, Problem> {
    check_reason("reason", &reason)?;
    check_reasons(&api, 1)?;
    api.records().change(RecordOp::ReasonsPut(vec![ReasonRow { info_hash, reason }])).await?;
    api.audit(&caller, format_args!("refused torrent {info_hash} with a reason"));
    Ok(NoContent)
}

async fn serve(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(info_hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    if remove(&api, &[info_hash]).await? == 0 {
        return Err(Problem::not_found(format!("{info_hash} is not refused with a reason")));
    }
    api.audit(&caller, format_args!("removed the reason of torrent {info_hash}"));
    Ok(NoContent)
}

async fn refuse_many(
    State(api): State<Shared>,
    caller: Caller,
    Body(RefusedTorrents { torrents }): Body<RefusedTorrents, BYTES_MAX>,
) -> Result<Json<ReasonChange>, Problem> {
    check_count("torrents", torrents.len(), MANY_MAX)?;
    let mut rows = Vec::with_capacity(torrents.len());
    for (number, RefusedTorrent { info_hash, reason }) in torrents.into_iter().enumerate() {
        let info_hash = parse(&format!("torrents[{number}].info_hash"), &info_hash)?;
        check_reason(&format!("torrents[{number}].reason"), &reason)?;
        rows.push(ReasonRow { info_hash, reason });
    }
    check_reasons(&api, rows.len())?;
    let ops = rows.chunks(CHUNK).map(|rows| RecordOp::ReasonsPut(rows.to_vec())).collect();
    api.records().change_all(ops).await?;
    let changed = rows.len() as u64;
    api.audit(&caller, format_args!("refused {changed} torrents with reasons"));
    Ok(Json(ReasonChange { changed, total: total(&api) }))
}

async fn serve_many(
    State(api): State<Shared>,
    caller: Caller,
    InfoHashes(hashes): InfoHashes,
) -> Result<Json<ReasonChange>, Problem> {
    let mut changed = 0;
    for chunk in hashes.chunks(100 * CHUNK) {
        changed += remove(&api, chunk).await?;
    }
    api.audit(&caller, format_args!("removed the reasons of {changed} torrents"));
    Ok(Json(ReasonChange { changed, total: total(&api) }))
}

/// Removes reasons, and returns how many there were.
async fn remove(api: &Shared, hashes: &[InfoHash]) -> Result<u64, Problem> {
    let op = |hashes: &[InfoHash]| RecordOp::ReasonsRemoved { hashes: hashes.to_vec() };
    let ops = hashes.chunks(CHUNK).map(op).collect();
    Ok(api.records().change_all(ops).await? as u64)
}

fn total(api: &Api) -> u64 {
    api.tracker().torrent_reasons().len() as u64
}

fn parse(field: &str, hash: &str) -> Result<InfoHash, Problem> {
    let parsed: Result<InfoHash, _> = hash.parse();
    parsed.map_err(|error| Problem::bad_request(format!("{field}: {error}")))
}

fn check_reason(field: &str, reason: &str) -> Result<(), Problem> {
    let is_plain = reason.bytes().all(Notice::is_plain);
    if (1..=NOTICE_LEN_MAX).contains(&reason.len()) && is_plain {
        return Ok(());
    }
    let found = if is_plain { format!("{} characters", reason.len()) } else { "others".into() };
    Err(Problem::bad_request(format!(
        "{field}: expected 1 to {NOTICE_LEN_MAX} characters of printable ASCII without quotes and backslashes, which all \
         clients show, found {found}"
    )))
}

fn check_reasons(api: &Api, more: usize) -> Result<(), Problem> {
    let wanted = api.tracker().torrent_reasons().len() + more;
    let remedy = "remove some first, or put torrents on the deny list";
    check_room(wanted, TORRENT_REASONS_MAX, "torrents with reasons", remedy)
}
