//! `/status`: whether the tracker is well, and what an operator should know.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use serde_json::Value;
use subsystem::{HealthItem, Level};

use super::handler::*;
use super::health::{days_left, health_items};
use super::stats::access_mode;
use crate::announce_url::AnnounceUrl;
use crate::clock::since_epoch;
use tracker::ListenerPolicyId;
use tracker::counters::{Listener, Protocol};

pub(super) fn routes() -> Vec<Route> {
    let summary = "Show whether the tracker is well, what is wrong, and what to do";
    vec![route("GET /status", Scope::StatsRead, summary, status)]
}

/// The tracker at a glance.
#[derive(Serialize, ToSchema)]
struct Status {
    version: String,
    /// Unix time of the start, seconds.
    started: u64,
    /// Seconds since the start.
    uptime_s: f64,
    /// True if every listener serves.
    ready: bool,
    /// The worst level in `health`; `ok` if that is empty.
    level: Level,
    /// Conditions that an operator should know, the worst first.
    health: Vec<HealthItem>,
    /// True if the program file has changed since the start: an upgrade would start another version.
    upgrade_pending: bool,
    listeners: Vec<StatusListener>,
    /// By host name.
    certificates: Vec<StatusCertificate>,
    records: StatusRecords,
    #[cfg_attr(test, schema(value_type = ::journal::JournalStatus))]
    swarms: Value,
    /// null outside a cluster.
    #[cfg_attr(test, schema(value_type = Option<::cluster::ClusterDigest>))]
    cluster: Option<Value>,
    /// Intervals and budgets of the services.
    #[cfg_attr(test, schema(value_type = Option<::pace::PaceStatus>))]
    load: Option<Value>,
    /// True if users are accounted for a site: see `/site`.
    site: bool,
    announce_urls: Vec<StatusUrl>,
}

/// A listener.
#[derive(Serialize, ToSchema)]
struct StatusListener {
    /// udp, http, https, ws or wss.
    protocol: &'static str,
    /// Address and port.
    address: String,
    /// Access mode: open, allow, deny or both.
    mode: &'static str,
    /// True if announces need a user key.
    private: bool,
    /// Engine that receives and sends datagrams, e.g. mmsg or shield (driver); null for TCP.
    engine: Option<String>,
}

/// A certificate.
#[derive(Serialize, ToSchema)]
struct StatusCertificate {
    /// The host name.
    name: String,
    /// Unix time, seconds.
    expires: u64,
    /// Whole days until then; below 0 after it.
    days_left: i64,
}

/// State of the records.
#[derive(Serialize, ToSchema)]
struct StatusRecords {
    /// True if the records survive a restart: `[state] dir` is set.
    durable: bool,
    /// Where they are kept; null if in memory only.
    directory: Option<String>,
    /// Why the last write failed; null if it succeeded.
    failing: Option<String>,
    /// Age of the oldest count that could not be written, seconds.
    lag_s: u64,
}

/// Where clients announce.
#[derive(Serialize, ToSchema)]
struct StatusUrl {
    /// Without a key.
    url: String,
    /// udp, http, https, ws or wss.
    protocol: String,
    /// True if the URL needs a user key.
    private: bool,
}

async fn status(State(api): State<Shared>) -> Result<Json<Status>, Problem> {
    let sources = api.sources();
    let health = health_items(&api);
    let process = (sources.process)();
    let now = SystemTime::now();
    let certificate = |(name, validity): (String, Range<SystemTime>)| StatusCertificate {
        name,
        expires: since_epoch(validity.end).as_secs(),
        days_left: days_left(validity.end, now),
    };
    let failures = api.records().health();
    Ok(Json(Status {
        version: sources.version.into(),
        started: since_epoch(process.started).as_secs(),
        uptime_s: process.uptime_s,
        ready: sources.status.ready.load(Ordering::Relaxed),
        level: health.first().map_or(Level::Ok, |worst| worst.level),
        health,
        upgrade_pending: (api.deps.is_upgrade_pending)(),
        listeners: listeners(&api),
        certificates: (sources.certificates)().into_iter().map(certificate).collect(),
        records: StatusRecords {
            durable: api.records().is_durable(),
            directory: api.records().directory().map(|dir| dir.display().to_string()),
            failing: failures.failing().map(|why| why.to_string()),
            lag_s: failures.lag_s.load(Ordering::Relaxed),
        },
        swarms: sources.swarms(),
        cluster: sources.subsystems.read("cluster").map(|it| it.digest()),
        load: sources.subsystems.read("load").map(|it| it.digest()),
        site: sources.site.get().is_some(),
        announce_urls: api.deps.announce_urls.iter().map(|url| status_url(&api, url)).collect(),
    }))
}

fn is_private(api: &Api, id: ListenerPolicyId) -> bool {
    api.tracker().settings().listener(id).is_some_and(|policy| policy.is_private())
}

fn listeners(api: &Api) -> Vec<StatusListener> {
    let sources = api.sources();
    let listener = |known: Listener| StatusListener {
        protocol: known.protocol.label(),
        address: known.address.to_string(),
        mode: access_mode(api, known.listener_policy),
        private: is_private(api, known.listener_policy),
        engine: sources
            .status
            .udp_engine
            .get()
            .filter(|_| known.protocol == Protocol::Udp)
            .cloned(),
    };
    sources.registry.read().into_iter().map(|(known, _)| listener(known)).collect()
}

fn status_url(api: &Api, url: &AnnounceUrl) -> StatusUrl {
    let protocol = url.url.split(':').next().unwrap_or_default().into();
    StatusUrl { url: url.url.clone(), protocol, private: is_private(api, url.listener_policy) }
}
