//! The runs of a comparison, interleaved (A B A B) because the speed of machines drifts: only runs
//! that alternate can be compared.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Measure;
use crate::figures::{Figure, count, mib, micros, percent};
use crate::lab::{
    Fill, Lab, Load, LoadResult, LoadRun, NOISE_MAX, NoiseMonitor, Protocol, SEED, Split, Subject,
    Tester, TrackerUsage, children_cpu_s,
};
use crate::record::Figures;
use crate::session::{RoundArgs, RunKey, Session, print_line};

/// What takes part: a tracker under a load of a load tester.
pub(super) struct Contestant<'a> {
    name: String,
    version: String,
    subject: &'a Subject,
    load: &'a Load,
    tester: Tester,
}

/// Parameters of a comparison.
pub(super) struct Plan {
    pub(super) protocol: Protocol,
    /// Numbers of tracker cores, ascending.
    pub(super) cores: Vec<usize>,
    pub(super) measures: Vec<Measure>,
    pub(super) run: RoundArgs,
    pub(super) fills: Vec<Fill>,
    pub(super) fill_seconds: Option<u32>,
}

/// A comparison under way.
pub(super) struct Comparison<'a> {
    lab: &'a Lab,
    plan: &'a Plan,
    contestants: Vec<Contestant<'a>>,
    session: Session,
    /// Tasks that failed, once for each time.
    failed: Vec<Task>,
}

/// What a run measures.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Maximum throughput.
    Throughput,
    /// Latencies at a percentage of the maximum throughput.
    Latency { percent: u32, rate: f64 },
    /// Memory with a known number of peers.
    Memory(Fill),
}

/// A measurement to make.
#[derive(Clone, Debug, PartialEq)]
struct Task {
    contestant: usize,
    cores: usize,
    part: Part,
}

/// The name of throughput in records.
pub(super) const THROUGHPUT: &str = "throughput";
/// Percentages of its maximum throughput at which a tracker's latencies are measured.
pub(super) const SHARES: [u32; 2] = [50, 80];
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

impl<'a> Contestant<'a> {
    /// A tracker, which is compared with others under the same load.
    pub(super) fn tracker(subject: &'a Subject, load: &'a Load, tester: Tester) -> Self {
        Self { name: subject.name(), version: subject.version(), subject, load, tester }
    }

    /// A load tester, which is compared with others at the same tracker.
    pub(super) fn tester(subject: &'a Subject, load: &'a Load, tester: Tester) -> Self {
        let (name, version) = match &tester {
            Tester::Own => ("tidegate-bench load".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            Tester::Other(program) => (program.definition.name.clone(), program.version.clone()),
        };
        Self { name, version, subject, load, tester }
    }
}

impl Part {
    /// The name in records.
    fn case(&self) -> String {
        match self {
            Self::Throughput => THROUGHPUT.to_owned(),
            Self::Latency { percent, .. } => format!("{percent} %"),
            Self::Memory(fill) => fill.name.clone(),
        }
    }
}

impl<'a> Comparison<'a> {
    pub(super) fn new(
        lab: &'a Lab,
        plan: &'a Plan,
        contestants: Vec<Contestant<'a>>,
        session: Session,
    ) -> Result<Self> {
        // Better now than after an hour.
        plan.cores.iter().try_for_each(|count| lab.split(*count).map(drop)).context("--cores")?;
        let this = Self { lab, plan, contestants, session, failed: Vec::new() };
        let names: Vec<String> =
            this.contestants.iter().map(|it| format!("{} {}", it.name, it.version)).collect();
        let minutes = this.duration().as_secs().div_ceil(60);
        print_line(&format!("comparing {}: about {minutes} minutes", names.join(", ")));
        Ok(this)
    }

    /// Estimates the duration of all runs.
    fn duration(&self) -> Duration {
        let RoundArgs { runs, seconds, warm_up } = self.plan.run;
        // Starting and stopping take a second or two.
        let run_s = |seconds: u32| u64::from(seconds + warm_up + 2);
        let mut each_s = 0;
        if self.wants(Measure::Throughput) || self.wants(Measure::Latency) {
            each_s += self.plan.cores.len() as u64 * run_s(seconds);
        }
        if self.wants(Measure::Latency) {
            each_s += SHARES.len() as u64 * run_s(seconds);
        }
        each_s *= u64::from(runs);
        each_s += self.fills().iter().map(|fill| run_s(fill.seconds)).sum::<u64>();
        Duration::from_secs(each_s * self.contestants.len() as u64)
    }

    fn wants(&self, measure: Measure) -> bool {
        let is_possible = measure != Measure::Latency
            || self.contestants.iter().all(|contestant| !contestant.load.paced.is_empty());
        is_possible && self.plan.measures.contains(&measure)
    }

