//! The report of a comparison: one document, written as Markdown and as HTML.

mod document;
mod html;
mod markdown;

use crate::chart::{Bars, Chart, Lines};
use crate::comparison::{Comparison, SHARES};
use crate::figures::{Figure, count, mib, micros, percent};
use crate::generator::Latency;
use crate::machine::Machine;
use crate::noise::NOISE_MAX;
use crate::run::Part;
use crate::summary::{Latencies, Memory, Summary, Throughput};

use crate::table::{Cell, Table};

pub(crate) use document::{Block, Document};

impl Document {
    /// Returns the document as Markdown. Charts appear only in HTML; the tables have their figures.
    pub(crate) fn markdown(&self) -> String {
        markdown::write(self)
    }

    /// Returns the document as a section of another document, without settings and single runs.
    pub(crate) fn section(&self) -> String {
        markdown::section(self)
    }

    /// Returns the document as one self-contained HTML file.
    pub(crate) fn html(&self) -> String {
        html::write(self)
    }
}

/// When, where and by which command the comparison ran.
#[derive(Clone, Debug)]
pub(crate) struct ReportContext {
    pub(crate) at: String,
    pub(crate) machine: Machine,
    pub(crate) command: String,
}

/// Builds the report.
pub(crate) fn report(
    comparison: &Comparison<'_>,
    summary: &Summary,
    at: &ReportContext,
) -> Document {
    let protocol = comparison.options.protocol;
    let mut blocks = vec![Block::Text(introduction(comparison, at))];
    if comparison.is_stopped {
        blocks.push(Block::Notice(
            "This comparison was interrupted; the report covers what was measured until then."
                .into(),
        ));
    }
    blocks.extend(notices(comparison, summary).into_iter().map(Block::Notice));
    blocks.extend(throughput(comparison, summary));
    blocks.extend(efficiency(summary));
    blocks.extend(latency(summary));
    blocks.extend(memory(summary));
    blocks.extend(subjects(comparison));
    blocks.extend(settings(comparison, at));
    blocks.push(Block::Details("Every run".into(), Box::new(Block::Table(every_run(comparison)))));
    Document { title: format!("Trackers over {protocol}"), blocks }
}

fn introduction(comparison: &Comparison<'_>, at: &ReportContext) -> String {
    let options = comparison.options;
    format!(
        "{} Measured on {} on {}. {} runs of {} s each per figure, interleaved, each with a \
         freshly started tracker and a warm-up of {} s; figures are medians. Tracker and load \
         run on different processors; all traffic uses the loopback device.",
        comparison.load.description,
        at.machine.line(),
        at.at,
        options.runs,
        options.seconds,
        options.warm_up,
    )
}

/// Returns the warnings that readers must not miss.
fn notices(comparison: &Comparison<'_>, summary: &Summary) -> Vec<String> {
    let mut notices = Vec::new();
    if cfg!(debug_assertions) {
        notices.push("This tidegate is a debug build: its figures are meaningless.".to_owned());
    }
    let noisy: Vec<String> = summary
        .throughput
        .iter()
        .filter(|one| one.noisy > 0)
        .map(|one| format!("{} ({} of {} runs)", one.tracker, one.noisy, one.runs))
        .collect();
    if !noisy.is_empty() {
        notices.push(format!(
            "Other processes used more than {} of the CPU time during these runs, despite \
             repetitions: {}.",
            percent(NOISE_MAX),
            noisy.join(", ")
        ));
    }
    let limited = summary.throughput.iter().filter(|one| one.is_load_limit);
    let limited: Vec<_> = limited.map(|one| format!("{} ({})", one.tracker, one.cores)).collect();
    if !limited.is_empty() {
        notices.push(format!(
            "The load tester was the limit for {}: they could have answered more per second. \
             Figures per CPU second are not affected.",
            limited.join(", ")
        ));
    }
    let is_shared = |cores: &usize| comparison.split(*cores).is_some_and(|split| split.is_shared);
    if comparison.counts().iter().any(is_shared) {
        notices.push("Tracker and load had to share cores, as hyper-threads.".to_owned());
    }
    let failures = comparison.failures.iter();
    let failures =
        failures.map(|failure| format!("{} failed: {}.", failure.task.title(), failure.why));
    notices.extend(deduplicated(failures));
    notices
}

