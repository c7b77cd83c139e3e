//! Running other programs.

use anyhow::{Context, Result, bail};
use std::process::Command;

pub use harness::{output, show};

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
pub fn run(mut command: Command) -> Result<()> {
    let line = show(&command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Returns whether this process is root's.
pub(crate) fn is_root() -> bool {
    output(command(&["id", "-u"])).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_commands_are_errors() {
        assert!(output(command(&["false"])).is_err());
        assert_eq!(output(command(&["echo", "one two"])).unwrap(), "one two\n");
    }
}
