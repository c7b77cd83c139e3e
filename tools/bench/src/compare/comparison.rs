//! The runs of a comparison, interleaved (A B A B) because the speed of machines drifts: only runs
//! that alternate can be compared.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use ::load::Report;
use anyhow::{Context, Result, ensure};

use super::Measure;
use crate::figures::{Figure, count, mib, micros, percent};
use crate::lab::{
    Api, Fill, Lab, Load, LoadRun, NOISE_MAX, NoiseMonitor, Protocol, RunningTracker, SEED, Split,
    Subject, TOKEN_VARIABLES, TemplateVars, add_records, children_cpu_s, figures, free_address,
};
use crate::record::Figures;
use crate::session::{RoundArgs, RunKey, Session};

/// A tracker under a load, which takes part in the comparison.
pub(super) struct Contestant<'a> {
    /// The tracker, and the load if there are several.
    pub(super) name: String,
    pub(super) subject: Subject,
    pub(super) load: &'a Load,
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

/// Quantity that a run measures.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Maximum throughput.
    Throughput,
    /// Latencies at this many requests per second.
    Latency { pace: Pace, rate: f64 },
    /// Memory with a known number of peers.
    Memory(Fill),
}

/// A rate of requests at which latencies are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// A percentage of the tracker's own maximum throughput.
    Percent(u32),
    PerSecond(u32),
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
const SHARES: [u32; 2] = [50, 80];
/// Maximum repetitions of a noisy run.
const REPEATS: u32 = 2;
/// A task is given up after this many failures.
const FAILURES_MAX: usize = 2;
/// With a larger fraction of failed requests, the tracker did not handle the intended load.
const FAILED_MAX: f64 = 0.01;
/// With a larger fraction of lost requests in a closed loop, the result is meaningless.
const LOST_MAX: f64 = 0.5;
/// Seconds of a load that comes before a measurement.
const BEFORE_S: u32 = 15;
/// Time for trackers to settle before their memory is measured.
const SETTLE: Duration = Duration::from_secs(1);

impl Contestant<'_> {
    /// Returns the rates at which its latencies are measured.
    fn paces(&self) -> Vec<Pace> {
        match &*self.load.rates {
            [] => SHARES.map(Pace::Percent).into(),
            rates => rates.iter().copied().map(Pace::PerSecond).collect(),
        }
    }
}

impl Pace {
    /// Returns the name in records.
    fn case(self) -> String {
        match self {
            Self::Percent(percent) => format!("{percent} %"),
            Self::PerSecond(rate) => format!("{}/s", count(rate.into())),
        }
    }
}

