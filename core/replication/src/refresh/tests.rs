//! Tests of the choice of refreshes, for all ages, times, phases and periods, and all histories.

use std::collections::BTreeSet;

use types::PeerKey;

use super::*;

/// The plain form: the last announce was in an earlier period.
fn is_due_plainly(age: u32, unit: u32, phase: u32, period: u32) -> bool {
    let period_of = |unit: u32| (unit + phase) / period;
    period_of(unit - age) < period_of(unit)
}

#[test]
fn the_first_announce_in_a_period_is_due() {
    for period in (0..=5).map(|bits| 1 << bits) {
        for (phase, unit) in (0..period).flat_map(|phase| (0..period).map(move |at| (phase, at))) {
            // Late enough for all ages.
            let unit = unit + 8 * period;
            for age in 0..4 * period {
                let due = is_due(age, unit, || phase, period);
                assert_eq!(due, is_due_plainly(age, unit, phase, period));
                // More bits of the phase do not matter.
                assert_eq!(due, is_due(age, unit, || phase + 8 * period, period));
            }
        }
    }
    // For long periods it is enough to look at one phase: only the sum of unit and phase counts.
    for period in (6..=12).map(|bits| 1 << bits) {
        for (unit, age) in (0..period).flat_map(|at| (0..period + 9).map(move |age| (at, age))) {
            let unit = unit + 2 * period;
            assert_eq!(is_due(age, unit, || 0, period), is_due_plainly(age, unit, 0, period));
        }
    }
}

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

#[test]
fn phases_are_spread() {
    let mut counts = [0; 32];
    for number in 0..32_000_u32 {
        let [a, b, c, d] = number.to_be_bytes();
        let v4 = PeerKey::V4([10, b, c, d, 9, 9]);
        let v6 = PeerKey::V6([0x24, 0, 0, 0, c, d, 0, 0, 0, 0, 0, 0, 0, 0, a, b, 1, 2]);
        for peer in [v4, v6] {
            counts[phase(&peer) as usize % 32] += 1;
        }
    }
    assert!(counts.iter().all(|count| (1500..2500).contains(count)), "{counts:?}");
}
