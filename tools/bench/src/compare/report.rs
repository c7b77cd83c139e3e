//! Reports of comparisons, from their runs alone.

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum as _;

use super::comparison::THROUGHPUT;
use crate::figures::{count, mib, micros, percent};
use crate::lab::{Definitions, Loads, Protocol};
use crate::record;
use crate::report::{
    Block, CORES, Column, Content, PAIRS, PER_CPU_S, RELATIVE, Row, Runs, SUBJECT, noise_notice,
    table,
};
use crate::table::{Cell, Table};

pub(crate) fn report(
    runs: &Runs<'_>,
    definitions: &Path,
    (protocol, load): (&str, &str),
) -> Result<Content> {
    let spoken = Protocol::from_str(protocol, false).map_err(anyhow::Error::msg)?;
    let loads = Loads::read(definitions, spoken)?;
    let text = loads.find(Some(load))?.description.clone();
    let under_load = runs.filter(|run| run.case == THROUGHPUT).rows();
    let explanation = "Each run has a freshly started tracker; tracker and load run on different \
                       processors; all traffic uses the loopback device.";
    let mut blocks = vec![trackers(runs, definitions)?, Block::Explanation(explanation.into())];
    blocks.extend(noise_notice(&under_load));
    blocks.extend(limit_notice(&under_load));
    blocks.extend(throughput(runs));
    blocks.extend(efficiency(&under_load));
    blocks.extend(by_rate(runs));
    blocks.extend(memory(runs, &under_load));
    Ok((format!("Trackers over {protocol}: {load}"), text, blocks))
}

