//! Resources that trackers of some sizes take, computed from measurements for each peer, request and connection.

use std::path::Path;

use anyhow::{Context, Result};

use crate::figures::{count, mib, percent};
use crate::record;
use crate::report::Runs;
use crate::table::{Cell, Table};

/// Peers of the rows, and WebTorrent connections.
const PEERS: [f64; 4] = [1e3, 1e5, 1e6, 1e7];
const CONNECTIONS: [f64; 3] = [1e3, 1e4, 1e5];
/// The default of `tracker.interval_s`.
const INTERVAL_S: f64 = 1800.0;
/// A client with one torrent connects before each announce.
const REQUESTS: f64 = 2.0;
/// Bytes of an IPv4 and a UDP header.
const HEADERS: f64 = 28.0;
/// Bytes of a connect's response, and of an announce's with the 50 peers that clients ask for (BEP 15).
const RESPONSES: f64 = 16.0 + HEADERS + 20.0 + 50.0 * 6.0 + HEADERS;

/// Costs that were measured.
struct Costs {
    /// Bytes of a peer in torrents of a thousand, and of one or two.
    crowded_bytes: f64,
    lonely_bytes: f64,
    /// Bytes of a peer on the disk.
    journal_bytes: f64,
    /// Requests per second over UDP, and the part of a core that they took, ascending.
    udp: Vec<(f64, f64)>,
    /// Responses per second of CPU time, each on a connection of its own.
    http_s: f64,
    https_s: f64,
    /// Bytes of an idle connection.
    ws_bytes: f64,
    wss_bytes: f64,
}

/// Returns the tables of what trackers of some sizes take, as Markdown.
pub(crate) fn sizing(folder: &Path) -> Result<String> {
    let of = |benchmark: &str, case: &str, name: &str| -> Result<f64> {
        let runs = record::last(folder, benchmark)?;
        let runs = Runs::counted(&runs);
        let runs = runs.filter(|run| run.subject == "tidegate" && run.case == case);
        runs.median(name).with_context(|| format!("{benchmark}, {case}: no {name}"))
    };
    let rates = record::last(folder, "compare udp rates")?;
    let mut udp = Vec::new();
    let rates = Runs::counted(&rates).filter(|run| run.subject == "tidegate");
    for row in rates.rows() {
        udp.extend(row.runs.median("responses_s").zip(row.runs.median("cpu_part")));
    }
    udp.sort_by(|a, b| a.0.total_cmp(&b.0));
    let costs = Costs {
        crowded_bytes: of(
            "compare udp announces",
            "a thousand peers per torrent",
            "bytes_per_peer",
        )?,
        lonely_bytes: of(
            "compare udp announces",
            "one or two peers per torrent",
            "bytes_per_peer",
        )?,
        journal_bytes: of("restart", "killed", "bytes_per_peer")?,
        udp,
        http_s: of("compare http close", "throughput", "per_cpu_s")?,
        https_s: of("compare https close", "throughput", "per_cpu_s")?,
        ws_bytes: of("compare ws offers", "ten thousand idle connections", "bytes_per_peer")?,
        wss_bytes: of("compare wss offers", "ten thousand idle connections", "bytes_per_peer")?,
    };
    Ok(format!("{}\n{}\n{}", costs.space(), costs.time(), costs.connections()))
}

impl Costs {
    fn space(&self) -> Table {
        let row = |peers: f64| {
            let [crowded, lonely] =
                [self.crowded_bytes, self.lonely_bytes].map(|it| size(peers * it));
            let sent = peers / INTERVAL_S * RESPONSES * 8.0;
            let cells = [
                count(peers),
                format!("{crowded} – {lonely}"),
                size(peers * self.journal_bytes),
                format!("{} kbit/s", count(sent / 1e3)),
            ];
            cells.map(number).into()
        };
        table(["peers", "memory for swarms", "journal", "sent over UDP"], PEERS.map(row).into())
    }

    fn time(&self) -> Table {
        let row = |peers: f64| {
            let announces_s = peers / INTERVAL_S;
            let cells = [
                count(peers),
                if announces_s < 10.0 { format!("{announces_s:.1}") } else { count(announces_s) },
                part(self.udp_part(announces_s * REQUESTS)),
                part(announces_s / self.http_s),
                part(announces_s / self.https_s),
            ];
            cells.map(number).into()
        };
        table(["peers", "announces/s", "CPU: UDP", "HTTP", "HTTPS"], PEERS.map(row).into())
    }

    fn connections(&self) -> Table {
        let row = |connections: f64| {
            let cells = [
                count(connections),
                mib(connections * self.ws_bytes),
                mib(connections * self.wss_bytes),
            ];
            cells.map(number).into()
        };
        table(["WebTorrent connections", "memory, ws", "wss"], CONNECTIONS.map(row).into())
    }

    /// Returns the part of a core that this rate takes: between two measured rates on a line between them.
    fn udp_part(&self, rate: f64) -> f64 {
        let mut below = (0.0, 0.0);
        for &above in &self.udp {
            if rate <= above.0 {
                return below.1 + (above.1 - below.1) * (rate - below.0) / (above.0 - below.0);
            }
            below = above;
        }
        if below.0 > 0.0 { below.1 * rate / below.0 } else { 0.0 }
    }
}

fn table<const N: usize>(head: [&str; N], rows: Vec<Vec<Cell>>) -> Table {
    Table { head: head.map(String::from).into(), rows }
}

/// A figure and its unit stay on one line.
fn number(text: String) -> Cell {
    Cell::Number(text.replace(' ', "\u{a0}"))
}

fn size(bytes: f64) -> String {
    if bytes < 1e6 { format!("{} KiB", count(bytes / 1024.0)) } else { mib(bytes) }
}

/// A part of a core, which need not be known exactly where it is small.
fn part(part: f64) -> String {
    if part <= 0.001 { "≤ 0.1 %".to_owned() } else { percent(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_the_costs() {
        let costs = Costs {
            crowded_bytes: 10.0,
            lonely_bytes: 50.0,
            journal_bytes: 40.0,
            udp: vec![(5_000.0, 0.2), (20_000.0, 0.5), (100_000.0, 1.0)],
            http_s: 20_000.0,
            https_s: 2_000.0,
            ws_bytes: 1_200.0,
            wss_bytes: 4_800.0,
        };
        assert!((costs.udp_part(2_500.0) - 0.1).abs() < 1e-9);
        assert!((costs.udp_part(12_500.0) - 0.35).abs() < 1e-9);
        assert!((costs.udp_part(200_000.0) - 2.0).abs() < 1e-9);
        let last = |table: Table| {
            table.to_string().lines().last().unwrap_or_default().replace('\u{a0}', " ")
        };
        // 5,556 announces a second, 11,111 requests.
        for (row, cells) in [
            (
                last(costs.space()),
                &["10,000,000", "95 MiB – 477 MiB", "381 MiB", "17,422 kbit/s"][..],
            ),
            (last(costs.time()), &["5,556", "32.2 %", "27.8 %", "277.8 %"]),
            (last(costs.connections()), &["100,000", "114 MiB", "458 MiB"]),
        ] {
            assert!(cells.iter().all(|cell| row.contains(cell)), "{cells:?}: {row}");
        }
    }
}
