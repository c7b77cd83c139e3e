//! The buckets of rate limits beside their plain form, interleaved.
//!
//! `cargo bench -p tidegate-tracker --bench tables`. One thread; the median
//! and the fastest tenth of slices that take a fraction of a millisecond, since the machine may be busy.
//! Pin it with `taskset -c 0`. The last record is `bench/record/2026-11-22-key-tables.md`.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use primitives::Random;
use types::Tick;

#[path = "../src/limiter/buckets.rs"]
#[allow(dead_code, unreachable_pub)]
mod buckets;

use buckets::{Buckets, Rate};

/// Contenders take turns this often.
const ROUNDS: usize = 5;
const SLICE: usize = 1024;

fn main() {
    println!("{:<58} {:>8} {:>8}", "ns each", "median", "10 %");
    limits();
}

/// A name, and what runs a slice of probes.
type Contender<'a, T> = (&'a str, &'a mut dyn FnMut(&[T]));

/// Runs every contender on all of `probes`, `SLICE` at a time, in turns.
fn race<T>(what: &str, probes: &[T], contenders: &mut [Contender<'_, T>]) {
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

/// Rates of many prefixes.
fn limits() {
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
