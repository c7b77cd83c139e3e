//! The runs of a comparison, interleaved (A B A B) because the speed of machines drifts: only runs
//! that alternate can be compared.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use ::load::Report;
use anyhow::{Context, Result, ensure};

use super::{Compare, Measure};
use crate::figures::{count, mib, micros, percent};
use crate::lab::{
    Fill, Lab, Load, LoadRun, NOISE_MAX, NoiseMonitor, Split, Subject, children_cpu_s, figures,
};
use crate::record::Figures;
use crate::session::{RoundArgs, RunKey, Session};

/// A comparison under way.
pub(super) struct Comparison<'a> {
    pub(super) lab: &'a Lab,
    pub(super) command: &'a Compare,
    pub(super) load: &'a Load,
    pub(super) fills: &'a [Fill],
    /// Numbers of tracker cores, ascending.
    pub(super) cores: Vec<usize>,
    pub(super) subjects: Vec<Subject>,
    pub(super) session: Session,
    /// Tasks that failed, once for each time.
    pub(super) failed: Vec<Task>,
}

/// Quantity that a run measures.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// Maximum throughput.
    Throughput,
    /// Latencies at this many requests per second.
    Latency(u32),
    /// Memory with a known number of peers.
    Memory(Fill),
}

/// A measurement to make.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    /// The number of the tracker.
    subject: usize,
    cores: usize,
    part: Part,
}

/// The name of throughput in records.
pub(super) const THROUGHPUT: &str = "throughput";
/// Maximum repetitions of a noisy run.
const REPEATS: u32 = 2;
/// A task is given up after this many failures.
const FAILURES_MAX: usize = 2;
/// With a larger fraction of failed requests, the tracker did not handle the intended load.
const FAILED_MAX: f64 = 0.01;
/// With a larger fraction of lost requests in a closed loop, the result is meaningless.
const LOST_MAX: f64 = 0.5;
/// Time for trackers to settle before their memory is measured.
const SETTLE: Duration = Duration::from_secs(1);

impl Part {
    /// The name in records.
    fn case(&self) -> String {
        match self {
            Self::Throughput => THROUGHPUT.to_owned(),
            Self::Latency(rate) => format!("{}/s", count((*rate).into())),
            Self::Memory(fill) => fill.name.clone(),
        }
    }
}

