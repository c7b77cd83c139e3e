//! `/cluster`: this node's view of the cluster, and what operators may tell it.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::input::{Body, Json, NoContent, PathParam, PathSegment};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::state::{Api, Shared};
use crate::cluster::{
    self, ClusterEvent, ClusterNode, ClusterProblem, ClusterRecords, ClusterState, ClusterStats,
    ClusterStream, LogState,
};
use crate::control::{Command, SecretStep};
use crate::records::RecordOp;
use crate::records::tables::settings;
use utoipa::ToSchema;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{ConfigWrite, StatsRead};
    let ignore_summary = "Make all nodes drop what a node sends, until it is heeded again";
    vec![
        route("GET /cluster", StatsRead, "Show the cluster as this node sees it", show),
        route("POST /cluster/nodes/{node}/ignore", ConfigWrite, ignore_summary, ignore),
        route("POST /cluster/nodes/{node}/heed", ConfigWrite, "Undo that a node is ignored", heed),
        route(
            "PUT /cluster/secret",
            ConfigWrite,
            "Make all nodes accept a new secret, or issue by it",
            change_secret,
        ),
        route(
            "POST /cluster/drain",
            ConfigWrite,
            "Stop this node when its clients have moved to others",
            drain,
        ),
    ]
}

/// The cluster as this node sees it. Counters count from the start of the process.
#[derive(Serialize, ToSchema)]
struct Cluster {
    name: String,
    /// The number of this node.
    #[schema(minimum = 1, maximum = 255)]
    node: u8,
    /// The number of the secret by which this node issues: 1, and one more with each change.
    secret_number: u32,
    /// What this node is doing.
    state: ClusterState,
    /// The same in a sentence.
    summary: String,
    /// What is wrong, the worst first; empty if nothing is.
    problems: Vec<ClusterProblem>,
    connection: ClusterConnection,
    queue: ClusterQueue,
    traffic: ClusterTraffic,
    records: ClusterRecords,
    /// The nodes heard of since the start, this one included, by number.
    nodes: Vec<ClusterNode>,
    streams: Vec<ClusterStream>,
    /// The last events, the latest first.
    events: Vec<ClusterEvent>,
}

/// The connection to NATS.
#[derive(Serialize, ToSchema)]
struct ClusterConnection {
    /// The server that answers; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Seconds since the connection was made or lost.
    age_s: f64,
    /// Connections made again.
    reconnects: u64,
    /// Whether this node knows the peers that the cluster knew when it started, or has waited long enough.
    warm: bool,
    /// Seconds that this took; so far, until it is warm.
    warm_s: f64,
}

/// What this node publishes to the log.
#[derive(Serialize, ToSchema)]
struct ClusterQueue {
    log: LogState,
    /// Blocks that the log has not acknowledged.
    unstored_blocks: u64,
    /// The bytes of these blocks.
    unstored_bytes: u64,
    /// Seconds since the oldest of them was cut; 0 if there is none.
    unstored_s: f64,
    /// How many bytes they may have.
    bytes_max: u64,
    /// Seconds since the oldest change that was dropped from the queue and is not told in another way yet; 0 if there is
    /// none.
    dirty_s: f64,
    /// Messages of the log that this node has not applied yet.
    log_behind: u64,
    /// Messages that were published again, because the log did not acknowledge them in time.
    retries: u64,
    /// Walks that published what dropped blocks reported.
    walks: u64,
}

/// What was sent and received.
#[derive(Serialize, ToSchema)]
struct ClusterTraffic {
    /// Blocks by direction and by what was done with them.
    blocks: BTreeMap<String, BTreeMap<String, u64>>,
    /// Bytes of blocks by direction.
    bytes: BTreeMap<String, u64>,
    /// WebTorrent offers and answers by direction and by what was done with them.
    letters: BTreeMap<String, BTreeMap<String, u64>>,
    /// Messages that were dropped, by reason; reasons without any are absent.
    drops: BTreeMap<String, u64>,
}

