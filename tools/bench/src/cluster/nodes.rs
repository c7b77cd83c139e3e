//! Nodes of a tracker and NATS servers on hosts of a network of their own.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Result;
use harness::nats::{Client, Nats, make_streams};
use harness::network::Namespace;
use harness::network::sites::{Backbone, Sites, backbone_address, public_address};
use harness::{Directory, PATIENCE, Tracker, wait_for};

use super::arrangement::{NAME, NATS_PORT, PORT, check_rights, nats_place};
use crate::program::ProgramArgs;

/// What there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterPlan<'a> {
    /// Hosts, counted from 1.
    pub(super) hosts: u8,
    pub(super) backbone: Backbone,
    /// The hosts that have a NATS server. Every node connects to that of its own host, or to the first.
    pub(super) servers: &'a [u8],
    /// The size of the log, in MiB.
    pub(super) stream_mib: u32,
    /// More sections of each node's configuration.
    pub(super) more: &'a str,
}

/// The network, and what runs there.
pub(super) struct Cluster {
    pub(super) sites: Sites,
    nats: Nats,
    servers: Vec<u8>,
    folder: Directory,
    program: PathBuf,
    stream_mib: u32,
    more: String,
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
        let names = plan.servers.iter().map(|host| backbone_address(*host).to_string());
        let certificate = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>())?;
        let chain = folder.write("chain.pem", certificate.cert.pem())?;
        let key = folder.write("key.pem", certificate.signing_key.serialize_pem())?;
        let secret = folder.write("secret", "5a".repeat(32))?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        // What fills streams here speaks no TLS.
        let configuration = format!(
            "tls {{ cert_file: {chain:?}, key_file: {key:?}, timeout: 10 }}\nallow_non_tls: true\n"
        );
        let places: Vec<_> = plan.servers.iter().map(|host| nats_place(&sites, *host)).collect();
        let nats = sites.clients().run(|| Nats::start_in(&places, &configuration))?;
        let servers = plan.servers.to_vec();
        let (stream_mib, more) = (plan.stream_mib, plan.more.to_owned());
        let cluster = Self { sites, nats, servers, folder, program, stream_mib, more };
        let file = cluster.folder.write("streams.toml", cluster.section(1))?;
        cluster.as_client(|| make_streams(&cluster.program, &file, None))?;
        Ok(cluster)
    }

    /// Starts a node at the host of its number, and waits until it knows what the others know.
    pub(super) fn node(&self, number: u8) -> Result<Node> {
        self.node_with(number, &self.section(number))
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
             [limits]\nexempt = [\"198.18.0.0/16\", \"127.0.0.0/8\"]\n{section}{}",
            public_address(number),
            self.more
        );
        let host = Arc::clone(self.sites.host(number));
        let tracker = host.run(|| Tracker::start(command, &folder, &configuration))?;
        Ok(Node { host, tracker })
    }

    fn section(&self, number: u8) -> String {
        let first = self.servers.first().copied().unwrap_or(number);
        let server = if self.servers.contains(&number) { number } else { first };
        format!(
            "[cluster]\nname = {NAME:?}\nnode = {number}\nservers = [\"tls://{}:{}\"]\nca = {:?}\n\
             secret = [{:?}]\nreplicas = {}\nstream_mib = {}\nwarm_wait_s = 600\n",
            backbone_address(server),
            NATS_PORT,
            self.folder.path("chain.pem"),
            self.folder.path("secret"),
            self.servers.len(),
            self.stream_mib
        )
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
        self.as_client(|| Client::connect(self.nats.address(0), None))
    }

    /// Returns the processes of the NATS servers.
    pub(super) fn nats_processes(&self) -> Vec<u32> {
        (0..self.servers.len()).filter_map(|server| self.nats.process(server)).collect()
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
