//! Fuzzing: replaying the corpora on the stable toolchain, and searching for new inputs.

use crate::command::{Tally, command, output, run};
use crate::nextest;
use crate::workspace::{root, target};
use anyhow::{Result, bail};

/// The fuzz targets are a workspace of their own.
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";

/// Runs every committed input, and mutations of it, through its target, so that fixed bugs stay fixed.
pub(crate) fn replay() -> Result<Tally> {
    // In the workspace's target folder, where most of its dependencies are compiled already.
    let folder = target().display().to_string();
    nextest::run(&["--manifest-path", MANIFEST, "--target-dir", &folder])
}

/// Searches for new inputs by cargo-fuzz on nightly, for 60 s by default. It starts from the committed
/// corpus; new interesting inputs are stored in `fuzz/target`. No test depends on it, so the nightly toolchain is not
/// pinned.
pub(crate) fn search(target: &str, seconds: Option<u32>) -> Result<()> {
    if output(command(&["cargo", "+nightly", "fuzz", "--version"])).is_err() {
        bail!(
            "fuzzing needs a nightly toolchain and cargo-fuzz: \
             rustup toolchain install nightly && cargo install cargo-fuzz@0.13.2 --locked"
        );
    }
    let found = format!("fuzz/target/corpus/{target}");
    std::fs::create_dir_all(root().join(&found))?;
    let corpus = format!("fuzz/corpus/{target}");
    let time = format!("-max_total_time={}", seconds.unwrap_or(60));
    let mut command = command(&["cargo", "+nightly", "fuzz", "run", "--features", "search"]);
    command.args([target, &found, &corpus, "--", &time, "-print_final_stats=1"]);
    // SQLite, compiled as several units, has constants of one name.
    command.env("ASAN_OPTIONS", "detect_odr_violation=0");
    let words = format!("fuzz/dictionaries/{target}.dict");
    if root().join(&words).is_file() {
        command.arg(format!("-dict={words}"));
    }
    run(command)?;
    Ok(())
}
