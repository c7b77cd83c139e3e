//! Lag behind another node: the largest age of its changes that are missing here.
//!
//! Each heartbeat names a place in the log, and says that everything its node did until some time is stored there or
//! earlier. Once that place is applied, everything until that time is applied.

use std::collections::VecDeque;

use crate::host::Position;
use crate::seam::Time;

/// Heartbeats whose places are not applied yet. Of more, each second one is dropped.
const EXPECTED_MAX: usize = 64;
/// Heartbeats come once a second: so much later than what the last one says is no lag.
const PERIOD_MS: u64 = 1000;

/// Up to when everything is applied.
#[derive(Debug)]
pub(super) struct Covered {
    /// By the steady clock.
    until_ms: u64,
    /// Places, and up to when everything is applied when they are.
    expected: VecDeque<(Position, u64)>,
}

impl Covered {
    /// Returns one that knows of nothing missing until `until_ms`, by the steady clock.
    pub(super) fn new(until_ms: u64) -> Self {
        Self { until_ms, expected: VecDeque::new() }
    }

    /// When `stored` is applied, all until `until_ms` is. Places come in order.
    pub(super) fn expect(&mut self, stored: Position, until_ms: u64) {
        if self.expected.len() >= EXPECTED_MAX {
            let mut is_kept = false;
            self.expected.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.expected.push_back((stored, until_ms));
    }

    /// Notes up to where the log is applied. Of a stream that is no more, nothing more will come; streams are named by
    /// when they were made.
    pub(super) fn advance(&mut self, applied: Position) {
        let is_applied = |(stored, _): &mut (Position, u64)| {
            (stored.stream, stored.sequence) <= (applied.stream, applied.sequence)
        };
        while let Some((_, until_ms)) = self.expected.pop_front_if(is_applied) {
            self.until_ms = self.until_ms.max(until_ms);
        }
    }

    /// Returns the milliseconds that what is missing may be old: too few by at most the period of heartbeats.
    pub(super) fn lag_ms(&self, now: Time) -> u64 {
        now.steady_ms.saturating_sub(self.until_ms + PERIOD_MS)
    }
}
