//! The states in which the dashboard is pictured.

use super::take;
use crate::clients::set_up_network;
use crate::command::{command, output};
use crate::tracker::{self, TOKEN};
use crate::workspace::{binary, root};
use anyhow::Result;
use harness::nats::{Nats, Operator};
use harness::network::Link;
use harness::network::sites::{Backbone, Sites, backbone_address, public_address};
use harness::{Process, Tracker, wait_for};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Takes the pictures of a scene into the first folder. The second is for its own files.
type Scene = (&'static str, fn(&Path, &Path) -> Result<()>);

/// All scenes, by the states in the names of their pictures.
pub(super) const SCENES: &[Scene] =
    &[("busy", busy), ("disk-full", disk_full), ("partition", partition)];

/// Where the tracker listens for management.
const ADMIN: &str = "127.0.0.1:6970";
/// Networks of documentation that clients of the load announce from.
const CLIENTS: [&str; 4] = ["203.0.113.21", "198.51.100.34", "192.0.2.55", "203.0.113.140"];
/// The time that the load runs before pictures are taken.
const LOAD: Duration = Duration::from_secs(45);
const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration with durable records, and `more` behind them.
fn configuration(at: &Path, more: &str) -> Result<String> {
    let state = at.join("state");
    fs::create_dir_all(&state)?;
    Ok(format!("[state]\ndir = {state:?}\n{more}"))
}

/// Starts the load of many kinds.
fn load(at: &Path) -> Result<Process> {
    for address in CLIENTS {
        output(command(&["ip", "address", "add", &format!("{address}/32"), "dev", "lo"]))?;
    }
    let mut script = Command::new("node");
    script.arg(root().join("testing/clients/web/load.mjs")).arg("127.0.0.1:6969").args(CLIENTS);
    Process::start_with_one_log(script, at, "load")
}

fn busy(folder: &Path, at: &Path) -> Result<()> {
    set_up_network()?;
    let more = "[http]\ntrusted_proxies = [\"127.0.0.1\"]\n[admin]\nwebhook_ports = [\"443\"]\n";
    let tracker = tracker::start(at, &configuration(at, more)?)?;
    let _load = load(at)?;
    sleep(LOAD / 2);
    tracker.upgrade()?;
    sleep(LOAD / 2);
    take(folder, ADMIN, "busy", &[])
}

/// Records and journal are on a file system without space.
fn disk_full(folder: &Path, at: &Path) -> Result<()> {
    set_up_network()?;
    let state = at.join("state");
    fs::create_dir_all(&state)?;
    let size = ["-o", "size=4m,mode=0700"];
    let mut mount = command(&["mount", "-t", "tmpfs"]);
    mount.args(size).arg("tmpfs").arg(&state);
    output(mount)?;
    let _tracker = tracker::start(at, &configuration(at, "")?)?;
    let _load = load(at)?;
    sleep(Duration::from_secs(15));
    // Until no byte fits any more.
    let filled = fs::write(state.join("filler"), vec![0; 8 << 20]);
    anyhow::ensure!(filled.is_err(), "the file system should be full");
    wait_for(PATIENCE, "the journal to fail", || {
        let status = api(ADMIN, "/api/v1/status")?;
        Ok(status["health"].as_array().is_some_and(|items| !items.is_empty()))
    })?;
    take(folder, ADMIN, "disk-full", &["overview", "log"])
}

/// Returns what the API answers.
fn api(admin: &str, path: &str) -> Result<serde_json::Value> {
    let mut curl = command(&["curl", "--silent", "--fail", "--header"]);
    curl.arg(format!("Authorization: Bearer {TOKEN}")).arg(format!("http://{admin}{path}"));
    Ok(serde_json::from_str(&output(curl)?)?)
}

/// Three nodes and three NATS servers; the third site loses its links.
fn partition(folder: &Path, at: &Path) -> Result<()> {
    let sites = Sites::new(3, Backbone::Switch)?;
    let _inside = sites.clients().enter()?;
    let addresses = [1, 2, 3].map(|host| backbone_address(host).to_string());
    let operator = Operator::init(&binary(), &at.join("operator"), "example", &addresses)?;
    let _nats = Nats::start_in(&sites, &operator)?;
    operator.run("set")?;
    let mut nodes = Vec::new();
    for number in 1..=3 {
        nodes.push(start_node(&sites, number, at, &operator)?);
    }
    let _loads = [1, 2, 3].map(|number| load_of(number, at));
    for number in 1..=3 {
        wait_for(PATIENCE, "all nodes to hear each other", || {
            Ok(api(&admin_of(number), "/api/v1/cluster")?["problems"]
                .as_array()
                .is_some_and(Vec::is_empty))
        })?;
    }
    sleep(Duration::from_secs(20));
    for other in [1, 2] {
        sites.set_link(3, other, Link::CUT);
    }
    let cut = Instant::now();
    wait_for(PATIENCE, "node 3 to be gone", || {
        let cluster = api(&admin_of(1), "/api/v1/cluster")?;
        Ok(cluster["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.iter().any(|node| node["state"] == "gone")))
    })?;
    println!("node 3 is gone {:.0} s after its links were cut", cut.elapsed().as_secs_f32());
    let pages = ["nodes", "overview"];
    take(folder, &admin_of(1), "partition", &pages)?;
    take(folder, &admin_of(3), "cut-off", &pages)
}

fn admin_of(node: u8) -> String {
    format!("{}:6970", public_address(node))
}

fn start_node(sites: &Sites, number: u8, at: &Path, operator: &Operator) -> Result<Tracker> {
    let folder = at.join(format!("node{number}"));
    fs::create_dir_all(&folder)?;
    operator.run(&format!("invite {number} --zone site-{number}"))?;
    let join = operator.folder().join(format!("node-{number}.join"));
    let address = public_address(number);
    let cluster = format!(
        "[udp]\nlisten = [\"{address}:6969\"]\n[http]\nlisten = [\"{address}:6969\"]\n[admin]\nlisten = [\"{address}:6970\"]\n\
         hosts = [\"*\"]\n[cluster]\njoin = {join:?}\n"
    );
    let mut command = Command::new(binary());
    command.arg("serve").env("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN);
    Tracker::start_in(sites.host(number), command, &folder, &configuration(&folder, &cluster)?)
}

fn load_of(node: u8, at: &Path) -> Result<Process> {
    let mut script = Command::new("node");
    script
        .arg(root().join("testing/clients/web/load.mjs"))
        .arg(format!("{}:6969", public_address(node)));
    script.args(["198.18.0.7", "198.18.0.8"]);
    Process::start_with_one_log(script, at, &format!("load{node}"))
}
