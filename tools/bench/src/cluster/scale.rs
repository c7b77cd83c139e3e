//! What larger clusters take, computed from what was measured for each record.

use std::path::Path;

use anyhow::{Context, Result};

use crate::figures::{count, percent};
use crate::record;
use crate::report::Runs;
use crate::table::{Cell, Table};

/// Peers and nodes of the columns.
const SIZES: [(f64, f64); 2] = [(10e6, 3.0), (100e6, 5.0)];
/// Nodes that the lag was measured with: a publisher and a receiver.
const MEASURED_NODES: f64 = 2.0;
/// Seconds of the log that a fresh node reads.
const WINDOW_S: f64 = 3000.0;
/// Bits per second of a link, as goals have it.
const LINK_BITS_S: f64 = 1e9;

/// A row: what, its formula, and what it gives for costs, peers and nodes, and records per second.
type Row = (&'static str, &'static str, fn(&Costs, (f64, f64), f64) -> String);

/// What was measured.
struct Costs {
    records_per_peer: f64,
    block_bytes: f64,
    memory_per_peer: f64,
    publisher_ns: f64,
    receiver_ns: f64,
    nats_ns: f64,
    sent_bytes: f64,
    received_bytes: f64,
}

/// Returns the formulas and what they give, as Markdown.
pub(crate) fn scale(folder: &Path) -> Result<String> {
    let (warm, lag) = (record::last(folder, "cluster warm")?, record::last(folder, "cluster lag")?);
    let of = |runs: &Runs<'_>, name: &str| {
        runs.median(name).with_context(|| format!("a record without {name}"))
    };
    let (warm, lag) = (Runs::counted(&warm), Runs::counted(&lag));
    let costs = Costs {
        records_per_peer: of(&warm, "records_per_peer")?,
        block_bytes: of(&warm, "bytes_per_record")?,
        memory_per_peer: of(&warm, "resident_bytes")? / of(&warm, "known")?,
        publisher_ns: of(&lag, "publisher_ns")?,
        receiver_ns: of(&lag, "receiver_ns")?,
        nats_ns: of(&lag, "nats_ns")?,
        sent_bytes: of(&lag, "sent_bytes")?,
        received_bytes: of(&lag, "received_bytes")?,
    };
    Ok(costs.text())
}

impl Costs {
    fn text(&self) -> String {
        let Self { records_per_peer, block_bytes, memory_per_peer, .. } = self;
        let Self { publisher_ns, receiver_ns, nats_ns, sent_bytes, received_bytes, .. } = self;
        format!(
            "P peers on N nodes are R = {records_per_peer:.2} P / 3000 s records a second. A record takes {publisher_ns:.0} \
             ns of a core where it arises, {receiver_ns:.0} ns where it is received, and \
             {nats_ns:.0} ns at NATS for two nodes; {sent_bytes:.0} bytes to NATS and {received_bytes:.0} bytes to \
             each node, with all frames. In the log it has {block_bytes:.1} bytes. A peer takes \
             {memory_per_peer:.0} bytes of a node's memory.\n\n{}",
            self.table()
        )
    }

    fn table(&self) -> Table {
        let rows: [Row; 8] = [
            ("records per second", "R", |_, _, r| count(r)),
            ("memory of a node", "P × memory of a peer", |it, (p, _), _| {
                gib(p * it.memory_per_peer)
            }),
            (
                "CPU of a node, of a core",
                "R / N × publishing + R × receiving",
                |it, (_, n), r| percent((r / n * it.publisher_ns + r * it.receiver_ns) / 1e9),
            ),
            ("CPU of NATS, of a core", "R × NATS × N / 2", |it, (_, n), r| {
                percent(r * it.nats_ns * n / MEASURED_NODES / 1e9)
            }),
            ("sent by a node", "R / N × bytes sent", |it, (_, n), r| mb_s(r / n * it.sent_bytes)),
            ("received by a node", "R × bytes received", |it, _, r| mb_s(r * it.received_bytes)),
            ("the log", "R × 3000 s × bytes in the log", |it, _, r| {
                gib(r * WINDOW_S * it.block_bytes)
            }),
            ("to read it over 1 Gbit/s, at least", "log × 8 / 1 Gbit/s", |it, _, r| {
                format!("{:.0} s", r * WINDOW_S * it.block_bytes * 8.0 / LINK_BITS_S)
            }),
        ];
        let head =
            |(peers, nodes): (f64, f64)| format!("{:.0} M peers, {nodes:.0} nodes", peers / 1e6);
        let row = |(what, formula, write): Row| {
            let cells = SIZES.map(|size| {
                let records_s = self.records_per_peer * size.0 / WINDOW_S;
                Cell::Number(write(self, size, records_s))
            });
            let texts = [Cell::Text(what.to_owned()), Cell::Text(formula.to_owned())];
            texts.into_iter().chain(cells).collect()
        };
        let titles = ["".to_owned(), "formula".to_owned()];
        Table {
            head: titles.into_iter().chain(SIZES.map(head)).collect(),
            rows: rows.map(row).into(),
        }
    }
}

fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / f64::from(1 << 30))
}

fn mb_s(bytes: f64) -> String {
    format!("{:.1} MB/s", bytes / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_the_formulas() {
        let costs = Costs {
            records_per_peer: 2.1,
            block_bytes: 32.0,
            memory_per_peer: 50.0,
            publisher_ns: 1000.0,
            receiver_ns: 500.0,
            nats_ns: 200.0,
            sent_bytes: 60.0,
            received_bytes: 70.0,
        };
        let table = costs.table().to_string();
        let has = |words: [&str; 2]| {
            assert!(
                table.lines().any(|line| words.iter().all(|word| line.contains(word))),
                "{table}"
            );
        };
        // 70,000 records a second.
        has(["records per second", "70,000"]);
        has(["memory of a node", "4.7 GiB"]);
        has(["CPU of a node", "4.9 %"]);
        has(["CPU of NATS", "3.5 %"]);
        has(["sent by a node", "0.8 MB/s"]);
        has(["received by a node", "4.9 MB/s"]);
        has(["the log", "6.3 GiB"]);
        has(["1 Gbit/s", "54 s"]);
    }
}
