//! `tidegate-bench store`: the memory that the swarm store takes for torrents and peers, by itself.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use ::load::Usage;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum, value_parser};
use primitives::Random;
use swarm::{Action, Options, PeerCaps, StoreAnnounce};
use types::{Families, InfoHash, PeerId, PeerKey, Role, Tick};

use crate::record::Figures;
use crate::report::{CASE, Column, Content, Runs, table};
use crate::session::{ResultArgs, RunKey, Session};

/// Measure the memory that the store takes for torrents and peers.
///
/// Each case runs in its own process, so that none inherits another's memory.
#[derive(Args)]
pub(crate) struct Store {
    /// Measure only this scenario; repeatable.
    #[arg(long = "scenario", value_enum, value_name = "NAME")]
    scenarios: Vec<Scenario>,
    /// Number of peers.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = value_parser!(u32).range(1000..=1_000_000_000))]
    peers: u32,
    /// Runs per case; the report shows medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    output: ResultArgs,
    /// Measure one case in this process and print its figures as JSON.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Content of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Torrents with one peer.
    Small,
    /// Torrents with a thousand peers.
    Large,
}

/// As in the server: a sweep round takes a minute, in ten parts a second.
const SWEEP_PARTS: u32 = 600;
/// Peers between two sweeps. Outgrown tables are returned to the system by them.
const SWEEP_EVERY: u32 = 1 << 16;

impl Store {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let scenarios = match &*self.scenarios {
            [] => Scenario::value_variants(),
            some => some,
        };
        if self.inside {
            let scenario = scenarios.first().context("--inside requires a scenario")?;
            let figures = measure(self.peers, scenario.peers_each());
            serde_json::to_writer(io::stdout(), &figures).context("cannot print the figures")?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut session = Session::start("store", &self.output, Path::new("."))?;
        for round in 1..=self.runs {
            for scenario in scenarios {
                if session.is_stopped() {
                    break;
                }
                let figures = self.ask(*scenario)?;
                let bytes = figures.get(BYTES).map_or(f64::NAN, |bytes| bytes.median);
                let key = RunKey::tidegate(scenario.title(), 1, round);
                session.add(key, figures, &format!("{bytes:.1} bytes per peer"))?;
            }
        }
        session.finish()
    }

    /// Measures a case in another process.
    fn ask(&self, scenario: Scenario) -> Result<Figures> {
        let program = std::env::current_exe().context("cannot determine this program's path")?;
        let name = scenario.to_possible_value().context("every scenario has a name")?;
        let mut command = Command::new(program);
        command.args(["store", "--inside", "--scenario", name.get_name()]);
        command.args(["--peers", &self.peers.to_string()]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.context("cannot start this program again")?;
        ensure!(output.status.success(), "{} failed: {}", scenario.title(), output.status);
        serde_json::from_slice(&output.stdout).context("a case printed no figures")
    }
}

impl Scenario {
    /// Returns its name in records.
    fn title(self) -> &'static str {
        match self {
            Self::Small => "memory, a peer in each torrent",
            Self::Large => "memory, a thousand peers in each torrent",
        }
    }

    fn peers_each(self) -> u32 {
        match self {
            Self::Small => 1,
            Self::Large => 1000,
        }
    }
}

/// Announces peers to a new store, and returns the memory of each.
fn measure(peers: u32, peers_each: u32) -> Figures {
    let torrents = peers.div_ceil(peers_each);
    let before = resident_bytes();
    let store = swarm::Store::new(&Options {
        shards: 8,
        hash_key: *b"a key of 16 byte",
        peer_lifetime_s: 1000,
        web_lifetime_s: 240,
        keep_peer_ids: false,
        memory_budget: None,
    });
    let mut random = Random::new(1);
    for peer in 0..peers {
        let announce = announce(peer % torrents, peer.into());
        store.announce(Tick(1), &mut random, &[announce], &mut |_, _| ());
        if peer.is_multiple_of(SWEEP_EVERY) {
            store.sweep(Tick(1), SWEEP_PARTS);
        }
    }
    store.sweep(Tick(1), SWEEP_PARTS);
    let totals = store.totals();
    let per_peer = |bytes: u64| bytes as f64 / (totals.v4.seeders + totals.v4.leechers) as f64;
    Figures::default()
        .with(BYTES, per_peer(resident_bytes().saturating_sub(before)))
        .with(OWN_BYTES, per_peer(totals.memory_reserved))
}

fn resident_bytes() -> u64 {
    Usage::of(std::process::id()).map_or(0, |usage| usage.resident_bytes)
}

/// Returns a peer's announce. A quarter of the peers seed, always the same ones.
fn announce(torrent: u32, peer: u64) -> StoreAnnounce {
    let [a, b, c, d, high, low, ..] = peer.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    StoreAnnounce {
        slot: 0,
        info_hash: info_hash(torrent),
        peer: PeerKey::V4([a, b, c, d, high, low]),
        peer_id: PeerId::default(),
        role: if peer.is_multiple_of(4) { Role::Seeder } else { Role::Leecher },
        action: Action::Update { completed: false },
        min_interval_s: 0,
        caps: PeerCaps::default(),
        want: 0,
        families: Families::Own,
    }
}

/// Returns a torrent's info hash, without a pattern.
pub(crate) fn info_hash(number: u32) -> InfoHash {
    let mut random = Random::new(u64::from(number) << 20);
    let mut bytes = [0; 20];
    for part in bytes.chunks_mut(8) {
        let random = random.next().to_le_bytes();
        part.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
    }
    InfoHash(bytes)
}

/// By the system's count, and by the store's own.
const BYTES: &str = "bytes_per_peer";
const OWN_BYTES: &str = "own_bytes_per_peer";

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("bytes per peer", |row| row.cell(BYTES, |bytes| format!("{bytes:.1}"))),
        ("by its own count", |row| row.cell(OWN_BYTES, |bytes| format!("{bytes:.1}"))),
    ];
    let text = "The store of torrents and peers by itself.";
    ("The store".to_owned(), text.to_owned(), vec![table(&runs.rows(), COLUMNS)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_large_torrents_take_less() {
        let [small, large] = Scenario::value_variants() else { panic!() };
        let of = |scenario: &Scenario| {
            let found = measure(20_000, scenario.peers_each());
            assert!(found.get(BYTES).is_some());
            found.get(OWN_BYTES).unwrap().median
        };
        assert!(of(large) > 6.0 && of(large) < of(small));
    }

    #[test]
    fn torrents_and_peers_are_distinct() {
        let announces: Vec<StoreAnnounce> = (0..1000).map(|it| announce(it, it.into())).collect();
        let hashes: std::collections::HashSet<_> =
            announces.iter().map(|announce| announce.info_hash).collect();
        let peers: std::collections::HashSet<_> =
            announces.iter().map(|announce| announce.peer).collect();
        assert_eq!((hashes.len(), peers.len()), (1000, 1000));
    }
}