    /// Returns the fills to measure. Other load testers have none.
    fn fills(&self) -> Vec<Fill> {
        let is_own = |contestant: &Contestant<'_>| matches!(contestant.tester, Tester::Own);
        if !self.wants(Measure::Memory) || !self.contestants.iter().all(is_own) {
            return Vec::new();
        }
        let length = |fill: &Fill| self.plan.fill_seconds.unwrap_or(fill.seconds);
        self.plan.fills.iter().map(|fill| Fill { seconds: length(fill), ..fill.clone() }).collect()
    }

    /// Measures everything, until interrupted. Returns the session.
    pub(super) fn run(mut self) -> Result<Session> {
        let rounds = 1..=self.plan.run.runs;
        let contestants = 0..self.contestants.len();
        let counts = self.plan.cores.clone();
        let latency = self.wants(Measure::Latency);
        if self.wants(Measure::Throughput) || latency {
            for round in rounds.clone() {
                for cores in counts.iter().copied() {
                    for contestant in contestants.clone() {
                        self.measure(Task { contestant, cores, part: Part::Throughput }, round)?;
                    }
                }
            }
        }
        let cores = counts.last().copied().unwrap_or(1);
        for round in rounds.filter(|_| latency) {
            for percent in SHARES {
                for contestant in contestants.clone() {
                    let Some(rate) = self.rate(contestant, cores, percent) else { continue };
                    let part = Part::Latency { percent, rate };
                    self.measure(Task { contestant, cores, part }, round)?;
                }
            }
        }
        for fill in self.fills() {
            for contestant in contestants.clone() {
                let part = Part::Memory(fill.clone());
                self.measure(Task { contestant, cores, part }, 1)?;
            }
        }
        Ok(self.session)
    }

    /// Returns `percent` of a tracker's maximum throughput, as a rate of requests.
    fn rate(&self, contestant: usize, cores: usize, percent: u32) -> Option<f64> {
        let name = &self.contestants.get(contestant)?.name;
        let own = self
            .session
            .runs
            .iter()
            .filter(|run| run.subject == *name && run.cores == cores && run.case == THROUGHPUT);
        let most = Figure::of(own.filter_map(|run| Some(run.figures.get("answered_s")?.median)))?;
        Some((most.median * f64::from(percent) / 100.0).round())
    }

