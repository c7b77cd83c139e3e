//! Reports: runs become rows, rows become tables, and tables with text a document, written as Markdown.
//! Everything is computed from runs alone, as they stand in records.

mod document;

use std::path::Path;

use anyhow::{Result, bail};

use crate::figures::{Figure, count};
use crate::lab::NOISE_MAX;
use crate::record::Run;
use crate::table::{Cell, Table};
use crate::{attacks, cluster, compare, swarms, xdp};

pub(crate) use document::{Block, Document};

/// Builds the report of a benchmark's runs, of which there is at least one.
pub(crate) fn document(runs: &[Run], definitions: &Path) -> Result<Document> {
    let runs = Runs::counted(runs);
    let Some(first) = runs.0.first() else { bail!("there are no runs") };
    let benchmark = first.context.benchmark.as_str();
    let words: Vec<&str> = benchmark.split(' ').collect();
    let (title, text, blocks) = match *words {
        ["compare", protocol, load] => compare::report(&runs, definitions, (protocol, load))?,
        ["attacks"] => attacks::report(&runs),
        ["crash", "swarms"] => swarms::report_crashes(&runs),
        ["restart"] => swarms::report_restarts(&runs),
        ["cluster", "lag"] => cluster::report(&runs),
        ["xdp", "loads"] => xdp::report(&runs),
        _ => bail!("unknown benchmark `{benchmark}` in a record"),
    };
    let mut all = vec![Block::Text(format!("{text} {}", runs.origin()))];
    all.extend(blocks);
    Ok(Document { title, blocks: all })
}

/// Title, introduction and content of a report.
pub(crate) type Content = (String, String, Vec<Block>);

/// Some runs.
#[derive(Clone, Debug)]
pub(crate) struct Runs<'a>(pub(crate) Vec<&'a Run>);

impl<'a> Runs<'a> {
    /// Selects the runs that count: of several attempts in the same round, the least noisy one.
    pub(crate) fn counted(all: &'a [Run]) -> Self {
        let noise = |run: &Run| run.figures.get("noise").unwrap_or(0.0);
        let mut counted: Vec<&Run> = Vec::new();
        for run in all {
            let key = |run: &Run| (run.subject.clone(), run.case.clone(), run.cores, run.round);
            match counted.iter_mut().find(|other| key(other) == key(run)) {
                Some(other) if noise(run) < noise(other) => *other = run,
                Some(_) => {}
                None => counted.push(run),
            }
        }
        Self(counted)
    }

    pub(crate) fn filter(&self, is_one: impl Fn(&Run) -> bool) -> Self {
        Self(self.0.iter().copied().filter(|run| is_one(run)).collect())
    }

    /// Returns the distinct values of something, in the order of their first appearance.
    pub(crate) fn distinct<T: PartialEq>(&self, of: impl Fn(&'a Run) -> T) -> Vec<T> {
        let mut found = Vec::new();
        for value in self.0.iter().copied().map(of) {
            if !found.contains(&value) {
                found.push(value);
            }
        }
        found
    }

    /// Returns the numbers of cores, ascending.
    pub(crate) fn core_counts(&self) -> Vec<usize> {
        let mut counts = self.distinct(|run| run.cores);
        counts.sort_unstable();
        counts
    }

    /// Summarizes a figure of all runs.
    pub(crate) fn figure(&self, name: &str) -> Option<Figure> {
        Figure::of(self.0.iter().filter_map(|run| run.figures.get(name)))
    }

    /// Returns the median of a figure.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        Some(self.figure(name)?.median)
    }