/// Throughput by cores, as a table and a chart.
fn throughput(comparison: &Comparison<'_>, summary: &Summary) -> Vec<Block> {
    if summary.throughput.is_empty() {
        return Vec::new();
    }
    let counts = comparison.counts();
    let title =
        |cores: &usize| if *cores == 1 { "1 core".into() } else { format!("{cores} cores") };
    let head = std::iter::once("tracker".to_owned()).chain(counts.iter().map(title)).collect();
    let names = &summary.trackers;
    let find = |name: &str, cores: usize| {
        summary.throughput.iter().find(|one| one.tracker == name && one.cores == cores)
    };
    let rows = names.iter().map(|name| {
        let cell = |cores: &usize| match find(name, *cores) {
            Some(one) => {
                let median = one.responses_s.median;
                let mark = if one.is_load_limit { "≥ " } else { "" };
                let text = format!("{mark}{}", count(median));
                if median >= summary.best(*cores) { Cell::Best(text) } else { Cell::Number(text) }
            }
            None => Cell::Number("–".into()),
        };
        std::iter::once(Cell::Text(name.clone())).chain(counts.iter().map(cell)).collect()
    });
    let table = Table { head, rows: rows.collect() };
    let figure = |name: &str, cores: usize| Some(find(name, cores)?.responses_s.median);
    let chart = throughput_chart(names, &counts, &figure);
    vec![
        Block::Heading("Responses per second".into()),
        Block::Text("By number of tracker cores; the best in bold.".into()),
        Block::Table(table),
        Block::Chart(chart),
    ]
}

fn throughput_chart(
    names: &[String],
    counts: &[usize],
    figure: &dyn Fn(&str, usize) -> Option<f64>,
) -> Chart {
    if let [cores] = *counts {
        let bar = |name: &String| Some((name.clone(), figure(name, cores)?));
        let bars = names.iter().filter_map(bar).collect();
        return Chart::Bars(Bars { title: "Responses per second".into(), bars, write: count });
    }
    let line =
        |name: &String| (name.clone(), counts.iter().map(|cores| figure(name, *cores)).collect());
    Chart::Lines(Lines {
        title: "Responses per second, by cores".into(),
        places: counts.iter().map(usize::to_string).collect(),
        series: names.iter().map(line).collect(),
        is_logarithmic: false,
        write: count,
    })
}

/// Responses per second of the tracker's CPU time.
fn efficiency(summary: &Summary) -> Vec<Block> {
    if summary.throughput.is_empty() {
        return Vec::new();
    }
    let head = [
        "tracker",
        "cores",
        "per CPU-s",
        "min – max",
        "user µs",
        "kernel µs",
        "peers",
        "lost",
        "relative",
    ];
    let rows = summary.throughput.iter().map(|one| efficiency_row(summary, one));
    let most = summary.throughput.iter().map(|one| one.cores).max();
    let bars = summary.throughput.iter().filter(|one| Some(one.cores) == most);
    let bars = bars.filter_map(|one| Some((one.tracker.clone(), one.per_cpu_s?.median)));
    vec![
        Block::Heading("Responses per second of the tracker's CPU time".into()),
        Block::Text(
            "The cost of a response, in user space and in the kernel: the figure that depends \
             least on the speed of the load tester. \"peers\" is the mean number of peers per \
             response: returning fewer takes less work. (!) marks runs that differ by more than \
             10 %."
                .into(),
        ),
        Block::Table(Table { head: head.map(str::to_owned).into(), rows: rows.collect() }),
        Block::Chart(Chart::Bars(Bars {
            title: "Responses per CPU second".into(),
            bars: bars.collect(),
            write: count,
        })),
    ]
}

