//! Two nodes of a cluster, and a client at each: they learn of each other by NATS.

use super::pair::{Pair, Protocol};
use super::peer::{Peer, REPLY_MAX, TRANSFER_MAX};
use super::torrent::Torrent;
use crate::tracker::{self, Counts};
use crate::workspace::binary;
use anyhow::Result;
use harness::nats::{Nats, Operator};
use harness::{Tracker, wait_for};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// The ports of both nodes; their management is one above.
const PORTS: [u16; 2] = [6969, 7969];

/// The leecher downloads the torrent from a seeder that announces to the other node, and both nodes count
/// the same.
pub(super) fn transfer(&Pair([seeder, leecher], protocol, family): &Pair, at: &Path) -> Result<()> {
    let nats = Nats::start(1)?;
    let servers = [nats.address(0).to_string()];
    let operator = Operator::init(&binary(), &at.join("operator"), "clients", &servers)?;
    operator.run("set size 64MiB")?;
    let nodes = [start_node(0, &operator, at)?, start_node(1, &operator, at)?];
    let torrents = PORTS.map(|port| Torrent::new(&protocol.announce_url(family, port, None)));
    let seeder = Peer::create(at, "seeder", seeder, family.address(2), &torrents[0])?;
    let leecher = Peer::create(at, "leecher", leecher, family.address(3), &torrents[1])?;
    torrents[0].fill(&seeder.folder)?;
    let downloaded = u64::from(seeder.client.says_completed_when_seeding());
    let _seeder = seeder.start(protocol == Protocol::Udp)?;
    wait_for_counts(&torrents[0], Counts { complete: 1, downloaded, incomplete: 0 })?;
    let _leecher = leecher.start(protocol == Protocol::Udp)?;
    wait_for(TRANSFER_MAX, "the transfer", || Ok(torrents[1].is_complete(&leecher.folder)))?;
    let counts = Counts { complete: 2, downloaded: downloaded + 1, incomplete: 0 };
    wait_for_counts(&torrents[0], counts)?;
    // Each client has announced to its own node.
    for node in &nodes {
        let labels = [("kind", "announce"), ("protocol", protocol.label())];
        wait_for(REPLY_MAX, "an announce to be counted", || {
            Ok(node.metric("tidegate_requests_total", &labels)? >= 1.0)
        })?;
    }
    nodes.into_iter().try_for_each(Tracker::stop)
}

/// Starts a node in a folder of its own.
fn start_node(number: u8, operator: &Operator, at: &Path) -> Result<Tracker> {
    let folder = at.join(format!("node{number}"));
    fs::create_dir_all(&folder)?;
    tracker::start(&folder, &configuration(number, operator)?)
}

fn configuration(number: u8, operator: &Operator) -> Result<String> {
    let join = operator.invite_without_user(number + 1)?;
    let port = PORTS[usize::from(number)];
    let listen = format!("listen = [\"0.0.0.0:{port}\", \"[::]:{port}\"]\n");
    Ok(format!(
        "[udp]\n{listen}[http]\n{listen}[admin]\nlisten = [\"127.0.0.1:{}\"]\n\
         [cluster]\njoin = {join:?}\n",
        port + 1,
    ))
}

/// Waits until scrapes of both nodes return these counts.
fn wait_for_counts(torrent: &Torrent, expected: Counts) -> Result<()> {
    for port in PORTS {
        let node = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        tracker::wait_for_counts(node, "/scrape", &torrent.info_hash, expected)?;
    }
    Ok(())
}
