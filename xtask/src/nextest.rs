//! Runs tests by cargo-nextest, as `.config/nextest.toml` describes.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use trials::command::{Tally, command, show};
use trials::venv::CARGO_TOOLS;

/// Runs tests, with output to the terminal.
pub(crate) fn run(words: &[&str]) -> Result<Tally> {
    run_with(words, &[])
}

/// Runs tests with environment variables.
pub(crate) fn run_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Result<Tally> {
    let nextest = CARGO_TOOLS.program("cargo-nextest")?;
    let first = [&nextest, "nextest", "run", "--locked", "--config-file", ".config/nextest.toml"];
    let mut command = command(&[first.as_slice(), words].concat());
    command.envs(variables.iter().copied());
    let line = show(&command);
    println!("$ {line}");
    let mut child =
        command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
    let stderr = child.stderr.take().context("standard error was just piped")?;
    let mut tally = None;
    for text in BufReader::new(stderr).lines() {
        let text = text?;
        writeln!(std::io::stderr(), "{text}")?;
        tally = tally.or_else(|| summary(&text));
    }
    let status = child.wait()?;
    match tally {
        Some(tally) if status.success() || tally.failed > 0 => Ok(tally),
        _ => bail!("`{line}` failed: {status}"),
    }
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
