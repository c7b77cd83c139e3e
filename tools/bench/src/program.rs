//! The tidegate that trials and clusters start themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use harness::Tracker;

use crate::lab::TOKEN_VARIABLES;

/// Options that select the program to start.
#[derive(Args)]
pub struct ProgramArgs {
    /// The tracker [default: the tidegate beside this program].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl ProgramArgs {
    /// Starts it with a configuration, which is written to a folder, and waits until it serves.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no program, or if it does not serve.
    pub fn start(&self, folder: &Path, configuration: &str) -> Result<Tracker> {
        let mut command = Command::new(self.path()?);
        let [(name, token), _] = TOKEN_VARIABLES;
        command.arg("serve").env(name, token).stdin(Stdio::null());
        Tracker::start(command, folder, configuration)
    }

    pub(crate) fn path(&self) -> Result<PathBuf> {
        let beside = std::env::current_exe().context("no path of this program")?;
        let program = self.program.clone().unwrap_or_else(|| beside.with_file_name("tidegate"));
        ensure!(program.is_file(), "no {}: build it, or name it with --program", program.display());
        Ok(std::path::absolute(program)?)
    }
}
