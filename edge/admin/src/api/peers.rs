//! `/peers`, `/clients`: peers by address, and client software.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tracker::counters::Clients;
use types::limits::INSPECT_PEERS_MAX;

use super::handler::*;
use super::torrents::Peer;
use crate::clients::name;
use crate::records::RecordOp;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{PeersRead, PeersWrite, StatsRead};
    vec![
        route("GET /peers", PeersRead, "List the peers of an address with their torrents", find),
        route("DELETE /peers", PeersWrite, "Remove the peers of an address", remove),
        route("GET /clients", StatsRead, "Sample which client software announces", clients),
    ]
}

/// The address of the peers.
#[derive(Deserialize)]
pub(super) struct AddressQuery {
    /// An IP address without a port.
    address: String,
}

/// A peer and its torrent.
#[derive(Serialize, ToSchema)]
struct TorrentPeer {
    /// 40 hex digits.
    info_hash: String,
    peer: Peer,
}

/// Peers of an address.
#[derive(Serialize, ToSchema)]
struct Peers {
    /// At most 1000.
    peers: Vec<TorrentPeer>,
}

/// The number of removed peers.
#[derive(Serialize, ToSchema)]
struct RemovedPeers {
    removed: u64,
}

/// Client software of recent announces. Under load one in 64 is looked at and stands for the others.
#[derive(Serialize, ToSchema)]
struct ClientSoftware {
    clients: Vec<Client>,
    /// Announces with unrecognised peer ids.
    others: u64,
}

#[derive(Serialize, ToSchema)]
struct Client {
    /// The first 8 bytes of peer ids.
    prefix: String,
    /// The software; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The version characters of the peer id.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    samples: u64,
}

fn address(text: &str) -> Result<IpAddr, Problem> {
    text.parse().map_err(|_| Problem::bad_request("address: expected an IP address"))
}

async fn find(
    State(api): State<Shared>,
    Query(query): Query<AddressQuery>,
) -> Result<Json<Peers>, Problem> {
    let ip = address(&query.address)?;
    let walk = move |api: &Api| api.tracker().store().peers_at(api.tick(), ip, INSPECT_PEERS_MAX);
    let found = api.blocking(walk).await?;
    let found = found
        .iter()
        .map(|(hash, peer)| TorrentPeer { info_hash: hash.to_string(), peer: peer.into() });
    Ok(Json(Peers { peers: found.collect() }))
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    Query(query): Query<AddressQuery>,
) -> Result<Json<RemovedPeers>, Problem> {
    let ip = address(&query.address)?;
    let removed = api.blocking(move |api| api.tracker().store().remove_peers_at(ip)).await?;
    api.records().tell(RecordOp::PeersRemoved { address: ip }).await?;
    api.audit(&caller, format_args!("removed {removed} peers of {ip}"));
    Ok(Json(RemovedPeers { removed }))
}

async fn clients(State(api): State<Shared>) -> Result<Json<ClientSoftware>, Problem> {
    let mut all = Clients::default();
    for (_, counters) in api.sources().registry.read() {
        all.add(&counters.clients);
    }
    // Sorted by prefix first, so that the order of equal counts is fixed.
    let known: BTreeMap<_, _> = all.counts().iter().copied().collect();
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
    Ok(Json(ClientSoftware { clients, others: all.others().into() }))
}
