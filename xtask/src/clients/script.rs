//! A script of `testing/clients/web` that runs all clients itself and checks every response.

use super::case::wait_for;
use super::pair::Family;
use super::tracker::{ADMIN_TOKEN, Tracker};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The script's file name.
#[derive(Debug)]
pub(super) struct Script(pub(super) &'static str);

const SCRIPT_MAX: Duration = Duration::from_secs(120);

impl Script {
    /// Runs it against a tracker with default settings. Fails unless it exits with 0.
    pub(super) fn play(&self, folder: &Path) -> Result<()> {
        let tracker = Tracker::start(folder, "")?;
        let log = File::create(folder.join("script.log"))?;
        let mut command = Command::new("node");
        command.arg(root().join("testing/clients/web").join(self.0));
        command.arg(format!("{}:6969", Family::V4.address(1)));
        command.env("TIDEGATE_ADMIN_TOKEN", ADMIN_TOKEN);
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        let mut child = command.spawn().context("node does not start; cargo xtask setup")?;
        wait_for(SCRIPT_MAX, "the script to end", || Ok(child.try_wait()?.is_some()))?;
        let status = child.wait()?;
        ensure!(status.success(), "{} ended with {status}: see script.log", self.0);
        tracker.stop()
    }
}