impl From<ClusterStats> for Cluster {
    fn from(mut stats: ClusterStats) -> Self {
        let (state, summary) = (cluster::state(&stats), cluster::summary(&stats));
        let problems = cluster::problems(&stats);
        stats.nodes.sort_by_key(|it| it.node);
        Self {
            name: stats.name,
            node: stats.node,
            secret_number: stats.secret_number,
            state,
            summary,
            problems,
            connection: ClusterConnection {
                server: stats.server,
                age_s: stats.connection_age_s,
                reconnects: stats.reconnects,
                warm: stats.is_warm,
                warm_s: stats.warm_s,
            },
            queue: ClusterQueue {
                log: stats.log,
                unstored_blocks: stats.unstored_blocks,
                unstored_bytes: stats.unstored_bytes,
                unstored_s: stats.unstored_s,
                bytes_max: stats.queue_bytes_max,
                dirty_s: stats.dirty_s,
                log_behind: stats.log_behind,
                retries: stats.retries,
                walks: stats.walks,
            },
            traffic: ClusterTraffic {
                blocks: by_direction(&stats.blocks),
                bytes: counts(&stats.bytes),
                letters: by_direction(&stats.letters),
                drops: counts(&stats.drops).into_iter().filter(|(_, count)| *count > 0).collect(),
            },
            records: stats.records,
            nodes: stats.nodes,
            streams: stats.streams,
            events: stats.events,
        }
    }
}

fn counts(all: &[(&'static str, u64)]) -> BTreeMap<String, u64> {
    all.iter().map(|(label, count)| (String::from(*label), *count)).collect()
}

fn by_direction(
    all: &[(&'static str, &'static str, u64)],
) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut tables: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (direction, result, count) in all {
        tables.entry((*direction).into()).or_default().insert((*result).into(), *count);
    }
    tables
}

/// Returns this node's view of the cluster.
fn stats(api: &Api) -> Result<ClusterStats, Problem> {
    api.sources().cluster().ok_or_else(|| {
        Problem::not_found("this tracker is not part of a cluster: [cluster] join is not set")
    })
}

async fn show(State(api): State<Shared>) -> Result<Json<Cluster>, Problem> {
    Ok(Json(stats(&api)?.into()))
}

/// The number of a node.
#[derive(Clone, Copy)]
pub(super) struct NodeNumber(u8);

impl PathSegment for NodeNumber {
    const NAME: &'static str = "node";

    fn parse(text: &str) -> Result<Self, String> {
        // `parse` alone accepts a sign.
        let has_only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let node = text.parse().ok().filter(|node| has_only_digits && *node > 0);
        node.map(Self).ok_or_else(|| {
            format!("expected the number of a node, 1 to 255, found `{}`", text.escape_default())
        })
    }
}

async fn ignore(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(NodeNumber(node)): PathParam<NodeNumber>,
) -> Result<NoContent, Problem> {
    if stats(&api)?.node == node {
        return Err(Problem::conflict(format!(
            "this is node {node} itself: tell another node to ignore it"
        )));
    }
    api.records().change(RecordOp::NodeIgnored { node, is_ignored: true }).await?;
    api.audit(&caller, format_args!("told the cluster to ignore node {node}"));
    Ok(NoContent)
}

async fn heed(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(NodeNumber(node)): PathParam<NodeNumber>,
) -> Result<NoContent, Problem> {
    stats(&api)?;
    let change = RecordOp::NodeIgnored { node, is_ignored: false };
    if api.records().change(change).await?.changed == 0 {
        return Err(Problem::not_found(format!("node {node} is not ignored")));
    }
    api.audit(&caller, format_args!("told the cluster to heed node {node} again"));
    Ok(NoContent)
}

/// How a node stops when its clients have moved.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Drain {
    /// Seconds after which it stops in any case.
    #[schema(minimum = 0, maximum = 86400)]
    for_s: u32,
}

/// The longest time of [`Drain`], seconds.
const DRAIN_S_MAX: u32 = 86_400;

async fn change_secret(
    State(api): State<Shared>,
    caller: Caller,
    Body(step): Body<SecretStep>,
) -> Result<NoContent, Problem> {
    stats(&api)?;
    let number = step.number;
    let recorded = api.send_command(|reply| Command::ChangeSecret { step, reply }).await?;
    let recorded = recorded.map_err(Problem::conflict)?;
    let change = RecordOp::SettingsPut(vec![(settings::SECRETS.into(), Some(recorded))]);
    api.records().change(change).await?;
    api.audit(&caller, format_args!("changed the secret of the cluster to number {number}"));
    Ok(NoContent)
}

async fn drain(
    State(api): State<Shared>,
    caller: Caller,
    Body(Drain { for_s }): Body<Drain>,
) -> Result<NoContent, Problem> {
    stats(&api)?;
    if for_s > DRAIN_S_MAX {
        let text = format!("for_s: expected at most {DRAIN_S_MAX}, found {for_s}");
        return Err(Problem::bad_request(text));
    }
    api.send_command(|reply| Command::Drain { for_s, reply }).await?;
    api.audit(&caller, format_args!("drained this node"));
    Ok(NoContent)
}
