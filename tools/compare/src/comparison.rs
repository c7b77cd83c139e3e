//! The runs of a comparison, interleaved (A B A B) because the speed of machines drifts: only runs
//! that
//! alternate can be compared.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use load::Usage;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::certificate::Certificate;
use crate::cores::{self, Processor, Split};
use crate::definition::{Definitions, Fill, Load};
use crate::figures::{Figure, count, mib, micros, percent};
use crate::generator::{LoadProcess, LoadResult};
use crate::noise::{NOISE_MAX, NoiseMonitor};
use crate::run::{Part, Run, Task};
use crate::running::{RunContext, RunningTracker};
use crate::subject::{ProgramPaths, Subject};
use crate::{Measure, Options, Protocol};

/// A comparison and its results so far.
pub(crate) struct Comparison<'a> {
    pub(crate) options: &'a Options,
    pub(crate) load: &'a Load,
    pub(crate) fills: &'a [Fill],
    pub(crate) subjects: &'a [Subject],
    pub(crate) runs: Vec<Run>,
    pub(crate) failures: Vec<Failure>,
    /// Whether the comparison was interrupted.
    pub(crate) is_stopped: bool,
    places: &'a ProgramPaths,
    processors: Vec<Processor>,
    scratch: Scratch,
    /// Log with one line per run, written as soon as it has ended.
    log: File,
}

/// A task that could not be measured, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) task: Task,
    pub(crate) why: String,
}

/// The interrupt flag and the progress output.
pub(crate) struct Observer<'a> {
    pub(crate) stop: &'a AtomicBool,
    pub(crate) print: &'a mut dyn FnMut(&str),
}

/// Percentages of its maximum throughput at which a tracker's latencies are measured.
pub(crate) const SHARES: [u32; 2] = [50, 80];
/// Seed of torrents and peers, the same for all loads.
const SEED: u64 = 1;
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

impl<'a> Comparison<'a> {
    /// Creates a comparison without results.
    pub(crate) fn new(
        options: &'a Options,
        definitions: &'a Definitions,
        places: &'a ProgramPaths,
        subjects: &'a [Subject],
    ) -> Result<Self> {
        let load = definitions.load(options.load.as_deref())?;
        let processors = cores::allowed()?;
        for count in options.cores.iter().copied().chain([1]) {
            let is_possible = Split::of(&processors, count).is_some();
            let there_are = processors.len();
            ensure!(
                is_possible,
                "--cores {count} leaves no processor for the load; this machine has {there_are}"
            );
        }
        let folder = &options.out;
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let log = folder.join("runs.jsonl");
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        Ok(Self {
            options,
            load,
            fills: &definitions.fills,
            subjects,
            runs: Vec::new(),
            failures: Vec::new(),
            is_stopped: false,
            places,
            processors,
            scratch: Scratch::new()?,
            log,
        })
    }

    /// Returns the numbers of tracker cores to measure.
    pub(crate) fn counts(&self) -> Vec<usize> {
        match &*self.options.cores {
            [] => cores::default_counts(&self.processors),
            counts => counts.to_vec(),
        }
    }

    /// Assigns processors to tracker and load.
    pub(crate) fn split(&self, count: usize) -> Option<Split> {
        Split::of(&self.processors, count)
    }

    /// Estimates the duration of all runs.
    pub(crate) fn duration(&self) -> Duration {
        let Options { runs, seconds, warm_up, .. } = self.options;
        let latency = if self.load.paced.is_empty() { 0 } else { SHARES.len() };
        let rounds = [(Measure::Throughput, self.counts().len()), (Measure::Latency, latency)];
        let wanted = rounds.iter().filter(|(measure, _)| self.options.wants(*measure));
        let each = *runs as usize * wanted.map(|(_, count)| count).sum::<usize>();
        let fills = if self.options.wants(Measure::Memory) { self.fills } else { &[] };
        // Starting and stopping take a second or two.
        let run_s = |seconds: u32| u64::from(seconds + warm_up + 2);
        let fills_s: u64 = fills.iter().map(|fill| run_s(fill.seconds)).sum();
        Duration::from_secs(self.subjects.len() as u64 * (each as u64 * run_s(*seconds) + fills_s))
    }

    /// Measures everything, until interrupted.
    pub(crate) fn run(&mut self, observer: &mut Observer<'_>) -> Result<()> {
        let (rounds, counts, subjects) = (1..=self.options.runs, self.counts(), self.subjects);
        let latency = self.options.wants(Measure::Latency) && !self.load.paced.is_empty();
        if self.options.wants(Measure::Throughput) || latency {
            for round in rounds.clone() {
                for cores in &counts {
                    for subject in subjects {
                        self.measure(subject, (*cores, Part::Throughput), round, observer)?;
                    }
                }
            }
        }
        let most = counts.last().copied().unwrap_or(1);
        for round in rounds.filter(|_| latency) {
            for percent in SHARES {
                for subject in subjects {
                    let Some(rate) = self.rate(&subject.name(), most, percent) else { continue };
                    let part = Part::Latency { percent, rate };
                    self.measure(subject, (most, part), round, observer)?;
                }
            }
        }
        let fills = if self.options.wants(Measure::Memory) { self.fills } else { &[] };
        for fill in fills {
            for subject in subjects {
                let Fill { name, peers, all, .. } = fill.clone();
                let part = Part::Memory { fill: name, peers, all };
                self.measure(subject, (most, part), 1, observer)?;
            }
        }
        Ok(())
    }

