//! `/bans`: networks that are not served.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracker::IpPrefix;
use types::limits::BANS_MAX;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, SchemaFormat, Type,
};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::auth::Caller;
use super::input::{
    Body, Created, Json, NoContent, PathParam, PathSegment, Query, check_expiry, check_name,
};
use super::keys::limit;
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use crate::events::EventKind;
use crate::records::tables::bans::{self, BanRow};

/// Bans on a page.
const PAGE_MAX: u32 = 1000;
/// Bans in one request.
const MANY_MAX: usize = 1000;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{BansRead, BansWrite};
    vec![
        route("GET /bans", BansRead, "Bans in force, page by page", list),
        route("POST /bans", BansWrite, "Ban a network", create),
        route("POST /bans/bulk", BansWrite, "Ban up to a thousand networks at once", create_many),
        route("DELETE /bans/{*network}", BansWrite, "End the ban of a network", remove),
    ]
}

/// A network that is not served.
#[derive(Serialize, ToSchema)]
struct Ban {
    /// In CIDR notation.
    network: String,
    /// Why: a person's words, or those for what it did.
    reason: String,
    /// Whether it was banned by itself.
    automatic: bool,
    /// Seconds since 1970.
    created: i64,
    /// Seconds since 1970 at which it ends; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
}

/// Some bans.
#[derive(Serialize, ToSchema)]
struct BanPage {
    bans: Vec<Ban>,
    /// The next page's cursor; absent: this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many there are in all.
    total: u64,
}

/// What shall be banned.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBan {
    /// An address, or a network in CIDR notation.
    #[schema(schema_with = network_schema)]
    network: String,
    #[schema(max_length = 100)]
    #[serde(default)]
    reason: String,
    /// Seconds since 1970 at which it ends; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    expires: Option<i64>,
}

/// What shall be banned, all of it or nothing.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBans {
    /// Addresses, or networks in CIDR notation.
    #[schema(schema_with = networks_schema)]
    networks: Vec<String>,
    #[schema(max_length = 100)]
    #[serde(default)]
    reason: String,
    /// Seconds since 1970 at which they end; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    expires: Option<i64>,
}

/// What has come of it.
#[derive(Serialize, ToSchema)]
struct BulkBanOutcome {
    /// Networks that were named, repeats counted once.
    named: u64,
    /// Bans that there are in all.
    total: u64,
}

/// Which page.
#[derive(Deserialize, IntoParams)]
struct BanPageQuery {
    /// What the page before gave as `next`.
    #[param(nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

impl From<BanRow> for Ban {
    fn from(row: BanRow) -> Self {
        let BanRow { network, reason, automatic, created, expires } = row;
        Self { network, reason, automatic, created, expires }
    }
}

impl PathSegment for IpPrefix {
    const NAME: &'static str = "network";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "an address, or a network as 192.0.2.0/24, is due".into())
    }

    fn schema() -> Value {
        serde_json::to_value(network_schema()).unwrap_or_default()
    }
}

/// What texts are networks, nearly.
fn network_schema() -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let pattern = |pattern: String| text().pattern(Some(pattern));
    let format = |name: &str| text().format(Some(SchemaFormat::Custom(name.into())));
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    let group = "[0-9a-f]{1,4}";
    AnyOfBuilder::new()
        .item(pattern(format!("^{byte}(\\.{byte}){{3}}/(3[0-2]|[12]?[0-9])$")))
        .item(pattern(format!("^{group}(:{group}){{7}}/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$")))
        .item(format("ipv4"))
        .item(format("ipv6"))
        .description(Some("An address, or a network in CIDR notation"))
        .into()
}

/// Some of them.
fn networks_schema() -> Schema {
    ArrayBuilder::new()
        .items(RefOr::T(network_schema()))
        .min_items(Some(1))
        .max_items(Some(MANY_MAX))
        .into()
}

