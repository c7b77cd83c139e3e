//! `/keys`: who may use private listeners.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Deserializer, Serialize};
use tracker::{KeyId, KeyTotals, UserKey};
use types::limits::USER_KEYS_MAX;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::auth::{Caller, random_text};
use super::input::{
    Body, Created, Id, Json, NoContent, PathParam, Query, check_expiry, check_name,
};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use crate::records::tables::keys::{self, KeyRow, Rules};
use crate::restore::apply_key;

/// Keys on a page.
const PAGE_MAX: u32 = 1000;
/// Characters of a key that is drawn here: 190 bits.
const LEN: usize = 32;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{KeysRead, KeysWrite};
    vec![
        route("GET /keys", KeysRead, "Keys, page by page", list),
        route("POST /keys", KeysWrite, "Make a key", create),
        route("GET /keys/{id}", KeysRead, "A key, with what its holder has moved", get),
        route("PATCH /keys/{id}", KeysWrite, "Give a key another name or other rules", change),
        route("DELETE /keys/{id}", KeysWrite, "Revoke a key", revoke),
    ]
}

/// A user's key. 0 is no bound.
#[derive(Serialize, ToSchema)]
struct Key {
    #[schema(minimum = 1)]
    id: u32,
    /// What stands in the user's announce URL.
    key: String,
    /// What its maker calls it.
    name: String,
    /// Seconds since 1970.
    created: i64,
    /// Seconds since 1970 at which it ends; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    peers_per_torrent: u16,
    torrents: u32,
    addresses: u16,
    announces_per_minute: u16,
    /// When it was used for the first time, seconds since 1970; absent: it was not yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_used: Option<i64>,
    totals: Totals,
}

/// What a key's holder has moved, as clients say. A few seconds old.
#[derive(Serialize, ToSchema)]
struct Totals {
    uploaded: u64,
    downloaded: u64,
    /// Seconds as a seeder, of each peer in each torrent.
    seeding_s: u64,
    announces: u64,
}

/// Some keys.
#[derive(Serialize, ToSchema)]
struct KeyPage {
    keys: Vec<Key>,
    /// The next page's cursor; absent: this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
    /// How many there are in all.
    total: u64,
}

/// What a new key shall be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKey {
    /// The key itself; without it one is drawn.
    #[schema(pattern = "^[A-Za-z0-9_-]{16,64}$")]
    key: Option<String>,
    #[schema(max_length = 100)]
    #[serde(default)]
    name: String,
    /// Seconds since 1970 at which it ends; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    expires: Option<i64>,
    /// Peers in one torrent; 0 is no bound, as in all of these.
    #[serde(default)]
    #[schema(maximum = 65535)]
    peers_per_torrent: u16,
    /// Torrents at a time.
    #[serde(default)]
    #[schema(maximum = 4294967295u64)]
    torrents: u32,
    /// Addresses at a time.
    #[serde(default)]
    #[schema(maximum = 65535)]
    addresses: u16,
    #[serde(default)]
    #[schema(maximum = 65535)]
    announces_per_minute: u16,
}

/// What shall be otherwise; what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyUpdate {
    #[schema(max_length = 100)]
    name: Option<String>,
    /// Seconds since 1970 at which it ends; null: never.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 253402300799i64)]
    expires: Option<Option<i64>>,
    #[schema(maximum = 65535)]
    peers_per_torrent: Option<u16>,
    #[schema(maximum = 4294967295u64)]
    torrents: Option<u32>,
    #[schema(maximum = 65535)]
    addresses: Option<u16>,
    #[schema(maximum = 65535)]
    announces_per_minute: Option<u16>,
}

