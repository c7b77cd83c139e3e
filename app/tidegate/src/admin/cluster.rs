//! The commands of `tidegate cluster` that use the API of a running node.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, value_parser};
use serde_json::{Value, json};

use super::endpoint::HELP_HEADING;
use super::error::ApiError;
use super::table::{Column, Format, Table, bytes, column, date, span};
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
    /// The number of the node.
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
/// The kind of records that has the secrets.
const SECRETS_KIND: &str = "settings";
/// Pause between two looks at a node that drains.
const DRAIN_PERIOD: Duration = Duration::from_millis(500);
/// A node that is drained has ended within this time after its last second.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

const NODES: &[Column] = &[
    column("node", "/node", Format::Count),
    column("state", "/state", Format::Text),
    column("zone", "/zone", Format::Text),
    column("version", "/version", Format::Text),
    column("peers", "/peers", Format::Count),
    column("announces/s", "/announces", Format::Count),
    column("lag here", "/lag", Format::Count),
    column("lag there", "/their_lag", Format::Count),
    column("behind", "/behind", Format::Count),
    column("clock", "/clock", Format::Count),
    column("queue", "/queue", Format::Count),
];

const STREAMS: &[Column] = &[
    column("stream", "/name", Format::Text),
    column("state", "/state", Format::Text),
    column("copies", "/copies", Format::Count),
    column("messages", "/messages", Format::Count),
    column("size", "/size", Format::Count),
];

impl NodeCommand {
    pub(crate) fn run(&self, config: Option<&Path>) -> ExitCode {
        match self.try_run(config) {
            Ok(is_well) => cli::exit(Ok(is_well)),
            Err(error) => exit(Err(error)),
        }
    }

    /// Returns false if something is wrong with the cluster.
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

    /// Returns the API of the node, for commands of the operator.
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

/// Compares the records of all nodes with those of the node that answers.
fn verify(session: &Session) -> Result<bool, ApiError> {
    let (node, comparisons) = compare(&session.api, VERIFY_TIMEOUT, Comparison::is_equal)?;
    let are_equal = comparisons.iter().all(Comparison::is_equal);
    let nodes: Vec<Value> = comparisons.iter().map(Comparison::result).collect();
    let result = json!({ "node": node, "equal": are_equal, "nodes": nodes });
    session.print_value(&result, verify_text)?;
    Ok(are_equal)
}

/// Compares the records of all nodes with those of the node that answers, until `is_fine` holds for each of them or the
/// time is over. Returns the number of the node that answers, and the comparisons.
fn compare(
    api: &Api,
    timeout: Duration,
    is_fine: fn(&Comparison) -> bool,
) -> Result<(Value, Vec<Comparison>), ApiError> {
    let started = Instant::now();
    let mut comparisons: Vec<Comparison> = Vec::new();
    loop {
        let cluster = api.request("GET /cluster", None)?;
        let elapsed = started.elapsed();
        for node in items_of(&cluster, "nodes")? {
            if node["node"] == cluster["node"] || node["state"] == "left" {
                continue;
            }
            let known = comparisons.iter_mut().find(|it| it.node == node["node"]);
            match known {
                Some(comparison) => comparison.update(node, elapsed),
                None => comparisons.push(Comparison::new(node, elapsed)),
            }
        }
        if comparisons.iter().all(is_fine) || elapsed >= timeout {
            return Ok((cluster["node"].clone(), comparisons));
        }
        thread::sleep(VERIFY_PERIOD);
    }
}

/// Drains a node, and waits until it has stopped.
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

/// Changes that the operator's commands make by the API of a running node.
pub(crate) struct ClusterApi(Api);

impl ClusterApi {
    /// Makes all nodes drop what a node sends.
    pub(crate) fn ignore(&self, node: u8) -> Result<(), ApiError> {
        self.0.request(&format!("POST /cluster/nodes/{node}/ignore"), None).map(drop)
    }

