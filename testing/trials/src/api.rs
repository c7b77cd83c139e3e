//! The management API as its own document describes it: schemathesis makes requests of all kinds, good
//! and bad, and sees that the answers are what the document says.

use crate::command::{command, run};
use crate::tracker::{self, TOKEN};
use crate::venv::API_TOOLS;
use crate::workspace::{root, target};
use anyhow::{Context, Result};
use std::fs;

/// The seeds of a run. What is generated depends on the seed, and so do failures.
const SEEDS: &[u64] = &[1, 2, 3];
/// Phases that try fixed cases, for the first seed alone, and their time limit in seconds.
const FIXED: (&str, &str) = ("examples,coverage", "40");
/// Phases that try random cases, for each seed. They repeat until their time in seconds is over.
const RANDOM: (&str, &str) = ("fuzzing,stateful", "35");
/// Requests for each operation, in each repetition of a phase.
const EXAMPLES: &str = "40";
/// Streams do not end, so schemathesis cannot read them, and an upgrade ends the process that it talks to.
const LEFT_OUT: &str = "^/(events|stats/stream|process/upgrade)$";

/// Runs schemathesis with each of the seeds, or with three usual ones if there are none. Each run has a new
/// tracker, so that it can be repeated alone.
///
/// # Errors
///
/// Returns an error if the API differs from its document.
pub fn try_everything(seeds: &[u64]) -> Result<()> {
    let schemathesis = API_TOOLS.program("schemathesis")?;
    let seeds = if seeds.is_empty() { SEEDS } else { seeds };
    let fixed = seeds.iter().take(1).map(|seed| (*seed, FIXED));
    let random = seeds.iter().map(|seed| (*seed, RANDOM));
    for (seed, (phases, seconds)) in fixed.chain(random) {
        let failed = || format!("seed {seed} failed; to repeat: cargo xtask api {seed}");
        try_seed(&schemathesis, seed, phases, seconds).with_context(failed)?;
    }
    Ok(())
}

fn try_seed(program: &str, seed: u64, phases: &str, seconds: &str) -> Result<()> {
    let folder = target().join(format!("api-{}-{seed}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let tracker = tracker::start_managed(&folder, "")?;
    let document = format!("http://{}/api/v1/openapi.json", tracker::address(&tracker, "admin")?);
    let header = format!("Authorization: Bearer {TOKEN}");
    let seed = seed.to_string();
    let exceptions = root().join("testing/api/schemathesis.toml").display().to_string();
    let mut words = vec![program, "--config-file", &exceptions];
    words.extend(["run", &document, "--header", &header]);
    words.extend(["--exclude-path-regex", LEFT_OUT, "--max-examples", EXAMPLES]);
    // All checks are on by default. `--checks all` would override the exceptions.
    words.extend(["--phases", phases, "--seed", &seed]);
    words.extend(["--max-time", seconds, "--request-timeout", "20", "--no-color"]);
    let mut schemathesis = command(&words);
    // It leaves its findings there.
    schemathesis.current_dir(&folder);
    let outcome = run(schemathesis).context("the API differs from its OpenAPI document");
    let stopped = tracker.stop();
    outcome?;
    stopped.context("the tracker has ended")?;
    fs::remove_dir_all(folder)?;
    Ok(())
}
