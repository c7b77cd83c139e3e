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

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// How trackers are asked.
    pub protocol: Protocol,
    /// The name of the load; the first of its file without one.
    pub load: Option<String>,
    /// The folder with `trackers.toml` and a file for each protocol.
    pub definitions: PathBuf,
    /// The folder with rivals' programs, in it or in its `bin`.
    pub rivals: PathBuf,
    /// Programs of trackers, by the trackers' names, before all others.
    pub programs: Vec<(String, PathBuf)>,
    /// The names of the trackers to measure; all that are here if it is empty.
    pub only: Vec<String>,
    /// How many cores trackers get, in turn; powers of two, up to half of all, if it is empty.
    pub cores: Vec<usize>,
    /// What to measure; everything if it is empty.
    pub measures: Vec<Measure>,
    /// How often everything is measured.
    pub runs: u32,
    /// How long a run is measured, seconds.
    pub seconds: u32,
    /// How long it goes on before, seconds.
    pub warm_up: u32,
    /// The folder for the report and the runs.
    pub out: PathBuf,
    /// The folder to whose records a whole comparison is added, if it is.
    pub record: Option<PathBuf>,
    /// The document of which a whole comparison becomes a section, if it does.
    pub docs: Option<PathBuf>,
    /// The program that is tidegate: it runs the load, and is measured.
    pub own: PathBuf,
    /// The command line, for the report.
    pub command: String,
}

/// A thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Responses per second, and per second of the tracker's CPU time.
    Throughput,
    /// How long answers take at 50 % and 80 % of that, which is measured first.
    Latency,
    /// Bytes a peer.
    Memory,
}

impl Options {
    fn wants(&self, measure: Measure) -> bool {
        self.measures.is_empty() || self.measures.contains(&measure)
    }
}

/// What came of a comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Tables, as Markdown.
    pub tables: String,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Whether it was stopped before its end.
    pub is_stopped: bool,
    /// How many measurements failed.
    pub failures: usize,
}

/// Compares, until `stop` is set at the latest; `print` hears how it goes. What could be measured is
/// reported even if the rest failed. An error if nothing could be.
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

/// Writes what there is.
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
