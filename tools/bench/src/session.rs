//! A benchmark under way: every run is printed and written down as soon as it has ended, and in the end
//! a report is made of all of them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};

use crate::interruption;
use crate::lab::{commit, machine, now};
use crate::record::{self, Figures, Run, RunContext};
use crate::report::{self, Block, Document};

/// Number and length of runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct RoundArgs {
    /// Runs per figure.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Measured seconds per run.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Seconds of load before measuring.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(0..=86_400))]
    pub(crate) warm_up: u32,
}

/// Where results go.
#[derive(Args, Clone, Debug)]
pub struct ResultArgs {
    /// Output directory for the report and the runs [default: target/bench/BENCHMARK].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Append the runs to a record if the benchmark completes [default directory: bench/record].
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
          default_missing_value = "bench/record")]
    pub(crate) record: Option<PathBuf>,
}

/// A benchmark under way.
pub struct Session {
    pub(crate) runs: Vec<Run>,
    /// Set by an interrupt: what has been measured is reported.
    pub(crate) stop: Arc<AtomicBool>,
    context: RunContext,
    /// Definitions of trackers and loads, if any; and in git, so that the commit is known.
    definitions: PathBuf,
    out: PathBuf,
    record: Option<PathBuf>,
    log: File,
    failures: Vec<String>,
}

/// Key of a run: subject, version, case, cores, round.
#[derive(Clone, Copy)]
pub struct RunKey<'a> {
    pub(crate) subject: &'a str,
    pub(crate) version: &'a str,
    pub(crate) case: &'a str,
    pub(crate) cores: usize,
    pub(crate) round: u32,
}

impl<'a> RunKey<'a> {
    /// Returns the key of a run of this tidegate.
    pub fn tidegate(case: &'a str, cores: usize, round: u32) -> Self {
        Self { subject: "tidegate", version: env!("CARGO_PKG_VERSION"), case, cores, round }
    }
}

impl Session {
    /// Begins a benchmark.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder for results cannot be written.
    pub fn start(name: &str, output: &ResultArgs, definitions: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("no path of this program")?;
        let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let words: Vec<String> = std::iter::once(program).chain(std::env::args().skip(1)).collect();
        let context = RunContext {
            benchmark: name.to_owned(),
            at: now(),
            machine: machine(),
            commit: commit(definitions),
            command: words.join(" "),
        };
        let usual = || Path::new("target/bench").join(name.replace(' ', "-"));
        let out = output.out.clone().unwrap_or_else(usual);
        fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
        let log = out.join("runs.jsonl");
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        Ok(Self {
            runs: Vec::new(),
            stop: interruption()?,
            context,
            definitions: definitions.to_owned(),
            out,
            record: output.record.clone(),
            log,
            failures: Vec::new(),
        })
    }

    /// Returns whether the benchmark was interrupted.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds a run. `summary` is printed.
    ///
    /// # Errors
    ///
    /// Returns an error if the run cannot be written down.
    pub fn add(&mut self, key: RunKey<'_>, figures: Figures, summary: &str) -> Result<()> {
        let RunKey { subject, version, case, cores, round } = key;
        let run = Run {
            context: self.context.clone(),
            subject: subject.to_owned(),
            version: version.to_owned(),
            case: case.to_owned(),
            cores,
            round,
            figures,
        };
        print_line(&format!("round {round}: {subject}, {case}: {summary}"));
        serde_json::to_writer(&self.log, &run)?;
        writeln!(self.log).context("cannot write the runs")?;
        self.runs.push(run);
        Ok(())
    }

    /// Adds a failure, which the report mentions once.
    pub fn fail(&mut self, why: String) {
        print_line(&why);
        if !self.failures.contains(&why) {
            self.failures.push(why);
        }
    }

    /// Reports and records the runs.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing was measured, or if report or record cannot be written.
    pub fn finish(self) -> Result<ExitCode> {
        let is_stopped = self.is_stopped();
        let first_failure = self.failures.first().map_or("interrupted", String::as_str);
        ensure!(!self.runs.is_empty(), "nothing was measured: {first_failure}");
        let Document { title, mut blocks } = report::document(&self.runs, &self.definitions)?;
        let mut notices = self.failures.clone();
        if is_stopped {
            notices.push("Interrupted: this covers what was measured until then.".into());
        }
        if cfg!(debug_assertions) {
            notices.push("This is a debug build: its figures are meaningless.".into());
        }
        blocks.splice(1..1, notices.into_iter().map(Block::Notice));
        let document = Document { title, blocks };
        let text = document.markdown();
        let report = self.out.join("report.md");
        fs::write(&report, &text).with_context(|| format!("cannot write {}", report.display()))?;
        let mut files = vec![self.out.join("runs.jsonl"), report];
        if let Some(folder) = self.record.as_ref().filter(|_| !is_stopped) {
            files.push(record::append(folder, &self.runs)?);
        }
        print_line(&format!("\n{text}"));
        files.iter().for_each(|file| print_line(&format!("written: {}", file.display())));
        Ok(match is_stopped {
            // The exit code that shells use for interrupted commands.
            true => ExitCode::from(130),
            false if self.failures.is_empty() => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

/// Prints a line. Measurements are not lost because the reader of standard output has gone.
pub fn print_line(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}
