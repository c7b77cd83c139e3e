//! Tests of the choice of refreshes, for all ages, times, phases and periods, and all histories.

use std::collections::BTreeSet;

use super::*;

/// Returns the longest time in units between two refreshes of a peer that announces within `interval`, of all
/// histories. It goes between two nodes whose periods begin `shift` units apart, and which both receive a
/// refresh at once; or stays at one of them. What comes after an announce depends on its time within the
/// period, on the ages that the nodes know, and on how long ago the last refresh was.
fn longest_silence_of_two(period: u32, interval: u32, shift: u32) -> u32 {
    let mut longest = 0;
    let mut is_known = BTreeSet::new();
    let mut waiting: Vec<(u32, [u32; 2], u32)> = (0..period).map(|at| (at, [0; 2], 0)).collect();
    while let Some(state) = waiting.pop() {
        if !is_known.insert(state) {
            continue;
        }
        let (at, ages, silence) = state;
        for (step, node) in (0..=interval).flat_map(|step| [(step, 0), (step, 1)]) {
            let now = at + step;
            let mut ages = ages.map(|age| age + step);
            let due = is_due(ages[node], now, || [0, shift][node], period);
            let silence = silence + step;
            ages[node] = 0;
            if due {
                longest = longest.max(silence);
                waiting.push((now % period, [0; 2], 0));
            } else {
                waiting.push((now % period, ages, silence));
            }
        }
    }
    longest
}

#[test]
fn no_history_is_silent_for_longer_than_a_period_and_an_interval() {
    for (period, interval) in [(1, 5), (2, 5), (4, 3), (4, 9), (8, 5)] {
        for shift in 0..period {
            let longest = longest_silence_of_two(period, interval, shift);
            assert!(longest < period + interval, "{period} {interval} {shift}: {longest}");
        }
    }
}

#[test]
fn periods_leave_no_peer_silent_for_a_lifetime() {
    assert_eq!(refresh_period_units(2700, 1800), 32);
    assert_eq!(refresh_period_units(0, 1), 1);
    assert_eq!(refresh_period_units(2000, 1900), 1);
    for lifetime_s in (0..100_000).step_by(97) {
        for interval_s in (1..lifetime_s).step_by(1009) {
            let period = refresh_period_units(lifetime_s, interval_s);
            assert!(period.is_power_of_two());
            if period > 1 {
                assert!(period >= PERIOD_MIN);
                assert!(period * AGE_UNIT_S + interval_s + SLACK_S <= lifetime_s);
                assert!(2 * period * AGE_UNIT_S + interval_s + SLACK_S > lifetime_s);
            }
        }
    }
}
