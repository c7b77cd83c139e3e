//! Nodes of a tracker and NATS servers on hosts of a network of their own.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Result, ensure};
use harness::nats::{Addresses, Client, Nats, Operator};
use harness::network::sites::{Backbone, Sites, backbone_address, public_address};
use harness::network::{Namespace, Network};
use harness::{Directory, PATIENCE, Tracker, wait_for};

use super::arrangement::{NAME, PORT};
use crate::program::ProgramArgs;

/// Port of the NATS servers.
const NATS_PORT: u16 = 4222;

/// Parameters of a cluster to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterPlan<'a> {
    /// Hosts, counted from 1.
    pub(super) hosts: u8,
    pub(super) backbone: Backbone,
    /// The hosts that have a NATS server.
    pub(super) servers: &'a [u8],
    /// The size of the log, in MiB.
    pub(super) stream_mib: u32,
}

/// The network, and what runs there.
pub(super) struct Cluster {
    pub(super) sites: Sites,
    pub(super) nats: Nats,
    pub(super) operator: Operator,
    pub(super) folder: Directory,
    pub(super) program: PathBuf,
}

/// A running node.
pub(super) struct Node {
    pub(super) host: Arc<Namespace>,
    pub(super) tracker: Tracker,
}

impl Cluster {
    /// Sets up the network and starts the NATS servers, which speak TLS to nodes.
    pub(super) fn start(program: &ProgramArgs, plan: ClusterPlan<'_>) -> Result<Self> {
        let program = program.path()?;
        check_rights()?;
        let sites = Sites::new(plan.hosts, plan.backbone)?;
        let folder = Directory::new()?;
        let hosts = plan.servers.iter().map(|host| backbone_address(*host).to_string());
        let hosts: Vec<String> = hosts.collect();
        let operator = Operator::init(&program, &folder.path("operator"), NAME, &hosts)?;
        let places: Vec<_> = plan.servers.iter().map(|host| nats_place(&sites, *host)).collect();
        let nats = sites.clients().run(|| Nats::start_in(&places, &operator))?;
        let set = format!("set size {}MiB replicas {}", plan.stream_mib, hosts.len());
        sites.clients().run(|| operator.run(&set))?;
        Ok(Self { sites, nats, operator, folder, program })
    }

    /// Starts a node at the host of its number, and waits until it knows what the others know, for 50 s at most: a tracker
    /// that is not ready after a minute counts as broken.
    pub(super) fn node(&self, number: u8) -> Result<Node> {
        let join = self.operator.invite(number)?;
        self.node_with(number, &format!("[cluster]\njoin = {join:?}\nwarm_wait_s = 50\n"))
    }

    /// The same without `[cluster]`.
    pub(super) fn node_alone(&self, number: u8) -> Result<Node> {
        self.node_with(number, "")
    }

    fn node_with(&self, number: u8, section: &str) -> Result<Node> {
        let folder = self.folder.path(&format!("node{number}"));
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(&self.program);
        command.arg("serve").stdin(Stdio::null());
        let configuration = format!(
            "[udp]\nlisten = [\"{}:{PORT}\"]\nengine = \"mmsg\"\nworkers = 1\n[http]\nlisten = []\n\
             [admin]\nlisten = [\"127.0.0.1:0\"]\nrequests_per_s = 0\n[log]\nlevel = \"warn\"\n\
             [limits]\nexempt = [\"198.18.0.0/16\", \"127.0.0.0/8\"]\n{section}",
            public_address(number)
        );
        let host = Arc::clone(self.sites.host(number));
        let tracker = host.run(|| Tracker::start(command, &folder, &configuration))?;
        Ok(Node { host, tracker })
    }

    /// Returns where clients reach a node.
    pub(super) fn address(number: u8) -> SocketAddr {
        SocketAddr::new(public_address(number).into(), PORT)
    }

    /// Calls `action` where the clients are, on a thread of its own.
    pub(super) fn as_client<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        self.sites.clients().run(action)
    }

    /// Connects to the first NATS server.
    pub(super) fn client(&self) -> Result<Client> {
        let user = self.operator.superuser()?;
        self.as_client(|| Client::connect(self.nats.address(0), Some(&user)))
    }

    /// Returns the processes of the NATS servers.
    pub(super) fn nats_processes(&self) -> Vec<u32> {
        self.nats.running().filter_map(|server| self.nats.process(server)).collect()
    }
}

impl Node {
    /// Returns the sum of a metric over all series that have these labels.
    pub(super) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.host.run(|| self.tracker.metric(name, labels))
    }

    /// Returns its metrics of what it dropped, for errors.
    pub(super) fn drops(&self) -> String {
        let page = self.host.run(|| self.tracker.admin("/metrics")).map(|it| it.text());
        let page = page.unwrap_or_default();
        let lines = page.lines().filter(|line| {
            line.starts_with("tidegate_cluster_drops_total") && !line.ends_with(" 0")
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// Returns its process.
    pub(super) fn process(&self) -> u32 {
        self.tracker.pid()
    }
}

/// Waits until nodes hear each other, and the log acknowledges what they publish.
pub(super) fn wait_until_joined(nodes: &[&Node]) -> Result<()> {
    for node in nodes {
        wait_for(PATIENCE, "the nodes to hear each other", || {
            let alive = node.metric("tidegate_cluster_nodes", &[("state", "alive")])?;
            Ok(alive == nodes.len() as f64)
        })?;
    }
    Ok(())
}

/// Fails without the rights that networks need.
fn check_rights() -> Result<()> {
    let obstacle = Network::obstacle();
    ensure!(obstacle.is_none(), "no network namespaces {}", obstacle.unwrap_or_default());
    Ok(())
}

/// Where the NATS server of a host runs and listens.
fn nats_place(sites: &Sites, host: u8) -> (Arc<Namespace>, Addresses) {
    let ip = backbone_address(host);
    let addresses =
        Addresses { client: (ip, NATS_PORT).into(), routes: (ip, 6222).into(), monitor: 8222 };
    (Arc::clone(sites.host(host)), addresses)
}
