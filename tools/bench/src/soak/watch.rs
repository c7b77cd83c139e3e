//! What a soak reads of the tracker's process: memory, descriptors, threads, and its log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use ::load::Usage;
use anyhow::{Context, Result, ensure};
use harness::{PATIENCE, Tracker, wait_for};

use super::Stage;
use super::actors::Actor;

/// Descriptors and threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handles {
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

/// A line of the soak's table.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) elapsed: Duration,
    pub(super) process: u32,
    /// How long the process has been seen.
    pub(super) age: Duration,
    pub(super) resident_bytes: u64,
    handles: Handles,
    torrents: u64,
    peers: u64,
    /// Responses per second to each actor since the last line.
    rates: Vec<f64>,
    /// Unanswered requests and other errors of honest actors, so far.
    unanswered: u64,
    errors: u64,
    failures: usize,
    log_errors: usize,
}

/// Observes the tracker.
pub(super) struct Watch {
    /// Before any load, and after it.
    pub(super) quiet: Handles,
    pub(super) quiet_at_end: Option<Handles>,
    samples: Vec<Sample>,
    answered: Vec<u64>,
    /// When each process was first seen.
    seen: BTreeMap<u32, Duration>,
    /// Lines of the log with level ERROR, or of a panic.
    pub(super) log_errors: Vec<String>,
    /// Texts of lines with level WARN, without their time, and how often each occurred.
    pub(super) log_warnings: BTreeMap<String, u64>,
}

const MIB: f64 = (1 << 20) as f64;
/// A number of the system's that no text of the table is longer than.
const WIDTH: usize = 9;

impl Watch {
    /// Looks at a tracker without load.
    pub(super) fn new(tracker: &Tracker) -> Result<Self> {
        Ok(Self {
            quiet: settled(tracker)?,
            quiet_at_end: None,
            samples: Vec::new(),
            answered: Vec::new(),
            seen: BTreeMap::new(),
            log_errors: Vec::new(),
            log_warnings: BTreeMap::new(),
        })
    }

    pub(super) fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Takes a sample.
    pub(super) fn look(
        &mut self,
        stage: &Stage,
        actors: &[Actor<'_>],
        elapsed: Duration,
    ) -> Result<&Sample> {
        self.read_log(&stage.tracker.stderr());
        let tallies: Vec<_> = actors.iter().map(|actor| actor.tally().clone()).collect();
        let answered: Vec<u64> =
            tallies.iter().map(|tally| tally.counters.all_responses()).collect();
        let before = self.samples.last().map_or(Duration::ZERO, |last| last.elapsed);
        let seconds = (elapsed - before).as_secs_f64();
        self.answered.resize(answered.len(), 0);
        let rate = |(now, before): (&u64, &u64)| (now - before) as f64 / seconds;
        let rates = answered.iter().zip(&self.answered).map(rate).collect();
        self.answered = answered;
        let mut found = None;
        // During an upgrade, the process may end at any moment.
        wait_for(PATIENCE, "a look at the process", || {
            let process = stage.tracker.pid();
            let usage = Usage::of(process)?;
            let page = stage.tracker.admin("/metrics")?.text();
            let sum = |name| harness::metrics::sum(&page, name, &[]) as u64;
            let counts = (sum("tidegate_torrents"), sum("tidegate_peers"));
            found = Some((process, usage.resident_bytes, Handles::of(process)?, counts));
            Ok(true)
        })?;
        let (process, resident_bytes, handles, (torrents, peers)) = found.context("no process")?;
        let broken: Vec<_> = actors.iter().map(Actor::broken).collect();
        let first = *self.seen.entry(process).or_insert(before);
        self.samples.push(Sample {
            elapsed,
            process,
            age: elapsed - first,
            resident_bytes,
            handles,
            torrents,
            peers,
            rates,
            unanswered: broken.iter().map(|(unanswered, _)| unanswered).sum(),
            errors: broken.iter().map(|(_, errors)| errors).sum(),
            failures: tallies.iter().map(|tally| tally.failures.len()).sum(),
            log_errors: self.log_errors.len(),
        });
        self.samples.last().context("no sample")
    }

    /// Waits until descriptors and threads are as many as before the load.
    pub(super) fn wait_until_quiet(&mut self, tracker: &Tracker) -> Result<()> {
        let expected = self.quiet;
        let found = wait_for(PATIENCE, "the end of all connections", || {
            let handles = Handles::of(tracker.pid())?;
            self.quiet_at_end = Some(handles);
            ensure!(handles == expected, "{handles}; before the load: {expected}");
            Ok(true)
        });
        self.read_log(&tracker.stderr());
        found
    }

    /// Reads the whole log anew.
    fn read_log(&mut self, log: &str) {
        self.log_errors.clear();
        self.log_warnings.clear();
        for line in log.lines() {
            if line.contains("ERROR") || line.contains("panicked") {
                self.log_errors.push(line.to_owned());
            } else if let Some((_, text)) = line.split_once("WARN ") {
                // Without the values, which differ.
                let text = text.split('=').next().unwrap_or_default();
                *self.log_warnings.entry(text.to_owned()).or_default() += 1;
            }
        }
    }
}

/// Returns the descriptors and threads of a tracker when they have not changed for a second.
fn settled(tracker: &Tracker) -> Result<Handles> {
    let mut since = (Instant::now(), Handles::of(tracker.pid())?);
    wait_for(PATIENCE, "a tracker at rest", || {
        let now = Handles::of(tracker.pid())?;
        if now != since.1 {
            since = (Instant::now(), now);
        }
        Ok(since.0.elapsed() > SETTLED)
    })?;
    Ok(since.1)
}

/// Longer than threads for slow work stay without any.
const SETTLED: Duration = Duration::from_secs(12);

impl Handles {
    fn of(process: u32) -> Result<Self> {
        let count = |name: &str| -> Result<usize> {
            let path = format!("/proc/{process}/{name}");
            Ok(fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count())
        };
        Ok(Self { descriptors: count("fd")?, threads: count("task")? })
    }
}

impl fmt::Display for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} descriptors and {} threads", self.descriptors, self.threads)
    }
}