/// What texts are addresses.
pub(super) fn address_schema() -> Schema {
    let format = |name: &str| {
        let format = Some(SchemaFormat::Custom(name.into()));
        ObjectBuilder::new().schema_type(Type::String).format(format)
    };
    AnyOfBuilder::new().item(format("ipv4")).item(format("ipv6")).into()
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<BanPageQuery>,
) -> Result<Json<BanPage>, Problem> {
    let limit = limit(query.limit, 100, PAGE_MAX)?;
    let (after, now) = (query.cursor.unwrap_or_default(), api.now());
    let rows = api.records().read(move |db| bans::page(db, now, &after, limit)).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize);
    let next = next.map(|row| row.network.clone());
    let total = api.tracker().bans().len() as u64;
    Ok(Json(BanPage { bans: rows.into_iter().map(Ban::from).collect(), next, total }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewBan>,
) -> Result<Created<Ban>, Problem> {
    check_name("reason", &new.reason)?;
    check_expiry(new.expires)?;
    let network = IpPrefix::parse(&new.network)
        .map_err(|due| Problem::bad_request(format!("network: {due}")))?;
    if api.tracker().bans().len() >= BANS_MAX {
        return Err(Problem::conflict(format!("{BANS_MAX} bans are the most")));
    }
    let (reason, created, expires) = (new.reason, api.now(), new.expires);
    let row = BanRow { network: network.to_string(), reason, automatic: false, created, expires };
    let shared = Arc::clone(&api);
    let put = move |row: &BanRow| {
        let until = row.expires.map(|time| shared.clock_reading().tick_at(time));
        shared.tracker().bans().put(&[(network, until)]);
    };
    let insert = move |db: &rusqlite::Connection| {
        bans::put(db, std::slice::from_ref(&row))?;
        Ok(row)
    };
    let row = api.records().change(insert, put).await?;
    api.audit(&caller, format_args!("banned {}", row.network));
    let data = json!({ "network": row.network, "reason": row.reason, "automatic": false, "expires": row.expires });
    api.hub.publish(EventKind::Ban, data);
    Ok(Created(row.into()))
}

/// For lists that others keep. They are no events: nobody wants a thousand of them.
async fn create_many(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewBans>,
) -> Result<Json<BulkBanOutcome>, Problem> {
    check_name("reason", &new.reason)?;
    check_expiry(new.expires)?;
    if new.networks.is_empty() || new.networks.len() > MANY_MAX {
        return Err(Problem::bad_request(format!("networks: 1 to {MANY_MAX} are due")));
    }
    let parse = |text: &String| {
        IpPrefix::parse(text)
            .map_err(|due| Problem::bad_request(format!("networks: {text}: {due}")))
    };
    let networks: BTreeSet<IpPrefix> = new.networks.iter().map(parse).collect::<Result<_, _>>()?;
    if api.tracker().bans().len() + networks.len() > BANS_MAX {
        return Err(Problem::conflict(format!("{BANS_MAX} bans are the most")));
    }
    let (named, created) = (networks.len() as u64, api.now());
    let row = |network: &IpPrefix| BanRow {
        network: network.to_string(),
        reason: new.reason.clone(),
        automatic: false,
        created,
        expires: new.expires,
    };
    let rows: Vec<BanRow> = networks.iter().map(row).collect();
    let (shared, expires) = (Arc::clone(&api), new.expires);
    let put = move |(): &()| {
        let until = expires.map(|time| shared.clock_reading().tick_at(time));
        let bans: Vec<_> = networks.into_iter().map(|network| (network, until)).collect();
        shared.tracker().bans().put(&bans);
    };
    api.records().change(move |db| bans::put(db, &rows), put).await?;
    api.audit(&caller, format_args!("banned {named} networks"));
    Ok(Json(BulkBanOutcome { named, total: api.tracker().bans().len() as u64 }))
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(network): PathParam<IpPrefix>,
) -> Result<NoContent, Problem> {
    let shared = Arc::clone(&api);
    let text = network.to_string();
    let forget = move |_: &bool| {
        shared.tracker().bans().remove(&[network]);
    };
    if !api.records().change(move |db| bans::remove(db, &text), forget).await? {
        return Err(Problem::not_found("just this network is not banned"));
    }
    api.audit(&caller, format_args!("ended the ban of {network}"));
    Ok(NoContent)
}
