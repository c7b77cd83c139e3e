//! A script of `testing/clients/web` that runs all clients itself and checks every response.

use super::network::Family;
use super::torrent::Torrent;
use crate::tracker::{self, TOKEN};
use crate::workspace::{binary, root};
use anyhow::{Context, Result, ensure};
use harness::Process;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SCRIPT_MAX: Duration = Duration::from_secs(240);

/// Runs the script with this file name against a tracker with default settings. Fails unless it exits with 0.
pub(super) fn play(name: &str, folder: &Path) -> Result<()> {
    let tracker = tracker::start(folder, "")?;
    run(name, folder, &[])?;
    tracker.stop()
}

/// Runs the test of the dashboard, which replaces the program and upgrades the tracker at its end. The tracker knows the
/// name of one torrent.
pub(super) fn play_dashboard(folder: &Path) -> Result<()> {
    let torrents = folder.join("torrents");
    fs::create_dir(&torrents)?;
    let torrent = Torrent::new("udp://localhost:6969/announce");
    fs::write(torrents.join("payload.torrent"), &torrent.file)?;
    let state = folder.join("state");
    let configuration = format!(
        "[state]\ndir = {state:?}\n[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:6971\"]\naccess.mode = \"allow\"\n\
         access.allow_torrents = {torrents:?}\n"
    );
    let program = folder.join("tidegate");
    fs::copy(binary(), &program)?;
    let tracker = tracker::start_program(&program, folder, &configuration)?;
    let hash = torrent.info_hash_hex();
    let pid = tracker.pid().to_string();
    let program = program.to_string_lossy();
    let variables = [
        ("TIDEGATE_TORRENT", hash.as_str()),
        ("TIDEGATE_PID", pid.as_str()),
        ("TIDEGATE_PROGRAM", &program),
    ];
    tracker.upgrade_by(|| run("dashboard.mjs", folder, &variables))?;
    // The cost of the first page, for records.
    let log = fs::read_to_string(folder.join("script.log"))?;
    log.lines().filter(|line| line.contains("first paint")).for_each(|line| println!("{line}"));
    tracker.stop()
}

fn run(name: &str, folder: &Path, variables: &[(&str, &str)]) -> Result<()> {
    let mut command = Command::new("node");
    command.arg(root().join("testing/clients/web").join(name));
    command.arg(format!("{}:6969", Family::V4.address(1))).env("TIDEGATE_ADMIN_TOKEN", TOKEN);
    command.envs(variables.iter().copied());
    let script = Process::start_with_one_log(command, folder, "script");
    let status = script.context("cargo xtask setup")?.wait_for_end(SCRIPT_MAX)?;
    ensure!(status.success(), "{name} ended with {status}: see script.log");
    Ok(())
}
