//! Checks a configuration by the tracker's own program, so that the rules are in one place.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The file that the tracker reads: its standard input.
const INPUT: &str = "/dev/stdin";

/// A mistake in a configuration.
#[derive(Debug)]
pub(super) struct Problem {
    /// The line, from 1; 0 if the mistake is not in one line.
    pub(super) line: usize,
    pub(super) text: String,
}

impl Problem {
    /// Returns the sentence about a mistake in the configuration of this name.
    pub(super) fn within(&self, file: &str) -> String {
        match self.line {
            0 => self.text.clone(),
            line => format!("{file}:{line}: {}", self.text),
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
    let output = run("show", configuration)?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let problems: Vec<Problem> =
        String::from_utf8_lossy(&output.stderr).lines().map(problem).collect();
    match problems.is_empty() {
        true => Err(format!("{} config show: {}", tidegate().display(), output.status)),
        false => Ok(problems),
    }
}

/// Returns the warnings of the tracker about a valid configuration.
///
/// # Errors
///
/// Returns an error if the tracker's program cannot be run.
pub(super) fn warnings(configuration: &str) -> Result<Vec<Problem>, String> {
    // The exit code also covers ports and files of this machine, which do not matter here.
    let output = run("check", configuration)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let warnings = text.lines().filter_map(|line| line.strip_prefix("tidegate: warning: "));
    Ok(warnings.map(problem).collect())
}

fn run(command: &str, configuration: &str) -> Result<Output, String> {
    let program = tidegate();
    let run = || -> io::Result<_> {
        let mut tidegate = Command::new(&program);
        tidegate.args(["config", command, "--config", INPUT]);
        // Variables of the tracker would override keys.
        let own = std::env::vars_os()
            .filter(|(name, _)| !name.to_string_lossy().starts_with("TIDEGATE_"));
        tidegate.env_clear().envs(own);
        tidegate.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = tidegate.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(configuration.as_bytes())?;
        }
        child.wait_with_output()
    };
    run().map_err(|error| {
        let program = program.display();
        format!("cannot check the configuration by {program}: {error}: install tidegate beside tidegate-import")
    })
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
