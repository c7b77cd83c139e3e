//! The cost of rate limits for requests that they admit, and that they refuse.
//!
//! `cargo bench -p tidegate-tracker --bench limits`. One thread; the median of
//! slices that take a fraction of a millisecond, since the machine may be busy. They cycle through the
//! addresses of the case. Pin it with `taskset -c 0`.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

#[path = "build/tracker.rs"]
mod build;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use primitives::Random;
use tidegate_tracker::{Limits, ListenerPolicyId, Networks, Rate, RequestKind};
use types::Tick;

const SLICES: u32 = 1000;
const SLICE: usize = 4096;

struct Case {
    name: &'static str,
    limits: Limits,
    addresses: Vec<IpAddr>,
}

fn main() {
    let off = Limits::default();
    let on = limited(Rate { per_s: 100_000_000, burst: 100_000_000 });
    let hit = limited(Rate { per_s: 1, burst: 1 });
    let exempt = Networks::parse(["127.0.0.0/8", "172.16.0.0/12", "fc00::/7"]);
    let exempt = Limits { exempt: exempt.unwrap_or_default(), ..hit.clone() };
    let cases = [
        Case { name: "off", limits: off, addresses: v4(1) },
        Case { name: "on, one v4 prefix", limits: on.clone(), addresses: v4(1) },
        Case { name: "on, one v6 prefix", limits: on.clone(), addresses: v6(1) },
        Case { name: "on, 10,000 v4 prefixes", limits: on.clone(), addresses: v4(10_000) },
        Case { name: "on, 1,000,000 v4 prefixes", limits: on.clone(), addresses: v4(1_000_000) },
        Case { name: "on, 1,000,000 v6 prefixes", limits: on, addresses: v6(1_000_000) },
        Case { name: "over the limit, one v4 prefix", limits: exempt, addresses: v4(1) },
    ];
    println!("{:<32} {:>8}", "", "ns each");
    for case in cases {
        println!("{:<32} {:>8.1}", case.name, median_ns(&case));
    }
}

fn limited(announces: Rate) -> Limits {
    Limits { announces, ..Limits::default() }
}

fn median_ns(case: &Case) -> f64 {
    let tracker = build::tracker(1, None);
    tracker.limiter().replace(case.limits.clone());
    let mut addresses = case.addresses.iter().cycle();
    let mut slice = |number| {
        let start = Instant::now();
        let view = tracker.view(Tick(number / 100));
        for address in addresses.by_ref().take(SLICE) {
            let grant = view.authorize(ListenerPolicyId(0), *address, RequestKind::Announce, None);
            // The compiler must not assume the outcome.
            let _ = black_box(grant);
        }
        start.elapsed().as_nanos() as f64 / SLICE as f64
    };
    let mut slices: Vec<f64> = (0..SLICES).map(&mut slice).collect();
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 2]
}

fn v4(count: usize) -> Vec<IpAddr> {
    let mut random = Random::new(1);
    (0..count).map(|_| Ipv4Addr::from_bits(random.next() as u32).into()).collect()
}

fn v6(count: usize) -> Vec<IpAddr> {
    let mut random = Random::new(2);
    let mut address = || u128::from(random.next()) << 64 | u128::from(random.next());
    (0..count).map(|_| Ipv6Addr::from_bits(address()).into()).collect()
}
