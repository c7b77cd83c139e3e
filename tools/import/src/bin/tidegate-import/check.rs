//! Checks a configuration by the tracker's own program, so that its rules are in one place.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The file that the tracker reads: its standard input.
const INPUT: &str = "/dev/stdin";

/// A mistake in a configuration.
#[derive(Debug)]
pub(super) struct Problem {
    /// The line, from 1; 0 if the mistake is not in one line.
    pub(super) line: usize,
    pub(super) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.text),
            line => write!(f, "tidegate.toml:{line}: {}", self.text),
        }
    }
}

/// Returns the mistakes that the tracker finds in a configuration: in its keys, and between them. Ports and files of
/// this machine are not looked at.
///
/// # Errors
///
/// Returns an error if the tracker's program cannot be run.
pub(super) fn problems(configuration: &str) -> Result<Vec<Problem>, String> {
    let program = tidegate();
    let run = || -> io::Result<_> {
        let mut command = Command::new(&program);
        command.args(["config", "show", "--config", INPUT]);
        // Variables of the tracker would override keys.
        let own = std::env::vars_os()
            .filter(|(name, _)| !name.to_string_lossy().starts_with("TIDEGATE_"));
        command.env_clear().envs(own);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(configuration.as_bytes())?;
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| {
        let program = program.display();
        format!("cannot check the configuration by {program}: {error}: install tidegate beside tidegate-import")
    })?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let problems: Vec<Problem> =
        String::from_utf8_lossy(&output.stderr).lines().map(problem).collect();
    match problems.is_empty() {
        true => Err(format!("{} config show: {}", program.display(), output.status)),
        false => Ok(problems),
    }
}

/// Parses a line that the tracker prints about a mistake.
fn problem(line: &str) -> Problem {
    let text = line.strip_prefix("tidegate: ").unwrap_or(line);
    let placed = text.strip_prefix(INPUT).and_then(|rest| rest.strip_prefix(':'));
    let parts = placed.and_then(|rest| {
        let (line, text) = rest.split_once(": ")?;
        Some((line.parse().ok()?, text))
    });
    let (line, text) = parts.unwrap_or((0, text));
    Problem { line, text: text.to_owned() }
}

/// Returns the tracker's program: the one beside this program, or that of the `PATH`.
fn tidegate() -> PathBuf {
    let beside = std::env::current_exe().map(|program| program.with_file_name("tidegate"));
    beside.ok().filter(|program| program.is_file()).unwrap_or_else(|| "tidegate".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_the_tracker_prints() {
        for (line, place, text) in [
            ("tidegate: /dev/stdin:12: a.b: expected c", 12, "a.b: expected c"),
            ("tidegate: a: b", 0, "a: b"),
        ] {
            let problem = problem(line);
            assert_eq!((problem.line, problem.text.as_str()), (place, text));
        }
    }
}
