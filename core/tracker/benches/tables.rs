//! The crate's hand-made tables beside their plain forms, interleaved.
//!
//! `cargo bench -p tidegate-tracker --bench tables [-- lists|buckets]`. One thread; the median
//! and the fastest tenth of slices that take a fraction of a millisecond, since the machine may be busy.
//! Pin it with `taskset -c 0`. The last record is `bench/record/2026-11-22-key-tables.md`.
#![allow(clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use hashbrown::HashTable;
use parking_lot::RwLock;
use primitives::Random;
use primitives::siphash::siphash;
use tidegate_tracker::access::{HashList, LiveList};
use types::{InfoHash, Tick};

#[path = "../src/limiter/buckets.rs"]
#[allow(dead_code, unreachable_pub)]
mod buckets;

use buckets::{Buckets, Rate};

/// Contenders take turns this often.
const ROUNDS: usize = 5;
const SLICE: usize = 1024;

fn main() {
    let parts: [(&str, fn()); 2] = [("lists", lists), ("buckets", buckets)];
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |name: &str| named.iter().any(|word| word == name);
    let is_any = parts.iter().any(|(name, _)| is_named(name));
    println!("{:<58} {:>8} {:>8}", "ns each", "median", "10 %");
    for (name, part) in parts {
        if !is_any || is_named(name) {
            part();
        }
    }
}

/// Runs every contender on all of `probes`, `SLICE` at a time, in turns.
fn race<T>(what: &str, probes: &[T], contenders: &mut [(&str, &mut dyn FnMut(&[T]))]) {
    let mut slices = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, run), slices) in contenders.iter_mut().zip(&mut slices) {
            for slice in probes.chunks(SLICE) {
                let start = Instant::now();
                run(slice);
                slices.push(start.elapsed().as_nanos() as f64 / slice.len() as f64);
            }
        }
    }
    for ((name, _), mut slices) in contenders.iter().zip(slices) {
        slices.sort_by(f64::total_cmp);
        let (median, fast) = (slices[slices.len() / 2], slices[slices.len() / 10]);
        println!("{:<58} {median:>8.1} {fast:>8.1}", format!("{what}: {name}"));
    }
}

/// Lookups in access lists of a million entries.
fn lists() {
    const SHARDS: usize = 1024;
    let mut random = Random::new(1);
    let mut hashes = || -> Vec<InfoHash> {
        let mut one = |_| {
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&random.next().to_be_bytes());
            bytes[8..16].copy_from_slice(&random.next().to_be_bytes());
            InfoHash(bytes)
        };
        (0..1_000_000).map(&mut one).collect()
    };
    let (listed, others) = (hashes(), hashes());
    let (list, live): (HashList, LiveList) =
        (listed.iter().copied().collect(), LiveList::default());
    live.insert(&listed);
    let hash = |hash: &InfoHash| siphash::<1, 3>(&[7; 16], &hash.0);
    let mut plain = HashTable::new();
    let sharded: Vec<RwLock<HashTable<InfoHash>>> =
        (0..SHARDS).map(|_| RwLock::default()).collect();
    for one in &listed {
        plain.insert_unique(hash(one), *one, hash);
        let shard = &sharded[(hash(one) >> 40) as usize % SHARDS];
        shard.write().insert_unique(hash(one), *one, hash);
    }
    for (what, probes) in [("a million entries, found", &listed), ("not found", &others)] {
        race(
            what,
            probes,
            &mut [
                ("HashList", &mut |probes| {
                    probes.iter().for_each(|one| _ = black_box(list.contains(one)));
                }),
                ("HashTable", &mut |probes| {
                    for one in probes {
                        black_box(plain.find(hash(one), |other| other == one).is_some());
                    }
                }),
                ("LiveList", &mut |probes| {
                    probes.iter().for_each(|one| _ = black_box(live.contains(one)));
                }),
                ("sharded HashTable", &mut |probes| {
                    for one in probes {
                        let shard = sharded[(hash(one) >> 40) as usize % SHARDS].read();
                        black_box(shard.find(hash(one), |other| other == one).is_some());
                    }
                }),
            ],
        );
    }
}

/// Rates of many prefixes.
fn buckets() {
    const SHARDS: usize = 256;
    let rate = Rate { per_s: 1000, burst: 1000 };
    for prefixes in [10_000, 1_000_000] {
        let mut random = Random::new(1);
        let probes: Vec<u64> = (0..prefixes).map(|_| random.next()).collect();
        let hand = Buckets::new(1 << 21);
        type Debts = Mutex<HashMap<u64, (u32, u32)>>;
        let plain: Vec<Debts> = (0..SHARDS).map(|_| Debts::default()).collect();
        race(
            &format!("{prefixes} prefixes"),
            &probes,
            &mut [
                ("Buckets", &mut |probes| {
                    for hash in probes {
                        black_box(hand.take(*hash, Tick(5), rate));
                    }
                }),
                ("sharded HashMap", &mut |probes| {
                    for hash in probes {
                        let shard = &plain[(hash >> 40) as usize % SHARDS];
                        let mut shard = shard.lock().unwrap_or_else(|_| unreachable!());
                        let (debt, at) = shard.entry(*hash).or_default();
                        *debt = debt.saturating_sub((5 - *at).saturating_mul(rate.per_s));
                        *at = 5;
                        *debt += u32::from(*debt < rate.burst);
                        black_box(*debt);
                    }
                }),
            ],
        );
    }
}
