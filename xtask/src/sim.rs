//! Simulated clusters: edge/cluster/tests/simulation, by seeds.

use crate::command::{command, run};
use anyhow::{Context, Result};

/// Runs one seed, and prints what happens in it.
pub(crate) fn run_one(seed: &str) -> Result<()> {
    let seed: u64 = seed.parse().context("expected a number as the seed")?;
    simulate(&[], seed..seed + 1)
}

/// Runs seeds from `from` on by a release build, and prints those that fail.
pub(crate) fn run_many(from: &str, seeds: &str) -> Result<()> {
    let from: u64 = from.parse().context("expected a number as the first seed")?;
    let seeds: u64 = seeds.parse().context("expected a number of seeds")?;
    simulate(&["--release"], from..from.saturating_add(seeds))
}

fn simulate(options: &[&str], seeds: std::ops::Range<u64>) -> Result<()> {
    let test =
        ["cargo", "test", "--quiet", "--package", "tidegate-cluster", "--test", "simulation"];
    let filter = ["--", "--ignored", "--nocapture", "--exact", "seeds"];
    let mut command = command(&[&test, options, &filter].concat());
    command.env("TIDEGATE_SIM_SEEDS", format!("{}..{}", seeds.start, seeds.end));
    command.env("RUST_BACKTRACE", "0");
    run(command)?;
    Ok(())
}
