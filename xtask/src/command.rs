//! Running other programs, and what came of a step.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// How many things a step tried, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl Tally {
    /// One thing tried, and it is well.
    pub(crate) const ONE: Self = Self { passed: 1, failed: 0 };

    /// The sum.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// An error if anything failed.
    pub(crate) fn verdict(self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} of {} failed", self.failed, self.passed + self.failed);
        }
        Ok(())
    }
}

/// A command in the workspace root, from words.
pub(crate) fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("callers name a program");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(crate::workspace::root());
    command
}

/// Runs to the end, output to the terminal. An error unless it exits with 0.
pub(crate) fn run(mut command: Command) -> Result<Tally> {
    let line = show(&command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(Tally::ONE)
}

/// Runs to the end and gives what it wrote to standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let line = show(&command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed: {}\n{}", output.status, why.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a `cargo test`, output to the terminal, and counts its tests.
pub(crate) fn run_tests(mut command: Command) -> Result<Tally> {
    let line = show(&command);
    println!("$ {line}");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
    let stdout = child.stdout.take().context("standard output was just piped")?;
    let mut tally = Tally::default();
    for text in BufReader::new(stdout).lines() {
        let text = text?;
        writeln!(std::io::stdout(), "{text}")?;
        tally.add(test_result(&text).unwrap_or_default());
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        bail!("`{line}` failed: {status}");
    }
    Ok(tally)
}

/// Reads libtest's closing line, `test result: ok. 3 passed; 0 failed; ...`.
fn test_result(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = counts.split("; ").map(|part| part.split_once(' '));
    let mut next = |what: &str| {
        let (number, word) = counts.next()??;
        (word == what).then(|| number.parse().ok())?
    };
    Some(Tally { passed: next("passed")?, failed: next("failed")? })
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_libtest() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; finished in 0s";
        assert_eq!(test_result(line), Some(Tally { passed: 12, failed: 3 }));
        assert_eq!(test_result("running 3 tests"), None);
        assert_eq!(test_result("test result: odd"), None);
    }

    #[test]
    fn a_failing_command_is_an_error() {
        assert!(output(command(&["false"])).is_err());
        assert_eq!(output(command(&["echo", "one two"])).unwrap(), "one two\n");
    }
}
