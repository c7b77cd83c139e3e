//! Clusters in virtual time: real stores and encoders, a model of NATS, and faults. See `cargo xtask sim`.

// Prints what fails.
#![allow(clippy::print_stdout)]

extern crate tidegate_cluster as cluster;

mod broker;
mod check;
mod clients;
mod faults;
mod host;
mod repairs;
#[path = "../rows/mod.rs"]
mod rows;
mod world;

use std::cell::OnceCell;

use types::{InfoHash, PeerKey};

use host::Canary;
use world::{HOMES, World};

/// A peer of a torrent.
type Peer = (InfoHash, PeerKey);

/// Short enough that peers expire while a seed runs.
const LIFETIME_S: u32 = 600;
const INTERVAL_S: u32 = 240;

fn run(seed: u64, canary: Canary, trace: bool) -> Result<(), String> {
    let homes: Vec<OnceCell<host::Home>> = (0..HOMES).map(|_| OnceCell::new()).collect();
    let mut world = World::new(seed, &homes, canary, trace);
    world.run()
}

/// Runs seeds, and says which fail.
fn run_all(seeds: std::ops::Range<u64>, canary: Canary) -> Vec<(u64, String)> {
    let failed = seeds.filter_map(|seed| run(seed, canary, false).err().map(|error| (seed, error)));
    failed.collect()
}

fn assert_all(seeds: std::ops::Range<u64>) {
    let failed = run_all(seeds, Canary::None);
    for (seed, error) in &failed {
        println!("seed {seed} (cargo xtask sim {seed}): {error}\n");
    }
    assert!(failed.is_empty(), "{} seeds failed", failed.len());
}

// In parts, which run at once.
#[test]
fn clusters_agree_1() {
    assert_all(0..50);
}

#[test]
fn clusters_agree_2() {
    assert_all(50..100);
}

#[test]
fn clusters_agree_3() {
    assert_all(100..150);
}

#[test]
fn clusters_agree_4() {
    assert_all(150..200);
}

/// Seeds of a storm, under which the canaries fail.
const STORMS: std::ops::Range<u64> = 0..8;

#[test]
fn clusters_agree_after_storms() {
    let failed = run_all(STORMS, Canary::Control);
    assert!(failed.is_empty(), "{failed:?}");
}

/// A node that is cut off for minutes brings back no peer that went elsewhere meanwhile.
#[test]
fn clusters_agree_after_long_cuts() {
    let failed = run_all(0..24, Canary::Apart);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Blocks that come later than removals are remembered are to add no peers.
#[test]
fn when_late_blocks_add_peers_they_do_not() {
    assert!(!run_all(0..24, Canary::LateBlocksAdd).is_empty());
}

/// A node that reads what it has missed is to contradict none of it.
#[test]
fn when_nodes_that_are_behind_contradict_they_do_not() {
    assert!(!run_all(20..24, Canary::ContradictsWhileBehind).is_empty());
}

/// Each block is to be followed by all that were cut later.
#[test]
fn without_going_back_they_do_not() {
    // It takes a peer that came and went in what was lost.
    assert!((0..600).any(|seed| run(seed, Canary::NoGoBack, false).is_err()));
}

/// What a node says itself is to take its place in the order of the log.
#[test]
fn without_own_blocks_they_do_not() {
    assert!(!run_all(STORMS, Canary::OwnBlocksSkipped).is_empty());
}

/// What is lost of rows is to be fetched.
#[test]
fn without_repairs_they_do_not() {
    assert!(!run_all(STORMS, Canary::NoRepairs).is_empty());
}

/// What `cargo xtask sim` runs.
#[test]
#[ignore = "for `cargo xtask sim`"]
fn seeds() {
    let seeds = std::env::var("TIDEGATE_SIM_SEEDS").expect("TIDEGATE_SIM_SEEDS=FROM..TO");
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    let seeds = from.parse::<u64>().unwrap()..to.parse().unwrap();
    if seeds.end == seeds.start + 1 {
        if let Err(error) = run(seeds.start, Canary::None, true) {
            panic!("{error}");
        }
        return;
    }
    assert_all(seeds);
}
