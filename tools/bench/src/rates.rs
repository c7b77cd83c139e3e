//! `tidegate-bench rates`: response times and CPU time of UDP trackers by the rate of requests, from a few
//! thousand a second to as many as each can answer.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, value_parser};

use crate::figures::{count, micros, percent};
use crate::lab::{
    Lab, LabArgs, Load, LoadRun, NoiseMonitor, Protocol, SEED, Subject, children_cpu_s,
};
use crate::record::Figures;
use crate::report::{Block, Content, Runs, noise_notice};
use crate::session::{ResultArgs, RoundArgs, RunKey, Session, print_line};
use crate::table::{Cell, Table};

/// The case without a rate.
const MAXIMUM: &str = "maximum";
/// With a larger fraction of lost requests, a tracker is overloaded.
const LOST_MAX: f64 = 0.05;

/// Compare UDP trackers at fixed rates: response times and CPU time.
///
/// Requests are sent on a fixed schedule, whether or not earlier ones were answered; in the end each
/// tracker answers as many as it can. Trackers take turns on one core, and the load runs on the others.
#[derive(Args)]
pub(crate) struct Rates {
    /// Measure only this tracker; repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Requests per second.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value_parser!(u32).range(1..),
          default_value = "5000,20000,50000,75000,100000,150000,200000")]
    rates: Vec<u32>,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Rates {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let loads = lab.loads(Protocol::Udp)?;
        let load = loads.find(None)?;
        let (subjects, missing) = lab.subjects((Protocol::Udp, &load.name), &self.only)?;
        missing.iter().for_each(|sentence| print_line(sentence));
        ensure!(!subjects.is_empty(), "there is no tracker to measure");
        let rates = || self.rates.iter().copied().map(Some).chain([None]);
        let mut session = Session::start("rates", &self.output, &self.lab.definitions)?;
        for round in 1..=self.run.runs {
            for (rate, subject) in
                rates().flat_map(|rate| subjects.iter().map(move |subject| (rate, subject)))
            {
                if session.is_stopped() {
                    break;
                }
                let (name, version) = (subject.name(), subject.version());
                let case = rate
                    .map_or_else(|| MAXIMUM.to_owned(), |rate| format!("{}/s", count(rate.into())));
                match self.measure(&lab, load, subject, rate, &session) {
                    Ok(None) => break,
                    Ok(Some(figures)) => {
                        let text = summary(&figures);
                        let (subject, version, case) = (&*name, &*version, &*case);
                        let key = RunKey { subject, version, case, cores: 1, round };
                        session.add(key, figures, &text)?;
                    }
                    Err(error) => session.fail(format!("{name}, {case}: {error:#}.")),
                }
            }
        }
        session.finish(Vec::new())
    }

    /// Starts a tracker and loads it. Returns `None` if interrupted.
    fn measure(
        &self,
        lab: &Lab,
        load: &Load,
        subject: &Subject,
        rate: Option<u32>,
        session: &Session,
    ) -> Result<Option<Figures>> {
        let split = lab.split(1)?;
        let vars = lab.vars().with("load_cores", split.load.len());
        let mut words = vars.fill_all(&load.words)?;
        if let Some(rate) = rate {
            words.extend(vars.with("rate", rate).fill_all(&load.paced)?);
        }
        if subject.tracker.definition.allow_list {
            lab.write_hashes(Protocol::Udp, &words)?;
        }
        let mut tracker = lab.start(subject, Protocol::Udp, &split.tracker, &[])?;
        let monitor = NoiseMonitor::start([&*split.tracker, &*split.load].concat())?;
        let (before, children_s) = (tracker.usage()?, children_cpu_s()?);
        let run = LoadRun {
            protocol: Protocol::Udp,
            tracker: &tracker,
            path: None,
            seed: SEED,
            seconds: self.run.seconds,
            warm_up: self.run.warm_up,
            processors: &split.load,
            stop: &session.stop,
        };
        let result = lab.load(run, &words);
        // If the tracker has exited, report that rather than the load tester's error.
        tracker.check()?;
        let Some(result) = result? else { return Ok(None) };
        let own_s = tracker.usage()?.since(&before).cpu_s() + children_cpu_s()? - children_s;
        let mut figures = result.figures().with("warm_up_s", self.run.warm_up.into());
        figures.set("noise", monitor.noise(own_s)?);
        figures.set("rate", rate.map_or(f64::NAN, f64::from));
        Ok(Some(figures))
    }
}

