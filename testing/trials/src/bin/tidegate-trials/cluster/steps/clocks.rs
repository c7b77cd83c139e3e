//! A node with a wrong clock, by libfaketime.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bench::Api;
use bench::cluster::TestCluster;

use super::super::stage::Stage;

/// From Debian's package `libfaketime`.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// The node.
const NODE: u8 = 3;

/// Seconds by which its clock is ahead.
const AHEAD_S: u32 = 3600;

/// An hour ahead.
pub(super) fn one_hour(stage: &mut Stage) -> Result<String> {
    ensure!(Path::new(LIBRARY).exists(), "no {LIBRARY}: cargo xtask setup");
    restart(
        stage,
        vec![
            ("LD_PRELOAD", LIBRARY.to_owned()),
            ("FAKETIME", format!("+{AHEAD_S}s")),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ],
    )?;
    let node = NODE.to_string();
    let label = [("node", node.as_str())];
    let offset = || stage.cluster.metric(1, "tidegate_cluster_clock_offset_seconds", &label);
    stage.hold(20, 4);
    let seen = offset()?;
    ensure!((seen - f64::from(AHEAD_S)).abs() < 1.0, "node 1 sees an offset of {seen:.1} s");
    let status = Api::open(TestCluster::api(NODE)).and_then(|mut api| {
        let (status, _) = api.exchange("GET /health/ready", "")?;
        Ok(status.to_string())
    });
    let status = status.unwrap_or_else(|_| "none".into());
    restart(stage, Vec::new())?;
    Ok(format!(
        "node {NODE} {AHEAD_S} s ahead: node 1 sees {seen:.1} s; its /health/ready: {status}"
    ))
}

/// Starts the node again with other variables, while clients go elsewhere.
fn restart(stage: &mut Stage, variables: Vec<(&'static str, String)>) -> Result<()> {
    stage.route(NODE, false);
    thread::sleep(Duration::from_millis(500));
    stage.cluster.stop_node(NODE)?;
    stage.cluster.set_variables(NODE, variables);
    stage.cluster.start_node(NODE)
}
