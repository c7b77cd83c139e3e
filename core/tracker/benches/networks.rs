//! A list of a million networks: the memory it takes, the time until it is in force, and the time of a lookup.
//!
//! `cargo bench -p tidegate-tracker --bench networks [-- v4|v6]`. One thread; a lookup is the median of slices of 4,096,
//! since the machine may be busy. Pin it with `taskset -c 0`.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::fs;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use tidegate_tracker::{NetworkAction, NetworkTable, Networks, Random};

const NETWORKS: u32 = 1_000_000;
const SLICE: usize = 4096;
const SLICES: usize = 1000;

fn main() {
    let is_v6 = std::env::args().any(|argument| argument == "v6");
    let text = list(is_v6);
    let before = resident_mib();
    let start = Instant::now();
    let networks = Networks::parse_list(text.as_bytes()).expect("valid lines");
    let table = NetworkTable::new([(NetworkAction::Deny, networks)]);
    println!("{} ranges after {:.0} ms", table.ranges(), start.elapsed().as_secs_f64() * 1000.0);
    println!("resident since then: {:.1} MiB", resident_mib() - before);
    println!("a lookup: {:.1} ns", lookup_ns(&table, is_v6));
    println!("a lookup in an empty table: {:.1} ns", lookup_ns(&NetworkTable::default(), is_v6));
}

/// Returns lines of networks, of the lengths that lists and routing tables have.
fn list(is_v6: bool) -> String {
    let mut random = Random::new(8);
    let mut line = |_| match is_v6 {
        true => format!("{}/{}\n", address(&mut random, is_v6), 32 + random.below(33)),
        false => format!("{}/{}\n", address(&mut random, is_v6), 24 + random.below(9)),
    };
    (0..NETWORKS).map(&mut line).collect()
}

/// Returns a random address of the internet.
fn address(random: &mut Random, is_v6: bool) -> IpAddr {
    match is_v6 {
        true => {
            let bits = (u128::from(random.next()) << 64) | u128::from(random.next());
            Ipv6Addr::from_bits((0x2 << 124) | (bits >> 4)).into()
        }
        false => Ipv4Addr::from_bits(random.next() as u32).into(),
    }
}

/// Returns the median time of a lookup of addresses that are rarely in a cache.
fn lookup_ns(table: &NetworkTable, is_v6: bool) -> f64 {
    let mut random = Random::new(9);
    let addresses: Vec<IpAddr> = (0..1 << 20).map(|_| address(&mut random, is_v6)).collect();
    let mut addresses = addresses.iter().cycle();
    let mut times: Vec<f64> = (0..SLICES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..SLICE {
                let address = addresses.next().expect("a cycle has no end");
                black_box(table.find(*black_box(address)));
            }
            start.elapsed().as_secs_f64() * 1e9 / SLICE as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[SLICES / 2]
}

/// Returns the resident memory of this process, or 0 where the system does not say.
fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().map_or(0.0, |kib| kib.parse::<f64>().unwrap_or(0.0) / 1024.0)
}
