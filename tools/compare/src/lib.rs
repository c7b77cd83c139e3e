//! Compares trackers: each is started with the same number of processors and put under the same
//! load by
//! `tidegate load` on other processors. The results are reported in tables and charts.
//!
//! Trackers and loads are defined in a folder of TOML files ([`Options::definitions`]). This crate
//! names none
//! of them and sees them only from outside: their processes, and what the load tester measured over
//! the wire.
//!
//! ```text
//! definition ─▶ subject (what is here) ─▶ comparison ─▶ run ─▶ summary ─▶ report (Markdown, HTML)
//!                                           ├▶ running (a tracker)   └▶ record (a line each)
//!                                           └▶ generator (tidegate load), noise
//! ```
#![forbid(unsafe_code)]

mod certificate;
pub mod chart;
mod comparison;
mod cores;
mod definition;
mod docs;
pub mod figures;
mod generator;
mod machine;
mod noise;
mod record;
mod report;
mod run;
mod running;
mod subject;
mod summary;
pub mod table;
mod template;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};

use comparison::{Comparison, Observer};
use definition::Definitions;
use machine::Machine;
use report::ReportContext;
use subject::ProgramPaths;
use summary::Summary;

pub use definition::Protocol;

/// Parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The protocol.
    pub protocol: Protocol,
    /// Name of the load; `None` for the first one defined.
    pub load: Option<String>,
    /// Folder with `trackers.toml` and a file per protocol.
    pub definitions: PathBuf,
    /// Folder with the rivals' programs, directly or in its `bin`.
    pub rivals: PathBuf,
    /// Explicit program paths by tracker name; they take precedence.
    pub programs: Vec<(String, PathBuf)>,
    /// Names of the trackers to measure; empty for all that are installed.
    pub only: Vec<String>,
    /// Numbers of tracker cores, in turn; empty for powers of two up to half of all cores.
    pub cores: Vec<usize>,
    /// What to measure; empty for everything.
    pub measures: Vec<Measure>,
    /// Runs per figure.
    pub runs: u32,
    /// Measured seconds per run.
    pub seconds: u32,
    /// Warm-up in seconds.
    pub warm_up: u32,
    /// Output folder for the report and the runs.
    pub out: PathBuf,
    /// Folder of the record to which a completed comparison is appended, if any.
    pub record: Option<PathBuf>,
    /// Document into which a completed comparison is written as a section, if any.
    pub docs: Option<PathBuf>,
    /// tidegate's own program: it runs the load and is measured.
    pub own: PathBuf,
    /// The command line, for the report.
    pub command: String,
}

/// A quantity to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Responses per second, and per second of the tracker's CPU time.
    Throughput,
    /// Response times at 50 % and 80 % of the maximum throughput, which is measured first.
    Latency,
    /// Bytes per peer.
    Memory,
}

impl Options {
    fn wants(&self, measure: Measure) -> bool {
        self.measures.is_empty() || self.measures.contains(&measure)
    }
}

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tables as Markdown.
    pub tables: String,
    /// Written files.
    pub files: Vec<PathBuf>,
    /// Whether it was interrupted.
    pub is_stopped: bool,
    /// Number of failed measurements.
    pub failures: usize,
}

/// Runs a comparison until it is complete or `stop` is set; `print` receives progress lines.
/// Reports what was measured
/// even if some measurements failed.
///
/// # Errors
///
/// Fails for invalid options or definitions, or if nothing was measured.
pub fn run(options: &Options, stop: &AtomicBool, print: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let definitions = Definitions::read(&options.definitions, options.protocol)?;
    let absolute = |path: &Path| std::path::absolute(path).context("there is no current folder");
    let places = ProgramPaths {
        own: options.own.clone(),
        bench: absolute(&options.definitions)?,
        rivals: absolute(&options.rivals)?,
        given: options.programs.iter().cloned().collect(),
    };
    let load = &definitions.load(options.load.as_deref())?.name;
    // Better now than after an hour.
    if let Some(path) = &options.docs {
        docs::check(path, (options.protocol, load))?;
    }
    let wanted = (options.protocol, load.as_str());
    let (subjects, missing) = places.subjects(&definitions, wanted, &options.only)?;
    missing.iter().for_each(|sentence| print(sentence));
    if subjects.is_empty() {
        bail!("there is no tracker to measure over {}", options.protocol);
    }
    let mut comparison = Comparison::new(options, &definitions, &places, &subjects)?;
    let minutes = comparison.duration().as_secs().div_ceil(60);
    let names: Vec<_> =
        subjects.iter().map(|one| format!("{} {}", one.name(), one.version())).collect();
    print(&format!("comparing {}: about {minutes} minutes", names.join(", ")));
    let at = ReportContext {
        at: machine::now(),
        machine: Machine::this(),
        command: options.command.clone(),
    };
    comparison.run(&mut Observer { stop, print })?;
    if comparison.runs.is_empty() {
        let why = comparison.failures.first().map(|failure| failure.why.as_str());
        bail!("nothing was measured: {}", why.unwrap_or("interrupted"));
    }
    finish(&comparison, &at)
}

/// Writes the report.
fn finish(comparison: &Comparison<'_>, at: &ReportContext) -> Result<Outcome> {
    let options = comparison.options;
    let summary = Summary::of(comparison);
    let document = report::report(comparison, &summary, at);
    let tables = document.markdown();
    let mut files = vec![options.out.join("runs.jsonl")];
    for (name, text) in [("report.md", &tables), ("report.html", &document.html())] {
        let path = options.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        files.push(path);
    }
    if let Some(folder) = options.record.as_ref().filter(|_| !comparison.is_stopped) {
        files.push(record::append(folder, comparison, &summary, at)?);
    }
    if let Some(path) = options.docs.as_ref().filter(|_| !comparison.is_stopped) {
        let section = format!("{}\nMade by `{}`.\n", document.section(), at.command);
        docs::put(path, (options.protocol, &comparison.load.name), &section)?;
        files.push(path.clone());
    }
    let (is_stopped, failures) = (comparison.is_stopped, comparison.failures.len());
    Ok(Outcome { tables, files, is_stopped, failures })
}