fn summary(figures: &Figures) -> String {
    let median = |name: &str| figures.get(name).map_or(f64::NAN, |figure| figure.median);
    format!(
        "p50 {}, p99 {}, {} responses/s, {} per CPU-s",
        micros(median("p50_us")),
        micros(median("p99_us")),
        count(median("responses_s")),
        count(median("per_cpu_s"))
    )
}

/// A table: its title, the figure, and how to write it.
type View = (&'static str, &'static str, fn(f64) -> String);

const VIEWS: [View; 5] = [
    ("Median response time", "p50_us", micros),
    ("99 % of responses came within", "p99_us", micros),
    ("CPU time of the tracker, of a core", "cpu_part", percent),
    ("Responses per second of the tracker's CPU time", "per_cpu_s", count),
    ("Responses per second", "responses_s", count),
];

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    let text = "Trackers on one core, at fixed rates of requests and at as many as they can answer. \
                Requests are sent on a schedule, and times count from the scheduled time. Overloaded \
                trackers, which lost more than a twentieth of the requests, are in parentheses.";
    let subjects = runs.distinct(|run| run.subject.as_str());
    let cases = runs.distinct(|run| run.case.as_str());
    let of =
        |case: &str, subject: &str| runs.filter(|run| run.case == case && run.subject == subject);
    let versions = runs.distinct(|run| (run.subject.as_str(), run.version.as_str()));
    let versions: Vec<_> =
        versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let mut blocks = vec![Block::Text(format!("Versions: {}.", versions.join("; ")))];
    blocks.extend(noise_notice(&runs.rows()));
    for (title, name, write) in VIEWS {
        // Without a schedule, response times are those of a full queue.
        let is_shown =
            |case: &&&str| **case != MAXIMUM || name == "per_cpu_s" || name == "responses_s";
        let shown: Vec<&str> = cases.iter().filter(is_shown).copied().collect();
        let cell = |case: &str, subject: &str| {
            let runs = of(case, subject);
            let text = runs.median(name).map(write);
            let is_lost = runs.median("lost_part").is_some_and(|part| part > LOST_MAX);
            Cell::number(text.map(|text| if is_lost { format!("({text})") } else { text }))
        };
        let row = |case: &&str| {
            let cells = subjects.iter().map(|subject| cell(case, subject));
            std::iter::once(Cell::Text((*case).to_owned())).chain(cells).collect()
        };
        let head = std::iter::once("requests").chain(subjects.iter().copied());
        blocks.extend([
            Block::Heading(title.into()),
            Block::Table(Table {
                head: head.map(str::to_owned).collect(),
                rows: shown.iter().map(row).collect(),
            }),
        ]);
    }
    ("Response times and CPU time by rate".to_owned(), text.to_owned(), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;

    #[test]
    fn each_figure_is_a_table_of_trackers_by_rate() {
        let one = |subject, case, us, lost| {
            run(subject, case, 1, &[("p50_us", us), ("per_cpu_s", 9e4), ("lost_part", lost)])
        };
        let runs = [
            one("a", "5,000/s", 20.0, 0.0),
            one("b", "5,000/s", 12.0, 0.0),
            one("a", "100,000/s", 80.0, 0.0),
            one("b", "100,000/s", 3e3, 0.2),
            one("a", MAXIMUM, 1e3, 0.0),
        ];
        let (_, _, blocks) = report(&Runs::counted(&runs));
        let tables: Vec<String> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::Table(table) => Some(table.to_string().replace(' ', "")),
                _ => None,
            })
            .collect();
        assert_eq!(tables.len(), VIEWS.len());
        let lines: Vec<&str> = tables[0].lines().collect();
        assert_eq!(lines[2..], ["|5,000/s|20µs|12µs|", "|100,000/s|80µs|(3ms)|"]);
        assert!(tables[3].trim_end().ends_with("|maximum|90,000|–|"), "{}", tables[3]);
    }
}
