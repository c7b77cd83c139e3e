//! Simulated clusters: edge/cluster/tests/simulation, by seeds.

use anyhow::{Context, Result};
use trials::command::{command, run};

/// The scenario with some faults of all kinds.
pub(crate) const MIXED: &str = "Mixed";

/// Runs one seed of a scenario, and prints what happens in it.
pub(crate) fn run_one(seed: &str, name: &str) -> Result<()> {
    let seed: u64 = seed.parse().context("expected a number as the seed")?;
    simulate(&[], seed..seed + 1, name)
}

/// Runs seeds of a scenario or a canary by a release build, and prints those that fail, or the first that catches the
/// canary.
pub(crate) fn run_many(seeds: &str, name: &str) -> Result<()> {
    let seeds: u64 = seeds.parse().context("expected a number of seeds")?;
    simulate(&["--release"], 0..seeds, name)
}

fn simulate(options: &[&str], seeds: std::ops::Range<u64>, name: &str) -> Result<()> {
    let test =
        ["cargo", "test", "--quiet", "--package", "tidegate-cluster", "--test", "simulation"];
    let filter = ["--", "--ignored", "--nocapture", "--exact", "seeds"];
    let mut command = command(&[&test, options, &filter].concat());
    command.env("TIDEGATE_SIM", name);
    command.env("TIDEGATE_SIM_SEEDS", format!("{}..{}", seeds.start, seeds.end));
    command.env("RUST_BACKTRACE", "0");
    run(command)?;
    Ok(())
}
