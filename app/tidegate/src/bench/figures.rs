//! The figures of all cases, as tables, JSON and charts.

use std::fmt;

use anyhow::Result;
use clap::ValueEnum;
use compare::chart::{Bars, Chart, Lines, svg_file};
use compare::figures::{Figure, count};
use compare::table::{Cell, Table};
use serde::Serialize;

use super::case::{Measured, Percentiles, Scenario};

/// A case to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    pub(super) scenario: Scenario,
    pub(super) threads: u32,
    pub(super) store: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads =
            if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        write!(f, "{}: {}, {threads}", self.scenario.title(), self.store)
    }
}

impl Scenario {
    /// Returns a short title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Add => "add a torrent",
            Self::UpdateOne => "update one torrent",
            Self::UpdateMany => "update a thousand torrents",
            Self::Torrents => "re-announce, torrents alike",
            Self::Peers => "re-announce, peers alike",
            Self::Grow => "grow from nothing",
            Self::Expire => "announce during an expiry",
            Self::Small => "memory, a peer in each torrent",
            Self::Large => "memory, a thousand peers in each torrent",
        }
    }

    /// Returns whether the scenario depends on the number of threads.
    pub(super) fn has_threads(self) -> bool {
        !matches!(self, Self::Small | Self::Large)
    }

    /// Returns whether announces are known beforehand, so that they can be batched.
    pub(super) fn has_batches(self) -> bool {
        matches!(self, Self::Torrents | Self::Peers)
    }
}

/// All figures, in the order of their first run.
#[derive(Default)]
pub(super) struct Figures(Vec<(Case, Vec<Measured>)>);

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    case: &'a Case,
    median: Measured,
    runs: &'a [Measured],
}

impl Figures {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a run of a case.
    pub(super) fn add(&mut self, case: &Case, measured: Measured) {
        match self.0.iter_mut().find(|(known, _)| known == case) {
            Some((_, runs)) => runs.push(measured),
            None => self.0.push((case.clone(), vec![measured])),
        }
    }

    /// Returns one line of JSON per case.
    pub(super) fn json(&self) -> Result<String> {
        let mut text = String::new();
        for (case, runs) in &self.0 {
            let line = Line { case, median: median(runs), runs };
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        Ok(text)
    }

    fn of(&self, scenario: Scenario) -> Vec<(&Case, Measured)> {
        let own = self.0.iter().filter(|(case, _)| case.scenario == scenario);
        own.map(|(case, runs)| (case, median(runs))).collect()
    }

    /// Returns a table per scenario.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for scenario in Scenario::value_variants() {
            let own = self.of(*scenario);
            if !own.is_empty() {
                text += &format!("\n## {}\n\n{}", scenario.title(), table(&own));
            }
        }
        text
    }

    /// Returns a chart per scenario.
    pub(super) fn plot(&self) -> String {
        let all = Scenario::value_variants().iter();
        svg_file(
            &all.filter_map(|scenario| chart(*scenario, &self.of(*scenario))).collect::<Vec<_>>(),
        )
    }
}

fn median(runs: &[Measured]) -> Measured {
    let of = |pick: fn(&Measured) -> Option<f64>| {
        Figure::of(runs.iter().filter_map(pick)).map(|figure| figure.median)
    };
    let part = |pick: fn(&Percentiles) -> f64| {
        let all = runs.iter().filter_map(|run| run.latency_ns.as_ref().map(pick));
        Figure::of(all).map_or(0.0, |figure| figure.median)
    };
    let has_latency = runs.iter().any(|run| run.latency_ns.is_some());
    Measured {
        ns_each: of(|run| run.ns_each),
        per_s: of(|run| run.per_s),
        latency_ns: has_latency.then(|| Percentiles {
            p50: part(|ns| ns.p50),
            p99: part(|ns| ns.p99),
            p99_9: part(|ns| ns.p99_9),
            p99_99: part(|ns| ns.p99_99),
            max: part(|ns| ns.max),
            long: part(|ns| ns.long as f64) as u64,
            long_own: part(|ns| ns.long_own as f64) as u64,
        }),
        expiry_s: of(|run| run.expiry_s),
        bytes_per_peer: of(|run| run.bytes_per_peer),
        own_bytes_per_peer: of(|run| run.own_bytes_per_peer),
    }
}

