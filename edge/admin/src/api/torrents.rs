//! `/torrents`: listing, inspecting, removing and freezing torrents.

use std::sync::Arc;

use tracker::{PeerInfo, TorrentDetails};
use types::limits::{FROZEN_MAX, INSPECT_PEERS_MAX};
use types::{FamilyCounts, InfoHash, Role, Tick};

use super::breakdown::Breakdown;
use super::handler::*;
use super::input::{check_room, page_limit};
use super::torrent_access::{self, TorrentAccess};
use crate::records::RecordOp;
use crate::records::tables::lists::List;
use crate::torrent_list::{
    Cursor, HashPrefix, PageRequest, ROWS_PER_PAGE_MAX, SortKey, TorrentRow,
};
use crate::torrent_names::{TorrentLabel, TorrentNames};

pub(super) fn routes() -> Vec<Route> {
    use Scope::{TorrentsRead, TorrentsWrite};
    vec![
        route("GET /torrents", TorrentsRead, "List torrents, sorted", list),
        route("GET /torrents/{hash}", TorrentsRead, "Show a torrent with its peers", get),
        route(
            "GET /torrents/{hash}/access",
            TorrentsRead,
            "Tell which listeners serve a torrent, known or not",
            access,
        ),
        route("DELETE /torrents/{hash}", TorrentsWrite, "Remove a torrent and its peers", remove),
        route(
            "PUT /torrents/{hash}/freeze",
            TorrentsWrite,
            "Freeze a torrent: refuse its announces",
            freeze,
        ),
        route("DELETE /torrents/{hash}/freeze", TorrentsWrite, "Unfreeze a torrent", unfreeze),
    ]
}

/// A torrent in a list.
#[derive(Serialize, ToSchema)]
struct Torrent {
    /// 40 hex digits.
    info_hash: String,
    seeders: u32,
    leechers: u32,
    /// Downloads completed.
    downloads: u32,
    /// Seconds since its first announce, rounded up by up to 17 minutes.
    age_s: u32,
    /// Its name; absent: unknown. Names come from `access.allow_torrents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Total length of its files in bytes; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

/// A page of torrents. The list is refreshed every few seconds while it is being read.
#[derive(Serialize, ToSchema)]
struct TorrentPage {
    torrents: Vec<Torrent>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The number of torrents in the list.
    total: u64,
    /// Age of the list, seconds.
    age_s: f64,
    /// Torrents that the list omits because there are too many: those with the fewest peers.
    omitted: u64,
}

/// A torrent with its peers.
#[derive(Serialize, ToSchema)]
struct TorrentDetail {
    /// 40 hex digits.
    info_hash: String,
    /// Its name; absent: unknown. Names come from `access.allow_torrents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Total length of its files in bytes; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    seeders: u32,
    leechers: u32,
    /// Leechers that are partial seeds (BEP 21).
    partial_seeds: u32,
    /// Downloads completed.
    downloads: u32,
    /// Seconds since its first announce, rounded up by up to 17 minutes.
    age_s: u32,
    /// True if it is frozen: its announces are refused.
    frozen: bool,
    /// Outcomes of its announces: one entry for each, with the listeners if there are several outcomes.
    access: Vec<TorrentAccess>,
    v4: RoleCounts,
    v6: RoleCounts,
    /// WebTorrent.
    web: RoleCounts,
    /// Its peers; if there are more than requested, a share of each family and role.
    peers: Vec<Peer>,
    breakdown: Breakdown,
}

/// Outcomes of a torrent's announces.
#[derive(Serialize, ToSchema)]
struct TorrentAccessList {
    /// One entry for each outcome, with the listeners if there are several outcomes.
    access: Vec<TorrentAccess>,
}

#[derive(Serialize, ToSchema)]
struct RoleCounts {
    seeders: u32,
    leechers: u32,
}

/// A peer.
#[derive(Serialize, ToSchema)]
pub(super) struct Peer {
    /// Address and port; absent: a WebTorrent peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    role: PeerRole,
    /// Seconds since its last announce, rounded down by up to 16.
    age_s: u32,
    /// The peer id, with all but letters, digits and punctuation escaped; absent: not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PeerRole {
    Seeder,
    Leecher,
    PartialSeed,
}

/// Query parameters of a page of torrents.
#[derive(Deserialize, IntoParams)]
struct TorrentPageQuery {
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9a-f]{48}$", nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// The sort key. Only the order by info hash returns each torrent exactly once while values change.
    #[param(inline, nullable = false)]
    sort: Option<SortKey>,
    /// Descending by default.
    #[param(inline, nullable = false)]
    order: Option<Order>,
    /// A prefix of hexadecimal info hashes.
    #[param(pattern = "^[0-9a-f]{0,40}$", nullable = false)]
    filter: Option<String>,
    /// A part of torrents' names, in any case. Torrents without a name are left out.
    #[param(min_length = 1, max_length = 255, nullable = false)]
    name: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    Asc,
    #[default]
    Desc,
}