    /// Returns `percent` of a tracker's maximum throughput, as a rate.
    fn rate(&self, tracker: &str, cores: usize, percent: u32) -> Option<f64> {
        let runs = self.counted_runs().filter(|run| {
            run.task.tracker == tracker
                && run.task.cores == cores
                && run.task.part == Part::Throughput
        });
        let most = Figure::of(runs.map(Run::answered_per_s))?.median;
        Some((most * f64::from(percent) / 100.0).round())
    }

    /// Returns the runs that are not set aside.
    pub(crate) fn counted_runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| !run.is_set_aside)
    }

    /// Measures one task, repeatedly if noisy. Failures are recorded, not returned.
    fn measure(
        &mut self,
        subject: &Subject,
        (cores, part): (usize, Part),
        round: u32,
        observer: &mut Observer<'_>,
    ) -> Result<()> {
        let task = Task { tracker: subject.name(), cores, part };
        let failed = self.failures.iter().filter(|failure| failure.task == task).count();
        if failed >= FAILURES_MAX {
            return Ok(());
        }
        let first = self.runs.len();
        for _ in 0..=REPEATS {
            if self.is_stopped {
                return Ok(());
            }
            match self.attempt(subject, &task, round, observer.stop) {
                Ok(Some(run)) => {
                    (observer.print)(&line(&run));
                    serde_json::to_writer(&self.log, &run)?;
                    writeln!(self.log).context("cannot write the runs")?;
                    let is_quiet = run.noise <= NOISE_MAX;
                    self.runs.push(run);
                    if is_quiet {
                        break;
                    }
                }
                Ok(None) => self.is_stopped = true,
                Err(error) => {
                    let why = format!("{error:#}");
                    (observer.print)(&format!("round {round}: {} failed: {why}", task.title()));
                    self.failures.push(Failure { task, why });
                    break;
                }
            }
        }
        set_noisier_aside(&mut self.runs[first..]);
        Ok(())
    }

    /// Runs a task once. Returns `None` if interrupted.
    fn attempt(
        &self,
        subject: &Subject,
        task: &Task,
        round: u32,
        stop: &AtomicBool,
    ) -> Result<Option<Run>> {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let split = self.split(task.cores).context("too few processors")?;
        if subject.tracker.definition.allow_list {
            self.write_hashes(task, &split)?;
        }
        let mut tracker = RunningTracker::start(subject, &self.run_context(), &split.tracker)?;
        let before = tracker.usage()?;
        let monitor = NoiseMonitor::start([&*split.tracker, &*split.load].concat())?;
        let own_s = tester_cpu_s()?;
        let words = self.words(task, &tracker, &split)?;
        let load_process =
            LoadProcess::start(&self.options.own, &words, &split.load, self.seconds(task))?;
        let result = load_process.figures(stop);
        // If the tracker has exited, report that rather than the load tester's error.
        tracker.check()?;
        let Some(result) = result? else { return Ok(None) };
        let used = tracker.usage()?.since(&before);
        let noise = monitor.noise(used.cpu_s() + tester_cpu_s()? - own_s)?;
        check(&result, &task.part)?;
        if matches!(task.part, Part::Memory { .. }) {
            sleep(SETTLE);
        }
        let Usage { resident_bytes, peak_bytes, .. } = tracker.usage()?;
        Ok(Some(Run {
            task: task.clone(),
            round,
            noise,
            is_set_aside: false,
            warm_up: self.options.warm_up,
            grown_bytes: resident_bytes.saturating_sub(before.resident_bytes),
            peak_bytes,
            result,
        }))
    }

    /// Returns the measured seconds of a task.
    fn seconds(&self, task: &Task) -> u32 {
        self.fill(task).map_or(self.options.seconds, |fill| fill.seconds)
    }

    fn fill(&self, task: &Task) -> Option<&Fill> {
        let Part::Memory { fill: name, .. } = &task.part else { return None };
        self.fills.iter().find(|fill| fill.name == *name)
    }

    /// Returns the load tester's arguments.
    fn words(&self, task: &Task, tracker: &RunningTracker, split: &Split) -> Result<Vec<String>> {
        let mut words = self.load_words(task, tracker.address, split)?;
        let mut option =
            |name: &str, value: u32| words.extend([name.to_owned(), value.to_string()]);
        option("--seconds", self.seconds(task));
        option("--warm-up", self.options.warm_up);
        option("--pid", tracker.process());
        words.push("--json".to_owned());
        Ok(words)
    }

    /// Returns the arguments that define the load: the tracker's URL, torrents and peers.
    fn load_words(&self, task: &Task, address: SocketAddr, split: &Split) -> Result<Vec<String>> {
        let protocol = self.options.protocol;
        let path = match protocol.without_tls() {
            Protocol::Http => "/announce",
            Protocol::Ws => "/",
            _ => "",
        };
        let known = self.places.words().with("load_cores", split.load.len());
        let more = match (&task.part, self.fill(task)) {
            (Part::Latency { rate, .. }, _) => {
                let paced = known.clone().with("rate", rate).fill_all(&self.load.paced)?;
                [known.fill_all(&self.load.words)?, paced].concat()
            }
            (_, Some(fill)) => known.fill_all(&fill.words)?,
            _ => known.fill_all(&self.load.words)?,
        };
        let url = format!("{protocol}://{address}{path}");
        let seed = SEED.to_string();
        let words = ["load", protocol.without_tls().name(), &url, "--seed", &seed];
        Ok([words.map(str::to_owned).to_vec(), more].concat())
    }

    /// Makes the load tester write the info hashes that it will use.
    fn write_hashes(&self, task: &Task, split: &Split) -> Result<()> {
        // No request is sent yet, so any address will do.
        let mut words = self.load_words(task, ([127, 0, 0, 1], 1).into(), split)?;
        words.extend([
            "--write-hashes".to_owned(),
            self.scratch.folder.join("hashes").display().to_string(),
        ]);
        let output = Command::new(&self.options.own).args(words).stdin(Stdio::null()).output();
        let output = output.context("cannot start the load tester")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the load tester cannot write its info hashes: {why}");
        Ok(())
    }

    fn run_context(&self) -> RunContext<'_> {
        RunContext {
            protocol: self.options.protocol,
            places: self.places,
            folder: &self.scratch.folder,
            certificate: &self.scratch.certificate,
        }
    }
}