    /// Returns the number of the secret by which nodes issue.
    pub(crate) fn secret_number(&self) -> Result<u64, ApiError> {
        let cluster = self.0.request("GET /cluster", None)?;
        cluster["secret_number"].as_u64().ok_or_else(|| {
            ApiError::Failed("the node is of an earlier version: upgrade all nodes first".into())
        })
    }

    /// Makes all nodes accept a new secret, or issue by it.
    pub(crate) fn change_secret(&self, step: &Value) -> Result<(), ApiError> {
        self.0.request("PUT /cluster/secret", Some(step)).map(drop)
    }

    /// Waits until all nodes that are heard have the recorded secrets. Returns the nodes that are not heard.
    pub(crate) fn wait_for_secrets(&self) -> Result<Vec<String>, ApiError> {
        let has_them = |it: &Comparison| !it.is_heard() || it.is_equal_in(SECRETS_KIND);
        let (_, comparisons) = compare(&self.0, SECRET_TIMEOUT, has_them)?;
        let names = |is_wanted: fn(&Comparison) -> bool| -> Vec<String> {
            comparisons.iter().filter(|it| is_wanted(it)).map(|it| it.node.to_string()).collect()
        };
        let without = names(|it| it.is_heard() && !it.is_equal_in(SECRETS_KIND));
        if without.is_empty() {
            return Ok(names(|it| !it.is_heard()));
        }
        Err(ApiError::Failed(format!(
            "nodes without the new secret: {}. All nodes accept the old one; see `tidegate cluster status`, and repeat \
             the command",
            without.join(", ")
        )))
    }
}

/// The records of another node, compared by each of its heartbeats since the command began.
struct Comparison {
    node: Value,
    /// As the API described it last.
    last: Value,
    /// The kinds that differed in each heartbeat; `None` before the first.
    differing: Option<BTreeSet<String>>,
}

impl Comparison {
    fn new(node: &Value, elapsed: Duration) -> Self {
        let mut comparison =
            Self { node: node["node"].clone(), last: Value::Null, differing: None };
        comparison.update(node, elapsed);
        comparison
    }

    /// Takes what the API returned after this time.
    fn update(&mut self, node: &Value, elapsed: Duration) {
        self.last = node.clone();
        if !self.is_heard() || number(&node["heartbeat_age_s"]) >= elapsed.as_secs_f64() {
            return;
        }
        let now = node["differing"].as_array().into_iter().flatten().map(word).collect();
        self.differing = Some(match self.differing.take() {
            Some(before) => before.intersection(&now).cloned().collect(),
            None => now,
        });
    }

    fn is_heard(&self) -> bool {
        self.last["state"] == "alive" && self.last["ignored"] == false
    }

    /// True if the records of a kind are equal.
    fn is_equal_in(&self, kind: &str) -> bool {
        self.differing.as_ref().is_some_and(|kinds| !kinds.contains(kind))
    }

    fn is_equal(&self) -> bool {
        self.is_heard() && self.differing.as_ref().is_some_and(BTreeSet::is_empty)
    }

