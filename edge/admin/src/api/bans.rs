//! `/bans`: banned networks.

use std::collections::BTreeSet;

use serde_json::json;
use tracker::IpPrefix;
use types::limits::BANS_MAX;

use super::handler::*;
use super::input::{check_count, check_expiry, check_name, check_room, page_limit, search_text};
use crate::events::EventKind;
use crate::records::RecordOp;
use crate::records::tables::bans::{self, BanFilter, BanRow};

/// Bans on one page.
const PAGE_MAX: u32 = 1000;
/// Bits of the shortest prefix that is banned without `force`.
const PREFIX_MIN: u8 = 4;
/// Networks in one request.
pub(super) const MANY_MAX: usize = 1000;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{BansRead, BansWrite};
    vec![
        route("GET /bans", BansRead, "List bans", list),
        route("POST /bans", BansWrite, "Ban a network", create),
        route("POST /bans/bulk", BansWrite, "Ban up to 1000 networks", create_many),
        route("DELETE /bans/{*network}", BansWrite, "Remove the ban of a network", remove),
    ]
}

/// A page of bans.
#[derive(Serialize, ToSchema)]
struct BanPage {
    bans: Vec<BanRow>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The number of bans that match.
    total: u64,
}

/// A network to ban.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBan {
    /// An address, or a network in CIDR notation.
    #[cfg_attr(test, schema(schema_with = super::openapi::network_schema))]
    network: String,
    #[schema(max_length = 100)]
    #[serde(default)]
    reason: String,
    /// Unix time in seconds; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    expires: Option<i64>,
    /// True to accept a network of /0 to /3, too.
    #[serde(default)]
    force: bool,
}

/// Networks to ban; if one is malformed, none is banned.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewBans {
    /// Addresses, or networks in CIDR notation.
    #[cfg_attr(test, schema(schema_with = super::openapi::networks_schema))]
    networks: Vec<String>,
    #[schema(max_length = 100)]
    #[serde(default)]
    reason: String,
    /// Unix time in seconds; absent: never.
    #[schema(minimum = 0, maximum = 253402300799i64)]
    expires: Option<i64>,
    /// True to accept networks of /0 to /3, too.
    #[serde(default)]
    force: bool,
}

/// The outcome of a bulk ban.
#[derive(Serialize, ToSchema)]
struct BulkBanOutcome {
    /// Distinct networks in the request.
    requested: u64,
    /// The number of all bans.
    total: u64,
}

/// Query parameters of a page of bans.
#[derive(Deserialize, IntoParams)]
struct BanPageQuery {
    /// The `next` of the previous page.
    #[param(nullable = false)]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
    /// Only bans with this in the network or the reason (in any case); or, if it is an IP address, also those
    /// of networks that contain it.
    #[param(max_length = 100, nullable = false)]
    q: Option<String>,
}

impl PathSegment for IpPrefix {
    const NAME: &'static str = "network";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "expected an address or a network as in 192.0.2.0/24".into())
    }
}

fn check_bans(api: &Api, more: usize) -> Result<(), Problem> {
    check_room(api.tracker().bans().len() + more, BANS_MAX, "bans", "remove some first")
}

/// Refuses to ban a large part of the internet by mistake.
fn check_size(network: IpPrefix, force: bool) -> Result<(), Problem> {
    if network.bits() < PREFIX_MIN && !force {
        return Err(Problem::conflict(format!(
            "{network} is a large part of the internet: to ban it nevertheless, set force (`--force`)"
        )));
    }
    Ok(())
}

async fn list(
    State(api): State<Shared>,
    Query(query): Query<BanPageQuery>,
) -> Result<Json<BanPage>, Problem> {
    let limit = page_limit(query.limit, 100, PAGE_MAX)?;
    let after = query.cursor.unwrap_or_default();
    let text = search_text(query.q)?;
    let now = api.now();
    let all = text.is_empty().then(|| api.tracker().bans().len() as u64);
    let filter = BanFilter { now, text };
    let read = move |db: &rusqlite::Connection| {
        let total = all.map_or_else(|| bans::count(db, &filter), Ok)?;
        Ok((bans::page(db, &filter, &after, limit)?, total))
    };
    let (rows, total) = api.records().read(read).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize);
    let next = next.map(|row| row.network.clone());
    Ok(Json(BanPage { bans: rows, next, total }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewBan>,
) -> Result<Created<BanRow>, Problem> {
    check_name("reason", &new.reason)?;
    check_expiry(new.expires, api.now())?;
    let network = IpPrefix::parse(&new.network)
        .map_err(|error| Problem::bad_request(format!("network: {error}")))?;
    check_size(network, new.force)?;
    check_bans(&api, 1)?;
    let (reason, created, expires) = (new.reason, api.now(), new.expires);
    let row = BanRow { network: network.to_string(), reason, automatic: false, created, expires };
    api.records().change(RecordOp::BansPut(vec![row.clone()])).await?;
    api.audit(&caller, format_args!("banned {}", row.network));
    let data = json!({ "network": row.network, "reason": row.reason, "automatic": false, "expires": row.expires });
    api.hub().publish(EventKind::Ban, data);
    Ok(Created(row))
}

/// For published block lists. Publishes no events: a thousand at once would drown the others.
async fn create_many(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<NewBans>,
) -> Result<Json<BulkBanOutcome>, Problem> {
    check_name("reason", &new.reason)?;
    check_expiry(new.expires, api.now())?;
    check_count("networks", new.networks.len(), MANY_MAX)?;
    let parse = |text: &String| {
        IpPrefix::parse(text)
            .map_err(|error| Problem::bad_request(format!("networks: `{text}`: {error}")))
    };
    let networks: BTreeSet<IpPrefix> = new.networks.iter().map(parse).collect::<Result<_, _>>()?;
    networks.iter().try_for_each(|network| check_size(*network, new.force))?;
    check_bans(&api, networks.len())?;
    let (requested, created) = (networks.len() as u64, api.now());
    let row = |network: &IpPrefix| BanRow {
        network: network.to_string(),
        reason: new.reason.clone(),
        automatic: false,
        created,
        expires: new.expires,
    };
    api.records().change(RecordOp::BansPut(networks.iter().map(row).collect())).await?;
    api.audit(&caller, format_args!("banned {requested} networks"));
    Ok(Json(BulkBanOutcome { requested, total: api.tracker().bans().len() as u64 }))
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(network): PathParam<IpPrefix>,
) -> Result<NoContent, Problem> {
    let removal = RecordOp::BanRemoved { network: network.to_string() };
    api.remove(removal, || format!("no ban of exactly {network}")).await?;
    api.audit(&caller, format_args!("removed the ban of {network}"));
    Ok(NoContent)
}
