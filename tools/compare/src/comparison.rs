//! The runs of a comparison, in their order: A B A B, because machines drift, and only what is measured
//! in turn can be compared.

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
use crate::generator::{Loading, Seen};
use crate::noise::{NOISE_MAX, Watch};
use crate::run::{Part, Run, Task};
use crate::running::{Running, Stage};
use crate::subject::{Places, Subject};
use crate::{Measure, Options, Protocol};

/// Everything that has come of it so far.
pub(crate) struct Comparison<'a> {
    pub(crate) options: &'a Options,
    pub(crate) load: &'a Load,
    pub(crate) fills: &'a [Fill],
    pub(crate) subjects: &'a [Subject],
    pub(crate) runs: Vec<Run>,
    pub(crate) failures: Vec<Failure>,
    /// Somebody had enough of it.
    pub(crate) is_stopped: bool,
    places: &'a Places,
    processors: Vec<Processor>,
    scratch: Scratch,
    /// A line for every run, written as soon as it has ended.
    log: File,
}

/// What could not be measured, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) task: Task,
    pub(crate) why: String,
}

/// Who may stop it, and who hears of it.
pub(crate) struct Watcher<'a> {
    pub(crate) stop: &'a AtomicBool,
    pub(crate) say: &'a mut dyn FnMut(&str),
}

/// Of a hundred requests that a tracker can answer, how many it gets when latencies are looked at.
pub(crate) const SHARES: [u32; 2] = [50, 80];
/// All loads have the same torrents and peers.
const SEED: u64 = 1;
/// How often a noisy run is repeated.
const REPEATS: u32 = 2;
/// What failed so often is not tried again.
const FAILURES_MAX: usize = 2;
/// More refusals and other trouble than that, and it was another load.
const FAILED_MAX: f64 = 0.01;
/// More requests than that without an answer when the load waits for each, and it is no figure.
const LOST_MAX: f64 = 0.5;
/// How long trackers get to put their memory in order before it is looked at.
const SETTLE: Duration = Duration::from_secs(1);

