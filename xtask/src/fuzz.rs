//! The fuzz targets: their corpora replayed on the stable toolchain, and the search itself.

use crate::command::{Tally, command, output, run, run_tests};
use anyhow::{Result, bail};

/// Feeds every committed input to its target, as plain tests: what was once found stays mended.
pub(crate) fn replay() -> Result<Tally> {
    run_tests(command(&["cargo", "test", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]))
}

/// Searches for new inputs by cargo-fuzz on nightly, for a minute unless told otherwise.
pub(crate) fn search(target: &str, seconds: Option<u32>) -> Result<()> {
    if output(command(&["cargo", "+nightly", "fuzz", "--version"])).is_err() {
        bail!(
            "fuzzing needs a nightly toolchain and cargo-fuzz: \
             rustup toolchain install nightly && cargo install cargo-fuzz"
        );
    }
    let time = format!("-max_total_time={}", seconds.unwrap_or(60));
    run(command(&[
        "cargo",
        "+nightly",
        "fuzz",
        "run",
        "--features",
        "search",
        target,
        "--",
        &time,
    ]))?;
    Ok(())
}