/// Tells null, which is something, from nothing.
fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Which page.
#[derive(Deserialize, IntoParams)]
struct KeyPageQuery {
    /// What the page before gave as `next`.
    #[param(minimum = 0, maximum = 4294967295u64, nullable = false)]
    cursor: Option<u32>,
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

impl From<KeyRow> for Key {
    fn from(row: KeyRow) -> Self {
        let KeyTotals { uploaded, downloaded, seeding_s, announces } = row.totals;
        let Rules { expires, peers_per_torrent, torrents, addresses, announces_per_minute } =
            row.rules;
        Self {
            id: row.id,
            key: row.key,
            name: row.name,
            created: row.created,
            expires,
            peers_per_torrent,
            torrents,
            addresses,
            announces_per_minute,
            first_used: row.first_used,
            totals: Totals { uploaded, downloaded, seeding_s, announces },
        }
    }
}

/// A page's size, which must be within bounds.
pub(super) fn limit(asked: Option<u32>, default: u32, max: u32) -> Result<u32, Problem> {
    match asked.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(Problem::bad_request(format!("limit: 1 to {max} is due"))),
    }
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<KeyPageQuery>,
) -> Result<Json<KeyPage>, Problem> {
    let limit = limit(query.limit, 100, PAGE_MAX)?;
    let after = query.cursor.unwrap_or(0);
    let rows = api.records().read(move |db| keys::page(db, after, limit)).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|row| row.id);
    let total = api.tracker().passkeys().len() as u64;
    Ok(Json(KeyPage { keys: rows.into_iter().map(Key::from).collect(), next, total }))
}

async fn get(
    State(api): State<Shared>,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<Json<Key>, Problem> {
    let row = api.records().read(move |db| keys::one(db, id)).await?;
    row.map(|row| Json(row.into())).ok_or_else(not_found)
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(update): Body<NewKey>,
) -> Result<Created<Key>, Problem> {
    check_name("name", &update.name)?;
    check_expiry(update.expires)?;
    if api.tracker().passkeys().len() >= USER_KEYS_MAX {
        return Err(Problem::conflict(format!("{USER_KEYS_MAX} keys are the most")));
    }
    let key = match update.key {
        Some(key) => key,
        None => random_text(LEN)
            .map_err(|_| Problem::unavailable("the system gives no random numbers"))?,
    };
    UserKey::parse(&key).map_err(|error| Problem::bad_request(format!("key: {error}")))?;
    let row = KeyRow {
        id: 0,
        key,
        name: update.name,
        created: api.now(),
        rules: Rules {
            expires: update.expires,
            peers_per_torrent: update.peers_per_torrent,
            torrents: update.torrents,
            addresses: update.addresses,
            announces_per_minute: update.announces_per_minute,
        },
        totals: KeyTotals::default(),
        first_used: None,
    };
    let shared = Arc::clone(&api);
    let put = move |row: &KeyRow| apply_key(shared.tracker(), row, shared.clock_reading());
    let row = api.records().change(move |db| keys::insert(db, row), put).await?;
    api.audit(&caller, format_args!("made key {} ({:?})", row.id, row.name));
    Ok(Created(row.into()))
}

async fn change(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
    Body(update): Body<KeyUpdate>,
) -> Result<Json<Key>, Problem> {
    check_name("name", update.name.as_deref().unwrap_or_default())?;
    check_expiry(update.expires.flatten())?;
    let shared = Arc::clone(&api);
    let put = move |row: &Option<KeyRow>| {
        if let Some(row) = row {
            apply_key(shared.tracker(), row, shared.clock_reading());
        }
    };
    let change = move |db: &rusqlite::Connection| {
        let Some(mut row) = keys::one(db, id)? else { return Ok(None) };
        apply(update, &mut row);
        keys::update(db, id, &row.name, &row.rules)?;
        Ok(Some(row))
    };
    let row = api.records().change(change, put).await?.ok_or_else(not_found)?;
    api.audit(&caller, format_args!("changed key {id}"));
    Ok(Json(row.into()))
}

fn apply(update: KeyUpdate, row: &mut KeyRow) {
    let rules = &mut row.rules;
    row.name = update.name.unwrap_or_else(|| std::mem::take(&mut row.name));
    rules.expires = update.expires.unwrap_or(rules.expires);
    rules.peers_per_torrent = update.peers_per_torrent.unwrap_or(rules.peers_per_torrent);
    rules.torrents = update.torrents.unwrap_or(rules.torrents);
    rules.addresses = update.addresses.unwrap_or(rules.addresses);
    rules.announces_per_minute = update.announces_per_minute.unwrap_or(rules.announces_per_minute);
}

async fn revoke(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<NoContent, Problem> {
    let shared = Arc::clone(&api);
    let forget = move |_: &bool| {
        shared.tracker().passkeys().remove(KeyId(id));
    };
    if !api.records().change(move |db| keys::remove(db, id), forget).await? {
        return Err(not_found());
    }
    api.audit(&caller, format_args!("revoked key {id}"));
    Ok(NoContent)
}

fn not_found() -> Problem {
    Problem::not_found("there is no key of this number")
}