/// Query parameter that limits the peers of a response.
#[derive(Deserialize, IntoParams)]
struct PeerLimitQuery {
    /// Peers, at most.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    peers: Option<u32>,
}

impl From<FamilyCounts> for RoleCounts {
    fn from(FamilyCounts { seeders, leechers }: FamilyCounts) -> Self {
        Self { seeders, leechers }
    }
}

impl From<&PeerInfo> for Peer {
    fn from(peer: &PeerInfo) -> Self {
        Self {
            address: peer.address.map(|address| address.to_string()),
            role: match peer.role {
                Role::Seeder => PeerRole::Seeder,
                Role::Leecher => PeerRole::Leecher,
                Role::PartialSeed => PeerRole::PartialSeed,
            },
            age_s: peer.age_s,
            id: peer.id.map(|id| format!("{id:?}")),
        }
    }
}

fn torrent(now: Tick, row: &TorrentRow, names: &TorrentNames) -> Torrent {
    let TorrentRow { info_hash, seeders, leechers, downloads, first_seen } = *row;
    let age_s = now.since(first_seen);
    let (name, size) = label(names, &info_hash);
    let info_hash = info_hash.to_string();
    Torrent { info_hash, seeders, leechers, downloads, age_s, name, size }
}

fn label(names: &TorrentNames, info_hash: &InfoHash) -> (Option<String>, Option<u64>) {
    let label = names.find(info_hash);
    label.map_or((None, None), |label| (Some(label.name.into()), label.size))
}

async fn named(api: &Shared, text: String) -> Result<Arc<[InfoHash]>, Problem> {
    api.blocking(move |api| api.sources().status.torrent_names.search(&text).into()).await
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<TorrentPageQuery>,
) -> Result<Json<TorrentPage>, Problem> {
    let bad =
        |name: &str, expected: &str| Problem::bad_request(format!("{name}: expected {expected}"));
    let parse =
        |text: String| Cursor::parse(&text).ok_or_else(|| bad("cursor", "the `next` of a page"));
    let prefix = HashPrefix::parse(&query.filter.unwrap_or_default());
    let only = match query.name {
        None => None,
        Some(text) if (1..=TorrentLabel::NAME_MAX).contains(&text.chars().count()) => {
            Some(named(&api, text).await?)
        }
        Some(_) => return Err(bad("name", "1 to 255 characters")),
    };
    let request = PageRequest {
        sort: query.sort.unwrap_or_default(),
        ascending: query.order == Some(Order::Asc),
        prefix: prefix.ok_or_else(|| bad("filter", "up to 40 hex digits"))?,
        after: query.cursor.map(parse).transpose()?,
        limit: page_limit(query.limit, 100, ROWS_PER_PAGE_MAX as u32)? as usize,
        only,
    };
    let page = api.torrent_list.page(&request).await;
    if request.is_top() {
        api.recorder.follow_top(page.rows.iter().map(|row| row.info_hash));
    }
    let (now, names) = (api.tick(), &api.sources().status.torrent_names);
    Ok(Json(TorrentPage {
        torrents: page.rows.iter().map(|row| torrent(now, row, names)).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
        total: page.total as u64,
        age_s: page.age.as_secs_f64(),
        omitted: page.omitted,
    }))
}