impl Sample {
    /// Returns the head of the table, with the two lines that Markdown needs.
    pub(super) fn head(actors: &[Actor<'_>]) -> String {
        let fixed = ["s", "process", "RSS MiB", "fds", "threads", "torrents", "peers"];
        let last = ["unansw.", "errors", "failures", "log err."];
        let loads = actors.iter().filter(|actor| actor.has_load());
        let names: Vec<String> = (fixed.iter().map(ToString::to_string))
            .chain(loads.map(|actor| format!("{}/s", actor.name)))
            .chain(last.iter().map(ToString::to_string))
            .collect();
        let line = |cell: &dyn Fn(&String) -> String| {
            names.iter().fold(String::from("|"), |line, name| line + &cell(name) + "|")
        };
        let rule = format!(" {:->WIDTH$}: ", "");
        format!("{}\n{}", line(&|name| format!(" {name:>WIDTH$}  ")), line(&|_| rule.clone()))
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cells = vec![
            self.elapsed.as_secs().to_string(),
            self.process.to_string(),
            format!("{:.1}", self.resident_bytes as f64 / MIB),
            self.handles.descriptors.to_string(),
            self.handles.threads.to_string(),
            self.torrents.to_string(),
            self.peers.to_string(),
        ];
        // The last one is the operator, who makes no load.
        let loads = self.rates.split_last().map_or(&[][..], |(_, loads)| loads);
        cells.extend(loads.iter().map(|rate| format!("{rate:.0}")));
        cells.push(self.unanswered.to_string());
        cells.push(self.errors.to_string());
        cells.push(self.failures.to_string());
        cells.push(self.log_errors.to_string());
        f.write_str("|")?;
        cells.iter().try_for_each(|cell| write!(f, " {cell:>WIDTH$}  |"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_are_found_in_the_log() {
        let handles = Handles { descriptors: 1, threads: 1 };
        let mut watch = Watch {
            quiet: handles,
            quiet_at_end: None,
            samples: Vec::new(),
            answered: Vec::new(),
            seen: BTreeMap::new(),
            log_errors: Vec::new(),
            log_warnings: BTreeMap::new(),
        };
        let log = "1 INFO serve: up\n2 WARN front: banned network=\"a\"\n3 WARN front: banned \
                   network=\"b\"\n4 ERROR records: full\nthread 'x' panicked at y\n";
        watch.read_log(log);
        watch.read_log(log);
        assert_eq!(watch.log_errors.len(), 2);
        assert_eq!(watch.log_warnings, BTreeMap::from([("front: banned network".into(), 2)]));
    }
}
