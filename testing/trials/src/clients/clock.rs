//! The tracker's swarms after a restart, with a wall clock that has jumped or gone on meanwhile.

use crate::tracker::{self, Counts, TOKEN, escaped};
use crate::workspace::binary;
use anyhow::{Context, Result, ensure};
use harness::{Signal, Tracker, http};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// From Debian's package `libfaketime`.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const ADDRESS: &str = "127.0.0.1:6969";
const TORRENT: [u8; 20] = *b"the time has changed";
/// Where the clock is at the next start, and whether a peer is still there then. The lifetime of peers is 45
/// minutes, and of the time in which the tracker did not serve the first ten do not count.
const JUMPS: [(&str, bool); 6] =
    [("+5m", true), ("+20m", true), ("+2h", false), ("+1d", false), ("-1d", true), ("-2d", false)];
/// Longer than the journal takes to write what has happened.
const JOURNALLED_AFTER: Duration = Duration::from_secs(1);

/// Plays all jumps, each with a journal of its own.
pub(super) fn play(folder: &Path) -> Result<()> {
    ensure!(Path::new(LIBRARY).exists(), "no {LIBRARY}: cargo xtask setup");
    for (jump, is_kept) in JUMPS {
        let folder = folder.join(format!("clock{jump}"));
        fs::create_dir_all(&folder)?;
        restart(&folder, jump, is_kept).with_context(|| format!("the clock at {jump}"))?;
        println!("  {jump}: {}", if is_kept { "kept" } else { "forgotten" });
    }
    Ok(())
}

fn restart(folder: &Path, jump: &str, is_kept: bool) -> Result<()> {
    let mut tracker = start(folder, "+0")?;
    let hash = escaped(&TORRENT);
    let announce =
        format!("/announce?info_hash={hash}&peer_id=-CL0001-000000000000&port=7000&left=0");
    let address: SocketAddr = ADDRESS.parse()?;
    ensure!(http::get(address, &announce)?.status == 200, "the announce was refused");
    thread::sleep(JOURNALLED_AFTER);
    tracker.signal(Signal::SIGTERM)?;
    ensure!(tracker.wait_for_end()?.success(), "the tracker failed on SIGTERM");
    let tracker = start(folder, jump)?;
    let expected = Counts { complete: u64::from(is_kept), downloaded: 0, incomplete: 0 };
    tracker::wait_for_counts(address, "/scrape", &TORRENT, expected)?;
    tracker.stop()
}

/// Starts the tracker with a wall clock that is off by `offset`.
fn start(folder: &Path, offset: &str) -> Result<Tracker> {
    let mut command = Command::new(binary());
    command.arg("serve").env("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN);
    command.env("LD_PRELOAD", LIBRARY).env("FAKETIME", offset);
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    let state = folder.join("state");
    Tracker::start(command, folder, &format!("[state]\ndir = {state:?}\n"))
}
