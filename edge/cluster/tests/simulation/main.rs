//! Clusters in virtual time: real stores and encoders, a model of NATS, and faults. See `cargo xtask sim`.

// Prints what fails.
#![allow(clippy::print_stdout)]

extern crate tidegate_cluster as cluster;

mod broker;
mod check;
mod clients;
mod faults;
mod host;
mod world;

use std::cell::OnceCell;
use std::ops::Range;

use types::{InfoHash, PeerKey};

use faults::Scenario;
use host::Canary;
use world::{HOMES, World};

type Peer = (InfoHash, PeerKey);

/// The lifetime of peers and their interval.
#[derive(Clone, Copy, Debug)]
struct Times {
    lifetime_s: u32,
    interval_s: u32,
}

impl Times {
    /// Peers expire while some seeds run.
    const USUAL: Self = Self { lifetime_s: 600, interval_s: 240 };
    /// Peers expire while a fault lasts.
    const SHORT: Self = Self { lifetime_s: 240, interval_s: 56 };

    fn refresh_units(self) -> u32 {
        replication::refresh_period_units(self.lifetime_s, self.interval_s)
    }

    /// Returns the age past which other nodes may have let a peer expire, in units.
    fn old_units(self) -> u32 {
        (self.lifetime_s - 64) / 16 - self.refresh_units()
    }
}

fn run(seed: u64, scenario: Scenario, canary: Canary, trace: bool) -> Result<(), String> {
    let homes: Vec<OnceCell<host::Home>> = (0..HOMES).map(|_| OnceCell::new()).collect();
    let mut world = World::new(seed, &homes, (scenario, canary), trace);
    world.run()
}

/// Asserts that clusters agree in each of these seeds.
fn assert_all(seeds: Range<u64>, scenario: Scenario) {
    let run = |seed| run(seed, scenario, Canary::None, false).err().map(|error| (seed, error));
    let failed: Vec<_> = seeds.filter_map(run).collect();
    for (seed, error) in &failed {
        println!("{scenario:?} seed {seed} (cargo xtask sim {seed} {scenario:?}): {error}\n");
    }
    assert!(failed.is_empty(), "{} seeds failed", failed.len());
}

/// Returns the first of these seeds in which clusters do not agree without a mechanism.
fn caught(canary: Canary, seeds: Range<u64>) -> Option<u64> {
    let mut scenarios = Canary::ALL.into_iter();
    let (_, scenario) = scenarios.find(|it| it.0 == canary).expect("canaries have scenarios");
    seeds.into_iter().find(|seed| run(*seed, scenario, canary, false).is_err())
}

// In parts, which run at once.
#[test]
fn clusters_agree_1() {
    assert_all(0..50, Scenario::Mixed);
}

#[test]
fn clusters_agree_2() {
    assert_all(50..100, Scenario::Mixed);
}

#[test]
fn clusters_agree_3() {
    assert_all(100..150, Scenario::Mixed);
}

#[test]
fn clusters_agree_4() {
    assert_all(150..200, Scenario::Mixed);
}

#[test]
fn clusters_agree_after_storms() {
    assert_all(0..24, Scenario::Storm);
}

#[test]
fn clusters_agree_after_long_cuts() {
    assert_all(0..24, Scenario::Apart);
}

#[test]
fn clusters_agree_when_messages_take_minutes() {
    assert_all(0..24, Scenario::Stuck);
}

#[test]
fn clusters_agree_after_lifetimes() {
    assert_all(0..10, Scenario::Lifetimes);
}

#[test]
fn clusters_agree_after_the_stream_fell_back() {
    assert_all(0..24, Scenario::FallsBack);
}

#[test]
fn clusters_agree_with_wrong_clocks() {
    assert_all(0..24, Scenario::WrongClocks);
}

#[test]
fn without_any_of_the_mechanisms_they_do_not() {
    for (canary, seeds) in [
        (Canary::CopiesStored, 0..8),
        (Canary::OwnBlocksSkipped, 0..8),
        (Canary::ContradictsWhileBehind, 20..24),
        (Canary::LateMessagesCount, 18..22),
        (Canary::ClocksNotCompared, 0..8),
        (Canary::RemovalsForgotten, 18..22),
        (Canary::RemovalsNotTold, 0..8),
        (Canary::LostRemovalsNotTold, 0..8),
        (Canary::NoWalks, 0..8),
        (Canary::NoRefreshes, 0..8),
    ] {
        assert!(caught(canary, seeds).is_some(), "{canary:?} is not caught");
    }
}

/// Runs the seeds of `cargo xtask sim`: `TIDEGATE_SIM_SEEDS=FROM..TO`, and `TIDEGATE_SIM` has a scenario or a canary.
#[test]
#[ignore = "for `cargo xtask sim`"]
fn seeds() {
    let seeds = std::env::var("TIDEGATE_SIM_SEEDS").expect("TIDEGATE_SIM_SEEDS=FROM..TO");
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    let seeds = from.parse::<u64>().unwrap()..to.parse().unwrap();
    let name = std::env::var("TIDEGATE_SIM").unwrap_or_else(|_| "Mixed".to_owned());
    if let Some((canary, _)) = Canary::ALL.iter().find(|it| format!("{:?}", it.0) == name) {
        let seed = caught(*canary, seeds).unwrap_or_else(|| panic!("no seed catches {name}"));
        println!("seed {seed} catches {name}");
        return;
    }
    let scenario = Scenario::ALL.into_iter().find(|it| format!("{it:?}") == name);
    let scenario =
        scenario.unwrap_or_else(|| panic!("expected a scenario or canary, found {name}"));
    if seeds.end > seeds.start + 1 {
        return assert_all(seeds, scenario);
    }
    if let Err(error) = run(seeds.start, scenario, Canary::None, true) {
        panic!("{error}");
    }
}
