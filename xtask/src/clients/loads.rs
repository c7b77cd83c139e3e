//! The load testers against two unrelated trackers: tidegate, and npm's bittorrent-tracker.

use crate::command::{command, output};
use crate::tracker;
use crate::workspace::binary;
use anyhow::{Context, Result, ensure};
use harness::{PATIENCE, Process, wait_for};
use serde_json::{Value, json};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

/// The arguments of each load, the same for both trackers.
const SCENARIO: &str = "--json --warm-up 0 --seconds 2 --torrents 20 --check-every 1";
/// Fewer responses than this are not a load.
const ANSWERS_MIN: u64 = 200;
const PORT: u16 = 7000;

/// Puts both trackers under load, one protocol after the other.
pub(super) fn play(folder: &Path) -> Result<()> {
    let tracker = tracker::start(folder, "[http]\nwebsocket_messages_per_s = 0\n")?;
    for (seed, protocol) in ["udp", "http", "ws"].into_iter().enumerate() {
        let load = |port| load(protocol, seed, port);
        let figures = load(6969).context("tidegate")?;
        ensure!(figures["errors"] == json!({}), "{protocol}: {figures}");
        for fault in ["/lost", "/checks/own_address", "/checks/duplicates", "/checks/bad_counts"] {
            let is_none = figures.pointer(fault).is_some_and(|number| *number == 0);
            ensure!(is_none, "tidegate, {protocol}: {fault}: {figures}");
        }
        let other = start_other(folder, protocol)?;
        let figures = load(PORT).context("bittorrent-tracker")?;
        drop(other);
        // bittorrent-tracker sends peers their own address, except over ws, and the check finds that.
        let found = figures["checks"]["own_address"].as_u64().is_some_and(|times| times > 0);
        ensure!(found == (protocol != "ws"), "bittorrent-tracker, {protocol}: {figures}");
    }
    tracker.stop()
}

/// Runs a load and returns its report. Fails unless it was answered.
fn load(protocol: &str, seed: usize, port: u16) -> Result<Value> {
    let path = if protocol == "http" { "announce" } else { "" };
    let url = format!("{protocol}://127.0.0.1:{port}/{path}");
    let mut command = Command::new(binary().with_file_name("tidegate-bench"));
    command.args(["load", protocol, &url]).args(SCENARIO.split(' '));
    // Each load needs torrents of its own: it would not know the peers of another protocol's load.
    command.args(["--seed", &seed.to_string()]);
    let figures: Value = serde_json::from_str(&output(command)?)?;
    let answers = figures["responses"]["announce"].as_u64().unwrap_or_default();
    ensure!(answers >= ANSWERS_MIN, "{protocol}: {answers} answers: {figures}");
    println!("  {url}: {answers} announces answered");
    Ok(figures)
}

/// Starts bittorrent-tracker with one protocol.
fn start_other(folder: &Path, protocol: &str) -> Result<Process> {
    let script = "bench/rivals/bittorrent-tracker.mjs";
    let modules = "testing/clients/web/node_modules";
    let node = command(&["node", script, modules, "127.0.0.1", &PORT.to_string(), protocol]);
    let other = Process::start_with_one_log(node, folder, "script").context("cargo xtask setup")?;
    wait_for(PATIENCE, "bittorrent-tracker to listen", || {
        Ok(match protocol {
            "udp" => answers_connects()?,
            _ => TcpStream::connect(("127.0.0.1", PORT)).is_ok(),
        })
    })?;
    Ok(other)
}

/// Returns whether a UDP tracker answers. While nothing listens, the kernel refuses the datagram at once.
fn answers_connects() -> Result<bool> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(("127.0.0.1", PORT))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // A connect request (BEP 15): the protocol's constant, action 0, and any transaction id.
    socket.send(&[0x417_2710_1980_u64, 7].map(u64::to_be_bytes).concat())?;
    Ok(socket.recv(&mut [0; 16]).is_ok())
}