async fn get(
    State(api): State<Shared>,
    PathParam(hash): PathParam<InfoHash>,
    Query(PeerLimitQuery { peers }): Query<PeerLimitQuery>,
) -> Result<Json<TorrentDetail>, Problem> {
    let peers = page_limit(peers, 100, INSPECT_PEERS_MAX as u32)?;
    let now = api.tick();
    let inspect = |peers| api.tracker().torrent(now, &hash, peers);
    let details = inspect(peers as usize).ok_or_else(|| not_found(&hash))?;
    // As many as possible are counted, also when few are listed.
    let counted =
        if details.peers.len() < peers as usize { None } else { inspect(INSPECT_PEERS_MAX) };
    let breakdown = Breakdown::of(&counted.as_ref().unwrap_or(&details).peers);
    let access = torrent_access::of_torrent(&api, hash).await?;
    let names = &api.sources().status.torrent_names;
    let frozen = api.tracker().frozen().contains(&hash);
    Ok(Json(TorrentDetail { access, ..detail(now, &details, frozen, breakdown, names) }))
}

async fn access(
    State(api): State<Shared>,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<Json<TorrentAccessList>, Problem> {
    Ok(Json(TorrentAccessList { access: torrent_access::of_torrent(&api, hash).await? }))
}

/// Returns the torrent without its access.
fn detail(
    now: Tick,
    details: &TorrentDetails,
    frozen: bool,
    breakdown: Breakdown,
    names: &TorrentNames,
) -> TorrentDetail {
    let counts = details.stats.counts;
    let (name, size) = label(names, &details.stats.info_hash);
    TorrentDetail {
        info_hash: details.stats.info_hash.to_string(),
        name,
        size,
        seeders: counts.seeders(),
        leechers: counts.leechers(),
        partial_seeds: counts.partial_seeds,
        downloads: counts.downloads,
        age_s: now.since(details.stats.first_seen),
        frozen,
        access: Vec::new(),
        v4: counts.v4.into(),
        v6: counts.v6.into(),
        web: counts.web.into(),
        peers: details.peers.iter().map(Peer::from).collect(),
        breakdown,
    }
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    // It may have millions of peers.
    if !api.blocking(move |api| api.tracker().store().remove(&hash)).await? {
        return Err(not_found(&hash));
    }
    api.records().tell(RecordOp::TorrentRemoved { hash }).await?;
    api.audit(&caller, format_args!("removed torrent {hash}"));
    Ok(NoContent)
}

async fn freeze(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    let frozen = api.tracker().frozen();
    let wanted = frozen.len() + usize::from(!frozen.contains(&hash));
    check_room(wanted, FROZEN_MAX, "frozen torrents", "unfreeze some first")?;
    set_frozen(&api, hash, true).await?;
    api.audit(&caller, format_args!("froze torrent {hash}"));
    Ok(NoContent)
}

async fn unfreeze(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    if !api.tracker().frozen().contains(&hash) {
        return Err(Problem::not_found(format!("{hash} is not frozen")));
    }
    set_frozen(&api, hash, false).await?;
    api.audit(&caller, format_args!("unfroze torrent {hash}"));
    Ok(NoContent)
}

async fn set_frozen(api: &Shared, hash: InfoHash, frozen: bool) -> Result<(), Problem> {
    api.records().change_all(RecordOp::list(List::Frozen, &[hash], frozen)).await?;
    Ok(())
}

fn not_found(hash: &InfoHash) -> Problem {
    Problem::not_found(format!("no torrent {hash} at present"))
}
