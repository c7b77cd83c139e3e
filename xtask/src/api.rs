//! The management API as its own document describes it: schemathesis makes requests of all kinds, good
//! and bad, and sees that the answers are what the document says.

use crate::clients::binary;
use crate::command::{Tally, command, output, run};
use crate::served::{Served, TOKEN};
use crate::workspace::root;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Pins schemathesis and every package below it.
const REQUIREMENTS: &str = "testing/api/requirements.txt";
/// The seeds of a run. What is generated depends on the seed, and so do failures.
const SEEDS: &[u64] = &[1, 2, 3];
/// Phases that try fixed cases, for the first seed alone, and their time limit in seconds.
const FIXED: (&str, &str) = ("examples,coverage", "40");
/// Phases that try random cases, for each seed. They repeat until their time in seconds is over.
const RANDOM: (&str, &str) = ("fuzzing,stateful", "35");
/// Requests for each operation, in each repetition of a phase.
const EXAMPLES: &str = "40";
/// Streams do not end, so schemathesis cannot read them.
const STREAMS: &str = "^/(events|stats/stream)$";

/// Installs schemathesis into a virtual environment, unless the one that is there was made from the
/// same requirements.
pub(crate) fn install() -> Result<()> {
    let requirements = fs::read(root().join(REQUIREMENTS)).context(REQUIREMENTS)?;
    let installed = folder().join("installed-requirements.txt");
    if fs::read(&installed).is_ok_and(|old| old == requirements) {
        println!("schemathesis is here");
        return Ok(());
    }
    let folder = folder().display().to_string();
    run(command(&["python3", "-m", "venv", "--clear", &folder]))?;
    let pip = format!("{folder}/bin/pip");
    let words = [&pip, "install", "--quiet", "--disable-pip-version-check"];
    // Without `--no-deps`, pip would add what the file does not name, in its newest version.
    run(command(&[&words, ["--no-deps", "--requirement", REQUIREMENTS].as_slice()].concat()))?;
    run(command(&[&pip, "check"])).context("the requirements are incomplete")?;
    fs::write(installed, requirements)?;
    Ok(())
}

/// Runs schemathesis with each of the seeds, or with [`SEEDS`] if there are none. Each run has a new
/// tracker, so that it can be repeated alone.
pub(crate) fn try_everything(seeds: &[u64]) -> Result<Tally> {
    install()?;
    let seeds = if seeds.is_empty() { SEEDS } else { seeds };
    let fixed = seeds.iter().take(1).map(|seed| (*seed, FIXED));
    let random = seeds.iter().map(|seed| (*seed, RANDOM));
    let mut tally = Tally::default();
    for (seed, (phases, seconds)) in fixed.chain(random) {
        let failed = || format!("seed {seed} failed; to repeat: cargo xtask api {seed}");
        tally.add(try_seed(seed, phases, seconds).with_context(failed)?);
    }
    Ok(tally)
}

fn try_seed(seed: u64, phases: &str, seconds: &str) -> Result<Tally> {
    let folder = root().join(format!("target/api-{}-{seed}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let served = Served::start(&binary(), &folder, "")?;
    let document = format!("http://{}/api/v1/openapi.json", served.admin);
    let header = format!("Authorization: Bearer {TOKEN}");
    let path = program().display().to_string();
    let seed = seed.to_string();
    let mut words = vec![path.as_str(), "run", &document, "--header", &header];
    words.extend(["--exclude-path-regex", STREAMS, "--max-examples", EXAMPLES]);
    words.extend(["--checks", "all", "--phases", phases, "--seed", &seed]);
    words.extend(["--max-time", seconds, "--request-timeout", "20", "--no-color"]);
    let mut schemathesis = command(&words);
    // It leaves its findings there.
    schemathesis.current_dir(&folder);
    let outcome = run(schemathesis).context("the API differs from its OpenAPI document");
    let is_alive = served.is_alive();
    drop(served);
    outcome?;
    anyhow::ensure!(is_alive, "the tracker has ended");
    fs::remove_dir_all(folder)?;
    Ok(Tally::ONE)
}

fn folder() -> PathBuf {
    root().join("target/tools/schemathesis")
}

fn program() -> PathBuf {
    folder().join("bin/schemathesis")
}

/// Whether `python3 -m venv` can be used.
pub(crate) fn has_venv() -> bool {
    output(command(&["python3", "-c", "import venv, ensurepip"])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_an_exact_version() {
        let text = fs::read_to_string(root().join(REQUIREMENTS)).unwrap();
        let pins: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(pins.iter().any(|pin| pin.starts_with("schemathesis==")));
        for pin in pins {
            let (name, version) = pin.split_once("==").expect(pin);
            let is_plain = |text: &str, more: &str| {
                !text.is_empty()
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
            };
            assert!(is_plain(name, "-_.") && is_plain(version, "."), "{pin}");
        }
    }
}
