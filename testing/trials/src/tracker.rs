//! The tracker under test.

use crate::workspace::binary;
use anyhow::{Context, Result, ensure};
use harness::{Tracker, http, wait_for};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A token with full access to its API and dashboard.
pub(crate) const TOKEN: &str = "tg_xtaskxtaskxtaskxtaskxtaskxtask01";

/// The longest that a client may take to announce. A browser needs seconds of CPU time before its first announce, and
/// the machine may be busy.
pub(crate) const ANNOUNCE_MAX: Duration = Duration::from_secs(120);

/// Starts the tracker with defaults, but for what `configuration` says, and waits until it serves. Its log
/// is `tracker.log` in `folder`.
pub(crate) fn start(folder: &Path, configuration: &str) -> Result<Tracker> {
    start_program(&binary(), folder, configuration)
}

/// The same with another file of the program.
pub(crate) fn start_program(program: &Path, folder: &Path, configuration: &str) -> Result<Tracker> {
    Tracker::start(serve(program), folder, configuration)
}

fn serve(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").env("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN);
    command
}

/// Starts the tracker with HTTP and management on loopback ports of the system's choice, with records in
/// `folder`, without limits of the API, and with `more` behind its `[state]` section.
pub(crate) fn start_managed(folder: &Path, more: &str) -> Result<Tracker> {
    let state = folder.join("state");
    let configuration = format!(
        "[udp]\nlisten = []\n[http]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n\
         requests_per_s = 0\nwrong_tokens_per_min = 1000000\nwebhook_ports = [\"443\"]\n[state]\ndir = {state:?}\n{more}"
    );
    start(folder, &configuration)
}

/// Returns the address of a listener on 127.0.0.1.
pub(crate) fn address(tracker: &Tracker, kind: &str) -> Result<SocketAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    tracker.address(kind, loopback).with_context(|| format!("no {kind} listener"))
}

/// The counts of a torrent in a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) complete: u64,
    pub(crate) downloaded: u64,
    pub(crate) incomplete: u64,
}

/// Scrapes a torrent over HTTP. `path` has the key of a private tracker.
pub(crate) fn scrape(address: SocketAddr, path: &str, info_hash: &[u8; 20]) -> Result<Counts> {
    let response = http::get(address, &format!("{path}?info_hash={}", escaped(info_hash)))?;
    ensure!(response.status == 200, "a scrape was answered with status {}", response.status);
    let number = |key| bencoded_number(&response.body, key).with_context(|| format!("no {key}"));
    Ok(Counts {
        complete: number("complete")?,
        downloaded: number("downloaded")?,
        incomplete: number("incomplete")?,
    })
}

/// Waits until a scrape of a torrent returns these counts.
pub(crate) fn wait_for_counts(
    address: SocketAddr,
    path: &str,
    info_hash: &[u8; 20],
    expected: Counts,
) -> Result<()> {
    let mut found = None;
    let waited = wait_for(ANNOUNCE_MAX, "the scrape", || {
        found = Some(scrape(address, path, info_hash)?);
        Ok(found == Some(expected))
    });
    waited.with_context(|| format!("expected {expected:?} at {address}, found {found:?}"))
}

/// Returns an info hash as it is written in a query.
pub(crate) fn escaped(info_hash: &[u8; 20]) -> String {
    info_hash.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// Returns the integer behind a key, wherever it stands.
fn bencoded_number(bytes: &[u8], key: &str) -> Option<u64> {
    let key = format!("{}:{key}i", key.len());
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes())?;
    let digits = bytes[at + key.len()..].split(|byte| *byte == b'e').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
