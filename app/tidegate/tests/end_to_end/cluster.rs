//! Several trackers over NATS, which are one tracker to their clients.

mod accounts;
mod failures;
mod operation;
mod private;
mod records;
mod webtorrent;

use std::path::{Path, PathBuf};

use harness::nats::{Addresses, Client, Nats, Operator};
use serde_json::Value;

use crate::api::{Caller, start_in};
use crate::clients::{Torrent, Udp};
use crate::process::{Directory, Tracker};

/// The cluster's name, which is part of subjects and streams.
const NAME: &str = "test";
const SWARMS: &str = "TG_test_D";

/// The folder of an operator whose servers do not run.
pub(crate) struct Folder {
    pub(crate) operator: Operator,
    pub(crate) directory: Directory,
}

impl Folder {
    /// Makes the folder for a server that is not there.
    pub(crate) fn without_server() -> Self {
        Self::new(vec![Addresses::unused().client.to_string()])
    }

    fn new(servers: Vec<String>) -> Self {
        let directory = Directory::new();
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        let folder = directory.path("operator");
        let operator = Operator::init(program, &folder, NAME, &servers).unwrap();
        Self { operator, directory }
    }

    /// Makes the join file of a node.
    pub(crate) fn invite(&self, number: u8) -> PathBuf {
        self.operator.invite(number).unwrap()
    }
}

/// NATS servers, and the folder of their operator.
pub(crate) struct Cluster {
    pub(crate) nats: Nats,
    pub(crate) operator: Operator,
    pub(crate) directory: Directory,
}

impl Cluster {
    /// Starts one server or three.
    pub(crate) fn start(servers: usize) -> Self {
        let places: Vec<_> = (0..servers).map(|_| Addresses::unused()).collect();
        let hosts = places.iter().map(|place| place.client.to_string()).collect();
        let Folder { operator, directory } = Folder::new(hosts);
        let nats = Nats::start(&places, &operator).unwrap();
        let cluster = Self { nats, operator, directory };
        // All tests share a disk.
        cluster.operator.run("set size 64MiB").unwrap();
        cluster
    }

    /// Starts one server, and two nodes that hear each other.
    pub(crate) fn with_two_nodes() -> (Self, [Tracker; 2]) {
        let cluster = Self::start(1);
        let nodes = [1, 2].map(|number| cluster.node(number));
        wait_until_joined(&nodes.each_ref());
        (cluster, nodes)
    }

    /// Makes the join file of a node.
    pub(crate) fn invite(&self, number: u8) -> PathBuf {
        self.operator.invite(number).unwrap()
    }

    /// Opens a connection to the first server, by which everything may be done.
    pub(crate) fn superuser(&self) -> Client {
        let user = self.operator.superuser().unwrap();
        Client::connect(self.nats.address(0), &user).unwrap()
    }

    /// Starts a node, and waits until it has caught up with the others.
    pub(crate) fn node(&self, number: u8) -> Tracker {
        self.node_with(number, "")
    }

    /// The same with more lines of `[cluster]`, or more sections.
    pub(crate) fn node_with(&self, number: u8, more: &str) -> Tracker {
        start(&self.invite(number), more)
    }

    /// Starts a node whose records and journal stay.
    pub(crate) fn node_with_state(&self, number: u8) -> Tracker {
        let state = self.state(number);
        self.node_with(number, &format!("[state]\ndir = {state:?}\n"))
    }

    /// Where the records of [`Self::node_with_state`] are.
    pub(crate) fn state(&self, number: u8) -> PathBuf {
        self.directory.path(&format!("state{number}"))
    }
}

pub(crate) fn start(join: &Path, more: &str) -> Tracker {
    let section = format!("[cluster]\njoin = {join:?}\nflush_ms = 10\n{more}");
    start_in(Directory::new(), &section).0
}

/// Waits until nodes hear each other.
pub(crate) fn wait_until_joined(nodes: &[&Tracker]) {
    for node in nodes {
        node.wait_until("all nodes", |it| alive(it) == nodes.len() as f64);
    }
}

fn view(node: &Tracker) -> Value {
    Caller::of(node).expect(200, "GET /cluster", None)
}

fn is_connected(node: &Tracker) -> bool {
    node.metric("tidegate_cluster_connected") == 1.0
}

/// Waits until the log has all that was announced to a node.
fn wait_until_stored(node: &Tracker) {
    node.wait_until("stored", |it| it.metric("tidegate_cluster_unstored_blocks") == 0.0);
}

fn alive(node: &Tracker) -> f64 {
    node.metric("tidegate_cluster_nodes{state=\"alive\"}")
}

/// Waits until a scrape of a torrent returns these seeders, downloads and leechers at all nodes.
pub(crate) fn wait_for_counts(nodes: &[&Tracker], torrent: Torrent, counts: [u32; 3]) {
    for node in nodes {
        node.wait_until(&format!("{counts:?}"), |it| {
            Udp::connect(it.udp4()).scrape(torrent) == counts
        });
    }
}
