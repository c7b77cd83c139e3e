//! Rates of connects.

use std::collections::HashSet;

use super::{Program, model};
use crate::ConnectRate;
use crate::bpf::action;
use crate::test_frames::{announce, connect};

const V4: &str = "192.0.2.1:6969";
const V6: &str = "[2001:db8::1]:6969";
/// Units of time in a second.
const SECOND: u64 = 1_000_000_000 / 256;
const TIME_BITS: u32 = 44;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// The debt that a connect adds: too high for any of it to be paid during a test.
const COST: u64 = 1000 * SECOND;
const SLOW: ConnectRate = ConnectRate { per_s: 1, burst: 5, prefix_v6: 64 };

fn program(rate: ConnectRate) -> Option<Program> {
    let mut program = Program::load(model())?;
    program.maps.set_rate(Some(rate));
    if rate.per_s == 1 {
        program.maps.set_cost(COST, COST * u64::from(rate.burst - 1));
    }
    Some(program)
}

/// Returns whether a connect is answered.
fn connects(program: &Program, from: &str) -> bool {
    let server = if from.starts_with('[') { V6 } else { V4 };
    let run = program.run(&connect(from, server));
    assert!([action::TX, action::DROP].contains(&run.action), "{run:?}");
    run.action == action::TX
}

fn answered(program: &Program, from: &str, times: usize) -> usize {
    (0..times).filter(|_| connects(program, from)).count()
}

/// Moves all times back by `units`, as if time had passed.
fn pass(program: &mut Program, units: u64) {
    let move_back = |word: u64| {
        if word == 0 { 0 } else { word & !TIME_MASK | word.wrapping_sub(units) & TIME_MASK }
    };
    let buckets: Vec<u64> = program.maps.buckets().into_iter().map(move_back).collect();
    program.maps.set_buckets(&buckets);
}

#[test]
fn a_burst_is_answered_and_no_more() {
    let Some(mut program) = program(SLOW) else { return };
    assert_eq!(answered(&program, "198.18.0.1:9", 20), 5);
    assert_eq!(answered(&program, "198.18.0.1:10", 20), 0);
    assert_eq!(answered(&program, "198.18.0.2:9", 20), 5);
    // The same prefix.
    assert_eq!(answered(&program, "[2001:db8:1::1]:9", 20), 5);
    assert_eq!(answered(&program, "[2001:db8:1::ffff:0:0:1]:9", 20), 0);
    assert_eq!(answered(&program, "[2001:db8:1:1::1]:9", 20), 5);
    // IPv4 clients behind a translator are counted one by one.
    assert_eq!(answered(&program, "[64:ff9b::198.19.0.1]:9", 20), 5);
    assert_eq!(answered(&program, "[64:ff9b::198.19.0.1]:10", 20), 0);
    assert_eq!(answered(&program, "[64:ff9b::198.19.0.2]:9", 20), 5);
    let counts = program.interface.counts(0);
    assert_eq!((counts.connects, counts.over_rate, counts.dropped_bytes), (10, 50, 50 * 16));
    // Announces are none of its business.
    let id = program.model.id(7, "198.18.0.1".parse().unwrap());
    assert_eq!(program.run(&announce("198.18.0.1:9", V4, id)).action, action::REDIRECT);
    program.maps.set_rate(None);
    assert_eq!(answered(&program, "198.18.0.1:9", 200), 200);
}

#[test]
fn prefixes_have_the_configured_length() {
    for (prefix_v6, of_other) in [(128, 5), (32, 0)] {
        let Some(program) = program(ConnectRate { prefix_v6, ..SLOW }) else { return };
        assert_eq!(answered(&program, "[2001:db8:5::1]:9", 9), 5);
        assert_eq!(answered(&program, "[2001:db8:5::2]:9", 9), of_other);
    }
}

#[test]
fn time_pays_debts() {
    let Some(mut program) = program(SLOW) else { return };
    let source = "198.18.0.1:9";
    assert_eq!(answered(&program, source, 20), 5);
    pass(&mut program, 2 * COST);
    assert_eq!(answered(&program, source, 20), 2);
    pass(&mut program, 99 * COST);
    assert_eq!(answered(&program, source, 20), 5);
    // Longer than half the range of times: what lies so far behind may look like the future.
    for units in [(1 << (TIME_BITS - 1)) - 1, 1 << (TIME_BITS - 1), TIME_MASK - 20 * COST] {
        pass(&mut program, units);
        assert_eq!(answered(&program, source, 20), 5, "after {units}");
    }
}

#[test]
fn a_new_prefix_takes_the_bucket_with_the_least_debt() {
    let Some(mut program) = program(ConnectRate { per_s: 1, burst: 1000, ..SLOW }) else {
        return;
    };
    assert!(connects(&program, "198.18.0.1:9"));
    let own = program.maps.buckets().into_iter().find(|word| *word != 0).unwrap();
    let now = (own & TIME_MASK) - COST;
    // A tag that no prefix below has, and debts of 100 to 900 connects.
    let debt =
        |at: usize| 100 * COST + (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (800 * COST);
    let full: Vec<u64> =
        (0..1 << 16).map(|at| 0x12345 << TIME_BITS | (now + debt(at)) & TIME_MASK).collect();
    program.maps.set_buckets(&full);
    let mut places = HashSet::new();
    for host in 0..50 {
        let before = program.maps.buckets();
        assert!(connects(&program, &format!("198.19.{host}.1:9")));
        let after = program.maps.buckets();
        let changed: Vec<usize> = (0..1 << 16).filter(|at| before[*at] != after[*at]).collect();
        let [place] = changed[..] else { panic!("{changed:?}") };
        let set = place / 8 * 8..place / 8 * 8 + 8;
        let least = set.clone().min_by_key(|at| before[*at].wrapping_sub(now) & TIME_MASK).unwrap();
        assert_eq!(place, least, "{:x?}", &before[set]);
        // The debt of the prefix that was there is not its own.
        assert!(after[place].wrapping_sub(now) & TIME_MASK < 2 * COST);
        places.insert(place / 8);
    }
    assert!(places.len() > 40, "only {} sets", places.len());
}
