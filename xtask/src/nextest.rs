//! Runs tests by cargo-nextest, as `.config/nextest.toml` describes.

use anyhow::Result;
use std::ffi::OsStr;
use trials::command::command;
use trials::venv::CARGO_TOOLS;

/// Runs tests, with output to the terminal. At its end, nextest lists those that passed only when repeated.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    run_with(words, &[])
}

/// Runs tests with environment variables.
pub(crate) fn run_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Result<()> {
    let nextest = CARGO_TOOLS.program("cargo-nextest")?;
    let first = [&nextest, "nextest", "run", "--locked", "--config-file", ".config/nextest.toml"];
    let mut command = command(&[first.as_slice(), words].concat());
    command.envs(variables.iter().copied());
    trials::command::run(command)
}
