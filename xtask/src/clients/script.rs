//! A script of `testing/clients/web` that runs all clients itself and checks every response.

use super::network::Family;
use crate::tracker::{self, TOKEN};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use harness::Process;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SCRIPT_MAX: Duration = Duration::from_secs(240);

/// Runs the script with this file name against a tracker with default settings. Fails unless it exits with 0.
pub(super) fn play(name: &str, folder: &Path) -> Result<()> {
    let tracker = tracker::start(folder, "")?;
    let mut command = Command::new("node");
    command.arg(root().join("testing/clients/web").join(name));
    command.arg(format!("{}:6969", Family::V4.address(1))).env("TIDEGATE_ADMIN_TOKEN", TOKEN);
    let script = Process::start_with_one_log(command, folder, "script");
    let status = script.context("cargo xtask setup")?.wait_for_end(SCRIPT_MAX)?;
    ensure!(status.success(), "{name} ended with {status}: see script.log");
    tracker.stop()
}
