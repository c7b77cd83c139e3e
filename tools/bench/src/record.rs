//! Records: one line of JSON for each run, with everything that is needed to repeat it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

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
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Adds a figure, unless it is not finite.
    pub(crate) fn set(&mut self, name: &str, figure: f64) {
        if figure.is_finite() {
            self.0.insert(name.to_owned(), figure);
        }
    }

    /// Returns them with another figure, unless it is not finite.
    #[must_use]
    pub fn with(mut self, name: &str, figure: f64) -> Self {
        self.set(name, figure);
        self
    }

    /// Removes a figure.
    #[must_use]
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// Returns a figure.
    pub fn get(&self, name: &str) -> Option<f64> {
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

/// Returns the runs of the benchmark's last entry in its record. Entries of before may have figures in other forms.
pub(crate) fn last(folder: &Path, benchmark: &str) -> Result<Vec<Run>> {
    let path = path(folder, benchmark);
    let shown = path.display();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let mut entry = (RunContext::default(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let place = || format!("{shown}:{number}");
        let context: RunContext = serde_json::from_str(line).with_context(place)?;
        if context.benchmark != benchmark {
            continue;
        }
        if entry.0 != context {
            entry = (context, Vec::new());
        }
        entry.1.push((place(), line));
    }
    anyhow::ensure!(!entry.1.is_empty(), "{shown} has no run of `{benchmark}`");
    entry.1.into_iter().map(|(place, line)| serde_json::from_str(line).context(place)).collect()
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
            figures: all,
        }
    }

    #[test]
    fn the_last_entry_is_read_back() {
        let directory = harness::Directory::new().unwrap();
        let folder = directory.root();
        let old = run("a", "throughput", 1, &[("responses_s", 1.0)]);
        let mut new = [old.clone(), run("b", "throughput", 1, &[("noise", f64::NAN)])];
        new.iter_mut().for_each(|run| run.context.at = "later".into());
        let mut other = old.clone();
        other.context.benchmark = "compare udp small".into();
        for runs in [&[old][..], &new, &[other]] {
            assert_eq!(append(folder, runs).unwrap(), folder.join("compare-udp.jsonl"));
        }
        let read = last(folder, "compare udp announces");
        let error = last(folder, "compare udp large").unwrap_err().to_string();
        let text = fs::read_to_string(folder.join("compare-udp.jsonl")).unwrap();
        assert_eq!(read.unwrap(), new);
        assert!(error.ends_with("has no run of `compare udp large`"), "{error}");
        assert!(text.contains(r#""figures":{"responses_s":1.0}"#), "{text}");
        // JSON has no numbers that are not finite, so the figure is left out.
        assert_eq!(new[1].figures, Figures::default());
    }
}
