//! The commands of `tidegate cluster` that use the API of a running node.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, value_parser};
use serde_json::{Map, Value, json};

use super::endpoint::HELP_HEADING;
use super::error::ApiError;
use super::table::{Column, Format, Table, column, date, lines, span};
use super::{Api, ApiArgs, Session, exit, items_of};
use crate::cli::{self, printable};

/// A command that uses the API of a running node.
#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// Show the cluster as a running node sees it. Exit code 1 if something is wrong.
    Status(NodeArgs),
    /// Check that all nodes have the same records as a running node. Exit code 1 if any differs or is not heard.
    ///
    /// Nodes repair differences by themselves. A change that is on its way is no difference: this waits for it, up to
    /// 10 seconds.
    Verify(NodeArgs),
    /// Make all nodes drop what a node sends, until it is heeded again.
    Ignore(OtherNodeArgs),
    /// Undo that a node is ignored.
    Heed(OtherNodeArgs),
    /// Stop a running node when its clients have moved to others.
    ///
    /// Its /health/ready fails from now on, so that load balancers and routers send clients elsewhere. It stops when no
    /// request has come for 5 seconds and no WebSocket is open, or after --for.
    Drain(DrainArgs),
}

/// Options for reaching a running node and printing its response.
#[derive(Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    api_args: ApiArgs,
    /// Print what the API returns, as JSON.
    #[arg(long, help_heading = HELP_HEADING)]
    json: bool,
}

/// Time that a node waits for its clients to move, and options for reaching it.
#[derive(Args)]
pub(crate) struct DrainArgs {
    /// Seconds after which it stops in any case.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u32).range(..=86_400))]
    for_s: u32,
    #[command(flatten)]
    args: NodeArgs,
}

/// A node, and how to reach another one that runs.
#[derive(Args)]
pub(crate) struct OtherNodeArgs {
    #[arg(value_parser = value_parser!(u8).range(1..))]
    node: u8,
    #[command(flatten)]
    args: NodeArgs,
}

/// Changes on their way arrive, and differences are repaired, within this time.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(10);
const VERIFY_PERIOD: Duration = Duration::from_millis(300);
/// A node that does not get the new secret within this time has no connection to the others.
const SECRET_TIMEOUT: Duration = Duration::from_secs(30);
const SECRETS_KIND: &str = "settings";
const DRAIN_PERIOD: Duration = Duration::from_millis(500);
/// A node that is drained has ended within this time after its last second.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

const NODES: &[Column] = &[
    column("node", "/node", Format::Count),
    column("state", "/state", Format::Text),
    column("zone", "/zone", Format::Text),
    column("version", "/version", Format::Text),
    column("peers", "/peers", Format::Count),
    column("announces/s", "/announces_s", Format::Count),
    column("lag here, s", "/lag_s", Format::Count),
    column("lag there, s", "/their_lag_s", Format::Count),
    column("behind", "/behind_blocks", Format::Count),
    column("clock, s", "/clock_offset_s", Format::Count),
    column("queue", "/queue_bytes", Format::Bytes),
];

const STREAMS: &[Column] = &[
    column("stream", "/name", Format::Text),
    column("leader", "/has_leader", Format::Text),
    column("copies", "/replicas_current", Format::Count),
    column("wanted", "/replicas", Format::Count),
    column("messages", "/messages", Format::Count),
    column("size", "/bytes", Format::Bytes),
];

impl NodeCommand {
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        match self.try_run(config) {
            Ok(is_well) => cli::exit(Ok(is_well)),
            Err(error) => exit(Err(error)),
        }
    }

    fn try_run(&self, config: Option<&Path>) -> Result<bool, ApiError> {
        let (args, request, done) = match self {
            Self::Status(args) => return status(&args.session(config)?),
            Self::Verify(args) => return verify(&args.session(config)?),
            Self::Drain(DrainArgs { for_s, args }) => {
                return drain(&args.session(config)?, *for_s);
            }
            Self::Ignore(OtherNodeArgs { node, args }) => (
                args,
                format!("POST /cluster/nodes/{node}/ignore"),
                format!("node {node} is ignored"),
            ),
            Self::Heed(OtherNodeArgs { node, args }) => (
                args,
                format!("POST /cluster/nodes/{node}/heed"),
                format!("node {node} is heeded again"),
            ),
        };
        let session = args.session(config)?;
        session.api.request(&request, None)?;
        session.print_done(done)?;
        Ok(true)
    }
}

impl NodeArgs {
    fn session(&self, config: Option<&Path>) -> Result<Session, ApiError> {
        Ok(Session { api: Api::new(self.api_args.endpoint(config, true)?)?, json: self.json })
    }

