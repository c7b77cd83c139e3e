//! The options of a benchmark, and what all benchmarks do with them.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::machine;
use super::subject::Subject;

/// The options of the command line.
pub(super) struct Plan {
    pub(super) runs: u32,
    pub(super) seconds: u32,
    /// The folder of other trackers' programs and of load testers.
    pub(super) rivals: PathBuf,
    /// Whether the result is written to a record.
    pub(super) write: bool,
}

impl Plan {
    /// Returns the subjects whose programs are installed.
    pub(super) fn available(&self, subjects: &[Subject]) -> Vec<Subject> {
        let is_available = |subject: &Subject| {
            let is_available = subject.is_available(&self.rivals);
            if !is_available {
                println!("{} is not in {}: skipped", subject.name(), self.rivals.display());
            }
            is_available
        };
        subjects.iter().copied().filter(is_available).collect()
    }

    /// Writes `bench/record/<day>-<name>.csv`: every run, after a head with machine and command.
    pub(super) fn write_record(&self, name: &str, subjects: &[Subject], table: &str) -> Result<()> {
        let versions = subjects.iter().map(|subject| subject.version());
        let text = format!(
            "{}# cargo xtask bench {name} --runs {} --seconds {}\n# {}\n{table}",
            machine::describe()?,
            self.runs,
            self.seconds,
            versions.collect::<Vec<_>>().join(", ")
        );
        let name = format!("bench/record/{}-{name}.csv", machine::day()?);
        fs::write(crate::workspace::root().join(&name), text)?;
        println!("written: {name}");
        Ok(())
    }
}

/// Returns the median, or NaN if there are no values.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_median() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert!(median(Vec::new()).is_nan());
    }
}
