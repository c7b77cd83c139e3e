//! Nodes that end, start and hang.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench::Api;
use bench::cluster::{PATIENCE, STREAM, TestCluster};
use harness::{Signal, wait_for};
use serde_json::Value;

use super::super::stage::Stage;

/// Requests that are under way when a router stops to send more are answered within this time.
const DRAIN: Duration = Duration::from_millis(500);

/// Each node is killed and started again with its journal.
pub(super) fn kill_each(stage: &mut Stage) -> Result<String> {
    let mut ready = Vec::new();
    for node in stage.cluster.numbers() {
        stage.kill(node);
        stage.hold(10, 2);
        ready.push(start(stage, node)?);
    }
    Ok(format!("each killed and started with its journal, ready after {} s", ready.join(", ")))
}

/// A node is killed and started with nothing.
pub(super) fn kill_and_forget(stage: &mut Stage) -> Result<String> {
    stage.kill(2);
    stage.cluster.forget(2)?;
    let ready = start(stage, 2)?;
    Ok(format!("node 2 killed and started with nothing, ready after {ready} s"))
}

/// Each node is stopped and started, while clients go elsewhere.
pub(super) fn restart_each(stage: &mut Stage) -> Result<String> {
    let mut ready = Vec::new();
    for node in stage.cluster.numbers() {
        stage.route(node, false);
        thread::sleep(DRAIN);
        stage.cluster.stop_node(node)?;
        ready.push(start(stage, node)?);
    }
    Ok(format!("each stopped and started, ready after {} s", ready.join(", ")))
}

/// Each node is upgraded, and clients notice nothing.
pub(super) fn upgrade_each(stage: &mut Stage) -> Result<String> {
    for node in stage.cluster.numbers() {
        stage.cluster.tracker(node)?.upgrade()?;
    }
    Ok("each upgraded (SIGUSR2), clients stay".into())
}

/// A node has other settings than the others: they say so, and no node changes the stream.
pub(super) fn differ_in_settings(stage: &mut Stage) -> Result<String> {
    const NODE: u8 = 2;
    let before = stream_settings(stage)?;
    restart(stage, NODE, "[access]\nmode = \"deny\"\n")?;
    let reader = TestCluster::api(1);
    wait_for(PATIENCE, "node 1 to notice", || {
        let text = Api::open(reader)?.ask(200, "GET /api/v1/cluster", "")?;
        let cluster: Value = serde_json::from_str(&text)?;
        let differs = |node: &Value| node["node"] == NODE && node["same_policy"] == false;
        Ok::<_, anyhow::Error>(
            cluster["nodes"].as_array().is_some_and(|all| all.iter().any(differs)),
        )
    })?;
    stage.hold(30, 15);
    let meanwhile = stream_settings(stage)?;
    restart(stage, NODE, "")?;
    ensure!(before == meanwhile, "the stream's settings changed from {before} to {meanwhile}");
    Ok(format!("node {NODE} with another policy; node 1 says so, and the stream's settings stay"))
}

/// Returns the settings of the log.
fn stream_settings(stage: &Stage) -> Result<Value> {
    let mut client = stage.cluster.nats_client()?;
    Ok(client.jetstream(&format!("STREAM.INFO.{STREAM}"), "")?["config"].clone())
}

/// Starts a node again with more sections, while clients go elsewhere.
fn restart(stage: &mut Stage, node: u8, sections: &str) -> Result<()> {
    stage.route(node, false);
    thread::sleep(DRAIN);
    stage.cluster.stop_node(node)?;
    stage.cluster.set_sections(node, sections);
    stage.start(node)
}

/// A node hangs: nothing of it runs, and its connections stay open.
pub(super) fn hang(stage: &mut Stage) -> Result<String> {
    stage.route(3, false);
    thread::sleep(DRAIN);
    stage.cluster.tracker(3)?.signal(Signal::SIGSTOP)?;
    stage.hold(30, 12);
    stage.cluster.tracker(3)?.signal(Signal::SIGCONT)?;
    stage.route(3, true);
    let reconnects = stage.cluster.metric(3, "tidegate_cluster_reconnects_total", &[])?;
    Ok(format!("node 3 stopped (SIGSTOP) and continued; connected again {reconnects} times"))
}

fn start(stage: &mut Stage, node: u8) -> Result<String> {
    let began = Instant::now();
    stage.start(node)?;
    Ok(format!("{:.1}", began.elapsed().as_secs_f64()))
}
