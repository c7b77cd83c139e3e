//! `/cluster`: this node's view of the cluster, and what operators may tell it.

use subsystem::Subsystem;

use super::handler::*;
use crate::control::{Command, SecretStep};
use crate::records::RecordOp;
use crate::records::tables::settings;

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

/// The cluster as this node sees it.
pub(super) enum ClusterState {}

/// Returns the state of the cluster, if this node is in one.
fn cluster(api: &Api) -> Result<Box<dyn Subsystem>, Problem> {
    api.sources().subsystems.read("cluster").ok_or_else(|| {
        Problem::not_found("this tracker is not part of a cluster: [cluster] join is not set")
    })
}

async fn show(State(api): State<Shared>) -> Result<Raw<ClusterState>, Problem> {
    Ok(Raw::new(Json(cluster(&api)?.to_json())))
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
    if cluster(&api)?.to_json()["node"] == node {
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
    cluster(&api)?;
    let change = RecordOp::NodeIgnored { node, is_ignored: false };
    api.remove(change, || format!("node {node} is not ignored")).await?;
    api.audit(&caller, format_args!("told the cluster to heed node {node} again"));
    Ok(NoContent)
}

/// Options for draining a node, which stops when its clients have moved.
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
    cluster(&api)?;
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
    cluster(&api)?;
    if for_s > DRAIN_S_MAX {
        let text = format!("for_s: expected at most {DRAIN_S_MAX}, found {for_s}");
        return Err(Problem::bad_request(text));
    }
    api.send_command(|reply| Command::Drain { for_s, reply }).await?;
    api.audit(&caller, format_args!("drained this node"));
    Ok(NoContent)
}
