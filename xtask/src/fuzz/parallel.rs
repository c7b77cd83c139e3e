//! A search by all targets at once, and what to record of it.

use super::{Program, targets};
use crate::command::Tally;
use crate::workspace::root;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How often the figures of a running search are read.
const PERIOD: Duration = Duration::from_secs(10);
/// Ticks of processor time in a second, in /proc.
const TICKS_PER_S: f64 = 100.0;

/// A target that searches.
struct Search {
    name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
    /// What was seen, by processor time in seconds.
    seen: Vec<(f64, Figures)>,
    /// How it ended, once it has.
    end: Option<(Duration, bool)>,
}

/// Figures of a line of libFuzzer: `#9 NEW cov: 12 ft: 34 corp: 5/67b lim: 4 exec/s: 0 rss: 40Mb ...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    edges: u64,
    features: u64,
    /// Inputs, and their size with its unit.
    corpus: String,
}

/// Lets all targets search for as many seconds of wall time, side by side, and prints a row for each.
pub(crate) fn search_all(seconds: u32) -> Result<Tally> {
    let program = Program::build(None)?;
    let logs = root().join("fuzz/target/logs");
    fs::create_dir_all(&logs)?;
    let start = |name| Search::start(&program, name, seconds, &logs);
    let mut searches: Vec<Search> = targets()?.into_iter().map(start).collect::<Result<_>>()?;
    while searches.iter().any(|search| search.end.is_none()) {
        thread::sleep(PERIOD);
        searches.iter_mut().try_for_each(Search::look)?;
    }
    println!(
        "| target | wall s | CPU s | executions | edges at first, at half, at last | features | corpus | newest edge at CPU s |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    let mut tally = Tally::default();
    for search in &searches {
        println!("{}", search.row());
        let passed = search.end.is_some_and(|(_, passed)| passed);
        if !passed {
            eprintln!("{} failed: see {}", search.name, search.log.display());
        }
        tally.add(Tally { passed: passed.into(), failed: (!passed).into(), flaky: 0 });
    }
    Ok(tally)
}

impl Search {
    fn start(program: &Program, name: String, seconds: u32, logs: &Path) -> Result<Self> {
        let log = logs.join(&name);
        let mut command = program.search(&name, seconds)?;
        // Its standard output is what a target itself prints.
        command.stdout(File::create(log.with_extension("out"))?).stderr(File::create(&log)?);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, log, started: Instant::now(), seen: Vec::new(), end: None })
    }

    /// Notes the newest figures, and whether it has ended.
    fn look(&mut self) -> Result<()> {
        if self.end.is_some() {
            return Ok(());
        }
        // Before it is waited for: /proc forgets it then.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let cpu_s = cpu_ticks(&stat).context("expected /proc/PID/stat")? / TICKS_PER_S;
        if let Some(figures) = last_figures(&tail(&self.log)?) {
            self.seen.push((cpu_s, figures));
        }
        let status = self.child.try_wait()?;
        self.end = status.map(|status| (self.started.elapsed(), status.success()));
        Ok(())
    }

    fn row(&self) -> String {
        let wall_s = self.end.map_or(0, |(wall, _)| wall.as_secs());
        let Some((cpu_s, last)) = self.seen.last() else {
            return format!("| {} | {wall_s} | nothing was executed |", self.name);
        };
        let edges = |at: Option<&(f64, Figures)>| at.map_or(0, |(_, figures)| figures.edges);
        let first = edges(self.seen.first());
        let half = edges(self.seen.iter().find(|(at, _)| *at >= cpu_s / 2.0));
        let newest = self.seen.iter().find(|(_, figures)| figures.edges == last.edges);
        let newest_s = newest.map_or(0.0, |(at, _)| *at);
        format!(
            "| {} | {wall_s} | {cpu_s:.0} | {} | {first}, {half}, {} | {} | {} | {newest_s:.0} |",
            self.name, last.executions, last.edges, last.features, last.corpus
        )
    }
}

/// Returns user and system time of `/proc/PID/stat` (proc(5): fields 14 and 15).
fn cpu_ticks(stat: &str) -> Option<f64> {
    // The second field, a name in brackets, may contain spaces.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
}

/// Returns the last 64 KiB of a file.
fn tail(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(64 << 10)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_figures(log: &str) -> Option<Figures> {
    log.lines().rev().find_map(|line| {
        let executions = line.strip_prefix('#')?.split_whitespace().next()?.parse().ok()?;
        let after = |key: &str| line.split_once(key)?.1.split_whitespace().next();
        Some(Figures {
            executions,
            edges: after(" cov: ")?.parse().ok()?,
            features: after(" ft: ")?.parse().ok()?,
            corpus: after(" corp: ")?.into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figures_of_a_log_are_read() {
        let log = "INFO: Seed: 1\n#2\tINITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 35Mb\n\
                   #141987\tREDUCE cov: 15836 ft: 30872 corp: 1374/74Kb lim: 278 exec/s: 474 rss: 507Mb\n\
                   Done 9 runs\nstat::new_units_added: 3\n";
        let figures = Figures {
            executions: 141_987,
            edges: 15_836,
            features: 30_872,
            corpus: "1374/74Kb".into(),
        };
        assert_eq!(last_figures(log), Some(figures));
        assert_eq!(last_figures("#12\tcut"), None);
    }

    #[test]
    fn processor_time_is_user_and_system_time() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 30 0 0 20 0 1 0 5 0 0";
        assert_eq!(cpu_ticks(stat), Some(280.0));
        assert_eq!(cpu_ticks("7 (a"), None);
    }
}