impl<'a> Comparison<'a> {
    /// Nothing measured yet.
    pub(crate) fn new(
        options: &'a Options,
        definitions: &'a Definitions,
        places: &'a Places,
        subjects: &'a [Subject],
    ) -> Result<Self> {
        let load = definitions.load(options.load.as_deref())?;
        let processors = cores::allowed()?;
        for count in options.cores.iter().copied().chain([1]) {
            let is_possible = Split::of(&processors, count).is_some();
            let there_are = processors.len();
            ensure!(
                is_possible,
                "--cores {count} leaves none of {there_are} processors to the load"
            );
        }
        let folder = &options.out;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
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

    /// How many cores trackers are given, in turn.
    pub(crate) fn counts(&self) -> Vec<usize> {
        match &*self.options.cores {
            [] => cores::usual_counts(&self.processors),
            counts => counts.to_vec(),
        }
    }

    /// Who runs where.
    pub(crate) fn split(&self, count: usize) -> Option<Split> {
        Split::of(&self.processors, count)
    }

    /// About how long all of it takes.
    pub(crate) fn duration(&self) -> Duration {
        let Options { runs, seconds, warm_up, .. } = self.options;
        let latency = if self.load.paced.is_empty() { 0 } else { SHARES.len() };
        let rounds = [(Measure::Throughput, self.counts().len()), (Measure::Latency, latency)];
        let wanted = rounds.iter().filter(|(measure, _)| self.options.wants(*measure));
        let each = *runs as usize * wanted.map(|(_, count)| count).sum::<usize>();
        let fills = if self.options.wants(Measure::Memory) { self.fills } else { &[] };
        // Starting and ending take a second or two.
        let run_s = |seconds: u32| u64::from(seconds + warm_up + 2);
        let fills_s: u64 = fills.iter().map(|fill| run_s(fill.seconds)).sum();
        Duration::from_secs(self.subjects.len() as u64 * (each as u64 * run_s(*seconds) + fills_s))
    }

    /// Measures everything, or what there is time for until it is stopped.
    pub(crate) fn run(&mut self, watcher: &mut Watcher<'_>) -> Result<()> {
        let (rounds, counts, subjects) = (1..=self.options.runs, self.counts(), self.subjects);
        let latency = self.options.wants(Measure::Latency) && !self.load.paced.is_empty();
        if self.options.wants(Measure::Throughput) || latency {
            for round in rounds.clone() {
                for cores in &counts {
                    for subject in subjects {
                        self.measure(subject, (*cores, Part::Throughput), round, watcher)?;
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
                    self.measure(subject, (most, part), round, watcher)?;
                }
            }
        }
        let fills = if self.options.wants(Measure::Memory) { self.fills } else { &[] };
        for fill in fills {
            for subject in subjects {
                let Fill { name, peers, all, .. } = fill.clone();
                let part = Part::Memory { fill: name, peers, all };
                self.measure(subject, (most, part), 1, watcher)?;
            }
        }
        Ok(())
    }

    /// So many of a hundred requests that a tracker could answer, as a rate.
    fn rate(&self, tracker: &str, cores: usize, percent: u32) -> Option<f64> {
        let runs = self.counting().filter(|run| {
            run.task.tracker == tracker
                && run.task.cores == cores
                && run.task.part == Part::Throughput
        });
        let most = Figure::of(runs.map(Run::answered_per_s))?.median;
        Some((most * f64::from(percent) / 100.0).round())
    }

    /// The runs that count.
    pub(crate) fn counting(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| !run.is_set_aside)
    }

    /// Measures one thing, again if it was noisy. What fails is noted and no error.
    fn measure(
        &mut self,
        subject: &Subject,
        (cores, part): (usize, Part),
        round: u32,
        watcher: &mut Watcher<'_>,
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
            match self.attempt(subject, &task, round, watcher.stop) {
                Ok(Some(run)) => {
                    (watcher.say)(&line(&run));
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
                    (watcher.say)(&format!("round {round}: {} failed: {why}", task.title()));
                    self.failures.push(Failure { task, why });
                    break;
                }
            }
        }
        keep_quietest(&mut self.runs[first..]);
        Ok(())
    }

    /// Starts the tracker and its load, once. Nothing if that was stopped.
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
        let mut tracker = Running::start(subject, &self.stage(), &split.tracker)?;
        let before = tracker.usage()?;
        let watch = Watch::start([&*split.tracker, &*split.load].concat())?;
        let own_s = own_cpu_s()?;
        let words = self.words(task, &tracker, &split)?;
        let loading = Loading::start(&self.options.own, &words, &split.load, self.seconds(task))?;
        let seen = loading.figures(stop);
        // If the tracker has ended, that is why the load has failed.
        tracker.check()?;
        let Some(seen) = seen? else { return Ok(None) };
        let used = tracker.usage()?.since(&before);
        let noise = watch.noise(used.cpu_s() + own_cpu_s()? - own_s)?;
        check(&seen, &task.part)?;
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
            seen,
        }))
    }

    /// How long a task's load is measured.
    fn seconds(&self, task: &Task) -> u32 {
        self.fill(task).map_or(self.options.seconds, |fill| fill.seconds)
    }

    fn fill(&self, task: &Task) -> Option<&Fill> {
        let Part::Memory { fill: name, .. } = &task.part else { return None };
        self.fills.iter().find(|fill| fill.name == *name)
    }

    /// What the load tester is told.
    fn words(&self, task: &Task, tracker: &Running, split: &Split) -> Result<Vec<String>> {
        let mut words = self.load_words(task, tracker.address, split)?;
        let mut option =
            |name: &str, value: u32| words.extend([name.to_owned(), value.to_string()]);
        option("--seconds", self.seconds(task));
        option("--warm-up", self.options.warm_up);
        option("--pid", tracker.process());
        words.push("--json".to_owned());
        Ok(words)
    }

    /// What makes the load: the tracker's URL, torrents and peers.
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

    /// Has the load tester tell the info hashes that it will use.
    fn write_hashes(&self, task: &Task, split: &Split) -> Result<()> {
        // No tracker is asked yet.
        let mut words = self.load_words(task, ([127, 0, 0, 1], 1).into(), split)?;
        words.extend([
            "--write-hashes".to_owned(),
            self.scratch.folder.join("hashes").display().to_string(),
        ]);
        let output = Command::new(&self.options.own).args(words).stdin(Stdio::null()).output();
        let output = output.context("cannot start the load tester")?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the load tester does not tell its info hashes: {why}");
        Ok(())
    }

    fn stage(&self) -> Stage<'_> {
        Stage {
            protocol: self.options.protocol,
            places: self.places,
            folder: &self.scratch.folder,
            certificate: &self.scratch.certificate,
        }
    }
}

