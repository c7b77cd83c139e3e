//! `tidegate-bench crash`: what a killed tracker loses of its records, and of its swarms.

mod records;
mod swarms;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Kill a tracker repeatedly while it is written to, and check its records or its swarms.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CrashCommand {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    records: records::RecordCrash,
}

#[derive(Subcommand)]
enum What {
    Swarms(swarms::SwarmCrash),
}

impl CrashCommand {
    /// Kills it and prints what each kill has lost.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match &self.what {
            None => self.records.run(),
            Some(What::Swarms(swarms)) => swarms.run(),
        }
    }
}

pub(crate) use swarms::report;
