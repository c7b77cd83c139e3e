//! How much two clocks differ.
//!
//! A heartbeat that was on its way for no time would say it exactly. So of the last minute's, the one counts
//! that was fastest.

use std::collections::VecDeque;

use replication::AGE_UNIT_S;

use crate::seam::Time;

/// Samples of this many milliseconds are kept as their least.
const BUCKET_MS: u64 = 10_000;
const BUCKETS: usize = 6;
/// Messages are late by less than this, clocks are set by more.
const JUMP_MS: i64 = AGE_UNIT_S as i64 * 500;
/// A clock was set if samples say so for this long. Those that waited somewhere come all at once.
const JUMP_WAIT_MS: u64 = 2500;
/// Samples come each second. After a longer pause, those that come waited for its end.
const PAUSE_MS: u64 = 2000;
/// What an operator should know.
const LARGE_MS: u64 = 2000;
/// Milliseconds of a unit of age.
const UNIT_MS: i64 = AGE_UNIT_S as i64 * 1000;
/// No clock differs by more, for sums: a million years.
const OFFSET_MAX: i64 = 1 << 55;

/// An estimate of how much another clock is behind.
#[derive(Debug, Default)]
pub(super) struct Offset {
    /// Number of a bucket and its least sample.
    buckets: VecDeque<(u64, i64)>,
    /// Samples that are too large.
    jump: Option<Jump>,
}

/// Samples that are too large: since when, the least, and when the last one came.
#[derive(Clone, Copy, Debug)]
struct Jump {
    since_ms: u64,
    least: i64,
    last_ms: u64,
}

impl Offset {
    /// Takes a sample: this clock minus the time that the other one showed when it sent.
    pub(super) fn note(&mut self, now: Time, sample_ms: i64) {
        let sample_ms = sample_ms.clamp(-OFFSET_MAX, OFFSET_MAX);
        if !self.buckets.is_empty() && sample_ms > self.ms() + JUMP_MS {
            let last_ms = now.steady_ms;
            let first = Jump { since_ms: last_ms, least: sample_ms, last_ms };
            let known = self.jump.filter(|jump| last_ms < jump.last_ms + PAUSE_MS);
            let jump = known.unwrap_or(first);
            self.jump = Some(Jump { least: jump.least.min(sample_ms), last_ms, ..jump });
            if last_ms < jump.since_ms + JUMP_WAIT_MS {
                return;
            }
            self.buckets.clear();
        }
        let sample_ms = self.jump.take().map_or(sample_ms, |jump| jump.least.min(sample_ms));
        let number = now.steady_ms / BUCKET_MS;
        match self.buckets.back_mut() {
            Some((last, least)) if *last == number => *least = (*least).min(sample_ms),
            _ => self.buckets.push_back((number, sample_ms)),
        }
        if self.buckets.len() > BUCKETS {
            self.buckets.pop_front();
        }
    }

    /// Returns this clock minus the other one, milliseconds.
    pub(super) fn ms(&self) -> i64 {
        self.buckets.iter().map(|(_, least)| *least).min().unwrap_or_default()
    }

    /// Whether the clocks differ by more than an operator should accept.
    pub(super) fn is_large(&self) -> bool {
        self.ms().unsigned_abs() > LARGE_MS
    }

    /// Returns what to add to the other clock's times: the offset, rounded to whole units of age.
    pub(super) fn correction_ms(&self) -> i64 {
        (self.ms() + UNIT_MS / 2).div_euclid(UNIT_MS) * UNIT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(steady_ms: u64) -> Time {
        Time { steady_ms, unix_ms: 0 }
    }

    #[test]
    fn the_fastest_message_of_a_minute_counts() {
        let mut offset = Offset::default();
        for second in 0..60 {
            offset.note(at(second * 1000), 150 + (second as i64 * 7) % 90);
        }
        assert_eq!(offset.ms(), 150);
        // It is forgotten when it is a minute old.
        for second in 60..130 {
            offset.note(at(second * 1000), 500);
        }
        assert_eq!(offset.ms(), 500);
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_within_four_heartbeats() {
        let mut offset = Offset::default();
        offset.note(at(0), 20);
        for second in 1..5 {
            assert_eq!(offset.ms(), 20);
            offset.note(at(second * 1000), 3_600_020);
        }
        assert_eq!(offset.ms(), 3_600_020);
        // The other way at once.
        offset.note(at(5000), -40);
        assert_eq!(offset.ms(), -40);
        // Two slow messages are none.
        offset.note(at(6000), 9000);
        offset.note(at(7000), 9000);
        offset.note(at(8000), 10);
        // Nor are those that waited until a thread went on, and came all at once.
        (0..30).for_each(|second| offset.note(at(39_000), 30_000 - second * 1000));
        assert_eq!(offset.ms(), -40);
        // Nor if a connection comes back twice, and some wait each time.
        offset.note(at(60_000), 15_000);
        offset.note(at(60_000), 12_000);
        offset.note(at(66_000), 11_200);
        assert_eq!(offset.ms(), -40);
    }

    #[test]
    fn corrections_are_whole_units() {
        let of = |ms| {
            let mut offset = Offset::default();
            offset.note(at(0), ms);
            (offset.correction_ms(), offset.is_large())
        };
        assert_eq!(of(0), (0, false));
        assert_eq!(of(2000), (0, false));
        assert_eq!(of(2001), (0, true));
        assert_eq!(of(-7999), (0, true));
        assert_eq!(of(10_000), (16_000, true));
        assert_eq!(of(-10_000), (-16_000, true));
        assert_eq!(of(3_600_000), (3_600_000, true));
        assert!(of(i64::MIN).0 < 0 && of(i64::MAX).0 > 0);
    }
}
