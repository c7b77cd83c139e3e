//! `tidegate-bench cluster`: nodes that are one tracker, on hosts of a network of their own.
//!
//! ```text
//!                     clients ── announces, questions ──▶ nodes
//! host 1: node [+ NATS server] ─┐
//! host 2: node [+ NATS server] ─┼─ backbone: a switch that loses and delays, or a bridge with a rate
//! host 3: [node, NATS server]  ─┘
//! ```

#[cfg(target_os = "linux")]
mod agreement;
#[cfg(target_os = "linux")]
mod arrangement;
#[cfg(target_os = "linux")]
mod browsers;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod history;
#[cfg(target_os = "linux")]
mod lag;
#[cfg(target_os = "linux")]
mod nodes;
mod report;
#[cfg(target_os = "linux")]
mod seen;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod steps;
#[cfg(target_os = "linux")]
mod usage;
#[cfg(target_os = "linux")]
mod warm;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
#[cfg(target_os = "linux")]
use clap::Subcommand;

pub(crate) use report::report;

/// Test and measure nodes that are one tracker (needs root).
#[derive(Args)]
pub(crate) struct ClusterCommand {
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    what: What,
}

#[cfg(target_os = "linux")]
#[derive(Subcommand)]
enum What {
    Check(check::Check),
    Seen(seen::Seen),
    Warm(warm::Warm),
    Lag(lag::Lag),
    Cost(cost::Cost),
}

impl ClusterCommand {
    /// Runs the benchmark and reports it.
    #[cfg(target_os = "linux")]
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match &self.what {
            What::Check(command) => command.run(),
            What::Seen(command) => command.run(),
            What::Warm(command) => command.run(),
            What::Lag(command) => command.run(),
            What::Cost(command) => command.run(),
        }
    }

    /// Other systems have no network namespaces.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn run(&self) -> Result<ExitCode> {
        anyhow::bail!("this requires Linux")
    }
}
