//! When a handler's idle call is due.

use super::Handler;
use std::time::{Duration, Instant};

/// How long nothing at all may happen: the longest sleep, and the longest wait for `stop`.
const IDLE_PERIOD: Duration = Duration::from_millis(250);

/// Keeps a handler's idle calls [`IDLE_PERIOD`] apart.
pub(super) struct IdleTimer {
    due: Instant,
}

impl IdleTimer {
    pub(super) fn start() -> Self {
        Self { due: Instant::now() + IDLE_PERIOD }
    }

    /// Calls [`Handler::idle`] when it is due, and says how long the worker may sleep now. Reads
    /// the clock, so it belongs after a batch, not after a datagram.
    pub(super) fn poll(&mut self, handler: &mut impl Handler) -> Duration {
        let now = Instant::now();
        let left = self.due.saturating_duration_since(now);
        if !left.is_zero() {
            return left;
        }
        handler.idle();
        self.due = now + IDLE_PERIOD;
        IDLE_PERIOD
    }
}
