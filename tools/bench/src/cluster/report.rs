//! Reports of `tidegate-bench cluster`.

use anyhow::{Result, bail};

use crate::figures::{count, mib, micros, percent};
use crate::report::{
    CASE, Column, Content, PAIRS, PER_CPU_S, RELATIVE, RESPONSES_S, Runs, SUBJECT, table,
};

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
    content("Until the other nodes know a new peer", text, runs, COLUMNS)
}

fn warm(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("ready after", |row| row.cell("ready_s", seconds)),
        ("at most", |row| row.most("ready_s", seconds)),
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
    content("Until a fresh node knows everything", text, runs, COLUMNS)
}

fn lag(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("answered/s", |row| row.cell("responses_s", count)),
        ("lag at most", |row| row.most("lag_max_s", seconds)),
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
    content("What another node takes at full load", text, runs, COLUMNS)
}

fn cost(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[CASE, SUBJECT, RESPONSES_S, PER_CPU_S, RELATIVE, PAIRS];
    let text = "A tracker answers as many announces as it can on one processor, alone and as a node of a cluster, \
                in turn. Its CPU time is that of all its threads.";
    content("What being a node costs", text, runs, COLUMNS)
}

fn content(title: &str, text: &str, runs: &Runs<'_>, columns: &[Column]) -> Content {
    (title.to_owned(), text.to_owned(), vec![table(&runs.rows(), columns)])
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