    pub(crate) fn cluster_api(&self, config: Option<&Path>) -> Result<ClusterApi, ApiError> {
        Ok(ClusterApi(self.session(config)?.api))
    }
}

fn status(session: &Session) -> Result<bool, ApiError> {
    let cluster = session.api.request("GET /cluster", None)?;
    let is_well = items_of(&cluster, "problems")?.is_empty();
    items_of(&cluster, "nodes")?;
    session.print_value(&cluster, text)?;
    Ok(is_well)
}

fn verify(session: &Session) -> Result<bool, ApiError> {
    let cluster = wait_until(&session.api, VERIFY_TIMEOUT, is_equal)?;
    let nodes = others(&cluster)?;
    let are_equal = nodes.iter().all(|node| is_equal(node));
    let result = |node: &&Value| {
        json!({
            "node": node["node"],
            "equal": is_equal(node),
            "differing": node["differing"],
            "state": node["state"],
            "ignored": node["ignored"],
        })
    };
    let nodes: Vec<Value> = nodes.iter().map(result).collect();
    let result = json!({ "node": cluster["node"], "equal": are_equal, "nodes": nodes });
    session.print_value(&result, verify_text)?;
    Ok(are_equal)
}

fn others(cluster: &Value) -> Result<Vec<&Value>, ApiError> {
    let is_other = |node: &&Value| node["node"] != cluster["node"] && node["state"] != "left";
    Ok(items_of(cluster, "nodes")?.iter().filter(is_other).collect())
}

/// Waits until `is_fine` holds for each other node that has sent a heartbeat meanwhile, or the time is over. Returns the
/// cluster as the node that answers sees it then. A node that has sent none has nothing in `differing`.
fn wait_until(
    api: &Api,
    timeout: Duration,
    is_fine: fn(&Value) -> bool,
) -> Result<Value, ApiError> {
    let started = Instant::now();
    loop {
        let mut cluster = api.request("GET /cluster", None)?;
        let elapsed = started.elapsed();
        let nodes = cluster["nodes"].as_array_mut().into_iter().flatten();
        // Differences of an earlier heartbeat do not count.
        for node in nodes.filter(|it| number(&it["heartbeat_age_s"]) >= elapsed.as_secs_f64()) {
            node["differing"] = Value::Null;
        }
        if others(&cluster)?.into_iter().all(is_fine) || elapsed >= timeout {
            return Ok(cluster);
        }
        thread::sleep(VERIFY_PERIOD);
    }
}

fn is_heard(node: &Value) -> bool {
    node["state"] == "alive" && node["ignored"] == false
}

fn is_equal(node: &Value) -> bool {
    is_heard(node) && node["differing"].as_array().is_some_and(Vec::is_empty)
}

fn has_secrets(node: &Value) -> bool {
    let kinds = node["differing"].as_array();
    kinds.is_some_and(|kinds| !kinds.contains(&SECRETS_KIND.into()))
}

fn drain(session: &Session, for_s: u32) -> Result<bool, ApiError> {
    let cluster = session.api.request("GET /cluster", None)?;
    let node = &cluster["node"];
    session.api.request("POST /cluster/drain", Some(&json!({ "for_s": for_s })))?;
    session.print_done(format!(
        "node {node} is not ready any more, and stops when its clients have moved, within {for_s} s"
    ))?;
    let started = Instant::now();
    let longest = Duration::from_secs(for_s.into()) + STOP_TIMEOUT;
    while session.api.request("GET /cluster", None).is_ok() {
        if started.elapsed() >= longest {
            return Err(ApiError::Failed(format!("node {node} does not stop: see its log")));
        }
        thread::sleep(DRAIN_PERIOD);
    }
    session.print_done(format!("node {node} has stopped"))?;
    Ok(true)
}

pub(crate) struct ClusterApi(Api);

impl ClusterApi {
    pub(crate) fn ignore(&self, node: u8) -> Result<(), ApiError> {
        self.0.request(&format!("POST /cluster/nodes/{node}/ignore"), None).map(drop)
    }

    pub(crate) fn secret_number(&self) -> Result<u64, ApiError> {
        let cluster = self.0.request("GET /cluster", None)?;
        cluster["secret_number"].as_u64().ok_or_else(|| {
            ApiError::Failed("the node is of an earlier version: upgrade all nodes first".into())
        })
    }

    pub(crate) fn change_secret(&self, step: &Value) -> Result<(), ApiError> {
        self.0.request("PUT /cluster/secret", Some(step)).map(drop)
    }

