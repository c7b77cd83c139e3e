//! When requests are sent: as answers come, or at their time.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum LoopMode {
    /// So many requests are under way at any time: the next is sent when one is answered.
    Closed {
        /// All workers together.
        outstanding: u32,
    },
    /// So many requests a second are sent, whatever comes back. Latencies count from when a request was
    /// due, so that a tracker that stands still does not hide what it keeps waiting.
    Open {
        /// All workers together.
        rate: f64,
    },
}

impl fmt::Display for LoopMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { outstanding } => write!(f, "closed loop, {outstanding} under way"),
            Self::Open { rate } => write!(f, "open loop, {rate} a second"),
        }
    }
}

/// No timer is finer: what is due within it is due together.
const GRAIN: Duration = Duration::from_micros(20);

/// When the requests of an open loop are due: in bursts of a few, one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Requests a burst, and nanoseconds from one to the next.
    burst: u64,
    every_ns: f64,
    /// Requests that were sent.
    done: u64,
}

impl Schedule {
    /// So many requests a second, which is above 0.
    pub(crate) fn new(rate: f64) -> Self {
        let burst = (rate * GRAIN.as_secs_f64()).ceil().max(1.0);
        Self { burst: burst as u64, every_ns: burst / rate * 1e9, done: 0 }
    }

    /// How many requests are due by then, which have not been sent.
    pub(crate) fn due(&self, now_ns: u64) -> u64 {
        let bursts = (now_ns as f64 / self.every_ns).floor() as u64 + 1;
        (bursts * self.burst).saturating_sub(self.done)
    }

    /// When the next request is due, or was: in nanoseconds from the start.
    pub(crate) fn next_ns(&self) -> u64 {
        ((self.done / self.burst) as f64 * self.every_ns).ceil() as u64
    }

    /// The next one has been sent.
    pub(crate) fn advance(&mut self) {
        self.done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_its_time() {
        for rate in [0.5, 1.0, 3.0, 1000.0, 77_777.0, 1e6, 1e7] {
            let mut schedule = Schedule::new(rate);
            let mut now = 0;
            for number in 0..100_u64 {
                assert_eq!(schedule.due(now) > 0, schedule.next_ns() <= now);
                now = schedule.next_ns();
                let exact = number as f64 / rate * 1e9;
                // A burst is early by less than its length.
                assert!(
                    now as f64 <= exact + 1.0 && now as f64 + 20_001.0 > exact,
                    "{rate} {number}"
                );
                assert!(schedule.due(now) > 0);
                assert!(
                    now == 0
                        || schedule.due(now - 2) == 0
                        || !schedule.done.is_multiple_of(schedule.burst)
                );
                schedule.advance();
            }
        }
        assert_eq!(Schedule::new(1000.0).due(999_999_999), 1000);
    }
}
