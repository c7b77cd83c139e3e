//! The timer of a handler's idle calls.

use super::Handler;
use std::time::{Duration, Instant};

/// The time between idle calls. Also the longest sleep, and the longest delay until `stop` is seen.
pub(super) const IDLE_PERIOD: Duration = Duration::from_millis(250);

/// Calls a handler's [`Handler::idle`] every [`IDLE_PERIOD`].
pub(super) struct IdleTimer {
    due: Instant,
}

impl IdleTimer {
    pub(super) fn start() -> Self {
        Self { due: Instant::now() + IDLE_PERIOD }
    }

    /// Calls [`Handler::idle`] if its time has come. Returns how long the worker may sleep. Reads the
    /// clock, so call it once for each batch, not for each datagram.
    pub(super) fn poll(&mut self, now: Instant, handler: &mut impl Handler) -> Duration {
        let left = self.due.saturating_duration_since(now);
        if !left.is_zero() {
            return left;
        }
        handler.idle();
        self.due = now + IDLE_PERIOD;
        IDLE_PERIOD
    }
}
