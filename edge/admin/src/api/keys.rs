//! `/keys`: the user keys (passkeys) of private listeners.

use tracker::{KeyTotals, UserKey};
use types::limits::USER_KEYS_MAX;

use super::auth::random_text;
use super::handler::*;
use super::input::{check_expiry, check_name, check_room, check_time, page_limit, search_text};
use crate::records::tables::ids;
use crate::records::tables::keys::{self, KeyFilter, KeyRow, KeyUpdate};
use crate::records::{RecordOp, RecordsError};

/// Keys on one page.
const PAGE_MAX: u32 = 1000;
/// Characters of a generated key: 190 bits.
const LEN: usize = 32;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{KeysRead, KeysWrite};
    vec![
        route("GET /keys", KeysRead, "List keys", list),
        route("POST /keys", KeysWrite, "Create a key", create),
        route("GET /keys/{id}", KeysRead, "Show a key with its totals", get),
        route(
            "PATCH /keys/{id}",
            KeysWrite,
            "Change the key itself, its name or its limits",
            change,
        ),
        route("DELETE /keys/{id}", KeysWrite, "Revoke a key", revoke),
    ]
}

/// A user's key. In limits, 0 = unlimited.
#[derive(Serialize, ToSchema)]
struct Key {
    #[schema(minimum = 1)]
    id: u32,
    /// The key in the user's announce URL. Absent in the response to a change by a token without `keys:read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// A name for administrators.
    name: String,
    /// Unix time, seconds.
    created: i64,
    /// Unix time in seconds; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    peers_per_torrent: u16,
    // Not utoipa's `int32` for u32: that is signed in OpenAPI.
    #[schema(format = Int64)]
    torrents: u32,
    addresses: u16,
    announces_per_minute: u16,
    /// True if the user may only seed.
    seed_only: bool,
    /// Torrents that the user may download at a time, with `site.kind = "feed"`. In further ones he is served without
    /// peers, and warned.
    #[schema(format = Int64)]
    download_slots: u32,
    /// Unix time of the first use, seconds; absent: not used yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_used: Option<i64>,
    totals: Totals,
    /// The URLs at which the user announces, at all private listeners, with addresses of this machine
    /// or names of its certificates as hosts. Absent in pages of keys, and where the key is.
    #[serde(skip_serializing_if = "Option::is_none")]
    announce_urls: Option<Vec<String>>,
}

/// A user's totals as reported by clients, a few seconds old.
#[derive(Serialize, ToSchema)]
struct Totals {
    uploaded: u64,
    downloaded: u64,
    /// Seconds as a seeder, summed over peers and torrents.
    seeding_s: u64,
    announces: u64,
}

/// A page of keys.
#[derive(Serialize, ToSchema)]
struct KeyPage {
    keys: Vec<Key>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
    /// The number of keys that match.
    total: u64,
}

/// A key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    /// The key itself; absent: one is generated.
    #[schema(pattern = "^[A-Za-z0-9_-]{16,64}$")]
    key: Option<String>,
    #[schema(max_length = 100)]
    #[serde(default)]
    name: String,
    /// Unix time in seconds; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    expires: Option<i64>,
    /// Peers in one torrent; in this and the other limits, 0 = unlimited.
    #[serde(default)]
    #[schema(maximum = 65535)]
    peers_per_torrent: u16,
    /// Concurrent torrents.
    #[serde(default)]
    #[schema(format = Int64, maximum = 4294967295u64)]
    torrents: u32,
    /// Concurrent addresses.
    #[serde(default)]
    #[schema(maximum = 65535)]
    addresses: u16,
    #[serde(default)]
    #[schema(maximum = 65535)]
    announces_per_minute: u16,
    /// True if the user may only seed.
    #[serde(default)]
    seed_only: bool,
    /// Torrents that the user may download at a time.
    #[serde(default)]
    #[schema(format = Int64, maximum = 4294967295u64)]
    download_slots: u32,
}

/// Query parameters of a page of keys.
#[derive(Deserialize, IntoParams)]
struct KeyPageQuery {
    /// The `next` of the previous page.
    #[param(format = Int64, minimum = 0, maximum = 4294967295u64, nullable = false)]
    cursor: Option<u32>,
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only keys with this in their names (in any case), keys that begin with it, or the key with this id.
    #[param(max_length = 100, nullable = false)]
    q: Option<String>,
    /// Only keys whose totals have changed at or after this Unix time in seconds, or that were created then.
    #[param(minimum = 0, maximum = 253402300799i64, nullable = false)]
    changed_since: Option<i64>,
}

impl From<KeyRow> for Key {
    fn from(row: KeyRow) -> Self {
        let KeyTotals { uploaded, downloaded, seeding_s, announces } = row.totals;
        Self {
            id: row.id,
            key: Some(row.key),
            name: row.name,
            created: row.created,
            expires: row.expires,
            peers_per_torrent: row.peers_per_torrent,
            torrents: row.torrents,
            addresses: row.addresses,
            announces_per_minute: row.announces_per_minute,
            seed_only: row.seed_only,
            download_slots: row.download_slots,
            first_used: row.first_used,
            totals: Totals { uploaded, downloaded, seeding_s, announces },
            announce_urls: None,
        }
    }
}