/// A column: its name and how to format a case's figure.
type Column = (&'static str, fn(&Measured) -> Option<String>);

const COLUMNS: [Column; 12] = [
    ("ns each", |one| one.ns_each.map(count)),
    ("a second", |one| one.per_s.map(count)),
    ("p50 ns", |one| one.latency_ns.map(|ns| count(ns.p50))),
    ("p99", |one| one.latency_ns.map(|ns| count(ns.p99))),
    ("p99.9", |one| one.latency_ns.map(|ns| count(ns.p99_9))),
    ("p99.99", |one| one.latency_ns.map(|ns| count(ns.p99_99))),
    ("longest", |one| one.latency_ns.map(|ns| count(ns.max))),
    ("over 1 ms", |one| one.latency_ns.map(|ns| count(ns.long as f64))),
    ("by itself", |one| one.latency_ns.map(|ns| count(ns.long_own as f64))),
    ("expiry s", |one| one.expiry_s.map(|seconds| format!("{seconds:.2}"))),
    ("bytes per peer", |one| one.bytes_per_peer.map(|bytes| format!("{bytes:.1}"))),
    ("by its own count", |one| one.own_bytes_per_peer.map(|bytes| format!("{bytes:.1}"))),
];

/// Returns a table with the columns that apply to this scenario.
fn table(own: &[(&Case, Measured)]) -> Table {
    let says = |column: &&Column| own.iter().any(|(_, measured)| (column.1)(measured).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(says).collect();
    let head = ["store", "threads"].into_iter().chain(columns.iter().map(|(name, _)| *name));
    let row = |(case, measured): &(&Case, Measured)| {
        let start = [Cell::Text(case.store.clone()), Cell::Number(case.threads.to_string())];
        let cell =
            |column: &&Column| Cell::Number((column.1)(measured).unwrap_or_else(|| "–".into()));
        start.into_iter().chain(columns.iter().map(cell)).collect()
    };
    Table { head: head.map(str::to_owned).collect(), rows: own.iter().map(row).collect() }
}

fn chart(scenario: Scenario, own: &[(&Case, Measured)]) -> Option<Chart> {
    type Pick = fn(&Measured) -> Option<f64>;
    let (what, pick): (_, Pick) = match scenario {
        Scenario::Small | Scenario::Large => ("bytes per peer", |one| one.bytes_per_peer),
        Scenario::Grow | Scenario::Expire => {
            ("99.99 % of announces within, ns", |one| one.latency_ns.map(|ns| ns.p99_99))
        }
        _ => ("operations a second", |one| one.per_s),
    };
    let title = format!("{}: {what}", scenario.title());
    let mut threads: Vec<u32> = own.iter().map(|(case, _)| case.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let figure = |store: &str, threads: u32| {
        let found = own.iter().find(|(case, _)| case.store == store && case.threads == threads);
        found.and_then(|(_, measured)| pick(measured))
    };
    let mut stores: Vec<&str> = Vec::new();
    own.iter().map(|(case, _)| &*case.store).for_each(|store| {
        if !stores.contains(&store) {
            stores.push(store);
        }
    });
    if let [threads] = *threads {
        let bar = |store: &&str| Some(((*store).to_owned(), figure(store, threads)?));
        let bars: Vec<_> = stores.iter().filter_map(bar).collect();
        return (!bars.is_empty()).then_some(Chart::Bars(Bars { title, bars, write: count }));
    }
    let series = |store: &&str| {
        ((*store).to_owned(), threads.iter().map(|threads| figure(store, *threads)).collect())
    };
    (!own.is_empty()).then(|| {
        Chart::Lines(Lines {
            title: format!("{title}, by threads"),
            places: threads.iter().map(u32::to_string).collect(),
            series: stores.iter().map(series).collect(),
            is_logarithmic: scenario == Scenario::Grow || scenario == Scenario::Expire,
            write: count,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let mut figures = Figures::default();
        for (store, factor) in [("a", 1.0), ("b", 2.0)] {
            for (threads, per_s) in [(1, 1e6), (2, 3e6), (1, 2e6), (1, 9e6)] {
                let scenario = Scenario::Add;
                let case = Case { scenario, threads, store: store.into() };
                let latency_ns = Some(Percentiles { p50: per_s / 1e4, ..Percentiles::default() });
                let per_s = Some(per_s * factor);
                figures.add(&case, Measured { per_s, latency_ns, ..Measured::default() });
            }
            let case = Case { scenario: Scenario::Small, threads: 1, store: store.into() };
            let bytes_per_peer = Some(100.0 * factor);
            figures.add(&case, Measured { bytes_per_peer, ..Measured::default() });
        }
        figures
    }

    #[test]
    fn reports_medians() {
        let text = figures().text();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| a ") || line.starts_with("| b "))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows[0][1..5], ["a", "1", "2,000,000", "200"]);
        assert_eq!(rows[1][1..5], ["a", "2", "3,000,000", "300"]);
        assert_eq!(rows[5][1..4], ["b", "1", "200.0"]);
        let head = text.lines().find(|line| line.starts_with("| store")).unwrap();
        assert!(head.contains("a second") && !head.contains("bytes per peer"), "{head}");
    }

    #[test]
    fn json_has_one_line_per_case() {
        let json = figures().json().unwrap();
        let lines: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0]["scenario"], "add");
        assert_eq!(
            (&lines[0]["median"]["per_s"], lines[0]["runs"].as_array().unwrap().len()),
            (&2e6.into(), 3)
        );
    }

    #[test]
    fn plot_has_one_chart_per_scenario() {
        let plot = figures().plot();
        assert!(plot.starts_with("<svg xmlns="));
        assert_eq!(plot.matches("<svg ").count(), 3);
        assert!(plot.contains("by threads") && plot.contains("bytes per peer"));
    }
}