    /// Returns a row for each case, number of cores, and subject that has runs, in this order.
    pub(crate) fn rows(&self) -> Vec<Row<'a>> {
        let (subjects, mut rows) = (self.distinct(|run| run.subject.as_str()), Vec::new());
        for case in self.distinct(|run| run.case.as_str()) {
            let of_case = self.filter(|run| run.case == case);
            for cores in of_case.core_counts() {
                let all = of_case.filter(|run| run.cores == cores);
                let of = |subject: &str| all.filter(|run| run.subject == subject);
                let first = of(subjects.first().copied().unwrap_or_default());
                for subject in &subjects {
                    let runs = of(subject);
                    if !runs.0.is_empty() {
                        rows.push(Row { subject, case, cores, runs, first: first.clone() });
                    }
                }
            }
        }
        rows
    }

    /// Says when, where, and by which command the runs were made, and how many there are.
    fn origin(&self) -> String {
        let Some(first) = self.0.first() else { return String::new() };
        let context = &first.context;
        let kept = self.0.iter().map(|run| run.round).max().unwrap_or(1);
        let seconds = first.figures.get("seconds");
        let length = seconds.map_or_else(String::new, |s| format!(" of {:.0} s", s.round()));
        let number = if kept == 1 {
            "One run".into()
        } else {
            format!("Medians of {kept} interleaved runs")
        };
        let warm_up = first.figures.get("warm_up_s").filter(|s| *s > 0.0);
        let warm_up = warm_up.map_or_else(String::new, |s| format!(" after a warm-up of {s:.0} s"));
        format!(
            "{number}{length}{warm_up}. `{}` at {} on {} UTC; {}.",
            context.command, context.commit, context.at, context.machine
        )
    }
}

/// The runs of one subject in one case with one number of cores.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) subject: &'a str,
    pub(crate) case: &'a str,
    pub(crate) cores: usize,
    pub(crate) runs: Runs<'a>,
    /// Those of the first subject, with which others are compared.
    first: Runs<'a>,
}

/// A column: its title, and its cell in a row.
pub(crate) type Column = (&'static str, fn(&Row<'_>) -> Cell);

pub(crate) const SUBJECT: Column = ("", |row| Cell::Text(row.subject.to_owned()));
pub(crate) const CASE: Column = ("", |row| Cell::Text(row.case.to_owned()));
pub(crate) const CORES: Column = ("cores", |row| Cell::Number(row.cores.to_string()));
pub(crate) const RESPONSES_S: Column = ("responses/s", |row| row.cell("responses_s", count));
pub(crate) const PER_CPU_S: Column = ("per CPU-s", |row| row.cell("per_cpu_s", count));
pub(crate) const RELATIVE: Column = ("relative", |row| row.relative("per_cpu_s"));
pub(crate) const PAIRS: Column = ("pairs", |row| row.pairs("per_cpu_s"));

impl Row<'_> {
    /// Returns the median of a figure.
    pub(crate) fn cell(&self, name: &str, write: impl Fn(f64) -> String) -> Cell {
        Cell::number(self.runs.median(name).map(write))
    }

    /// Returns the highest of a figure.
    pub(crate) fn most(&self, name: &str, write: fn(f64) -> String) -> Cell {
        Cell::number(self.runs.figure(name).map(|figure| write(figure.high)))
    }

    /// Returns the lowest and the highest of a figure, marked if they are far apart.
    pub(crate) fn range(&self, name: &str) -> Cell {
        let text = |figure: Figure| {
            let mark = if figure.spread() > 0.1 { " (!)" } else { "" };
            format!("{} – {}{mark}", count(figure.low), count(figure.high))
        };
        Cell::number(self.runs.figure(name).map(text))
    }

    /// Returns the median ratio of a figure to that of the first subject's run in the same round.
    pub(crate) fn relative(&self, name: &str) -> Cell {
        let ratios = self.ratios(name).filter(|_| !self.is_first());
        Cell::number(ratios.map(|Figure { median, .. }| format!("{median:.3}")))
    }

    /// Returns the lowest and the highest of these ratios.
    pub(crate) fn pairs(&self, name: &str) -> Cell {
        let ratios = self.ratios(name).filter(|_| !self.is_first());
        Cell::number(ratios.map(|Figure { low, high, .. }| format!("{low:.3} – {high:.3}")))
    }

    /// Returns the ratios of a figure to that of the first subject's run in the same round.
    fn ratios(&self, name: &str) -> Option<Figure> {
        let ratio = |run: &&Run| {
            let first = self.first.0.iter().find(|other| other.round == run.round)?;
            Some(run.figures.get(name)? / first.figures.get(name)?)
        };
        Figure::of(self.runs.0.iter().filter_map(ratio))
    }

    fn is_first(&self) -> bool {
        self.first.0.first().is_some_and(|first| first.subject == self.subject)
    }
}