impl Comparison<'_> {
    fn wants(&self, measure: Measure) -> bool {
        let wanted = &self.command.measures;
        wanted.is_empty() || wanted.contains(&measure)
    }

    /// Returns the fills to measure.
    fn fills(&self) -> Vec<Fill> {
        if !self.wants(Measure::Memory) {
            return Vec::new();
        }
        let length = |fill: &Fill| self.command.fill_seconds.unwrap_or(fill.seconds);
        self.fills.iter().map(|fill| Fill { seconds: length(fill), ..fill.clone() }).collect()
    }

    /// Measures everything, until interrupted. Returns the session.
    pub(super) fn run(mut self) -> Result<Session> {
        let counts = self.cores.clone();
        // Better now than after an hour.
        counts.iter().try_for_each(|count| self.lab.split(*count).map(drop)).context("--cores")?;
        let rounds = 1..=self.command.run.runs;
        let subjects = 0..self.subjects.len();
        if self.wants(Measure::Throughput) {
            for round in rounds.clone() {
                for cores in counts.iter().copied() {
                    for subject in subjects.clone() {
                        self.measure(Task { subject, cores, part: Part::Throughput }, round)?;
                    }
                }
            }
        }
        let cores = counts.last().copied().unwrap_or(1);
        let load = self.load;
        let rates = if self.wants(Measure::Latency) { load.rates.as_slice() } else { &[] };
        for round in rounds {
            for rate in rates {
                for subject in subjects.clone() {
                    let part = Part::Latency(*rate);
                    self.measure(Task { subject, cores, part }, round)?;
                }
            }
        }
        for fill in self.fills() {
            for subject in subjects.clone() {
                let part = Part::Memory(fill.clone());
                self.measure(Task { subject, cores, part }, 1)?;
            }
        }
        Ok(self.session)
    }

    /// Measures one task, repeatedly if noisy. Failures are recorded, not returned.
    fn measure(&mut self, task: Task, round: u32) -> Result<()> {
        if self.failed.iter().filter(|failed| **failed == task).count() >= FAILURES_MAX {
            return Ok(());
        }
        let Some(subject) = self.subjects.get(task.subject) else { return Ok(()) };
        let (name, version) = (subject.name(), subject.version());
        let case = task.part.case();
        for _ in 0..=REPEATS {
            if self.session.is_stopped() {
                return Ok(());
            }
            match self.attempt(&task) {
                Ok(Some(figures)) => {
                    let is_quiet = figures.get("noise").is_none_or(|noise| noise <= NOISE_MAX);
                    let key = RunKey {
                        subject: &name,
                        version: &version,
                        case: &case,
                        cores: task.cores,
                        round,
                    };
                    let summary = summary(&figures, &task);
                    self.session.add(key, figures, &summary)?;
                    if is_quiet {
                        break;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let cores = task.cores;
                    self.session.fail(format!("{name}, {case}, cores {cores}: {error:#}."));
                    self.failed.push(task);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs a task once. Returns `None` if interrupted.
    fn attempt(&self, task: &Task) -> Result<Option<Figures>> {
        let lab = self.lab;
        let Compare { protocol, run: RoundArgs { seconds, warm_up, .. }, .. } = *self.command;
        let subject = &self.subjects[task.subject];
        let split = lab.split(task.cores)?;
        let words = self.words(&task.part, &split)?;
        if subject.tracker.definition.allow_list {
            lab.write_hashes(protocol, &words)?;
        }
        let mut tracker = lab.start(subject, protocol, &split.tracker)?;
        let run = LoadRun {
            protocol,
            tracker: &tracker,
            seconds: match &task.part {
                Part::Memory(fill) => fill.seconds,
                _ => seconds,
            },
            warm_up,
            processors: &split.load,
            stop: &self.session.stop,
        };
        let before = tracker.usage()?;
        let monitor = NoiseMonitor::start([&*split.tracker, &*split.load].concat())?;
        let children_s = children_cpu_s()?;
        let result = lab.load(run, &words);
        // If the tracker has exited, report that rather than the load tester's error.
        tracker.check()?;
        let Some(result) = result? else { return Ok(None) };
        let tester_s = children_cpu_s()? - children_s;
        let used = tracker.usage()?.since(&before);
        let noise = monitor.noise(used.cpu_s() + tester_s)?;
        check(&result, &task.part)?;
        if let Part::Memory(_) = task.part {
            sleep(SETTLE);
        }
        let after = tracker.usage()?;
        let with_warm_up = 1.0 + f64::from(warm_up) / result.seconds;
        let mut figures = figures(&result);
        figures.set("noise", noise);
        figures.set("warm_up_s", warm_up.into());
        figures.set("peak_bytes", after.peak_bytes as f64);
        if let Part::Latency(rate) = task.part {
            figures.set("rate", rate.into());
        }
        if let Part::Memory(fill) = &task.part {
            let grown = after.resident_bytes.saturating_sub(before.resident_bytes) as f64;
            let peers = peers(&result, fill, with_warm_up);
            figures.set("peers", peers);
            figures.set("bytes_per_peer", grown / peers);
            if fill.all {
                let cpu_part = figures.get("cpu_part").unwrap_or(f64::NAN);
                figures.set("idle_cpu_part", cpu_part);
            }
        }
        Ok(Some(figures))
    }

    /// Returns the arguments of the load tester.
    fn words(&self, part: &Part, split: &Split) -> Result<Vec<String>> {
        let known = self.lab.vars().with("load_cores", split.load.len());
        let load = self.load;
        match part {
            Part::Latency(rate) => {
                let mut words = known.fill_all(&load.words)?;
                words.extend(["--rate".to_owned(), rate.to_string()]);
                Ok(words)
            }
            Part::Memory(fill) => known.fill_all(&fill.words),
            Part::Throughput => known.fill_all(&load.words),
        }
    }
}

/// Returns the number of distinct peers that have announced. Of randomly drawn peers, some may not
/// have been drawn yet.
fn peers(result: &Report, fill: &Fill, with_warm_up: f64) -> f64 {
    if fill.all {
        return result.connections_kept() as f64;
    }
    let peers = fill.peers as f64;
    let announces = result.counts.responses.announce as f64 * with_warm_up;
    peers * (1.0 - (-announces / peers).exp())
}

/// Fails if the tracker did not handle the intended load.
fn check(result: &Report, part: &Part) -> Result<()> {
    let worst = result.counts.errors.iter().max_by_key(|(_, times)| **times);
    let why = worst.map_or_else(String::new, |(text, _)| format!(": {text}"));
    if let Part::Memory(Fill { peers, all: true, .. }) = part {
        let connections_kept = result.connections_kept();
        let is_most = connections_kept as f64 >= *peers as f64 * (1.0 - FAILED_MAX);
        ensure!(is_most, "kept only {connections_kept} of {peers} connections{why}");
        return Ok(());
    }
    ensure!(result.counts.responses.all() > 0, "answered no request{why}");
    // At a fixed rate, what fails is what is measured.
    if let Part::Latency(_) = part {
        return Ok(());
    }
    let (failed, lost) = (result.failed_part(), result.lost_part());
    ensure!(failed <= FAILED_MAX, "{} of all requests failed{why}", percent(failed));
    ensure!(lost <= LOST_MAX, "{} of all requests were not answered", percent(lost));
    Ok(())
}

/// Returns the most important figures of a run.
fn summary(figures: &Figures, task: &Task) -> String {
    let text = |name: &str, write: fn(f64) -> String| {
        figures.get(name).map_or_else(|| "unknown".into(), write)
    };
    let mut summary = match &task.part {
        Part::Throughput => format!(
            "{} responses/s, {} per CPU-s",
            text("responses_s", count),
            text("per_cpu_s", count)
        ),
        Part::Latency(_) => {
            format!("p50 {}, p99 {}", text("p50_us", micros), text("p99_us", micros))
        }
        Part::Memory(_) => format!(
            "{} bytes per peer, peak {}",
            text("bytes_per_peer", |bytes| format!("{bytes:.1}")),
            text("peak_bytes", mib)
        ),
    };
    let noise = figures.get("noise").unwrap_or(0.0);
    if noise > NOISE_MAX {
        let _ = write!(summary, ", noisy: other processes used {} of the CPU time", percent(noise));
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::FIGURES;
    use ::load::{WebTorrentCounters, WebTorrentReport};

    #[test]
    fn peers_that_are_drawn_at_random_may_not_have_been_drawn() {
        let mut result: Report = serde_json::from_str(FIGURES).unwrap();
        let counts = WebTorrentCounters { connections_lost: 1, ..WebTorrentCounters::default() };
        result.web = Some(WebTorrentReport { joined: 10_001, counts });
        let fill =
            Fill { name: "f".into(), peers: 590_000, all: false, seconds: 1, words: Vec::new() };
        // As many announces as peers: one of e has not been drawn.
        assert!((peers(&result, &fill, 1.0) / 590_000.0 - 0.632).abs() < 0.001);
        assert!((peers(&result, &fill, 1000.0) - 590_000.0).abs() < 1e-6);
        assert_eq!(peers(&result, &Fill { all: true, ..fill }, 1.0), 10_000.0);
    }
}
