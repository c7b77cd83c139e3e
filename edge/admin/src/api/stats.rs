//! `/stats`, `/stats/networks`, `/listeners`, `/health`: statistics and health.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tracker::access::Mode;
use tracker::counters::{Counters, DropReason, Listener as ListenerKey, Protocol};
use tracker::{ListenerPolicyId, RequestKind};
use types::Refusal;

use super::handler::*;
use super::input::page_limit;
use crate::records::RecordsHealth;

/// Autonomous systems, and countries, in a response.
const ROWS_MAX: u32 = 1000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            "GET /stats",
            Scope::StatsRead,
            "Show statistics of swarms, traffic, memory, records and process",
            stats,
        ),
        route(
            "GET /stats/networks",
            Scope::StatsRead,
            "Count peers by autonomous system and by country",
            networks,
        ),
        route("GET /listeners", Scope::StatsRead, "List listeners with their traffic", listeners),
        route("GET /health", None, "Check health", health),
    ]
}

/// Statistics of the tracker. Counters count from the start of the process.
#[derive(Serialize, ToSchema)]
struct Stats {
    version: String,
    /// Seconds since the start.
    uptime_s: f64,
    /// True if every listener serves.
    ready: bool,
    torrents: u64,
    peers: PeerCounts,
    /// Leechers that are partial seeds (BEP 21).
    partial_seeds: u64,
    /// Downloads completed.
    downloads: u64,
    /// Peers removed because they stopped announcing.
    expired_peers: u64,
    memory: Memory,
    /// Traffic by protocol.
    traffic: BTreeMap<String, Traffic>,
    /// The XDP program before the UDP listeners; `null` if there is none.
    #[cfg_attr(test, schema(value_type = Option<::xdp::XdpStatus>))]
    xdp: Option<Value>,
    records: Records,
    #[cfg_attr(test, schema(value_type = ::journal::JournalStatus))]
    swarms: Value,
    process: Process,
    /// Events published.
    events: u64,
}

/// Known peers.
#[derive(Serialize, ToSchema)]
struct PeerCounts {
    v4: RoleTotals,
    v6: RoleTotals,
    /// WebTorrent.
    web: RoleTotals,
}

#[derive(Serialize, ToSchema)]
struct RoleTotals {
    seeders: u64,
    leechers: u64,
}

/// Memory for torrents and peers, bytes.
#[derive(Serialize, ToSchema)]
struct Memory {
    used: u64,
    reserved: u64,
    /// New peers that were not stored because the memory budget was used up.
    refused: u64,
}

/// Traffic of listeners.
#[derive(Default, Serialize, ToSchema)]
struct Traffic {
    requests: BTreeMap<String, u64>,
    responses: BTreeMap<String, u64>,
    /// Refused requests by reason; reasons without any are absent.
    refusals: BTreeMap<String, u64>,
    /// Dropped datagrams and closed connections by reason; reasons without any are absent.
    drops: BTreeMap<String, u64>,
    bytes_in: u64,
    bytes_out: u64,
    peers_sent: u64,
    connections_open: u64,
}

/// State of the records.
#[derive(Serialize, ToSchema)]
struct Records {
    /// True if the records survive a restart: `[state] dir` is set.
    durable: bool,
    /// Transactions committed.
    commits: u64,
    /// Changes acknowledged.
    changes: u64,
    /// Changes queued for the writer.
    changes_pending: u64,
    /// Counts written.
    counts_written: u64,
    /// Counts that could not be written yet.
    counts_pending: u64,
    /// Age of the oldest count that could not be written, seconds.
    lag_s: u64,
    /// Failures by reason.
    failures: BTreeMap<String, u64>,
}

/// Resources that the process has used.
#[derive(Serialize, ToSchema)]
struct Process {
    cpu_s: f64,
    resident_bytes: u64,
    open_fds: u64,
}

/// A listener.
#[derive(Serialize, ToSchema)]
struct Listener {
    /// udp, http, https, ws or wss.
    protocol: String,
    /// Address and port.
    address: String,
    /// Access mode: open, allow, deny or both.
    mode: String,
    /// Engine that receives and sends datagrams, e.g. mmsg or shield (driver); `null` for TCP.
    engine: Option<String>,
    traffic: Traffic,
}

/// All listeners.
#[derive(Serialize, ToSchema)]
struct Listeners {
    listeners: Vec<Listener>,
}

async fn stats(State(api): State<Shared>) -> Result<Json<Stats>, Problem> {
    let sources = api.sources();
    let totals = sources.tracker.totals();
    let process = (sources.process)();
    let mut traffic: BTreeMap<String, Traffic> = BTreeMap::new();
    for (ListenerKey { protocol, .. }, counters) in sources.registry.read() {
        traffic.entry(protocol.label().into()).or_default().add(&counters);
    }
    Ok(Json(Stats {
        version: sources.version.into(),
        uptime_s: process.uptime_s,
        ready: sources.status.ready.load(Ordering::Relaxed),
        torrents: totals.torrents,
        peers: PeerCounts {
            v4: RoleTotals { seeders: totals.v4.seeders, leechers: totals.v4.leechers },
            v6: RoleTotals { seeders: totals.v6.seeders, leechers: totals.v6.leechers },
            web: RoleTotals { seeders: totals.web.seeders, leechers: totals.web.leechers },
        },
        partial_seeds: totals.partial_seeds,
        downloads: totals.downloads,
        expired_peers: totals.expired,
        memory: Memory {
            used: totals.memory_used,
            reserved: totals.memory_reserved,
            refused: totals.refused_for_memory,
        },
        traffic,
        xdp: sources.subsystems.read("xdp").map(|it| it.digest()),
        records: records(api.records().is_durable(), api.records().health()),
        swarms: sources.swarms(),
        process: Process {
            cpu_s: process.cpu_s,
            resident_bytes: process.resident_bytes,
            open_fds: process.open_fds,
        },
        events: api.hub().published(),
    }))
}

