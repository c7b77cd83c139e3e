//! `/torrents`: lists of them, one with its peers, removing and freezing.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tracker::{PeerInfo, TorrentDetails};
use types::limits::{FROZEN_MAX, LOOK_PEERS_MAX};
use types::{FamilyCounts, InfoHash, Role, Tick};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::auth::Caller;
use super::input::{Json, NoContent, PathParam, Query};
use super::keys::limit;
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use crate::records::tables::lists::{self, List};
use crate::torrent_list::{
    Cursor, HashPrefix, PageRequest, ROWS_PER_PAGE_MAX, SortKey, TorrentRow,
};

pub(super) fn routes() -> Vec<Route> {
    use Scope::{TorrentsRead, TorrentsWrite};
    vec![
        route("GET /torrents", TorrentsRead, "Torrents, in an order, page by page", list),
        route("GET /torrents/{hash}", TorrentsRead, "A torrent with its peers", get),
        route("DELETE /torrents/{hash}", TorrentsWrite, "Remove a torrent with its peers", remove),
        route("PUT /torrents/{hash}/freeze", TorrentsWrite, "Refuse a torrent's announces", freeze),
        route("DELETE /torrents/{hash}/freeze", TorrentsWrite, "Take them again", unfreeze),
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
    /// Seconds since its first peer came, up to 17 minutes too many.
    age_s: u32,
}

/// Some torrents. The list that they are from is made anew every few seconds while somebody looks.
#[derive(Serialize, ToSchema)]
struct TorrentPage {
    torrents: Vec<Torrent>,
    /// The next page's cursor; absent: this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many there are in the whole list.
    total: u64,
    /// How old the list is, seconds.
    age_s: f64,
    /// Torrents that are in no list, because there are too many: those with the fewest peers.
    left_out: u64,
}

/// A torrent.
#[derive(Serialize, ToSchema)]
struct TorrentDetail {
    /// 40 hex digits.
    info_hash: String,
    seeders: u32,
    leechers: u32,
    /// Those of the leechers that want no more (BEP 21).
    partial_seeds: u32,
    /// Downloads completed.
    downloads: u32,
    /// Seconds since its first peer came, up to 17 minutes too many.
    age_s: u32,
    /// Whether its announces are refused.
    frozen: bool,
    v4: RoleCounts,
    v6: RoleCounts,
    /// WebTorrent.
    web: RoleCounts,
    /// Its peers; if there are more than were asked for, a share of each kind.
    peers: Vec<Peer>,
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
    /// Seconds since its last announce, up to 16 too few.
    age_s: u32,
    /// What it calls itself, with all but letters, digits and punctuation escaped; absent: not kept.
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

/// Which page.
#[derive(Deserialize, IntoParams)]
struct TorrentPageQuery {
    /// What the page before gave as `next`.
    #[param(pattern = "^[0-9a-f]{48}$", nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// By what they are sorted. In the order of their hashes each is met once, whatever happens meanwhile.
    #[param(inline, nullable = false)]
    sort: Option<SortName>,
    /// Most first, unless this says otherwise.
    #[param(inline, nullable = false)]
    order: Option<Order>,
    /// Only those whose hexadecimal info hash begins so.
    #[param(pattern = "^[0-9a-f]{0,40}$", nullable = false)]
    filter: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SortName {
    #[default]
    Seeders,
    Leechers,
    Downloads,
    Age,
    InfoHash,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    Asc,
    #[default]
    Desc,
}

/// How many peers.
#[derive(Deserialize, IntoParams)]
struct PeerLimitQuery {
    /// Peers to be shown, at most.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    peers: Option<u32>,
}

impl From<SortName> for SortKey {
    fn from(name: SortName) -> Self {
        match name {
            SortName::Seeders => Self::Seeders,
            SortName::Leechers => Self::Leechers,
            SortName::Downloads => Self::Downloads,
            SortName::Age => Self::Age,
            SortName::InfoHash => Self::InfoHash,
        }
    }
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

fn torrent(now: Tick, row: &TorrentRow) -> Torrent {
    let TorrentRow { info_hash, seeders, leechers, downloads, first_seen } = *row;
    let age_s = now.since(first_seen);
    Torrent { info_hash: info_hash.to_string(), seeders, leechers, downloads, age_s }
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<TorrentPageQuery>,
) -> Result<Json<TorrentPage>, Problem> {
    let due = |name: &str, what: &str| Problem::bad_request(format!("{name}: {what}"));
    let parse =
        |text: String| text.parse::<Cursor>().map_err(|_| due("cursor", "a page's `next` is due"));
    let prefix = query.filter.unwrap_or_default().parse::<HashPrefix>();
    let ask = PageRequest {
        sort: query.sort.unwrap_or_default().into(),
        ascending: query.order == Some(Order::Asc),
        prefix: prefix.map_err(|_| due("filter", "up to 40 hex digits are due"))?,
        after: query.cursor.map(parse).transpose()?,
        limit: limit(query.limit, 100, ROWS_PER_PAGE_MAX as u32)? as usize,
    };
    let page = api.torrent_list.page(&ask).await;
    let now = api.tick();
    Ok(Json(TorrentPage {
        torrents: page.rows.iter().map(|row| torrent(now, row)).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
        total: page.total as u64,
        age_s: page.age.as_secs_f64(),
        left_out: page.left_out,
    }))
}

async fn get(
    State(api): State<Shared>,
    PathParam(hash): PathParam<InfoHash>,
    Query(PeerLimitQuery { peers }): Query<PeerLimitQuery>,
) -> Result<Json<TorrentDetail>, Problem> {
    let peers = limit(peers, 100, LOOK_PEERS_MAX as u32)?;
    let now = api.tick();
    let look = api.tracker().torrent(now, &hash, peers as usize).ok_or_else(not_found)?;
    Ok(Json(detail(now, &look)))
}

fn detail(now: Tick, look: &TorrentDetails) -> TorrentDetail {
    let counts = look.figures.counts;
    TorrentDetail {
        info_hash: look.figures.info_hash.to_string(),
        seeders: counts.seeders(),
        leechers: counts.leechers(),
        partial_seeds: counts.partial_seeds,
        downloads: counts.downloads,
        age_s: now.since(look.figures.first_seen),
        frozen: look.frozen,
        v4: counts.v4.into(),
        v6: counts.v6.into(),
        web: counts.web.into(),
        peers: look.peers.iter().map(Peer::from).collect(),
    }
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    // A torrent of millions takes some time.
    let shared = Arc::clone(&api);
    let removed = tokio::task::spawn_blocking(move || shared.tracker().remove_torrent(&hash)).await;
    if !removed.unwrap_or_default() {
        return Err(not_found());
    }
    api.audit(&caller, format_args!("removed torrent {hash}"));
    Ok(NoContent)
}

async fn freeze(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    let frozen = api.tracker().frozen();
    if frozen.len() >= FROZEN_MAX && frozen.binary_search(&hash).is_err() {
        return Err(Problem::conflict(format!("{FROZEN_MAX} frozen torrents are the most")));
    }
    set_frozen(&api, hash, true).await?;
    api.audit(&caller, format_args!("froze torrent {hash}"));
    Ok(NoContent)
}

async fn unfreeze(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(hash): PathParam<InfoHash>,
) -> Result<NoContent, Problem> {
    if api.tracker().frozen().binary_search(&hash).is_err() {
        return Err(Problem::not_found("this torrent is not frozen"));
    }
    set_frozen(&api, hash, false).await?;
    api.audit(&caller, format_args!("thawed torrent {hash}"));
    Ok(NoContent)
}

async fn set_frozen(api: &Shared, hash: InfoHash, frozen: bool) -> Result<(), Problem> {
    let shared = Arc::clone(api);
    let change = move |db: &rusqlite::Connection| {
        if frozen {
            lists::insert(db, List::Frozen, &[hash])
        } else {
            lists::remove(db, List::Frozen, &[hash])
        }
    };
    let put = move |_: &usize| {
        shared.tracker().freeze(&hash, frozen);
    };
    api.records().change(change, put).await?;
    Ok(())
}

fn not_found() -> Problem {
    Problem::not_found("no such torrent is known now")
}
