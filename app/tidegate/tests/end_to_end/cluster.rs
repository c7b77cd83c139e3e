//! Several trackers over NATS, which are one tracker to their clients.

mod failures;
mod foreign;
mod peers;
mod private;
mod records;
mod webtorrent;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::nats::Nats;

use crate::api::TOKEN;
use crate::clients::{Torrent, Udp};
use crate::process::{Directory, Tracker, run, stderr};

/// The cluster's name, which is part of subjects and streams.
const NAME: &str = "test";
/// The stream of swarms.
const SWARMS: &str = "TG_test_D";
/// Two secrets.
const SECRETS: [&str; 2] = ["11", "22"];

/// NATS servers, and what nodes share besides.
pub(crate) struct Cluster {
    pub(crate) nats: Nats,
    directory: Directory,
}

impl Cluster {
    /// Starts one server or three.
    pub(crate) fn start(servers: usize) -> Self {
        let directory = Directory::new();
        for digits in SECRETS {
            let file = directory.write(digits, &digits.repeat(32));
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let cluster = Self { nats: Nats::start(servers).unwrap(), directory };
        cluster.make_streams();
        cluster
    }

    /// Makes the streams as an operator does.
    fn make_streams(&self) {
        let config = self.directory.write("streams.toml", &self.section(1, SECRETS[0], ""));
        let output = run(&["cluster", "streams", "--config", config.to_str().unwrap()]);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// Starts a node, and waits until it has caught up with the others.
    pub(crate) fn node(&self, number: u8) -> Tracker {
        self.node_with(number, "")
    }

    /// The same with more lines of `[cluster]`, or more sections.
    pub(crate) fn node_with(&self, number: u8, more: &str) -> Tracker {
        self.node_by(number, SECRETS[0], more)
    }

    /// The same with a secret of its own.
    fn node_by(&self, number: u8, secret: &str, more: &str) -> Tracker {
        let variables = [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)];
        Tracker::start_with(Directory::new(), &self.section(number, secret, more), &variables)
    }

    /// Starts a node whose records and journal stay.
    fn node_with_state(&self, number: u8) -> Tracker {
        let state = self.directory.path(&format!("state{number}"));
        self.node_with(number, &format!("[state]\ndir = {state:?}\n"))
    }

    fn section(&self, number: u8, secret: &str, more: &str) -> String {
        let (servers, secret) = (self.nats.urls("nats"), self.directory.path(secret));
        // The servers of all tests share a disk.
        format!(
            "[cluster]\nname = {NAME:?}\nnode = {number}\nservers = {servers:?}\nsecret = [{secret:?}]\n\
             replicas = {}\nstream_mib = 64\nflush_ms = 10\n{more}",
            servers.len()
        )
    }
}

/// Waits until nodes hear each other.
pub(crate) fn wait_until_joined(nodes: &[&Tracker]) {
    for node in nodes {
        node.wait_until("all nodes", |it| alive(it) == nodes.len() as f64);
    }
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
