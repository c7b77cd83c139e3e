//! The client as a library: its package is complete, its documentation compiles, and its examples do what they say.

use crate::command::{command, output, run};
use crate::tracker;
use crate::workspace::{root, target};
use anyhow::{Result, ensure};
use harness::http;
use std::fs;
use std::net::SocketAddr;

/// The client's crate, and those of ours that it needs.
const CRATES: [&str; 3] = ["tidegate-types", "tidegate-wire", "tidegate-client"];
const TORRENT: [u8; 20] = *b"an example's torrent";

/// Packages the crates without compiling them, runs the documentation's tests, and runs the examples.
///
/// # Errors
///
/// Returns an error if a package lacks something, or an example prints something else.
pub fn check() -> Result<()> {
    package(&["--no-verify"])?;
    let doc = ["cargo", "test", "--quiet", "--locked", "--doc", "--package", "tidegate-client"];
    run(command(&doc))?;
    try_examples()
}

/// Packages the crates, and compiles each from its package, as for a registry.
///
/// # Errors
///
/// Returns an error if one cannot be packaged or compiled.
pub fn check_packages() -> Result<()> {
    package(&[])
}

fn package(options: &[&str]) -> Result<()> {
    // The files are those of the work tree, committed or not.
    let mut cargo = command(&["cargo", "package", "--quiet", "--allow-dirty"]);
    cargo.args(options);
    for name in CRATES {
        cargo.args(["--package", name]);
    }
    run(cargo)?;
    let list =
        command(&["cargo", "package", "--quiet", "--allow-dirty", "--list", "-p", CRATES[2]]);
    let list = output(list)?;
    for file in ["README.md", "examples/announce.rs", "examples/scrape.rs", "src/lib.rs"] {
        ensure!(list.lines().any(|line| line == file), "the package lacks {file}");
    }
    Ok(())
}

fn try_examples() -> Result<()> {
    let folder = target().join(format!("examples-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let tracker = tracker::start(
        &folder,
        "[udp]\nlisten = [\"127.0.0.1:0\"]\n[http]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n\
         [tracker]\nprivate_addresses = \"allow\"\n",
    )?;
    let http_address = tracker::address(&tracker, "http")?;
    announce_seeder(http_address)?;
    let hash = TORRENT.map(|byte| format!("{byte:02x}")).concat();
    let udp = format!("udp://{}/announce", tracker::address(&tracker, "udp")?);
    let urls = [udp, format!("http://{http_address}/announce"), format!("ws://{http_address}/")];
    for url in &urls {
        let lines = example("announce", &[url, &hash])?;
        // WebTorrent peers get offers, not addresses.
        let peers = if url.starts_with("ws") { ": 0 peers" } else { ": 1 peers" };
        ensure!(lines.lines().next().is_some_and(|line| line.ends_with(peers)), "{url}: {lines}");
        let lines = example("scrape", &[url, &hash])?;
        ensure!(lines == format!("{hash} 1 seeders, 0 leechers\n"), "{url}: {lines}");
    }
    tracker.stop()?;
    Ok(fs::remove_dir_all(folder)?)
}

fn announce_seeder(address: SocketAddr) -> Result<()> {
    let hash = tracker::escaped(&TORRENT);
    let target =
        format!("/announce?info_hash={hash}&peer_id=-EX0001-000000000000&port=7000&left=0");
    ensure!(http::get(address, &target)?.status == 200, "the announce was refused");
    Ok(())
}

fn example(name: &str, arguments: &[&str]) -> Result<String> {
    let words = ["cargo", "run", "--quiet", "--locked", "--package", CRATES[2], "--example", name];
    let mut cargo = command(&words);
    cargo.current_dir(root()).arg("--").args(arguments);
    output(cargo)
}