impl Part {
    /// The name in records.
    fn case(&self) -> String {
        match self {
            Self::Throughput => THROUGHPUT.to_owned(),
            Self::Latency { pace, .. } => pace.case(),
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
        Ok(Self { lab, plan, contestants, session, failed: Vec::new() })
    }

    fn wants(&self, measure: Measure) -> bool {
        let is_possible = measure != Measure::Latency
            || self.contestants.iter().all(|contestant| !contestant.load.paced.is_empty());
        is_possible && self.plan.measures.contains(&measure)
    }

    /// Returns the rates of all loads.
    fn paces(&self) -> Vec<Pace> {
        let mut all = Vec::new();
        for pace in self.contestants.iter().flat_map(Contestant::paces) {
            if !all.contains(&pace) {
                all.push(pace);
            }
        }
        all
    }

    /// Returns whether the throughput is measured: for itself, or because rates depend on it.
    fn needs_throughput(&self) -> bool {
        let is_relative = |pace: &Pace| matches!(pace, Pace::Percent(_));
        self.wants(Measure::Throughput)
            || self.wants(Measure::Latency) && self.paces().iter().any(is_relative)
    }

    /// Returns the fills to measure.
    fn fills(&self) -> Vec<Fill> {
        if !self.wants(Measure::Memory) {
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
        self.add_records()?;
        if self.needs_throughput() {
            for round in rounds.clone() {
                for cores in counts.iter().copied() {
                    for contestant in contestants.clone() {
                        self.measure(Task { contestant, cores, part: Part::Throughput }, round)?;
                    }
                }
            }
        }
        let cores = counts.last().copied().unwrap_or(1);
        let paces = if self.wants(Measure::Latency) { self.paces() } else { Vec::new() };
        for round in rounds {
            for pace in paces.iter().copied() {
                for contestant in contestants.clone() {
                    let Some(rate) = self.rate(contestant, cores, pace) else { continue };
                    let part = Part::Latency { pace, rate };
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

    /// Adds the records of private trackers, each of which keeps them in a folder of its own.
    fn add_records(&self) -> Result<()> {
        let split = self.lab.split(1)?;
        for (number, contestant) in self.contestants.iter().enumerate() {
            if contestant.load.records {
                let api = free_address()?;
                let _tracker = self.start(number, &split.tracker, Some(api))?;
                add_records(&mut Api::open(api)?, &self.lab.folder.join("keys.txt"))?;
            }
        }
        Ok(())
    }

    /// Starts a tracker with the settings of its load, and with its management API at `api`.
    fn start(
        &self,
        number: usize,
        processors: &[usize],
        api: Option<SocketAddr>,
    ) -> Result<RunningTracker> {
        let Contestant { subject, load, .. } = &self.contestants[number];
        let vars = self.lab.vars().with_path("folder", &self.lab.folder).with("contestant", number);
        let mut environment = Vec::new();
        for (name, value) in &load.environment {
            environment.push((name.as_str(), vars.fill(value)?));
        }
        if let Some(api) = api {
            environment.push(("TIDEGATE_ADMIN__LISTEN", api.to_string()));
            environment.push(("TIDEGATE_ADMIN__REQUESTS_PER_S", "0".to_owned()));
            environment.extend(TOKEN_VARIABLES.map(|(name, token)| (name, token.to_owned())));
        }
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.lab.start(subject, self.plan.protocol, processors, &environment)
    }

    /// Returns the rate of requests, which may depend on the tracker's maximum throughput; `None` if that is unknown,
    /// or if the load has other rates.
    fn rate(&self, contestant: usize, cores: usize, pace: Pace) -> Option<f64> {
        let contestant = self.contestants.get(contestant)?;
        let percent = match pace {
            _ if !contestant.paces().contains(&pace) => return None,
            Pace::PerSecond(rate) => return Some(rate.into()),
            Pace::Percent(percent) => percent,
        };
        let name = &contestant.name;
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
        let (name, version) = (contestant.name.clone(), contestant.subject.version());
        let case = task.part.case();
        for _ in 0..=REPEATS {
            if self.session.is_stopped() {
                return Ok(());
            }
            match self.attempt(&task) {
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
    fn attempt(&self, task: &Task) -> Result<Option<Figures>> {
        let (lab, plan) = (self.lab, self.plan);
        let contestant = &self.contestants[task.contestant];
        let load = contestant.load;
        let split = lab.split(task.cores)?;
        let words = self.words(contestant, &task.part, &split)?;
        if contestant.subject.tracker.definition.allow_list {
            lab.write_hashes(plan.protocol, &words)?;
        }
        let api = load.meanwhile.map(|_| free_address()).transpose()?;
        let mut tracker = self.start(task.contestant, &split.tracker, api)?;
        let run = LoadRun {
            protocol: plan.protocol,
            tracker: &tracker,
            path: load.path.as_deref(),
            seed: SEED,
            seconds: match &task.part {
                Part::Memory(fill) => fill.seconds,
                _ => plan.run.seconds,
            },
            warm_up: plan.run.warm_up,
            processors: &split.load,
            stop: &self.session.stop,
        };
        if !load.before.is_empty() {
            let words = self.variables(&split).fill_all(&load.before)?;
            let run = LoadRun { seconds: BEFORE_S, warm_up: 0, ..run };
            if lab.load(run, &words)?.is_none() {
                return Ok(None);
            }
        }
        let before = tracker.usage()?;
        let monitor = NoiseMonitor::start([&*split.tracker, &*split.load].concat())?;
        let children_s = children_cpu_s()?;
        let (result, api_figures) = self.load(contestant, run, &words, api)?;
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
        let with_warm_up = 1.0 + f64::from(plan.run.warm_up) / result.seconds;
        let mut figures = figures(&result);
        figures.extend(api_figures);
        figures.set("noise", noise);
        figures.set("warm_up_s", plan.run.warm_up.into());
        figures.set("peak_bytes", after.peak_bytes as f64);
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

    /// Puts a tracker under load, and uses its API at `api` meanwhile if the load says so. Returns the load tester's
    /// result, and figures of the API.
    fn load(
        &self,
        contestant: &Contestant<'_>,
        run: LoadRun<'_>,
        words: &[String],
        api: Option<SocketAddr>,
    ) -> Result<(Result<Option<Report>>, Figures)> {
        let load = contestant.load;
        let put_under_load = || self.lab.load(run, words);
        match load.meanwhile.zip(api) {
            Some((usage, api)) => usage.during(api, run.processors, put_under_load),
            None => Ok((put_under_load(), Figures::default())),
        }
    }

    /// Returns the variables in the arguments of the load tester.
    fn variables(&self, split: &Split) -> TemplateVars {
        self.lab.vars().with_path("folder", &self.lab.folder).with("load_cores", split.load.len())
    }

    /// Returns the arguments of the load tester.
    fn words(
        &self,
        contestant: &Contestant<'_>,
        part: &Part,
        split: &Split,
    ) -> Result<Vec<String>> {
        let known = self.variables(split);
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
fn peers(result: &Report, fill: &Fill, with_warm_up: f64) -> f64 {
    if fill.all {
        return result.connections_kept() as f64;
    }
    let peers = fill.peers as f64;
    let announces = result.responses.announce as f64 * with_warm_up;
    peers * (1.0 - (-announces / peers).exp())
}

/// Fails if the tracker did not handle the intended load.
fn check(result: &Report, part: &Part) -> Result<()> {
    let worst = result.errors.iter().max_by_key(|(_, times)| **times);
    let why = worst.map_or_else(String::new, |(text, _)| format!(": {text}"));
    if let Part::Memory(Fill { peers, all: true, .. }) = part {
        let connections_kept = result.connections_kept();
        let is_most = connections_kept as f64 >= *peers as f64 * (1.0 - FAILED_MAX);
        ensure!(is_most, "kept only {connections_kept} of {peers} connections{why}");
        return Ok(());
    }
    ensure!(result.responses.all() > 0, "answered no request{why}");
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
            "{} responses/s, {} per CPU-s",
            text("responses_s", count),
            text("per_cpu_s", count)
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
    use crate::lab::FIGURES;
    use ::load::{WebTorrentCounters, WebTorrentReport};

    #[test]
    fn peers_that_are_drawn_at_random_may_not_have_been_drawn() {
        let mut result: Report = serde_json::from_str(FIGURES).unwrap();
        let counts = WebTorrentCounters { connections_lost: 1, ..WebTorrentCounters::default() };
        result.web = Some(WebTorrentReport { joined: 10_001, counts, ..Default::default() });
        let fill =
            Fill { name: "f".into(), peers: 590_000, all: false, seconds: 1, words: Vec::new() };
        // As many announces as peers: one of e has not been drawn.
        assert!((peers(&result, &fill, 1.0) / 590_000.0 - 0.632).abs() < 0.001);
        assert!((peers(&result, &fill, 1000.0) - 590_000.0).abs() < 1e-6);
        assert_eq!(peers(&result, &Fill { all: true, ..fill }, 1.0), 10_000.0);
    }
}
