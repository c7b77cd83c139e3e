//! Running other programs, and the results of steps.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::process::Command;

pub use harness::{output, show};

/// The numbers of checks of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: u32,
    /// Failed.
    pub failed: u32,
    /// Passed, but not on the first try. Also counted in `passed`.
    pub flaky: u32,
}

impl Tally {
    /// One check that passed.
    pub const ONE: Self = Self { passed: 1, failed: 0, flaky: 0 };

    /// Adds another step's numbers.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.flaky += other.flaky;
    }

    /// Returns an error if a check failed.
    ///
    /// # Errors
    ///
    /// Returns an error if a check failed.
    pub fn verdict(self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} of {} failed", self.failed, self.passed + self.failed);
        }
        Ok(())
    }

    /// Reads what `Display` writes.
    pub fn parse(line: &str) -> Option<Self> {
        let (passed, rest) = line.split_once(" passed, ")?;
        let (failed, rest) = rest.split_once(" failed, ")?;
        let flaky = rest.strip_suffix(" flaky")?;
        Some(Self {
            passed: passed.parse().ok()?,
            failed: failed.parse().ok()?,
            flaky: flaky.parse().ok()?,
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} flaky", self.passed, self.failed, self.flaky)
    }
}

/// Creates a command, which runs in the workspace root.
///
/// # Panics
///
/// Panics if `words` is empty.
pub fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().expect("callers name a program");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(crate::workspace::root());
    command
}

/// Runs a command to its end, with output to the terminal. Fails unless it exits with 0.
///
/// # Errors
///
/// Returns an error unless it exits with 0.
pub fn run(mut command: Command) -> Result<Tally> {
    let line = show(&command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(Tally::ONE)
}

/// Returns whether this process is root's.
pub(crate) fn is_root() -> bool {
    output(command(&["id", "-u"])).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_are_read_as_they_are_written() {
        let tally = Tally { passed: 12, failed: 3, flaky: 1 };
        assert_eq!(Tally::parse(&tally.to_string()), Some(tally));
        assert_eq!(Tally::parse("12 passed, 3 failed"), None);
    }

    #[test]
    fn failing_commands_are_errors() {
        assert!(output(command(&["false"])).is_err());
        assert_eq!(output(command(&["echo", "one two"])).unwrap(), "one two\n");
    }
}