/// Fails if the tracker did not handle the intended load.
fn check(result: &LoadResult, part: &Part) -> Result<()> {
    let worst = result.errors.iter().max_by_key(|(_, times)| **times);
    let why = worst.map_or_else(String::new, |(text, _)| format!(": {text}"));
    if let Part::Memory { peers, all: true, .. } = part {
        let connections_kept = result.connections_kept();
        let is_most = connections_kept as f64 >= *peers as f64 * (1.0 - FAILED_MAX);
        ensure!(is_most, "kept only {connections_kept} of {peers} connections{why}");
        return Ok(());
    }
    ensure!(result.all_responses() > 0, "answered no request{why}");
    // At a fixed rate, what fails is what is measured.
    if let Part::Latency { .. } = part {
        return Ok(());
    }
    let (failed, lost) = (result.failed_part(), result.lost_part());
    ensure!(failed <= FAILED_MAX, "{} of all requests failed{why}", percent(failed));
    ensure!(lost <= LOST_MAX, "{} of all requests were not answered", percent(lost));
    Ok(())
}

/// Sets all attempts at a task aside except the least noisy one.
fn set_noisier_aside(attempts: &mut [Run]) {
    let quietest = attempts.iter().map(|run| run.noise).fold(f64::INFINITY, f64::min);
    let mut is_taken = false;
    for run in attempts {
        run.is_set_aside = is_taken || run.noise > quietest;
        is_taken |= !run.is_set_aside;
    }
}

/// Returns the CPU time of this process and of all children that it has waited for.
fn tester_cpu_s() -> Result<f64> {
    let mut sum = 0.0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who)?;
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        sum += micros as f64 / 1e6;
    }
    Ok(sum)
}

/// Formats a run as a progress line.
fn line(run: &Run) -> String {
    let Run { task, round, result, .. } = run;
    let figures = match &task.part {
        Part::Throughput => {
            let per_cpu_s = run.per_cpu_s().map_or_else(|| "unknown".into(), count);
            format!("{} responses/s, {per_cpu_s} per CPU-s", count(result.responses_per_s))
        }
        Part::Latency { .. } => {
            let latency = result.latency_us;
            format!("p50 {}, p99 {}", micros(latency.p50), micros(latency.p99))
        }
        Part::Memory { .. } => {
            let each = run.bytes_per_peer().unwrap_or_default();
            format!("{each:.1} bytes per peer, {}", mib(run.grown_bytes as f64))
        }
    };
    let noise = if run.noise <= NOISE_MAX {
        String::new()
    } else {
        format!(", noisy: other processes used {} of the CPU time", percent(run.noise))
    };
    format!("round {round}: {}: {figures}{noise}", task.title())
}

/// A temporary folder for the files of runs, removed on drop.
struct Scratch {
    folder: PathBuf,
    certificate: Certificate,
}

impl Scratch {
    fn new() -> Result<Self> {
        // A process may run several comparisons at a time; the tests do.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-compare-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Fails if the folder exists, so that a folder planted by another user is not used.
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let certificate = Certificate::make(&folder)?;
        Ok(Self { folder, certificate })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Otherwise the system's cleanup of temporary files removes it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
