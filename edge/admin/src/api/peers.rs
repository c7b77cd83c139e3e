//! `/peers`, `/clients`: who is where, and with what.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tracker::counters::Clients;
use types::limits::LOOK_PEERS_MAX;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::{IntoParams, ToSchema};

use super::auth::Caller;
use super::bans::address_schema;
use super::input::{Json, Query};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::torrents::Peer;
use super::{Api, Shared};
use crate::clients::name;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{PeersRead, PeersWrite, StatsRead};
    vec![
        route("GET /peers", PeersRead, "The peers at an address, with their torrents", find),
        route("DELETE /peers", PeersWrite, "Remove the peers at an address", remove),
        route("GET /clients", StatsRead, "Which software announces, sampled", clients),
    ]
}

/// Where to look.
#[derive(Deserialize)]
struct AddressQuery {
    /// An address, without a port.
    address: String,
}

impl IntoParams for AddressQuery {
    fn into_params(place: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let address = ParameterBuilder::new()
            .name("address")
            .parameter_in(place().unwrap_or_default())
            .required(Required::True)
            .description(Some("An address, without a port."))
            .schema(Some(address_schema()));
        vec![address.build()]
    }
}

/// A peer and its torrent.
#[derive(Serialize, ToSchema)]
struct TorrentPeer {
    /// 40 hex digits.
    info_hash: String,
    peer: Peer,
}

/// Peers at an address.
#[derive(Serialize, ToSchema)]
struct Peers {
    /// At most 1000.
    peers: Vec<TorrentPeer>,
}

/// What was removed.
#[derive(Serialize, ToSchema)]
struct RemovedPeers {
    removed: u64,
}

/// Client software among the latest samples: one announce of 64.
#[derive(Serialize, ToSchema)]
struct ClientSoftware {
    clients: Vec<Client>,
    /// Samples whose peer ids say nothing.
    others: u64,
}

#[derive(Serialize, ToSchema)]
struct Client {
    /// The first 8 bytes of peer ids.
    prefix: String,
    /// Absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// As peer ids have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    samples: u64,
}

fn address(text: &str) -> Result<IpAddr, Problem> {
    text.parse().map_err(|_| Problem::bad_request("address: an IP address is due"))
}

/// Walks over all peers, where nobody waits for it.
async fn walk<T: Send + 'static>(
    api: &Shared,
    walk: impl FnOnce(&Api) -> T + Send + 'static,
) -> Result<T, Problem> {
    let shared = Arc::clone(api);
    let walked = tokio::task::spawn_blocking(move || walk(&shared)).await;
    walked.map_err(|_| Problem::unavailable("the tracker is stopping"))
}

async fn find(
    State(api): State<Shared>,
    Query(place): Query<AddressQuery>,
) -> Result<Json<Peers>, Problem> {
    let ip = address(&place.address)?;
    let found =
        walk(&api, move |api| api.tracker().peers_at(api.tick(), ip, LOOK_PEERS_MAX)).await?;
    let found = found
        .iter()
        .map(|(hash, peer)| TorrentPeer { info_hash: hash.to_string(), peer: peer.into() });
    Ok(Json(Peers { peers: found.collect() }))
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    Query(place): Query<AddressQuery>,
) -> Result<Json<RemovedPeers>, Problem> {
    let ip = address(&place.address)?;
    let removed = walk(&api, move |api| api.tracker().remove_peers_at(api.tick(), ip)).await?;
    api.audit(&caller, format_args!("removed {removed} peers at {ip}"));
    Ok(Json(RemovedPeers { removed }))
}

async fn clients(State(api): State<Shared>) -> Result<Json<ClientSoftware>, Problem> {
    let mut all = Clients::default();
    for (_, counters) in api.deps.sources.registry.read() {
        all.add(&counters.clients);
    }
    let (known, others) = all.counts();
    // By prefix, in a fixed order.
    let known: BTreeMap<_, _> = known.iter().copied().collect();
    let client = |(prefix, samples): ([u8; 8], u32)| {
        let (name, version) = name(&prefix).unzip();
        Client {
            prefix: prefix.escape_ascii().to_string(),
            name: name.map(String::from),
            version: version.map(String::from),
            samples: samples.into(),
        }
    };
    let mut clients: Vec<_> = known.into_iter().map(client).collect();
    clients.sort_by_key(|client| std::cmp::Reverse(client.samples));
    Ok(Json(ClientSoftware { clients, others: others.into() }))
}
