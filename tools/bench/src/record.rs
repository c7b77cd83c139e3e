//! Records: one line of JSON for each run, with everything that is needed to repeat it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::figures::Figure;

/// One run of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    #[serde(flatten)]
    pub(crate) context: RunContext,
    /// Subject of the measurement: a tracker, a load tester, a store.
    pub(crate) subject: String,
    pub(crate) version: String,
    /// Aspect of the subject that was measured, such as `throughput`.
    pub(crate) case: String,
    /// Its cores or threads.
    pub(crate) cores: usize,
    /// Runs of the same round took turns.
    pub(crate) round: u32,
    /// If single runs were not kept: the number of runs that the figures summarize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summarizes: Option<u32>,
    pub(crate) figures: Figures,
}

/// Context that all runs of a benchmark have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunContext {
    /// The benchmark's name, such as `compare udp announces`.
    pub(crate) benchmark: String,
    /// When it began, in UTC.
    pub(crate) at: String,
    pub(crate) machine: String,
    /// The commit that was checked out.
    pub(crate) commit: String,
    /// The command line.
    pub(crate) command: String,
}

/// The figures of a run, by name. Names end with their unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures(BTreeMap<String, Figure>);

impl Figures {
    /// Adds a figure, unless it is not finite.
    pub(crate) fn set(&mut self, name: &str, figure: f64) {
        self.0.extend(Figure::of([figure]).map(|figure| (name.to_owned(), figure)));
    }

    /// The same, as an expression.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, figure: f64) -> Self {
        self.set(name, figure);
        self
    }

    /// Removes a figure.
    #[must_use]
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<Figure> {
        self.0.get(name).copied()
    }
}

/// Returns the record of a benchmark in a folder: the first two words of its name name the file.
pub(crate) fn path(folder: &Path, benchmark: &str) -> PathBuf {
    let words: Vec<&str> = benchmark.split(' ').take(2).collect();
    folder.join(format!("{}.jsonl", words.join("-")))
}

/// Appends runs to their record. Returns the file.
pub(crate) fn append(folder: &Path, runs: &[Run]) -> Result<PathBuf> {
    let benchmark = runs.first().map_or("", |run| &run.context.benchmark);
    let path = path(folder, benchmark);
    let mut text = String::new();
    for run in runs {
        text += &serde_json::to_string(run)?;
        text.push('\n');
    }
    let file = File::options().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Returns the runs of the benchmark's last entry in its record.
pub(crate) fn last(folder: &Path, benchmark: &str) -> Result<Vec<Run>> {
    let path = path(folder, benchmark);
    let shown = path.display();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let mut runs: Vec<Run> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let run: Run = serde_json::from_str(line).with_context(|| format!("{shown}:{number}"))?;
        if run.context.benchmark != benchmark {
            continue;
        }
        if runs.first().is_some_and(|first| first.context != run.context) {
            runs.clear();
        }
        runs.push(run);
    }
    anyhow::ensure!(!runs.is_empty(), "{shown} has no run of `{benchmark}`");
    Ok(runs)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of 1 core with these figures.
    pub(crate) fn run(subject: &str, case: &str, round: u32, figures: &[(&str, f64)]) -> Run {
        let mut all = Figures::default();
        figures.iter().for_each(|(name, figure)| all.set(name, *figure));
        let benchmark = "compare udp announces".into();
        Run {
            context: RunContext { benchmark, at: "now".into(), ..RunContext::default() },
            subject: subject.into(),
            version: "1".into(),
            case: case.into(),
            cores: 1,
            round,
            summarizes: None,
            figures: all,
        }
    }

    #[test]
    fn the_last_entry_is_read_back() {
        let folder = std::env::temp_dir().join(format!("record-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let old = run("a", "throughput", 1, &[("responses_s", 1.0)]);
        let mut new = [old.clone(), run("b", "throughput", 1, &[("noise", f64::NAN)])];
        new.iter_mut().for_each(|run| run.context.at = "later".into());
        let mut other = old.clone();
        other.context.benchmark = "compare udp small".into();
        for runs in [&[old][..], &new, &[other]] {
            assert_eq!(append(&folder, runs).unwrap(), folder.join("compare-udp.jsonl"));
        }
        let read = last(&folder, "compare udp announces");
        let error = last(&folder, "compare udp large").unwrap_err().to_string();
        let text = fs::read_to_string(folder.join("compare-udp.jsonl")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap(), new);
        assert!(error.ends_with("has no run of `compare udp large`"), "{error}");
        assert!(text.contains(r#""figures":{"responses_s":1.0}"#), "{text}");
        // JSON has no numbers that are not finite, so the figure is left out.
        assert_eq!(new[1].figures, Figures::default());
    }
}
