//! Runs tests by cargo-nextest, as `.config/nextest.toml` describes.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use trials::command::{command, show};
use trials::venv::CARGO_TOOLS;

/// The numbers of tests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u32,
    failed: u32,
    /// Passed, but not on the first try. Also counted in `passed`.
    flaky: u32,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} flaky", self.passed, self.failed, self.flaky)
    }
}

static LAST: Mutex<Option<Tally>> = Mutex::new(None);

/// Returns the numbers of the last run of this process, if there was one.
pub(crate) fn last() -> Option<Tally> {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs tests, with output to the terminal.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    run_with(words, &[])
}

/// Runs tests with environment variables.
pub(crate) fn run_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Result<()> {
    let nextest = CARGO_TOOLS.program("cargo-nextest")?;
    let first = [&nextest, "nextest", "run", "--locked", "--config-file", ".config/nextest.toml"];
    let mut command = command(&[first.as_slice(), words].concat());
    command.envs(variables.iter().copied());
    let line = show(&command);
    println!("$ {line}");
    let mut child =
        command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
    let stderr = child.stderr.take().context("standard error was just piped")?;
    for text in BufReader::new(stderr).lines() {
        let text = text?;
        writeln!(std::io::stderr(), "{text}")?;
        if let Some(tally) = summary(&text) {
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(tally);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Parses nextest's last line, `Summary [ 9.0s] 5 tests run: 3 passed (1 slow, 1 flaky), 1 failed, ...`.
fn summary(line: &str) -> Option<Tally> {
    let counts = line.trim_start().strip_prefix("Summary [")?.split_once(" run: ")?.1;
    let mut tally = Tally::default();
    for part in counts.split([',', '(', ')']) {
        let (number, word) = part.trim().split_once(' ').unwrap_or_default();
        match word {
            "passed" => tally.passed = number.parse().ok()?,
            "flaky" => tally.flaky = number.parse().ok()?,
            "failed" | "timed out" | "exec failed" => tally.failed += number.parse::<u32>().ok()?,
            // `slow` and `leaky` tests have passed or failed, and `skipped` ones are neither.
            _ => {}
        }
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_summaries() {
        let counts = |text: &str| summary(&format!("     Summary [ 411.890s] {text}"));
        let tally = |passed, failed, flaky| Some(Tally { passed, failed, flaky });
        assert_eq!(counts("1009 tests run: 1009 passed, 0 skipped"), tally(1009, 0, 0));
        let mixed = "9/12 tests run: 6 passed (3 slow, 2 flaky), 1 failed, 2 timed out, 4 skipped";
        assert_eq!(counts(mixed), tally(6, 3, 2));
        assert_eq!(summary("PASS [ 0.1s] tests run: 3 passed"), None);
    }
}