    fn result(&self) -> Value {
        json!({
            "node": self.node,
            "equal": self.is_equal(),
            "differing": self.differing,
            "state": self.last["state"],
            "ignored": self.last["ignored"],
        })
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
    let is_connected = cluster["connection"]["server"].is_string();
    let rows = items("streams").iter().map(|stream| stream_row(stream, is_connected));
    rows.for_each(|row| streams.add(&row));
    text += &format!("\n{}\n{}\n{}", nodes.drain(), streams.drain(), own_lines(cluster));
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

/// Returns seconds, with three decimals below one.
fn seconds(value: &Value) -> String {
    let value = number(value);
    if value.abs() < 1.0 { format!("{value:.3} s") } else { format!("{value:.1} s") }
}

fn node_row(node: &Value, own: &Value) -> Value {
    let age = || span(number(&node["heartbeat_age_s"]) as u64);
    let state = match node["state"].as_str() {
        _ if node["ignored"] == true => "ignored".into(),
        _ if node["node"] == *own => "this node".into(),
        Some("alive") if node["warm"] == false => "warming up".into(),
        Some("alive") => "alive".into(),
        _ => format!("{}, {}", word(&node["state"]), age()),
    };
    let mut row = json!({ "node": node["node"], "state": state, "zone": node["zone"], "version": node["version"] });
    if node["state"] == "alive" || node["node"] == *own {
        row["peers"] = node["peers"].clone();
        row["announces"] = format!("{:.0}", number(&node["announces_s"])).into();
        row["queue"] = bytes(number(&node["queue_bytes"])).into();
        row["clock"] = seconds(&node["clock_offset_s"]).into();
    }
    if node["state"] != "left" && node["node"] != *own {
        row["lag"] = seconds(&node["lag_s"]).into();
        row["their_lag"] = seconds(&node["their_lag_s"]).into();
        row["behind"] = node["behind_blocks"].clone();
    }
    row
}

fn stream_row(stream: &Value, is_connected: bool) -> Value {
    let state = match stream {
        _ if !is_connected => "not known",
        _ if stream["has_leader"] == false => "no leader",
        _ if number(&stream["replicas_current"]) < number(&stream["replicas"]) => "few copies",
        _ => "stores",
    };
    json!({
        "name": stream["name"],
        "state": state,
        "copies": format!("{} of {}", stream["replicas_current"], stream["replicas"]),
        "messages": stream["messages"],
        "size": bytes(number(&stream["bytes"])),
    })
}

fn own_lines(cluster: &Value) -> String {
    let (connection, queue) = (&cluster["connection"], &cluster["queue"]);
    let (records, traffic) = (&cluster["records"], &cluster["traffic"]);
    let age = span(number(&connection["age_s"]) as u64);
    let server = match connection["server"].as_str() {
        Some(server) => format!("{}, for {age}", printable(server)),
        None => format!("none, for {age}"),
    };
    let drops = traffic["drops"].as_object().into_iter().flatten();
    let drops: Vec<_> = drops.map(|(name, count)| format!("{} {count}", printable(name))).collect();
    let drops = if drops.is_empty() { "none".into() } else { drops.join(", ") };
    let size = |value: &Value| bytes(number(value));
    let lines = [
        ("NATS server", server),
        (
            "log",
            format!(
                "{}, {} blocks not stored ({} of {}), {} messages to be read",
                word(&queue["log"]).replace('_', " "),
                queue["unstored_blocks"],
                size(&queue["unstored_bytes"]),
                size(&queue["bytes_max"]),
                queue["log_behind"]
            ),
        ),
        (
            "blocks",
            format!(
                "{} sent, {} received",
                size(&traffic["bytes"]["sent"]),
                size(&traffic["bytes"]["received"])
            ),
        ),
        ("dropped", drops),
        (
            "records",
            format!(
                "{} messages sent, {} not sent, {} received, {} rows merged, {} repairs",
                records["sent"],
                records["unsent"],
                records["received"],
                records["merged"],
                records["repairs"]
            ),
        ),
    ];
    lines.iter().map(|(name, value)| format!("{name:<12}  {value}\n")).collect()
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
            "\n   1  this node     eu-1  1.2.3    10000001         5600 ",
            "\n   2  gone, 31 s    eu-2  1.2.3           -            -    31.5 s    0.000 s     620        -      -\n",
            "\n   4  left, 30 min  eu-2",
            "\n   5  ignored       eu-2",
            "\nTG_example_D  no leader  1 of 3     99000  600 MiB\n",
            "\nNATS server   tls://nats-1.example:4222, for 1 h\n",
            "\nlog           held, 630 blocks not stored (5.0 MiB of 64.0 MiB), 0 messages to be read\n",
            "\ndropped       repeated 139500, secret 4\n",
            "\nrecords       17 messages sent, 2 not sent, 53 received, 1400 rows merged, 3 repairs\n",
            "\n2023-11-14 23:13:50  node 2 has been silent for 10 s",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