    /// Measures one task, repeatedly if noisy. Failures are recorded, not returned.
    fn measure(&mut self, task: Task, round: u32) -> Result<()> {
        if self.failed.iter().filter(|failed| **failed == task).count() >= FAILURES_MAX {
            return Ok(());
        }
        let Some(contestant) = self.contestants.get(task.contestant) else { return Ok(()) };
        let (name, version) = (contestant.name.clone(), contestant.version.clone());
        let case = task.part.case();
        for _ in 0..=REPEATS {
            if self.session.is_stopped() {
                return Ok(());
            }
            match self.attempt(contestant, &task) {
                Ok(Some(figures)) => {
                    let is_quiet =
                        figures.get("noise").is_none_or(|noise| noise.median <= NOISE_MAX);
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
    fn attempt(&self, contestant: &Contestant<'_>, task: &Task) -> Result<Option<Figures>> {
        let (lab, plan) = (self.lab, self.plan);
        let split = lab.split(task.cores)?;
        let words = self.words(contestant, &task.part, &split)?;
        if contestant.subject.tracker.definition.allow_list {
            lab.write_hashes(plan.protocol, &words)?;
        }
        let mut tracker = lab.start(contestant.subject, plan.protocol, &split.tracker, &[])?;
        let before = tracker.usage()?;
        let monitor = NoiseMonitor::start([&*split.tracker, &*split.load].concat())?;
        let children_s = children_cpu_s()?;
        let run = LoadRun {
            protocol: plan.protocol,
            tracker: &tracker,
            path: None,
            seed: SEED,
            seconds: match &task.part {
                Part::Memory(fill) => fill.seconds,
                _ => plan.run.seconds,
            },
            warm_up: plan.run.warm_up,
            processors: &split.load,
            stop: &self.session.stop,
        };
        let result = match &contestant.tester {
            Tester::Own => lab.load(run, &words),
            Tester::Other(program) => lab.other_load(run, program, &contestant.load.configuration),
        };
        // If the tracker has exited, report that rather than the load tester's error.
        tracker.check()?;
        let Some(mut result) = result? else { return Ok(None) };
        let tester_s = children_cpu_s()? - children_s;
        let used = tracker.usage()?.since(&before);
        let noise = monitor.noise(used.cpu_s() + tester_s)?;
        // Other load testers do not know the tracker's process.
        let (user_s, sys_s) = (used.user_s, used.system_s);
        result.tracker.get_or_insert(TrackerUsage { user_s, sys_s });
        check(&result, &task.part)?;
        if let Part::Memory(_) = task.part {
            sleep(SETTLE);
        }
        let after = tracker.usage()?;
        let warm_up = if matches!(contestant.tester, Tester::Own) { plan.run.warm_up } else { 0 };
        let with_warm_up = 1.0 + f64::from(warm_up) / result.seconds;
        let mut figures = result.figures();
        figures.set("noise", noise);
        figures.set("warm_up_s", warm_up.into());
        figures.set("peak_bytes", after.peak_bytes as f64);
        figures.set("per_tester_cpu_s", result.all_responses() * with_warm_up / tester_s);
        if let Part::Latency { rate, .. } = task.part {
            figures.set("rate", rate);
        }
        if let Part::Memory(fill) = &task.part {
            let grown = after.resident_bytes.saturating_sub(before.resident_bytes) as f64;
            let peers = peers(&result, fill, with_warm_up);
            figures.set("peers", peers);
            figures.set("bytes_per_peer", grown / peers);
            if fill.all {
                let cpu_part = figures.get("cpu_part").map_or(f64::NAN, |it| it.median);
                figures.set("idle_cpu_part", cpu_part);
            }
        }
        Ok(Some(figures))
    }

    /// Returns the arguments of our own load tester.
    fn words(
        &self,
        contestant: &Contestant<'_>,
        part: &Part,
        split: &Split,
    ) -> Result<Vec<String>> {
        let known = self.lab.vars().with("load_cores", split.load.len());
        let load = contestant.load;
        match part {
            Part::Latency { rate, .. } => {
                let paced = known.clone().with("rate", rate).fill_all(&load.paced)?;
                Ok([known.fill_all(&load.words)?, paced].concat())
            }
            Part::Memory(fill) => known.fill_all(&fill.words),
            Part::Throughput => known.fill_all(&load.words),
        }
    }
}

/// Returns the number of distinct peers that have announced. Of randomly drawn peers, some may not
/// have been drawn yet.
fn peers(result: &LoadResult, fill: &Fill, with_warm_up: f64) -> f64 {
    if fill.all {
        return result.connections_kept() as f64;
    }
    let peers = fill.peers as f64;
    let announces = result.announces() as f64 * with_warm_up;
    peers * (1.0 - (-announces / peers).exp())
}

/// Fails if the tracker did not handle the intended load.
fn check(result: &LoadResult, part: &Part) -> Result<()> {
    let worst = result.errors.iter().max_by_key(|(_, times)| **times);
    let why = worst.map_or_else(String::new, |(text, _)| format!(": {text}"));
    if let Part::Memory(Fill { peers, all: true, .. }) = part {
        let connections_kept = result.connections_kept();
        let is_most = connections_kept as f64 >= *peers as f64 * (1.0 - FAILED_MAX);
        ensure!(is_most, "kept only {connections_kept} of {peers} connections{why}");
        return Ok(());
    }
    ensure!(result.all_responses() > 0.0, "answered no request{why}");
    // At a fixed rate, what fails is what is measured.
    if let Part::Latency { .. } = part {
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
        figures.get(name).map_or_else(|| "unknown".into(), |figure| write(figure.median))
    };
    let mut summary = match &task.part {
        Part::Throughput => format!(
            "{} responses/s, {} per CPU-s, {} per CPU-s of the load tester",
            text("responses_s", count),
            text("per_cpu_s", count),
            text("per_tester_cpu_s", count)
        ),
        Part::Latency { .. } => {
            format!("p50 {}, p99 {}", text("p50_us", micros), text("p99_us", micros))
        }
        Part::Memory(_) => format!(
            "{} bytes per peer, peak {}",
            text("bytes_per_peer", |bytes| format!("{bytes:.1}")),
            text("peak_bytes", mib)
        ),
    };
    let noise = figures.get("noise").map_or(0.0, |noise| noise.median);
    if noise > NOISE_MAX {
        let _ = write!(summary, ", noisy: other processes used {} of the CPU time", percent(noise));
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_are_drawn_at_random_may_not_have_been_drawn() {
        let json = r#"{"seconds":1.0,"responses":{"announce":590000},"web":{"joined":10001,"connections_lost":1}}"#;
        let result: LoadResult = serde_json::from_str(json).unwrap();
        let fill =
            Fill { name: "f".into(), peers: 590_000, all: false, seconds: 1, words: Vec::new() };
        // As many announces as peers: one of e has not been drawn.
        assert!((peers(&result, &fill, 1.0) / 590_000.0 - 0.632).abs() < 0.001);
        assert!((peers(&result, &fill, 1000.0) - 590_000.0).abs() < 1e-6);
        assert_eq!(peers(&result, &Fill { all: true, ..fill }, 1.0), 10_000.0);
    }
}
