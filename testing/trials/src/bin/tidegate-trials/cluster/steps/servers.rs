//! NATS servers and streams that fail.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::Api;
use bench::cluster::TestCluster;

use super::super::agreement::{self, Agreement, Excuses};
use super::super::browsers::Browsers;
use super::super::stage::Stage;

/// The folders of what the servers store.
const SERVERS: [&str; 3] = ["n1", "n2", "n3"];

/// The log is stored again when the oldest block waits no longer than this, seconds.
const STORED_S: f64 = 1.0;
/// Blocks that waited for too long.
const DROPPED: (&str, &[(&str, &str)]) =
    ("tidegate_cluster_blocks_total", &[("direction", "sent"), ("result", "dropped")]);
/// Time in which a stream without a leader is noticed.
const NOTICED: Duration = Duration::from_secs(3);

/// Each server is killed and started again, one of which leads the log.
pub(super) fn kill_each(stage: &mut Stage) -> Result<String> {
    let mut stored = Vec::new();
    for server in 0..3 {
        stage.cluster.nats.kill(server);
        let took = until_stored(stage)?;
        stage.hold(10, 1);
        start(stage, &[server])?;
        stored.push(format!("{took:.1}"));
    }
    Ok(format!("each killed and started; the log went on after {} s", stored.join(", ")))
}

/// Two of three servers are killed: the streams store nothing.
pub(super) fn kill_two(stage: &mut Stage) -> Result<String> {
    [0, 1].into_iter().for_each(|server| stage.cluster.nats.kill(server));
    stage.hold(30, 10);
    let waiting = unstored_s(stage)?;
    start(stage, &[0, 1])?;
    let took = until_stored(stage)?;
    Ok(format!(
        "servers 1 and 2 killed; nothing stored for {waiting:.1} s, then all {took:.1} s after the start"
    ))
}

/// No server runs for longer than peers live. Downloads that are completed meanwhile count.
pub(super) fn kill_all(stage: &mut Stage) -> Result<String> {
    (0..3).for_each(|server| stage.cluster.nats.kill(server));
    stage.hold_for_lifetimes();
    let dropped = stage.cluster.metric(1, DROPPED.0, DROPPED.1)?;
    let bytes = stage.cluster.metric(1, "tidegate_cluster_unstored_bytes", &[])?;
    start(stage, &[0, 1, 2])?;
    let took = until_stored(stage)?;
    Ok(format!(
        "all killed; node 1 held {:.0} KiB and had dropped {dropped} blocks; all stored {took:.1} s after the start",
        bytes / 1024.0
    ))
}

/// No server runs for a while. A node that hears no other removes nothing of theirs.
pub(super) fn pause_all(stage: &mut Stage) -> Result<String> {
    (0..3).for_each(|server| stage.cluster.nats.kill(server));
    stage.hold(30, 12);
    let count = Browsers::count(&stage.cluster);
    for node in stage.cluster.running() {
        let known = Browsers::known(node)?;
        ensure!(
            known == count,
            "without NATS node {node} knows {known} WebTorrent peers of {count}"
        );
    }
    start(stage, &[0, 1, 2])?;
    let took = until_stored(stage)?;
    Ok(format!(
        "all killed; each node kept all {count} WebTorrent peers; all stored {took:.1} s after the start"
    ))
}

/// All servers fall back to an older copy of what they store, as after a power loss. Records of before and after stay.
pub(super) fn fall_back(stage: &mut Stage) -> Result<String> {
    let folder = stage.cluster.nats.folder().to_owned();
    (0..3).try_for_each(|server| stage.cluster.nats.stop(server))?;
    for server in SERVERS {
        copy(&folder.join(server), &folder.join(format!("{server}-older")))?;
    }
    start(stage, &[0, 1, 2])?;
    until_stored(stage)?;
    let [before, between, after] = [ban(stage, 1)?, ban(stage, 2)?, stage.next_ban()];
    stage.cluster.wait_until_verified()?;
    (0..3).for_each(|server| stage.cluster.nats.kill(server));
    for server in SERVERS {
        fs::remove_dir_all(folder.join(server))?;
        fs::rename(folder.join(format!("{server}-older")), folder.join(server))?;
    }
    add_ban(3, &after)?;
    start(stage, &[0, 1, 2])?;
    let took = until_stored(stage)?;
    stage.cluster.wait_until_verified()?;
    let bans = [before, between, after];
    for node in stage.cluster.running() {
        let page =
            Api::open(TestCluster::api(node))?.ask(200, "GET /api/v1/bans?limit=1000", "")?;
        let missing = bans.iter().find(|network| !page.contains(network.as_str()));
        ensure!(missing.is_none(), "node {node} has lost the ban of {missing:?}");
    }
    Ok(format!(
        "all fell back; all stored {took:.1} s after the start, and all bans are at all nodes"
    ))
}

/// No server runs while so much is announced that no node can keep it all.
pub(super) fn overflow(stage: &mut Stage) -> Result<String> {
    (0..3).for_each(|server| stage.cluster.nats.kill(server));
    let crowd = stage.crowd()?;
    stage.cluster.wait_for_metric(DROPPED, |dropped| dropped > 0.0)?;
    start(stage, &[0, 1, 2])?;
    let took = until_stored(stage)?;
    let Agreement { after, peers, .. } =
        agreement::wait(&stage.cluster, &crowd, &mut Excuses::default())?;
    Ok(format!(
        "all killed, {peers} peers came, each node dropped blocks; all stored {took:.1} s after the start, and known \
         everywhere {:.1} s later",
        after.as_secs_f64()
    ))
}

/// Bans a network by the API of a node. Returns the network.
fn ban(stage: &mut Stage, node: u8) -> Result<String> {
    let network = stage.next_ban();
    add_ban(node, &network)?;
    Ok(network)
}

fn add_ban(node: u8, network: &str) -> Result<()> {
    let body = format!("{{\"network\":\"{network}\",\"reason\":\"cluster check\"}}");
    Api::open(TestCluster::api(node))?.ask(201, "POST /api/v1/bans", &body)?;
    Ok(())
}

/// Copies a folder as it is.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().context("cp")?;
    ensure!(status.success(), "cannot copy {}: {status}", from.display());
    Ok(())
}

/// Starts servers, and waits until they are ready.
fn start(stage: &mut Stage, servers: &[usize]) -> Result<()> {
    for server in servers {
        stage.cluster.nats.restart(*server)?;
    }
    stage.cluster.nats.wait_until_ready()
}

/// Waits until the log stores what nodes publish. Returns the seconds that this took.
fn until_stored(stage: &Stage) -> Result<f64> {
    let began = Instant::now();
    std::thread::sleep(NOTICED);
    let metric = ("tidegate_cluster_unstored_seconds", &[][..]);
    stage.cluster.wait_for_metric(metric, |seconds| seconds < STORED_S)?;
    let dirty = ("tidegate_cluster_dirty_seconds", &[][..]);
    stage.cluster.wait_for_metric(dirty, |seconds| seconds == 0.0)?;
    Ok(began.elapsed().as_secs_f64())
}

/// Returns for how long the oldest block of any node has waited.
fn unstored_s(stage: &Stage) -> Result<f64> {
    let mut longest = 0.0_f64;
    for node in stage.cluster.running() {
        let name = "tidegate_cluster_unstored_seconds";
        longest = longest.max(stage.cluster.metric(node, name, &[])?);
    }
    Ok(longest)
}
