//! Reports of `tidegate-bench cluster`.

use anyhow::{Result, bail};

use crate::figures::{count, mib, micros, percent};
use crate::report::{
    Block, CASE, Column, Content, PAIRS, PER_CPU_S, RELATIVE, RESPONSES_S, Row, Runs, SUBJECT,
    table,
};
use crate::table::{Cell, Table};

/// A goal: what, the benchmark and case, the figure, the most that it may be, and how it is written.
type Goal = (&'static str, &'static str, &'static str, f64, fn(f64) -> String);

const SEEN_GOALS: [Goal; 3] = [
    ("seen on a LAN, half of the peers", "LAN", "p50_us", 60e3, micros),
    ("seen on a LAN, 99 %", "LAN", "p99_us", 250e3, micros),
    ("seen over 150 ms with 1 % lost, 99 %", "150", "p99_us", 1e6, micros),
];
const WARM_GOALS: [Goal; 1] =
    [("10 M peers known over 1 Gbit/s", "10,000,000 peers, 1,000", "ready_s", 10.0, seconds)];
const LAG_GOALS: [Goal; 2] = [
    ("lag at 265,000 changes/s", "265,000", "lag_max_s", 1.0, seconds),
    ("of a receiver's core", "265,000", "receiver_part", 0.15, percent),
];

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>, what: &str) -> Result<Content> {
    let content = match what {
        "seen" => seen(runs),
        "warm" => warm(runs),
        "lag" => lag(runs),
        "cost" => cost(runs),
        _ => bail!("unknown benchmark `cluster {what}` in a record"),
    };
    Ok(content)
}

fn seen(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("peers", |row| row.cell("peers", count)),
        ("50 %", |row| row.cell("p50_us", micros)),
        ("90 %", |row| row.cell("p90_us", micros)),
        ("99 %", |row| row.cell("p99_us", micros)),
        ("last", |row| row.cell("max_us", micros)),
        ("never seen", |row| row.cell("unseen", count)),
    ];
    let text = "Three nodes, each with a NATS server on its host. A client announces new peers at one node, \
                and asks both others for each by scrapes, 2 ms after the last answer: times are from sending \
                the announce to receiving the answer that shows the peer, so up to 2 ms too long. NATS \
                servers and nodes speak TLS.";
    with_goals("Until the other nodes know a new peer", text, runs, (&SEEN_GOALS, COLUMNS))
}

fn warm(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("ready after", |row| row.cell("ready_s", seconds)),
        ("at most", |row| most(row, "ready_s", seconds)),
        ("known peers", |row| row.cell("known", count)),
        ("records a peer", |row| row.cell("records_per_peer", |it| format!("{it:.2}"))),
        ("bytes a record", |row| row.cell("bytes_per_record", |it| format!("{it:.1}"))),
        ("received", |row| row.cell("received_bytes", mib)),
        ("CPU time, node", |row| row.cell("cpu_s", seconds)),
        ("NATS", |row| row.cell("nats_cpu_s", seconds)),
        ("memory, node", |row| row.cell("resident_bytes", mib)),
        ("NATS", |row| row.cell("nats_bytes", mib)),
    ];
    let text = "A node starts with nothing, and reads the log of 50 minutes that the announces of a population \
                have left: those that were due, and peers that stopped. Times are from its start until \
                /health/ready says so.";
    with_goals("Until a fresh node knows everything", text, runs, (&WARM_GOALS, COLUMNS))
}

fn lag(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("answered/s", |row| row.cell("responses_s", count)),
        ("lag at most", |row| most(row, "lag_max_s", seconds)),
        ("receiver, of a core", |row| row.cell("receiver_part", percent)),
        ("a record", |row| row.cell("receiver_ns", nanos)),
        ("of it merging", |row| row.cell("apply_ns", nanos)),
        ("publisher, a record", |row| row.cell("publisher_ns", nanos)),
        ("NATS, a record", |row| row.cell("nats_ns", nanos)),
        ("bytes sent a record", |row| row.cell("sent_bytes", bytes)),
        ("received", |row| row.cell("received_bytes", bytes)),
    ];
    let text = "One node answers announces each of which starts or stops a peer, so that each is a record; another \
                one reads them from the log. One NATS server stores the log. CPU time of nodes \
                is that of their threads for the cluster; bytes are those of Ethernet frames at the node's \
                interface, with TLS. Everything shares the machine's processors.";
    with_goals("What another node takes at full load", text, runs, (&LAG_GOALS, COLUMNS))
}

fn cost(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[CASE, SUBJECT, RESPONSES_S, PER_CPU_S, RELATIVE, PAIRS];
    let text = "A tracker answers as many announces as it can on one processor, alone and as a node of a cluster, \
                in turn. Its CPU time is that of all its threads.";
    ("What being a node costs".to_owned(), text.to_owned(), vec![table(&runs.rows(), COLUMNS)])
}

/// Puts a table of goals before the figures.
fn with_goals(
    title: &str,
    text: &str,
    runs: &Runs<'_>,
    (goals, columns): (&[Goal], &[Column]),
) -> Content {
    let mut rows = Vec::new();
    for (what, case, figure, most, write) in goals {
        let of_case = runs.filter(|run| run.case.starts_with(case));
        let Some(found) = of_case.figure(figure) else { continue };
        rows.push(vec![
            Cell::Text((*what).to_owned()),
            Cell::Number(format!("≤ {}", write(*most))),
            Cell::Number(write(found.high)),
            Cell::Text(if found.high <= *most { "yes" } else { "no" }.to_owned()),
        ]);
    }
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        let head = ["", "goal", "reached", ""].map(str::to_owned).into();
        blocks.push(Block::Table(Table { head, rows }));
    }
    blocks.push(table(&runs.rows(), columns));
    (title.to_owned(), text.to_owned(), blocks)
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

fn nanos(ns: f64) -> String {
    format!("{ns:.0} ns")
}

fn bytes(bytes: f64) -> String {
    format!("{bytes:.1}")
}

/// Returns the highest of a figure.
fn most(row: &Row<'_>, name: &str, write: fn(f64) -> String) -> Cell {
    Cell::number(row.runs.figure(name).map(|figure| write(figure.high)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;
    use crate::record::tests::run;

    fn text(runs: &[Run], what: &str) -> String {
        let (_, _, blocks) = report(&Runs::counted(runs), what).unwrap();
        let tables = blocks.iter().map(|block| match block {
            Block::Table(table) => table.to_string(),
            _ => String::new(),
        });
        tables.collect()
    }

    #[test]
    fn figures_are_held_against_the_goals() {
        let runs = [
            run("tidegate", "LAN", 1, &[("p50_us", 30e3), ("p99_us", 300e3)]),
            run("tidegate", "150 ± 30 ms, 1 % lost", 1, &[("p50_us", 120e3), ("p99_us", 600e3)]),
        ];
        let text = text(&runs, "seen");
        let is_in =
            |words: [&str; 2]| text.lines().any(|it| words.iter().all(|word| it.contains(word)));
        assert!(is_in(["half of the peers", "30 ms | yes"]), "{text}");
        assert!(
            is_in(["LAN, 99 %", "300 ms | no"]) && is_in(["over 150 ms", "600 ms | yes"]),
            "{text}"
        );
        assert!(report(&Runs::counted(&runs), "else").is_err());
    }
}