/// An error if what was measured was not the load.
fn check(seen: &Seen, part: &Part) -> Result<()> {
    let worst = seen.errors.iter().max_by_key(|(_, times)| **times);
    let why = worst.map_or_else(String::new, |(text, _)| format!(": {text}"));
    if let Part::Memory { peers, all: true, .. } = part {
        let stayed = seen.stayed();
        let is_most = stayed as f64 >= *peers as f64 * (1.0 - FAILED_MAX);
        ensure!(is_most, "it kept {stayed} of {peers} connections{why}");
        return Ok(());
    }
    ensure!(seen.all_responses() > 0, "it answered nothing{why}");
    // At a fixed rate, what fails is what is measured.
    if let Part::Latency { .. } = part {
        return Ok(());
    }
    let (failed, lost) = (seen.failed_part(), seen.lost_part());
    ensure!(failed <= FAILED_MAX, "{} of all requests failed{why}", percent(failed));
    ensure!(lost <= LOST_MAX, "it left {} of all requests without answer", percent(lost));
    Ok(())
}

/// Of several attempts at the same thing, the least noisy one counts.
fn keep_quietest(attempts: &mut [Run]) {
    let quietest = attempts.iter().map(|run| run.noise).fold(f64::INFINITY, f64::min);
    let mut is_taken = false;
    for run in attempts {
        run.is_set_aside = is_taken || run.noise > quietest;
        is_taken |= !run.is_set_aside;
    }
}

/// CPU time of this process and of all that it has waited for.
fn own_cpu_s() -> Result<f64> {
    let mut sum = 0.0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who)?;
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        sum += micros as f64 / 1e6;
    }
    Ok(sum)
}

/// A run, for those who watch.
fn line(run: &Run) -> String {
    let Run { task, round, seen, .. } = run;
    let figures = match &task.part {
        Part::Throughput => {
            let per_cpu_s = run.per_cpu_s().map_or_else(|| "unknown".into(), count);
            format!("{} responses/s, {per_cpu_s} per CPU-s", count(seen.responses_per_s))
        }
        Part::Latency { .. } => {
            let latency = seen.latency_us;
            format!("p50 {}, p99 {}", micros(latency.p50), micros(latency.p99))
        }
        Part::Memory { .. } => {
            let each = run.bytes_per_peer().unwrap_or_default();
            format!("{each:.1} bytes a peer, {}", mib(run.grown_bytes as f64))
        }
    };
    let noise = if run.noise <= NOISE_MAX {
        String::new()
    } else {
        format!(", noisy: others had {} of the processors", percent(run.noise))
    };
    format!("round {round}: {}: {figures}{noise}", task.title())
}

/// A folder for the files of runs, removed in the end.
struct Scratch {
    folder: PathBuf,
    certificate: Certificate,
}

impl Scratch {
    fn new() -> Result<Self> {
        // A process may have several comparisons at a time; its tests do.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-compare-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // None that somebody else has put there.
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let certificate = Certificate::make(&folder)?;
        Ok(Self { folder, certificate })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever cleans temporary files finds it, if this cannot.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