    /// Waits until all nodes that are heard have the recorded secrets. Returns the nodes that are not heard.
    pub(crate) fn wait_for_secrets(&self) -> Result<Vec<String>, ApiError> {
        let has_them = |node: &Value| !is_heard(node) || has_secrets(node);
        let cluster = wait_until(&self.0, SECRET_TIMEOUT, has_them)?;
        let nodes = others(&cluster)?;
        let names = |is_wanted: fn(&Value) -> bool| -> Vec<String> {
            nodes.iter().filter(|it| is_wanted(it)).map(|it| it["node"].to_string()).collect()
        };
        let without = names(|node| is_heard(node) && !has_secrets(node));
        if without.is_empty() {
            return Ok(names(|node| !is_heard(node)));
        }
        Err(ApiError::Failed(format!(
            "nodes without the new secret: {}. All nodes accept the old one; see `tidegate cluster status`, and repeat \
             the command",
            without.join(", ")
        )))
    }
}

fn verify_text(result: &Value) -> String {
    let mut text = String::new();
    for node in result["nodes"].as_array().into_iter().flatten() {
        let kinds: Vec<_> = node["differing"].as_array().into_iter().flatten().map(word).collect();
        let state = match node["state"].as_str() {
            _ if node["ignored"] == true => "not compared: it is ignored".into(),
            Some("alive") if kinds.is_empty() && node["equal"] == false => {
                "not compared: no heartbeat has come".into()
            }
            Some("alive") if kinds.is_empty() => "equal".into(),
            Some("alive") => format!("differs: {}", kinds.join(", ")),
            _ => "not compared: it is not heard".into(),
        };
        text += &format!("node {}: {state}\n", node["node"]);
    }
    text += match result["nodes"].as_array().map_or(0, Vec::len) {
        0 => "no other node has been heard\n",
        _ if result["equal"] == true => "equal\n",
        _ => "not equal\n",
    };
    text
}

fn text(cluster: &Value) -> String {
    let items = |name: &str| cluster[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = &cluster["node"];
    let mut text = format!(
        "Node {own} of cluster {}: {}. {}\n",
        word(&cluster["name"]),
        word(&cluster["state"]).replace('_', " "),
        word(&cluster["summary"])
    );
    for problem in items("problems") {
        text += &format!("- {}\n", word(&problem["text"]));
    }
    let mut nodes = Table::new(NODES);
    items("nodes").iter().for_each(|node| nodes.add(&node_row(node, own)));
    let mut streams = Table::new(STREAMS);
    items("streams").iter().for_each(|stream| streams.add(stream));
    let names = ["connection", "queue", "traffic", "records"];
    let rest = names.map(|name| (name.to_owned(), cluster[name].clone()));
    let rest: Map<_, _> = rest.into_iter().collect();
    text += &format!("\n{}\n{}\n{}", nodes.drain(), streams.drain(), lines(&rest.into()));
    let events = items("events");
    if !events.is_empty() {
        text += "\nlast events (UTC)\n";
    }
    for event in events {
        let time = date(event["time"].as_u64().unwrap_or_default());
        text += &format!("{time}  {}\n", word(&event["text"]));
    }
    text
}

fn word(value: &Value) -> String {
    value.as_str().map(printable).unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// Returns a node with its state in words.
fn node_row(node: &Value, own: &Value) -> Value {
    let age = || span(number(&node["heartbeat_age_s"]) as u64);
    let state = match node["state"].as_str() {
        _ if node["ignored"] == true => "ignored".into(),
        _ if node["node"] == *own => "this node".into(),
        Some("alive") if node["warm"] == false => "warming up".into(),
        Some("alive") => "alive".into(),
        _ => format!("{}, {}", word(&node["state"]), age()),
    };
    let mut row = node.clone();
    row["state"] = state.into();
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State of the cluster that node 1 sees during a partition. A test of the API has written the file.
    const PARTITION: &str = include_str!("../../../../testing/clients/web/partition.json");

    #[test]
    fn shows_what_is_wrong_during_a_partition() {
        let text = text(&serde_json::from_str(PARTITION).unwrap());
        for expected in [
            "Node 1 of cluster example: not stored. 0 of 2 other nodes are heard.",
            "\n- None of the 2 other nodes is heard, though a NATS server answers",
            "\n   1  this node     eu-1  1.2.3    10000001 ",
            "\n   2  gone, 31 s    eu-2  1.2.3 ",
            "\n   5  ignored       eu-2",
            "\nTG_example_D  no ",
            "\nqueue.unstored_blocks",
            "\n2023-11-14 23:13:50  node 2 has been silent for 10 s",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
