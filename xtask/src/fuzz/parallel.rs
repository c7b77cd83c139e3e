//! A search by all targets at once.

use super::{Program, targets};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::process::Child;
use trials::command::Tally;
use trials::workspace::root;

/// A target that searches.
struct Search {
    name: String,
    child: Child,
}

/// Has all targets search for as many seconds of wall time, side by side. Prints the last figures of each, which
/// libFuzzer writes to `fuzz/target/logs` all the time: executions, edges, features and inputs.
pub(crate) fn search_all(seconds: u32) -> Result<Tally> {
    let program = Program::build(None)?;
    let logs = root().join("fuzz/target/logs");
    fs::create_dir_all(&logs)?;
    let mut searches = Vec::new();
    for name in targets()? {
        let mut command = program.search(&name, seconds)?;
        // The standard output is what a target itself prints.
        command.stdout(File::create(logs.join(&name).with_extension("out"))?);
        command.stderr(File::create(logs.join(&name))?);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        searches.push(Search { name, child });
    }
    let mut tally = Tally::default();
    for Search { name, mut child } in searches {
        let passed = child.wait()?.success();
        let log = fs::read(logs.join(&name))?;
        println!("{name}: {}", last_figures(&String::from_utf8_lossy(&log)));
        if !passed {
            eprintln!("{name} failed: see {}", logs.join(&name).display());
        }
        tally.add(Tally { passed: passed.into(), failed: (!passed).into(), flaky: 0 });
    }
    Ok(tally)
}

/// Returns the last line of a log that has figures, as `#9 NEW cov: 12 ft: 34 corp: 5/67b lim: 4 exec/s: 0 rss: 40Mb`.
fn last_figures(log: &str) -> &str {
    let mut lines = log.lines().rev();
    lines.find(|line| line.starts_with('#')).unwrap_or("nothing was executed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figures_of_a_log_are_found() {
        let last = "#141987\tREDUCE cov: 15836 ft: 30872 corp: 1374/74Kb lim: 278 exec/s: 474";
        let log = format!("INFO: Seed: 1\n#2\tINITED cov: 3\n{last}\nDone 9 runs\n");
        assert_eq!(last_figures(&log), last);
        assert_eq!(last_figures("INFO: Seed: 1\n"), "nothing was executed");
    }
}
