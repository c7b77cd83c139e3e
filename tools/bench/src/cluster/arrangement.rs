//! Nodes of a tracker and NATS servers, one of each on every host of a network of namespaces.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::nats::{Client, Nats, Operator};
use harness::network::Network;
use harness::network::sites::{
    Backbone, Sites, backbone_address, public_address, public_address_v6,
};
use harness::{Directory, Tracker, wait_for};

use crate::lab::{Api, TOKEN_VARIABLES};
use crate::program::ProgramArgs;

/// The name of the cluster.
pub const NAME: &str = "bench";
/// The stream of its log.
pub const STREAM: &str = "TG_bench_D";
/// Ports on every host.
const PORT: u16 = 6969;
const ADMIN_PORT: u16 = 6970;
/// Peers live so briefly that what happens to them after a partition of an hour happens after a minute and a half.
pub const PEER_LIFETIME: Duration = Duration::from_secs(90);
const INTERVAL: Duration = Duration::from_secs(60);
/// Longest time that anything may take; longer is an error.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes, each with a NATS server on a host of its own.
const NODES: u8 = 3;

/// The room that a cluster has.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlan {
    /// The links between hosts.
    pub backbone: Backbone,
    /// The size of the log, in MiB.
    pub stream_mib: u32,
    /// The size of each node's queue, in MiB.
    pub queue_mib: u32,
}

/// A running cluster. Nodes and hosts are counted from 1.
pub struct TestCluster {
    nodes: Vec<Node>,
    /// The NATS servers.
    pub nats: Nats,
    /// The network, with a host for each node.
    pub sites: Sites,
    operator: Operator,
    program: PathBuf,
    folder: Directory,
    queue_mib: u32,
}

/// A node, whether or not it runs.
struct Node {
    tracker: Option<Tracker>,
    /// More sections of its configuration, for its next start.
    sections: String,
    /// Variables of its environment.
    variables: Vec<(&'static str, String)>,
}

impl TestCluster {
    /// Sets up a network and starts everything. The NATS servers speak TLS to nodes.
    ///
    /// # Errors
    ///
    /// Returns an error without the rights to set up a network, or if anything does not start.
    pub fn start(program: &ProgramArgs, plan: ClusterPlan) -> Result<Self> {
        let ClusterPlan { backbone, stream_mib, queue_mib } = plan;
        let obstacle = Network::obstacle();
        ensure!(obstacle.is_none(), "no network namespaces {}", obstacle.unwrap_or_default());
        let program = program.path()?;
        let sites = Sites::new(NODES, backbone)?;
        let folder = Directory::new()?;
        let hosts = (1..=NODES).map(|host| backbone_address(host).to_string());
        let hosts: Vec<String> = hosts.collect();
        let operator = Operator::init(&program, &folder.path("operator"), NAME, &hosts)?;
        let nats = sites.clients().run(|| Nats::start_in(&sites, &operator))?;
        let set = format!("set size {stream_mib}MiB replicas {NODES}");
        sites.clients().run(|| operator.run(&set))?;
        let node = |_| Node { tracker: None, sections: String::new(), variables: Vec::new() };
        let nodes = (0..NODES).map(node).collect();
        let mut cluster = Self { nodes, nats, sites, operator, program, folder, queue_mib };
        for number in cluster.numbers() {
            cluster.start_node(number)?;
        }
        Ok(cluster)
    }

    /// Runs `tidegate cluster verify` at a node. Returns what it prints, and true if all nodes have the same records.
    fn verify(&self, number: u8) -> Result<(String, bool)> {
        let [_, (name, token)] = TOKEN_VARIABLES;
        let url = format!("http://{}", Self::api(number));
        let mut command = Command::new(&self.program);
        command.args(["cluster", "verify", "--url", &url]).env(name, token);
        let output = self.sites.clients().run(|| command.output())?;
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        Ok((text.into_owned(), output.status.success()))
    }

    /// Waits until each node that runs says that all nodes have the same records.
    ///
    /// # Errors
    ///
    /// Returns an error if they have not after [`PATIENCE`].
    pub fn wait_until_verified(&self) -> Result<()> {
        for number in self.running() {
            let mut text = String::new();
            wait_for(PATIENCE, "equal records", || {
                let is_equal;
                (text, is_equal) = self.verify(number)?;
                Ok(is_equal)
            })
            .with_context(|| format!("`tidegate cluster verify` at node {number}: {text}"))?;
        }
        Ok(())
    }

    /// The numbers of all nodes.
    pub fn numbers(&self) -> std::ops::RangeInclusive<u8> {
        1..=NODES
    }

    /// The numbers of the nodes that run.
    pub fn running(&self) -> Vec<u8> {
        let is_running = |number: &u8| self.node(*number).tracker.is_some();
        self.numbers().filter(is_running).collect()
    }

    fn node(&self, number: u8) -> &Node {
        &self.nodes[usize::from(number) - 1]
    }

    fn node_mut(&mut self, number: u8) -> &mut Node {
        &mut self.nodes[usize::from(number) - 1]
    }

    /// A node that runs.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run.
    pub fn tracker(&self, number: u8) -> Result<&Tracker> {
        self.node(number).tracker.as_ref().with_context(|| format!("node {number} does not run"))
    }

    /// Where a node listens for UDP, over IPv4 and IPv6.
    pub fn udp(number: u8) -> [SocketAddr; 2] {
        [(public_address(number), PORT).into(), (public_address_v6(number), PORT).into()]
    }

