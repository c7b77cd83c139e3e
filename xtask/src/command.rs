//! Running other programs, and the results of steps.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// The numbers of passed and failed checks of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl Tally {
    /// One check that passed.
    pub(crate) const ONE: Self = Self { passed: 1, failed: 0 };

    /// Adds another step's numbers.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Returns an error if a check failed.
    pub(crate) fn verdict(self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} of {} failed", self.failed, self.passed + self.failed);
        }
        Ok(())
    }
}

/// Creates a command, which runs in the workspace root.
pub(crate) fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("callers name a program");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(crate::workspace::root());
    command
}

/// Runs a command to its end, with output to the terminal. Fails unless it exits with 0.
pub(crate) fn run(mut command: Command) -> Result<Tally> {
    let line = show(&command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(Tally::ONE)
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let line = show(&command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed: {}\n{}", output.status, why.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a `cargo test` with output to the terminal, and counts its tests.
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

/// Parses libtest's last line, `test result: ok. 3 passed; 0 failed; ...`.
fn test_result(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = counts.split("; ").map(|part| part.split_once(' '));
    let mut next = |what: &str| {
        let (number, word) = counts.next()??;
        (word == what).then(|| number.parse().ok())?
    };
    Some(Tally { passed: next("passed")?, failed: next("failed")? })
}

/// Formats the command as a user would type it.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_libtests_counts() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; finished in 0s";
        assert_eq!(test_result(line), Some(Tally { passed: 12, failed: 3 }));
        assert_eq!(test_result("running 3 tests"), None);
        assert_eq!(test_result("test result: odd"), None);
    }

    #[test]
    fn failing_commands_are_errors() {
        assert!(output(command(&["false"])).is_err());
        assert_eq!(output(command(&["echo", "one two"])).unwrap(), "one two\n");
    }
}
