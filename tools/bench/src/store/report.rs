//! The report of all cases: a table for each scenario.

use clap::ValueEnum;

use super::case::Scenario;
use super::contender::BATCHES;
use crate::figures::count;
use crate::report::{Block, Column, Content, Runs, SUBJECT, table};
use crate::table::Cell;

impl Scenario {
    /// Returns a short title, which is its name in records.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Torrents => "re-announce, torrents alike",
            Self::Peers => "re-announce, peers alike",
            Self::Grow => "grow from nothing",
            Self::Expire => "announce during an expiry",
            Self::Small => "memory, a peer in each torrent",
            Self::Large => "memory, a thousand peers in each torrent",
        }
    }

    /// Returns true if the scenario depends on the number of threads.
    pub(super) fn has_threads(self) -> bool {
        !matches!(self, Self::Small | Self::Large)
    }

    /// Returns true if the scenario is for the store of that name: batches where announces are known beforehand.
    pub(super) fn fits(self, name: &str) -> bool {
        name != BATCHES || matches!(self, Self::Torrents | Self::Peers)
    }
}

const COLUMNS: &[Column] = &[
    SUBJECT,
    ("threads", |row| Cell::Number(row.cores.to_string())),
    ("ns each", |row| row.cell("ns_each", count)),
    ("per second", |row| row.cell("per_s", count)),
    ("p50 ns", |row| row.cell("p50_ns", count)),
    ("p99", |row| row.cell("p99_ns", count)),
    ("p99.9", |row| row.cell("p99_9_ns", count)),
    ("p99.99", |row| row.cell("p99_99_ns", count)),
    ("longest", |row| row.cell("max_ns", count)),
    ("over 1 ms", |row| row.cell("long", count)),
    ("by itself", |row| row.cell("long_own", count)),
    ("expiry s", |row| row.cell("expiry_s", |seconds| format!("{seconds:.2}"))),
    ("bytes per peer", |row| row.cell("bytes_per_peer", |bytes| format!("{bytes:.1}"))),
    ("by its own count", |row| row.cell("own_bytes_per_peer", |bytes| format!("{bytes:.1}"))),
];

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    let mut blocks = Vec::new();
    for scenario in Scenario::value_variants() {
        let rows = runs.filter(|run| run.case == scenario.title()).rows();
        if !rows.is_empty() {
            blocks.push(Block::Heading(scenario.title().into()));
            blocks.push(table(&rows, COLUMNS));
        }
    }
    let text = "The store of torrents and peers by itself, beside simple alternatives.";
    ("The store".to_owned(), text.to_owned(), blocks)
}