    /// Where a node has its API.
    pub fn api(number: u8) -> SocketAddr {
        (public_address(number), ADMIN_PORT).into()
    }

    /// Sets variables of a node's environment, for its next start.
    pub fn set_variables(&mut self, number: u8, variables: Vec<(&'static str, String)>) {
        self.node_mut(number).variables = variables;
    }

    /// Sets more sections of a node's configuration, for its next start.
    pub fn set_sections(&mut self, number: u8, sections: &str) {
        sections.clone_into(&mut self.node_mut(number).sections);
    }

    /// Starts a node, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not serve.
    pub fn start_node(&mut self, number: u8) -> Result<()> {
        let folder = self.folder.path(&format!("node{number}"));
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(&self.program);
        let [(name, token), _] = TOKEN_VARIABLES;
        command.arg("serve").env(name, token).stdin(Stdio::null());
        command.envs(self.node(number).variables.iter().map(|(name, value)| (*name, value)));
        let host = self.sites.host(number);
        let _inside = self.sites.clients().enter()?;
        let tracker = Tracker::start_in(host, command, &folder, &self.configuration(number)?)?;
        self.node_mut(number).tracker = Some(tracker);
        Ok(())
    }

    /// Kills a node, as a crash would end it.
    pub fn kill_node(&mut self, number: u8) {
        self.node_mut(number).tracker = None;
    }

    /// Stops a node as a service manager would.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run, or does not stop.
    pub fn stop_node(&mut self, number: u8) -> Result<()> {
        self.node_mut(number).tracker.take().context("the node does not run")?.stop()
    }

    /// Removes the journal and the records of a node that does not run.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be removed.
    pub fn forget(&self, number: u8) -> Result<()> {
        let state = self.state(number);
        if state.exists() {
            fs::remove_dir_all(&state).with_context(|| state.display().to_string())?;
        }
        Ok(())
    }

    fn state(&self, number: u8) -> PathBuf {
        self.folder.path(&format!("node{number}/state"))
    }

    /// A metric of a node, summed over all series with these labels.
    ///
    /// # Errors
    ///
    /// Returns an error if the node does not answer.
    pub fn metric(&self, number: u8, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        Api::open(Self::api(number))?.metric(name, labels)
    }

    /// Waits until a metric of each node that runs is what is expected.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not after [`PATIENCE`].
    pub fn wait_for_metric(
        &self,
        (name, labels): (&str, &[(&str, &str)]),
        is_so: impl Fn(f64) -> bool,
    ) -> Result<()> {
        for number in self.running() {
            let mut found = f64::NAN;
            wait_for(PATIENCE, name, || {
                found = self.metric(number, name, labels)?;
                Ok(is_so(found))
            })
            .with_context(|| format!("node {number} has {found}"))?;
        }
        Ok(())
    }

    /// Waits until all nodes hear each other and the streams have stored everything.
    ///
    /// # Errors
    ///
    /// Returns an error if they do not within [`PATIENCE`].
    pub fn wait_until_settled(&self) -> Result<()> {
        let nodes = self.running().len() as f64;
        let alive = ("tidegate_cluster_nodes", &[("state", "alive")][..]);
        self.wait_for_metric(alive, |count| count == nodes)?;
        self.wait_for_metric(("tidegate_cluster_connected", &[]), |it| it == 1.0)?;
        self.wait_for_metric(("tidegate_cluster_dirty_seconds", &[]), |it| it == 0.0)?;
        self.wait_for_metric(("tidegate_cluster_unstored_seconds", &[]), |it| it < 1.0)
    }

    /// The logs of all nodes, for an error.
    pub fn logs(&self) -> String {
        let log = |number| {
            let path = self.folder.path(&format!("node{number}/tracker.log"));
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines.len().saturating_sub(LOG_LINES);
            format!("node {number}:\n{}\n", lines[tail..].join("\n"))
        };
        self.numbers().map(log).collect()
    }

    /// Opens a connection to a NATS server as an operator who may do everything.
    ///
    /// # Errors
    ///
    /// Returns an error if no server answers.
    pub fn nats_client(&self) -> Result<Client> {
        let server = self.nats.running().next().context("no NATS server runs")?;
        Client::connect(self.nats.address(server), &self.operator.superuser()?)
    }

    /// Returns the configuration that a node starts with.
    ///
    /// # Errors
    ///
    /// Returns an error if the operator cannot invite the node.
    pub fn configuration(&self, number: u8) -> Result<String> {
        let join = self.operator.invite(number)?;
        let [v4, v6] = Self::udp(number);
        let (api, state) = (Self::api(number), self.state(number));
        let own = &self.node(number).sections;
        let (interval, lifetime) = (INTERVAL.as_secs(), PEER_LIFETIME.as_secs());
        let queue_mib = self.queue_mib;
        Ok(format!(
            "[udp]\nlisten = [\"{v4}\", \"{v6}\"]\nworkers = 1\n\
             [http]\nlisten = [\"{v4}\", \"{v6}\"]\nworkers = 1\n\
             [admin]\nlisten = [\"{api}\"]\nrequests_per_s = 0\n\
             [tracker]\ninterval_s = {interval}\ninterval_jitter_s = 0\npeer_lifetime_s = {lifetime}\n\
             [limits]\nexempt = [\"198.18.0.0/15\", \"2001:db8:1::/48\"]\n\
             [state]\ndir = {state:?}\n{own}\
             [cluster]\njoin = {join:?}\nqueue_mib = {queue_mib}\n",
        ))
    }
}

/// Lines of a log that are shown with an error.
const LOG_LINES: usize = 40;
