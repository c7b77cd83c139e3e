//! Reports of `tidegate-bench cluster lag`.

use crate::figures::{count, percent};
use crate::report::{CASE, Column, Content, Runs, table};

pub(crate) fn report(runs: &Runs<'_>) -> Content {
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
        ("fresh node ready after", |row| row.cell("ready_s", seconds)),
    ];
    let text = "One node answers announces each of which starts or stops a peer, so that each is a record; another \
                one reads them from the log, and afterwards a third one that starts with nothing. Three NATS servers \
                store the log. CPU time of nodes is that of their threads for the cluster; bytes are those of \
                Ethernet frames at the node's interface, with TLS. Everything shares the machine's processors.";
    let title = "What another node takes at full load";
    (title.to_owned(), text.to_owned(), vec![table(&runs.rows(), COLUMNS)])
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