fn records(durable: bool, health: &RecordsHealth) -> Records {
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    Records {
        durable,
        commits: load(&health.commits),
        changes: load(&health.changes),
        changes_pending: load(&health.changes_pending),
        counts_written: load(&health.counts_written),
        counts_pending: load(&health.counts_pending),
        lag_s: load(&health.lag_s),
        failures: health.failures_by_label().map(|(label, count)| (label.into(), count)).collect(),
    }
}

impl Traffic {
    fn add(&mut self, counters: &Counters) {
        for family in 0..2 {
            let kinds = || RequestKind::ALL.into_iter().map(RequestKind::label);
            add_counts(&mut self.requests, kinds().zip(counters.requests[family]));
            add_counts(&mut self.responses, kinds().zip(counters.responses[family]));
        }
        let refusals = Refusal::ALL.into_iter().map(Refusal::label).zip(counters.refusals);
        add_counts(&mut self.refusals, refusals.filter(|(_, count)| *count > 0));
        let drops = DropReason::ALL.into_iter().map(DropReason::label).zip(counters.drops);
        add_counts(&mut self.drops, drops.filter(|(_, count)| *count > 0));
        self.bytes_in += counters.bytes_in;
        self.bytes_out += counters.bytes_out;
        self.peers_sent += counters.peers_sent;
        self.connections_open += counters.connections_open;
    }
}

fn add_counts(to: &mut BTreeMap<String, u64>, counts: impl Iterator<Item = (&'static str, u64)>) {
    for (label, count) in counts {
        *to.entry(label.into()).or_default() += count;
    }
}

/// Returns the access mode of listeners with this policy: open, allow, deny or both.
pub(super) fn access_mode(api: &Api, id: ListenerPolicyId) -> &'static str {
    match api.tracker().settings().listener(id).map(|policy| policy.lists.mode) {
        Some(Mode::Allow) => "allow",
        Some(Mode::Deny) => "deny",
        Some(Mode::Both) => "both",
        Some(Mode::Open) | None => "open",
    }
}

async fn listeners(State(api): State<Shared>) -> Result<Json<Listeners>, Problem> {
    let sources = api.sources();
    let listener = |(known, counters): (ListenerKey, Counters)| {
        let mut traffic = Traffic::default();
        traffic.add(&counters);
        let is_udp = known.protocol == Protocol::Udp;
        Listener {
            protocol: known.protocol.label().into(),
            address: known.address.to_string(),
            mode: access_mode(&api, known.listener_policy).into(),
            engine: sources.status.udp_engine.get().filter(|_| is_udp).cloned(),
            traffic,
        }
    };
    Ok(Json(Listeners { listeners: sources.registry.read().into_iter().map(listener).collect() }))
}

/// Query parameter that limits the rows of a response.
#[derive(Deserialize, IntoParams)]
struct NetworkLimitQuery {
    /// Systems, and as many countries, at most.
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Peers by network.
pub(super) enum NetworkState {}

async fn networks(
    State(api): State<Shared>,
    Query(NetworkLimitQuery { limit }): Query<NetworkLimitQuery>,
) -> Result<Raw<NetworkState>, Problem> {
    let limit = page_limit(limit, 100, ROWS_MAX)? as usize;
    let mut networks =
        api.sources().subsystems.read("geo").map_or_else(no_networks, |it| it.to_json());
    for rows in ["systems", "countries"] {
        if let Some(rows) = networks[rows].as_array_mut() {
            rows.truncate(limit);
        }
    }
    Ok(Raw::new(Json(networks)))
}

/// Returns the response of a build without the feature `geo`.
fn no_networks() -> Value {
    json!({
        "files": [], "problems": [], "peers": 0, "sampled": 0,
        "systems": [], "systems_total": 0, "systems_unknown": 0,
        "countries": [], "countries_total": 0, "countries_unknown": 0,
    })
}

/// Health of the tracker.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// True if every listener serves.
    ready: bool,
    /// True if a read of the records succeeds within a second.
    records: bool,
}

/// Health with status 200 if healthy, 503 if not.
pub(super) enum HealthState {}

async fn health(State(api): State<Shared>) -> Result<Raw<HealthState>, Problem> {
    let ready = api.sources().status.ready.load(Ordering::Relaxed);
    let begun = Instant::now();
    let read = api.records().read(|db| db.query_row("SELECT 1", [], |_| Ok(()))).await;
    let records = read.is_ok() && begun.elapsed().as_secs() < 1;
    let is_healthy = ready && records;
    let status = if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(Raw::new((status, Json(Health { ready, records }))))
}
