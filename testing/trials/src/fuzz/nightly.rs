//! A slice of searching for all targets, which adds up in a record.

use super::{Program, targets, unpack};
use crate::command::{command, output};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use harness::is_alive;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A line for each night.
const RECORD: &str = "bench/record/fuzz.jsonl";
/// A log of libFuzzer for each target.
const LOGS: &str = "fuzz/target/logs";
/// Of the edges that the committed inputs reached at the last line of the record, they must still reach this many
/// percent: threads and compilers change a few.
const KEPT_PERCENT: u64 = 95;
/// Ticks of a process's CPU time in a second, on Linux.
const TICKS_PER_S: u64 = 100;

/// A target that searches.
struct Search {
    name: String,
    child: Child,
    /// Edges that the committed inputs reach.
    committed: u64,
}

/// Has all targets search for as many seconds of wall time, side by side, and adds their CPU time, executions and edges
/// to the record. A target fails if it finds a defect, or if its committed inputs reach fewer edges than at the last line.
///
/// # Errors
///
/// Fails without a nightly toolchain and cargo-fuzz, and if a committed input breaks its target.
pub fn nightly(seconds: u32) -> Result<()> {
    let program = Program::build()?;
    fs::create_dir_all(root().join(LOGS))?;
    let mut searches = Vec::new();
    for name in targets()? {
        let mut replay = program.command(&name)?;
        replay.args(["-runs=0".into(), unpack(&name)?]);
        let replayed = logging(&name, &mut replay)?.status()?;
        ensure!(replayed.success(), "{name}: a committed input fails: see {LOGS}/{name}");
        let committed = figure(&log(&name)?, "cov: ");
        let mut search = program.search(&name, seconds)?;
        let child = logging(&name, &mut search)?.spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        searches.push(Search { name, child, committed });
    }
    let mut record = record()?;
    let mut failed = Vec::new();
    let mut figures = Map::new();
    println!("target: CPU minutes in all, edges of the committed inputs, and of all");
    for search in searches {
        let name = search.name.clone();
        let (found, passed) = search.finish(&record)?;
        figures.insert(name.clone(), found);
        if !passed {
            failed.push(name);
        }
    }
    record.push(json!({
        "time": word(&["date", "--utc", "+%FT%TZ"])?,
        "commit": word(&["git", "describe", "--always", "--dirty"])?,
        "compiler": word(&["rustc", "+nightly", "--version"])?,
        "targets": figures,
    }));
    let text: String = record.iter().map(|line| format!("{line}\n")).collect();
    fs::write(root().join(RECORD), text)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

impl Search {
    /// Waits for the end. Returns the figures, and whether all is well.
    fn finish(self, record: &[Value]) -> Result<(Value, bool)> {
        let Self { name, mut child, committed } = self;
        let cpu_s = cpu_s(&child)?;
        let found_nothing = child.wait()?.success();
        let of_target = |line: &Value, key: &str| line["targets"][&name][key].as_u64();
        let before: u64 = record.iter().filter_map(|line| of_target(line, "cpu_s")).sum();
        let edges = figure(&log(&name)?, "cov: ");
        println!("{name}: {}, {committed}, {edges}", (before + cpu_s) / 60);
        if !found_nothing {
            eprintln!("{name} failed: see {LOGS}/{name}");
        }
        let last = record.last().and_then(|line| of_target(line, "committed_edges")).unwrap_or(0);
        let keeps_edges = committed * 100 >= last * KEPT_PERCENT;
        if !keeps_edges {
            eprintln!(
                "{name}: expected the committed inputs to reach the {last} edges of {RECORD}, found {committed}: \
                 add inputs by `cargo xtask fuzz minimize`, or commit the new line if code was deleted"
            );
        }
        let executions = figure(&log(&name)?, "#");
        let figures = json!({
            "cpu_s": cpu_s, "executions": executions, "committed_edges": committed, "edges": edges,
        });
        Ok((figures, found_nothing && keeps_edges))
    }
}

/// Has libFuzzer write its log to a file of its own.
fn logging<'a>(name: &str, command: &'a mut Command) -> Result<&'a mut Command> {
    // The standard output is what a target itself prints.
    Ok(command.stdout(Stdio::null()).stderr(File::create(root().join(LOGS).join(name))?))
}

fn log(name: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(root().join(LOGS).join(name))?).into_owned())
}

/// Returns the lines of the record.
fn record() -> Result<Vec<Value>> {
    let text = fs::read_to_string(root().join(RECORD)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).context(RECORD)).collect()
}

/// Returns the CPU time of a process, in seconds, when it has ended. It must not be waited for before.
fn cpu_s(child: &Child) -> Result<u64> {
    while is_alive(child.id()) {
        sleep(Duration::from_millis(100));
    }
    let path = format!("/proc/{}/stat", child.id());
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The state follows the name, which stands in parentheses.
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let user = ticks(11).context("expected the ticks of user space")?;
    let kernel = ticks(12).context("expected the ticks of the kernel")?;
    Ok((user + kernel) / TICKS_PER_S)
}

/// Returns the number behind `key` in the last line of a log that has figures, as
/// `#9 NEW cov: 12 ft: 34 corp: 5/67b lim: 4 exec/s: 0 rss: 40Mb`; 0 if nothing was executed.
fn figure(log: &str, key: &str) -> u64 {
    let line = log.lines().rev().find(|line| line.starts_with('#') && line.contains("cov: "));
    let number = line.and_then(|line| Some(line.split_once(key)?.1));
    let digits = number.map(|text| text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn word(words: &[&str]) -> Result<String> {
    Ok(output(command(words))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figures_of_a_log_are_found() {
        let last = "#141987\tREDUCE cov: 15836 ft: 30872 corp: 1374/74Kb lim: 278 exec/s: 474";
        let log = format!("INFO: Seed: 1\n#2\tINITED cov: 3\n{last}\nDone 9 runs\n");
        assert_eq!(figure(&log, "cov: "), 15_836);
        assert_eq!(figure(&log, "#"), 141_987);
        assert_eq!(figure("INFO: Seed: 1\n", "cov: "), 0);
    }
}
