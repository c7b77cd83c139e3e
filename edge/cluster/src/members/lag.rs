//! How old what is missing of another node may be.
//!
//! Each heartbeat names a place, and says that all that its node did until some time is there or before. Once
//! that place is applied, so is all until then.

use std::collections::VecDeque;

use crate::seam::Time;

/// Heartbeats whose places are not applied yet. Of more, each second one is dropped.
const EXPECTED_MAX: usize = 64;
/// Heartbeats come once a second: so much later than what the last one says is no lag.
const PERIOD_MS: u64 = 1000;

/// Up to when everything is applied.
#[derive(Debug)]
pub(super) struct Covered<P> {
    /// By the steady clock.
    until_ms: u64,
    /// Places, and up to when everything is applied when they are.
    expected: VecDeque<(P, u64)>,
}

impl<P> Covered<P> {
    /// Returns one that knows of nothing missing until `until_ms`, by the steady clock.
    pub(super) fn new(until_ms: u64) -> Self {
        Self { until_ms, expected: VecDeque::new() }
    }

    /// When `place` is applied, all until `until_ms` is. Places come in order.
    pub(super) fn expect(&mut self, place: P, until_ms: u64) {
        if self.expected.len() >= EXPECTED_MAX {
            let mut is_kept = false;
            self.expected.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.expected.push_back((place, until_ms));
    }

    /// Notes which places are applied.
    pub(super) fn advance(&mut self, is_applied: impl Fn(&P) -> bool) {
        while let Some((_, until_ms)) = self.expected.pop_front_if(|(place, _)| is_applied(place)) {
            self.until_ms = self.until_ms.max(until_ms);
        }
    }

    /// Returns the milliseconds that what is missing may be old: too few by at most the period of heartbeats.
    pub(super) fn lag_ms(&self, now: Time) -> u64 {
        now.steady_ms.saturating_sub(self.until_ms + PERIOD_MS)
    }
}
