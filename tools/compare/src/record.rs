//! Records of comparisons: one line of JSON per tracker, one file per protocol. They are kept in
//! git, so that
//! regressions show.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::comparison::Comparison;
use crate::report::ReportContext;
use crate::summary::{Latencies, Memory, Summary, Throughput};

/// One tracker's results in one comparison.
#[derive(Serialize)]
struct Line<'a> {
    at: &'a str,
    machine: String,
    load: &'a str,
    seconds: u32,
    tracker: String,
    version: String,
    throughput: Vec<&'a Throughput>,
    latencies: Vec<&'a Latencies>,
    memory: Vec<&'a Memory>,
}

/// Appends to `compare-PROTOCOL.jsonl` in a folder.
pub(crate) fn append(
    folder: &Path,
    comparison: &Comparison<'_>,
    summary: &Summary,
    at: &ReportContext,
) -> Result<PathBuf> {
    let options = comparison.options;
    let path = folder.join(format!("compare-{}.jsonl", options.protocol));
    let mut text = String::new();
    for subject in comparison.subjects {
        let name = subject.name();
        let line = Line {
            at: &at.at,
            machine: at.machine.line(),
            load: &comparison.load.name,
            seconds: options.seconds,
            version: subject.version(),
            throughput: summary.throughput.iter().filter(|one| one.tracker == name).collect(),
            latencies: summary.latencies.iter().filter(|one| one.tracker == name).collect(),
            memory: summary.memory.iter().filter(|one| one.tracker == name).collect(),
            tracker: name,
        };
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    let file = File::options().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