fn efficiency_row(summary: &Summary, one: &Throughput) -> Vec<Cell> {
    let number = |figure: Option<f64>, write: fn(f64) -> String| {
        Cell::Number(figure.map_or_else(|| "–".into(), write))
    };
    let own = one.per_cpu_s.map(|figure| figure.median);
    let first = summary.first(one.cores).and_then(|first| Some(first.per_cpu_s?.median));
    let range = |figure: Figure| {
        let mark = if figure.spread() > 0.1 { " (!)" } else { "" };
        format!("{} – {}{mark}", count(figure.low), count(figure.high))
    };
    vec![
        Cell::Text(one.tracker.clone()),
        Cell::Number(one.cores.to_string()),
        number(own, count),
        Cell::Number(one.per_cpu_s.map_or_else(|| "–".into(), range)),
        number(one.user_us, |us| format!("{us:.2}")),
        number(one.sys_us, |us| format!("{us:.2}")),
        Cell::Number(format!("{:.1}", one.peers_per_response)),
        Cell::Number(percent(one.lost_part)),
        number(own.zip(first).map(|(own, first)| own / first), |ratio| format!("{ratio:.2}")),
    ]
}

type Percentile = fn(&Latency) -> f64;

/// The reported percentiles.
const PERCENTILES: [(&str, Percentile); 5] = [
    ("50 %", |us| us.p50),
    ("90 %", |us| us.p90),
    ("99 %", |us| us.p99),
    ("99.9 %", |us| us.p99_9),
    ("99.99 %", |us| us.p99_99),
];

fn latency(summary: &Summary) -> Vec<Block> {
    if summary.latencies.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::Heading("Response times".into()),
        Block::Text(
            "Requests are sent on a fixed schedule at a fraction of the tracker's own maximum \
             throughput, whether or not earlier ones were answered; times count from a request's \
             scheduled time."
                .into(),
        ),
    ];
    for share in SHARES {
        let own: Vec<&Latencies> =
            summary.latencies.iter().filter(|one| one.percent == share).collect();
        if own.is_empty() {
            continue;
        }
        let ends = ["longest", "lost"];
        let head = ["tracker", "requests/s"].into_iter().chain(PERCENTILES.map(|(name, _)| name));
        let rows = own.iter().map(|one| {
            let start = [Cell::Text(one.tracker.clone()), Cell::Number(count(one.rate))];
            let times = PERCENTILES.map(|(_, pick)| Cell::Number(micros(pick(&one.us))));
            let end = [Cell::Number(micros(one.us.max)), Cell::Number(percent(one.lost_part))];
            start.into_iter().chain(times).chain(end).collect()
        });
        let head = head.chain(ends).map(str::to_owned).collect();
        // Trackers without results get an empty line, so that colors agree in all charts.
        let curve = |name: &String| {
            let one = own.iter().find(|one| one.tracker == *name);
            let figures = PERCENTILES.map(|(_, pick)| one.map(|one| pick(&one.us)));
            (name.clone(), figures.into())
        };
        let title = format!("At {share} % of its own throughput");
        blocks.extend([
            Block::Subheading(title.clone()),
            Block::Table(Table { head, rows: rows.collect() }),
            Block::Chart(Chart::Lines(Lines {
                title: format!("{title}: response times by percentile"),
                places: PERCENTILES.map(|(name, _)| name.to_owned()).into(),
                series: summary.trackers.iter().map(curve).collect(),
                is_logarithmic: true,
                write: micros,
            })),
        ]);
    }
    blocks
}

fn memory(summary: &Summary) -> Vec<Block> {
    let mut blocks = Vec::new();
    if summary.throughput.is_empty() && summary.memory.is_empty() {
        return blocks;
    }
    blocks.push(Block::Heading("Memory".into()));
    for (fill, own) in summary.fills() {
        let head = ["tracker", "peers", "bytes per peer", "peak RSS"].map(str::to_owned);
        let row = |one: &&Memory| {
            vec![
                Cell::Text(one.tracker.clone()),
                Cell::Number(count(one.peers)),
                Cell::Number(format!("{:.1}", one.bytes_per_peer)),
                Cell::Number(mib(one.peak_bytes)),
            ]
        };
        blocks.push(Block::Subheading(fill.to_owned()));
        blocks.push(Block::Table(Table { head: head.into(), rows: own.iter().map(row).collect() }));
        blocks.push(Block::Chart(Chart::Bars(Bars {
            title: format!("Bytes per peer, {fill}"),
            bars: own.iter().map(|one| (one.tracker.clone(), one.bytes_per_peer)).collect(),
            write: |bytes| format!("{bytes:.1}"),
        })));
    }
    let most = summary.throughput.iter().map(|one| one.cores).max();
    let own: Vec<_> = summary.throughput.iter().filter(|one| Some(one.cores) == most).collect();
    if !own.is_empty() {
        let head = ["tracker", "cores", "peak RSS"].map(str::to_owned).into();
        let row = |one: &&Throughput| {
            let numbers = [one.cores.to_string(), mib(one.peak_bytes)].map(Cell::Number);
            [Cell::Text(one.tracker.clone())].into_iter().chain(numbers).collect()
        };
        blocks.push(Block::Subheading("Under the load".into()));
        blocks.push(Block::Table(Table { head, rows: own.iter().map(row).collect() }));
        blocks.push(Block::Chart(Chart::Bars(Bars {
            title: "Peak memory under the load".into(),
            bars: own.iter().map(|one| (one.tracker.clone(), one.peak_bytes)).collect(),
            write: mib,
        })));
    }
    blocks
}

