//! `tidegate-bench cluster`: nodes that are one tracker, on hosts of a network of their own.
//!
//! ```text
//!                     clients ── announces, questions ──▶ nodes
//! host 1: node, NATS server ─┐
//! host 2: node, NATS server ─┼─ backbone: a switch that loses and delays, or a bridge
//! host 3: node, NATS server ─┘
//! ```

mod agreement;
mod arrangement;
mod browsers;
mod check;
mod lag;
mod report;
mod stage;
mod steps;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap::Subcommand;

pub(crate) use report::report;

/// Test and measure nodes that are one tracker (needs root).
#[derive(Args)]
pub(crate) struct ClusterCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Check(check::Check),
    Lag(lag::Lag),
}

impl ClusterCommand {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match &self.what {
            What::Check(command) => command.run(),
            What::Lag(command) => command.run(),
        }
    }
}