/// Warns about runs in which the load tester was the limit.
fn limit_notice(rows: &[Row<'_>]) -> Option<Block> {
    let limited = rows.iter().filter(|row| is_load_limit(row));
    let limited: Vec<_> = limited.map(|row| format!("{} ({})", row.subject, row.cores)).collect();
    (!limited.is_empty()).then(|| {
        Block::Notice(format!(
            "The load tester was the limit for {}: they could have answered more per second. \
             Figures per CPU second are not affected.",
            limited.join(", ")
        ))
    })
}

fn is_load_limit(row: &Row<'_>) -> bool {
    row.runs.median("is_load_limit").is_some_and(|part| part > 0.5)
}

/// Returns the throughput by cores.
fn throughput(runs: &Runs<'_>) -> Vec<Block> {
    let rows = runs.filter(|run| run.case == THROUGHPUT).rows();
    let counts = runs.filter(|run| run.case == THROUGHPUT).core_counts();
    if rows.is_empty() {
        return Vec::new();
    }
    let subjects = runs.distinct(|run| run.subject.as_str());
    let find = |subject: &str, cores: usize| {
        let row = rows.iter().find(|row| row.subject == subject && row.cores == cores)?;
        Some((row.runs.median("responses_s")?, is_load_limit(row)))
    };
    let best = |cores: usize| {
        let all = subjects.iter().filter_map(|subject| find(subject, cores));
        all.map(|(median, _)| median).fold(0.0, f64::max)
    };
    let row = |subject: &&str| {
        let cell = |cores: &usize| match find(subject, *cores) {
            Some((median, is_limit)) => {
                let text = format!("{}{}", if is_limit { "≥ " } else { "" }, count(median));
                if median >= best(*cores) { Cell::Best(text) } else { Cell::Number(text) }
            }
            None => Cell::number(None),
        };
        std::iter::once(Cell::Text((*subject).to_owned())).chain(counts.iter().map(cell)).collect()
    };
    let title =
        |cores: &usize| if *cores == 1 { "1 core".into() } else { format!("{cores} cores") };
    let head = std::iter::once(String::new()).chain(counts.iter().map(title)).collect();
    let table = Table { head, rows: subjects.iter().map(row).collect() };
    vec![
        Block::Heading("Responses per second".into()),
        Block::Explanation("By number of tracker cores; the best in bold.".into()),
        Block::Table(table),
    ]
}

/// Responses per second of the tracker's CPU time.
fn efficiency(rows: &[Row<'_>]) -> Vec<Block> {
    const COLUMNS: &[Column] = &[
        SUBJECT,
        CORES,
        PER_CPU_S,
        ("min – max", |row| row.range("per_cpu_s")),
        ("user µs", |row| row.cell("user_us", |us| format!("{us:.2}"))),
        ("kernel µs", |row| row.cell("sys_us", |us| format!("{us:.2}"))),
        ("peers", |row| row.cell("peers_per_response", |peers| format!("{peers:.1}"))),
        ("lost", |row| row.cell("lost_part", percent)),
        RELATIVE,
        PAIRS,
    ];
    if rows.is_empty() {
        return Vec::new();
    }
    let text = "The cost of a response, in user space and in the kernel: the figure that depends \
                least on the speed of the load tester. \"peers\" is the mean number of peers per \
                response: returning fewer takes less work. (!) marks runs that differ by more than \
                10 %. \"relative\" is the median ratio to the first tracker's run of the same \
                round, \"pairs\" the lowest and the highest of these ratios.";
    vec![
        Block::Heading("Responses per second of the tracker's CPU time".into()),
        Block::Explanation(text.into()),
        table(rows, COLUMNS),
    ]
}

/// A table of trackers by rate: its title, the figure, and how to write it.
type View = (&'static str, &'static str, fn(f64) -> String);

const VIEWS: [View; 4] = [
    ("Median response time", "p50_us", micros),
    ("99 % of responses came within", "p99_us", micros),
    ("CPU time of the tracker, of a core", "cpu_part", percent),
    ("Responses per CPU second by rate", "per_cpu_s", count),
];
/// With a larger fraction of lost requests, a tracker is overloaded.
const OVERLOADED: f64 = 0.05;

/// Returns tables of trackers by fixed rates of requests.
fn by_rate(runs: &Runs<'_>) -> Vec<Block> {
    let fixed = runs.filter(|run| run.case.ends_with("/s"));
    let subjects = fixed.distinct(|run| run.subject.as_str());
    let cases = fixed.distinct(|run| run.case.as_str());
    let mut blocks = Vec::new();
    for (title, name, write) in VIEWS {
        let cell = |case: &str, subject: &str| {
            let runs = fixed.filter(|run| run.case == case && run.subject == subject);
            let text = runs.median(name).map(write);
            let is_overloaded = runs.median("lost_part").is_some_and(|part| part > OVERLOADED);
            Cell::number(text.map(|text| if is_overloaded { format!("({text})") } else { text }))
        };
        let row = |case: &&str| {
            let cells = subjects.iter().map(|subject| cell(case, subject));
            std::iter::once(Cell::Text((*case).to_owned())).chain(cells).collect()
        };
        let rows: Vec<Vec<Cell>> = cases.iter().map(row).collect();
        if rows.iter().flatten().any(|cell| cell.is_number() && !cell.is_missing()) {
            let head = std::iter::once("requests").chain(subjects.iter().copied());
            let head = head.map(str::to_owned).collect();
            blocks.extend([Block::Heading(title.into()), Block::Table(Table { head, rows })]);
        }
    }
    let text = "Requests are sent on a schedule, and times count from the scheduled time. Overloaded \
                trackers, which lost more than a twentieth of the requests, are in parentheses.";
    if !blocks.is_empty() {
        blocks.insert(0, Block::Explanation(text.into()));
    }
    blocks
}

fn memory(runs: &Runs<'_>, under_load: &[Row<'_>]) -> Vec<Block> {
    const COLUMNS: &[Column] = &[
        SUBJECT,
        ("peers", |row| row.cell("peers", count)),
        ("bytes per peer", |row| row.cell("bytes_per_peer", |bytes| format!("{bytes:.1}"))),
        ("% of a core, idle", |row| {
            row.cell("idle_cpu_part", |part| format!("{:.2}", part * 100.0))
        }),
        ("peak RSS", |row| row.cell("peak_bytes", mib)),
    ];
    let mut blocks = vec![Block::Heading("Memory".into())];
    let fills = runs.filter(|run| run.figures.get("bytes_per_peer").is_some());
    for fill in fills.distinct(|run| run.case.as_str()) {
        let rows = fills.filter(|run| run.case == fill).rows();
        blocks.push(Block::Subheading(fill.to_owned()));
        blocks.push(table(&rows, COLUMNS));
    }
    if !under_load.is_empty() {
        let columns = [SUBJECT, CORES, ("peak RSS", |row: &Row<'_>| row.cell("peak_bytes", mib))];
        blocks.push(Block::Subheading("Under the load".into()));
        blocks.push(table(under_load, &columns));
    }
    if blocks.len() > 1 { blocks } else { Vec::new() }
}

/// The trackers with their versions and limitations.
fn trackers(runs: &Runs<'_>, definitions: &Path) -> Result<Block> {
    let all = Definitions::read(definitions)?;
    let one = |(subject, version): &(&str, &str)| {
        // A tracker behind a front is named after both, another build as the user likes.
        let name = subject.split(" + ").next();
        let known = all.trackers.iter().find(|one| Some(one.name.as_str()) == name);
        match known.map_or("", |one| &one.limitations) {
            "" => format!("{subject} {version}"),
            limitations => format!("{subject} {version} ({limitations})"),
        }
    };
    let versions = runs.distinct(|run| (run.subject.as_str(), run.version.as_str()));
    let texts: Vec<String> = versions.iter().map(one).collect();
    Ok(Block::Text(format!("Versions: {}.", texts.join("; "))))
}

/// A line of the README's table: its title, benchmark, case and figure.
type Line = (&'static str, &'static str, &'static str, &'static str);

const OVERVIEW: &[Line] = &[
    ("UDP", "compare udp announces", THROUGHPUT, "per_cpu_s"),
    ("HTTP keep-alive", "compare http keep-alive", THROUGHPUT, "per_cpu_s"),
    ("HTTPS keep-alive", "compare https keep-alive", THROUGHPUT, "per_cpu_s"),
    ("WebTorrent messages", "compare ws offers", THROUGHPUT, "per_cpu_s"),
    (
        "bytes per UDP peer",
        "compare udp announces",
        "a thousand peers per torrent",
        "bytes_per_peer",
    ),
    (
        "bytes per WebTorrent connection",
        "compare ws offers",
        "ten thousand idle connections",
        "bytes_per_peer",
    ),
];

/// The trackers of the README's table: a title, and the start of names. Of several that start alike,
/// the best counts.
const RIVALS: &[&str] = &["tidegate", "aquatic", "opentracker", "bittorrent-tracker"];

/// Returns the README's table from several records.
pub(crate) fn overview(folder: &Path) -> Result<Table> {
    let head = std::iter::once(String::new()).chain(RIVALS.iter().map(|name| (*name).to_owned()));
    let mut rows = Vec::new();
    for (title, benchmark, case, figure) in OVERVIEW {
        let runs =
            record::last(folder, benchmark).with_context(|| format!("{title}: {benchmark}"))?;
        let runs = Runs::counted(&runs).filter(|run| run.case == *case && run.cores == 1);
        let better = if *figure == "bytes_per_peer" { f64::min } else { f64::max };
        let median = |name: &&str| {
            let rows = runs.filter(|run| run.subject.starts_with(name)).rows();
            let all = rows.iter().filter_map(|row| row.runs.median(figure));
            all.reduce(better)
        };
        let write = |figure: f64| match figure {
            small if small < 100.0 => format!("{small:.1}"),
            figure => count(figure),
        };
        let medians: Vec<Option<f64>> = RIVALS.iter().map(median).collect();
        let best = medians.iter().flatten().copied().reduce(better);
        let cell = |median: &Option<f64>| match median.map(write) {
            Some(text) if *median == best => Cell::Best(text),
            Some(text) => Cell::Number(text),
            None => Cell::Number(String::new()),
        };
        let title = Cell::Text((*title).to_owned());
        rows.push(std::iter::once(title).chain(medians.iter().map(cell)).collect());
    }
    Ok(Table { head: head.collect(), rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::run;

    #[test]
    fn figures_at_fixed_rates_are_tables_of_trackers_by_rate() {
        let one = |subject, case, us, lost| {
            run(subject, case, 1, &[("p50_us", us), ("per_cpu_s", 9e4), ("lost_part", lost)])
        };
        let runs = [
            one("a", "5,000/s", 20.0, 0.0),
            one("b", "5,000/s", 12.0, 0.0),
            one("a", "100,000/s", 80.0, 0.0),
            one("b", "100,000/s", 3e3, 0.2),
            one("a", THROUGHPUT, 1e3, 0.0),
        ];
        let blocks = by_rate(&Runs::counted(&runs));
        let tables: Vec<String> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::Table(table) => Some(table.to_string().replace(' ', "")),
                _ => None,
            })
            .collect();
        assert_eq!(tables.len(), 2);
        let lines: Vec<&str> = tables[0].lines().collect();
        assert_eq!(lines[2..], ["|5,000/s|20µs|12µs|", "|100,000/s|80µs|(3ms)|"]);
    }
}