/// The trackers with their versions and limitations.
fn subjects(comparison: &Comparison<'_>) -> Vec<Block> {
    let head = ["tracker", "version", "limitations"].map(str::to_owned).into();
    let rows = comparison.subjects.iter().map(|subject| {
        let texts =
            [subject.name(), subject.version(), subject.tracker.definition.limitations.clone()];
        texts.map(Cell::Text).into()
    });
    let table = Table { head, rows: rows.collect() };
    vec![Block::Heading("The trackers".into()), Block::Table(table)]
}

fn settings(comparison: &Comparison<'_>, at: &ReportContext) -> Vec<Block> {
    let secure = comparison.options.protocol.is_secure();
    let mut lines = vec![
        ("command".to_owned(), at.command.clone()),
        (
            "load".to_owned(),
            format!("{}: {}", comparison.load.name, comparison.load.words.join(" ")),
        ),
        ("for latencies".to_owned(), comparison.load.paced.join(" ")),
    ];
    for fill in comparison.fills {
        lines.push((fill.name.clone(), fill.words.join(" ")));
    }
    for cores in comparison.counts() {
        if let Some(split) = comparison.split(cores) {
            let text = format!("tracker {:?}, load {:?}", split.tracker, split.load);
            lines.push((format!("processors for {cores}"), text));
        }
    }
    lines.extend(at.machine.settings.iter().cloned());
    let row = |(name, text)| vec![Cell::Text(name), Cell::Code(text)];
    let head = ["setting", "value"].map(str::to_owned).into();
    let table = Table { head, rows: lines.into_iter().map(row).collect() };
    let mut blocks = vec![Block::Details("Settings".into(), Box::new(Block::Table(table)))];
    for subject in comparison.subjects {
        let definition = &subject.tracker.definition;
        let tls =
            definition.configuration_tls.as_ref().filter(|_| secure && subject.front.is_none());
        let start = definition.start.join(" ");
        let text = format!("$ {start}\n{}", tls.unwrap_or(&definition.configuration));
        let title = format!("How {} was started", subject.name());
        blocks.push(Block::Details(title, Box::new(Block::Code(text))));
    }
    blocks
}

fn every_run(comparison: &Comparison<'_>) -> Table {
    let head = [
        "round",
        "tracker",
        "cores",
        "what",
        "responses/s",
        "per CPU-s",
        "p50",
        "p99",
        "peak RSS",
        "noise",
    ];
    let rows = comparison.runs.iter().map(|run| {
        let what = match &run.task.part {
            Part::Throughput => "throughput".to_owned(),
            Part::Latency { percent, .. } => format!("{percent} %"),
            Part::Memory { fill, .. } => fill.clone(),
        };
        let aside = if run.is_set_aside { ", repeated" } else { "" };
        vec![
            Cell::Number(run.round.to_string()),
            Cell::Text(run.task.tracker.clone()),
            Cell::Number(run.task.cores.to_string()),
            Cell::Text(what),
            Cell::Number(count(run.result.responses_per_s)),
            Cell::Number(run.per_cpu_s().map_or_else(|| "–".into(), count)),
            Cell::Number(micros(run.result.latency_us.p50)),
            Cell::Number(micros(run.result.latency_us.p99)),
            Cell::Number(mib(run.peak_bytes as f64)),
            Cell::Number(format!("{}{aside}", percent(run.noise))),
        ]
    });
    Table { head: head.map(str::to_owned).into(), rows: rows.collect() }
}

/// Removes repetitions, keeping the order.
fn deduplicated<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