impl Key {
    fn with_urls(row: KeyRow, api: &Shared) -> Self {
        Self { announce_urls: Some(api.announce_urls(&row.key)), ..Self::from(row) }
    }
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<KeyPageQuery>,
) -> Result<Json<KeyPage>, Problem> {
    let limit = page_limit(query.limit, 100, PAGE_MAX)?;
    let after = query.cursor.unwrap_or(0);
    let text = search_text(query.q)?;
    check_time("changed_since", query.changed_since)?;
    let filter = KeyFilter { text, changed_since: query.changed_since };
    let all = (filter == KeyFilter::default()).then(|| api.tracker().passkeys().keys() as u64);
    let read = move |db: &rusqlite::Connection| {
        let total = all.map_or_else(|| keys::count(db, &filter), Ok)?;
        Ok((keys::page(db, &filter, after, limit)?, total))
    };
    let (rows, total) = api.records().read(read).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|row| row.id);
    Ok(Json(KeyPage { keys: rows.into_iter().map(Key::from).collect(), next, total }))
}

async fn get(
    State(api): State<Shared>,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<Json<Key>, Problem> {
    let row = api.records().read(move |db| keys::get(db, id)).await?;
    row.map(|row| Json(Key::with_urls(row, &api))).ok_or_else(|| Problem::not_found(absent(id)))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewKey>,
) -> Result<Created<Key>, Problem> {
    check_name("name", &new.name)?;
    check_expiry(new.expires, api.now())?;
    check_slots(new.download_slots, &api)?;
    let wanted = api.tracker().passkeys().keys() + 1;
    check_room(wanted, USER_KEYS_MAX, "keys", "revoke some first")?;
    let key = match new.key {
        Some(key) => key,
        None => random_text(LEN).map_err(|_| Problem::no_random())?,
    };
    check_key(&key)?;
    let row = KeyRow {
        key,
        name: new.name,
        created: api.now(),
        expires: new.expires,
        peers_per_torrent: new.peers_per_torrent,
        torrents: new.torrents,
        addresses: new.addresses,
        announces_per_minute: new.announces_per_minute,
        seed_only: new.seed_only,
        download_slots: new.download_slots,
        ..KeyRow::default()
    };
    let outcome = api.records().change(RecordOp::KeyPut(row)).await?;
    let row = outcome.key.ok_or(RecordsError::Stopped)?;
    api.audit(&caller, format_args!("created key {} ({:?})", row.id, row.name));
    Ok(Created(Key::with_urls(row, &api)))
}

async fn change(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
    Body(update): Body<KeyUpdate>,
) -> Result<Json<Key>, Problem> {
    if let Some(name) = &update.name {
        check_name("name", name)?;
    }
    if let Some(key) = &update.key {
        check_key(key)?;
        // Another node may have another key under the same id, and would take this one for it.
        if ids::is_early(id.into()) && api.sources().subsystems.read("cluster").is_some() {
            return Err(Problem::conflict(format!(
                "key {id} is from before the cluster and cannot be replaced: create another one, and revoke this one"
            )));
        }
    }
    check_expiry(update.expires.flatten(), api.now())?;
    check_slots(update.download_slots.unwrap_or_default(), &api)?;
    let change = RecordOp::KeyChanged { id, update };
    let row = api.records().change(change).await?.key;
    let row = row.ok_or_else(|| Problem::not_found(absent(id)))?;
    api.audit(&caller, format_args!("changed key {id}"));
    // A token that may only change keys does not learn them.
    Ok(Json(match caller.scopes.allow(Scope::KeysRead) {
        true => Key::with_urls(row, &api),
        false => Key { key: None, ..Key::from(row) },
    }))
}

async fn revoke(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<NoContent, Problem> {
    api.remove(RecordOp::KeyRemoved { id }, || absent(id)).await?;
    api.audit(&caller, format_args!("revoked key {id}"));
    Ok(NoContent)
}

fn check_key(key: &str) -> Result<(), Problem> {
    UserKey::parse(key).map(drop).map_err(|error| Problem::bad_request(format!("key: {error}")))
}

/// Checks that slots for downloads have an effect, if there are any.
fn check_slots(slots: u32, api: &Shared) -> Result<(), Problem> {
    let counts_downloads = || api.sources().site.get().is_some_and(|site| site.has_feed());
    if slots > 0 && !counts_downloads() {
        return Err(Problem::conflict(
            "download_slots: a tracker without site.kind = \"feed\" does not count what users download: set that, \
             or leave out this",
        ));
    }
    Ok(())
}

fn absent(id: u32) -> String {
    format!("no key with id {id}")
}
