//! `tidegate-bench soak`: one tracker for an hour under everything at once.
//!
//! A scenario is a list of [`Actor`]s that run side by side: clients of all protocols, floods, and an
//! operator who changes lists, reloads and upgrades. Three upgrades are in the first half; in the second
//! half one process serves throughout, so that its growth shows. Fails if anything of [`verdict`] is
//! broken.
//!
//! ```text
//! actors ─▶ tallies ──┐
//! /proc, log ─▶ watch ┴▶ a line a minute ─▶ verdict ─▶ record
//! ```

mod actors;
mod operator;
mod verdict;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, value_parser};
use harness::{Directory, Tracker};

use crate::interruption;
use crate::lab::{Certificate, commit, machine, now};
use crate::program::ProgramArgs;
use crate::session::print_line;
use actors::Actor;
use operator::Operator;
use verdict::{Limits, Verdict};
use watch::{Sample, Watch};

/// Run one tracker for an hour under all protocols with churn, floods, reloads, upgrades and list
/// changes, and check that nothing grows, fails or goes unanswered.
#[derive(Args)]
pub(crate) struct SoakCommand {
    /// Minutes to run.
    #[arg(default_value_t = 60, value_parser = value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    #[command(flatten)]
    program: ProgramArgs,
    /// Requests per second, in percent of the usual load.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = value_parser!(u32).range(1..=10_000))]
    load: u32,
    /// Write a record [default directory: bench/record].
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
          default_missing_value = "bench/record")]
    record: Option<PathBuf>,
}

/// A running tracker and what the actors share.
struct Stage {
    tracker: Tracker,
    certificate: Certificate,
    folder: Directory,
    /// Set when the actors must stop.
    stop: AtomicBool,
    /// The length of the run.
    duration: Duration,
    /// Usual load = 1.
    load: f64,
}

/// Time between two lines, unless the run is short.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Lines of a short run, at least.
const LINES_MIN: u32 = 12;
/// How often the main thread looks whether the run was interrupted.
const POLL_PERIOD: Duration = Duration::from_millis(100);

impl SoakCommand {
    /// Runs the scenario and judges it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let interrupted = interruption()?;
        let duration = Duration::from_secs(60 * u64::from(self.minutes));
        let stage = Stage::start(&self.program, duration, f64::from(self.load) / 100.0)?;
        let operator = Operator::new(&stage)?;
        // Once before the first look: files that are opened on demand are open then, and a process that
        // took over has other descriptors than the first.
        stage.tracker.upgrade()?;
        operator.change_list()?;
        operator.reload(&stage)?;
        let mut watch = Watch::new(&stage.tracker)?;
        let actors = actors::scenario(&stage, &operator)?;
        self.play(&stage, &actors, &mut watch, &interrupted)?;
        let is_quiet = watch.wait_until_quiet(&stage.tracker);
        let limits = Limits { settle: operator.upgrade_every() * 3 / 4 };
        let verdict = Verdict::of(&actors, &operator, &watch, is_quiet.err(), limits);
        let text = verdict.text();
        print_line(&format!("\n{text}"));
        if let Some(folder) = &self.record {
            self.write_record(folder, &actors, &watch, &text)?;
        }
        Ok(if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Runs all actors and prints a line each minute.
    fn play(
        &self,
        stage: &Stage,
        actors: &[Actor<'_>],
        watch: &mut Watch,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<()> {
        let line_every = LINE_EVERY.min(stage.duration / LINES_MIN);
        thread::scope(|scope| {
            for actor in actors {
                scope.spawn(|| actor.run(stage));
            }
            print_line(&Sample::head(actors));
            let start = Instant::now();
            let mut next = start + line_every;
            let mut outcome = Ok(());
            while start.elapsed() < stage.duration && !interrupted.load(Ordering::Relaxed) {
                thread::sleep(POLL_PERIOD);
                if Instant::now() < next {
                    continue;
                }
                next += line_every;
                match watch.look(stage, actors, start.elapsed()) {
                    Ok(sample) => print_line(&sample.to_string()),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            stage.stop.store(true, Ordering::Relaxed);
            outcome
        })
    }

    fn write_record(
        &self,
        folder: &Path,
        actors: &[Actor<'_>],
        watch: &Watch,
        verdict: &str,
    ) -> Result<()> {
        let (at, words) = (now(), std::env::args().skip(1).collect::<Vec<_>>().join(" "));
        let mut text = format!(
            "# Soak, {at}\n\n`tidegate-bench {words}` at {} on {}.\n\n{verdict}\n",
            commit(folder),
            machine()
        );
        text += &format!("{}\n", Sample::head(actors));
        watch.samples().for_each(|sample| text += &format!("{sample}\n"));
        let path = folder.join(format!("{}-soak.md", at.get(..10).unwrap_or_default()));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        print_line(&format!("written: {}", path.display()));
        Ok(())
    }
}

impl Stage {
    fn start(program: &ProgramArgs, duration: Duration, load: f64) -> Result<Self> {
        let folder = Directory::new()?;
        let (certificate, configuration) = operator::prepare(folder.root())?;
        let tracker = program.start(folder.root(), &configuration)?;
        Ok(Self { tracker, certificate, folder, stop: AtomicBool::new(false), duration, load })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits, unless the run ends before. Returns false if it has ended.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.is_stopped() && Instant::now() < end {
            thread::sleep(POLL_PERIOD.min(end.saturating_duration_since(Instant::now())));
        }
        !self.is_stopped()
    }
}
