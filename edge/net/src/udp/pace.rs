//! When a handler's idle call is due.

use super::Handler;
use std::time::{Duration, Instant};

/// How long nothing at all may happen: the longest sleep, and the longest wait for `stop`.
const PERIOD: Duration = Duration::from_millis(250);

/// Keeps a handler's idle calls [`PERIOD`] apart.
pub(super) struct Pace {
    due: Instant,
}

impl Pace {
    pub(super) fn start() -> Self {
        Self { due: Instant::now() + PERIOD }
    }

    /// Calls [`Handler::idle`] when it is due, and says how long the worker may sleep now. Reads
    /// the clock, so it belongs after a batch, not after a datagram.
    pub(super) fn keep(&mut self, handler: &mut impl Handler) -> Duration {
        let now = Instant::now();
        let left = self.due.saturating_duration_since(now);
        if !left.is_zero() {
            return left;
        }
        handler.idle();
        self.due = now + PERIOD;
        PERIOD
    }
}