/// Builds a table, without the columns that would be empty.
pub(crate) fn table(rows: &[Row<'_>], columns: &[Column]) -> Block {
    let cells: Vec<Vec<Cell>> =
        columns.iter().map(|(_, cell)| rows.iter().map(cell).collect()).collect();
    let is_kept = |cells: &&Vec<Cell>| cells.iter().any(|cell| !cell.is_missing());
    let head = columns.iter().zip(&cells).filter(|(_, cells)| is_kept(cells));
    let head = head.map(|((title, _), _)| (*title).to_owned()).collect();
    let kept: Vec<&Vec<Cell>> = cells.iter().filter(is_kept).collect();
    let row = |at: usize| kept.iter().filter_map(|cells| cells.get(at).cloned()).collect();
    Block::Table(Table { head, rows: (0..rows.len()).map(row).collect() })
}

/// Returns a warning about runs during which other processes were busy.
pub(crate) fn noise_notice(rows: &[Row<'_>]) -> Option<Block> {
    let noisy = rows.iter().filter_map(|row| {
        let is_noisy =
            |run: &&&Run| run.figures.get("noise").is_some_and(|noise| noise > NOISE_MAX);
        let (noisy, all) = (row.runs.0.iter().filter(is_noisy).count(), row.runs.0.len());
        (noisy > 0).then(|| format!("{} ({noisy} of {all} runs)", row.subject))
    });
    let noisy: Vec<String> = noisy.collect();
    (!noisy.is_empty()).then(|| {
        Block::Notice(format!(
            "Other processes used more than {:.0} % of the CPU time during these runs, despite \
             repetitions: {}.",
            NOISE_MAX * 100.0,
            noisy.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;

    const COLUMNS: &[Column] = &[
        SUBJECT,
        CORES,
        PER_CPU_S,
        ("min – max", |row| row.range("per_cpu_s")),
        RELATIVE,
        PAIRS,
        ("no such", |row| row.cell("no_such", count)),
    ];

    fn text(runs: &[Run]) -> Vec<String> {
        let Block::Table(table) = table(&Runs::counted(runs).rows(), COLUMNS) else { panic!() };
        table.to_string().lines().map(|line| line.replace(' ', "")).collect()
    }

    #[test]
    fn medians_ratios_and_pairs_are_of_one_case_and_number_of_cores() {
        let one = |subject, round, per_cpu_s| run(subject, "x", round, &[("per_cpu_s", per_cpu_s)]);
        let mut runs = vec![
            one("a", 1, 100.0),
            one("b", 1, 50.0),
            one("a", 2, 200.0),
            one("b", 2, 60.0),
            one("a", 3, 150.0),
            one("b", 3, 80.0),
        ];
        let mut two_cores = one("a", 1, 1e6);
        two_cores.cores = 2;
        runs.push(two_cores);
        assert_eq!(
            text(&runs)[2..],
            [
                "|a|1|150|100–200(!)|–|–|",
                "|b|1|60|50–80(!)|0.500|0.300–0.533|",
                "|a|2|1,000,000|1,000,000–1,000,000|–|–|",
            ]
        );
        assert!(!text(&runs)[0].contains("nosuch"));
    }

    #[test]
    fn the_least_noisy_attempt_counts() {
        let attempt = |figure, noise| run("a", "x", 1, &[("per_cpu_s", figure), ("noise", noise)]);
        let runs = [attempt(1.0, 0.5), attempt(2.0, 0.04), attempt(3.0, 0.2)];
        let counted = Runs::counted(&runs);
        assert_eq!(counted.figure("per_cpu_s").map(|it| it.median), Some(2.0));
        let Some(Block::Notice(text)) = noise_notice(&counted.rows()) else { panic!() };
        assert!(text.ends_with("repetitions: a (1 of 1 runs)."), "{text}");
        assert!(noise_notice(&Runs::counted(&[attempt(1.0, 0.01)]).rows()).is_none());
    }
}
