//! The load testers against two unrelated trackers: tidegate, and npm's bittorrent-tracker.

use super::case::wait_for;
use super::tracker::{Tracker, binary};
use crate::command::{command, output};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// The arguments of each load, the same for both trackers.
const SCENARIO: &str = "--json --warm-up 0 --seconds 2 --torrents 20 --check-every 1";
/// Fewer responses than this are not a load.
const ANSWERS_MIN: u64 = 200;
const PORT: u16 = 7000;

/// Puts both trackers under load, one protocol after the other.
pub(super) fn play(folder: &Path) -> Result<()> {
    let tracker = Tracker::start(folder, "[http]\nwebsocket_messages_per_s = 0\n")?;
    for (seed, protocol) in ["udp", "http", "ws"].into_iter().enumerate() {
        let load = |port| load(protocol, seed, port);
        let figures = load(6969).context("tidegate")?;
        ensure!(figures.contains("\"errors\":{}"), "{protocol}: {figures}");
        for fault in ["lost", "own_address", "duplicates", "bad_counts"] {
            ensure!(number(&figures, fault) == Some(0), "tidegate, {protocol}: {figures}");
        }
        let other = Other::start(folder, protocol)?;
        let figures = load(PORT).context("bittorrent-tracker")?;
        drop(other);
        // bittorrent-tracker sends peers their own address, except over ws, and the check finds that.
        let found = number(&figures, "own_address").is_some_and(|times| times > 0);
        ensure!(found == (protocol != "ws"), "bittorrent-tracker, {protocol}: {figures}");
    }
    tracker.stop()
}

/// Runs a load and returns its JSON report. Fails unless it was answered.
fn load(protocol: &str, seed: usize, port: u16) -> Result<String> {
    let path = if protocol == "http" { "announce" } else { "" };
    let url = format!("{protocol}://127.0.0.1:{port}/{path}");
    let mut command = Command::new(binary());
    command.args(["load", protocol, &url]).args(SCENARIO.split(' '));
    // Each load needs torrents of its own: it would not know the peers of another protocol's load.
    command.args(["--seed", &seed.to_string()]);
    let figures = output(command)?;
    let answers = number(&figures, "announce").context("no announces")?;
    ensure!(answers >= ANSWERS_MIN, "{protocol}: {answers} answers: {figures}");
    println!("  {url}: {answers} announces answered");
    Ok(figures)
}

/// Returns the integer behind the first occurrence of a key.
fn number(json: &str, key: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

/// bittorrent-tracker with one protocol. It is killed when dropped.
struct Other(Child);

impl Other {
    fn start(folder: &Path, protocol: &str) -> Result<Self> {
        let log = File::create(folder.join("script.log"))?;
        let port = PORT.to_string();
        let script = "bench/rivals/bittorrent-tracker.mjs";
        let modules = "testing/clients/web/node_modules";
        let mut node = command(&["node", script, modules, "127.0.0.1", &port, protocol]);
        node.stderr(log.try_clone()?).stdout(log);
        let other = Self(node.spawn().context("node does not start")?);
        wait_for(Duration::from_secs(30), "bittorrent-tracker to listen", || {
            Ok(match protocol {
                "udp" => UdpSocket::bind(("127.0.0.1", PORT)).is_err(),
                _ => TcpStream::connect(("127.0.0.1", PORT)).is_ok(),
            })
        })?;
        Ok(other)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // If it has ended already, the load has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let json = r#"{"responses":{"announce":12,"scrape":3},"lost":0}"#;
        assert_eq!((number(json, "announce"), number(json, "lost")), (Some(12), Some(0)));
        assert_eq!(number(json, "late"), None);
    }
}
