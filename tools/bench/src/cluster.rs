//! `tidegate-bench cluster`: nodes that are one tracker, on hosts of a network of their own.
//!
//! ```text
//!                     clients ── announces, questions ──▶ nodes
//! host 1: node, NATS server ─┐
//! host 2: node, NATS server ─┼─ backbone: a switch that loses and delays, or a bridge
//! host 3: node, NATS server ─┘
//! ```

mod arrangement;
mod lag;
mod report;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap::Subcommand;

pub use arrangement::{ClusterPlan, NAME, PATIENCE, PEER_LIFETIME, STREAM, TestCluster};
pub(crate) use report::report;

/// Measure nodes that are one tracker (needs root).
#[derive(Args)]
pub(crate) struct ClusterCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Lag(lag::Lag),
}

impl ClusterCommand {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let What::Lag(command) = &self.what;
        command.run()
    }
}
