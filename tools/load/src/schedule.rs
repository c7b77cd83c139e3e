//! When requests are sent: after responses (closed loop) or on a schedule (open loop).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Counters;

/// Closed or open loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum LoopMode {
    /// A fixed number of requests is outstanding: the next is sent when one is answered.
    Closed {
        /// All workers together.
        outstanding: u32,
    },
    /// Requests are sent at a fixed rate, whatever the responses. Latencies count from a request's
    /// scheduled time, so that a stalled tracker does not hide the delay of requests it keeps
    /// waiting.
    Open {
        /// All workers together.
        rate: f64,
    },
}

/// Requests scheduled within this time are sent together; no timer is finer.
const GRAIN: Duration = Duration::from_micros(20);

/// The schedule of an open loop: small bursts at equal intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Requests per burst, and nanoseconds between bursts.
    burst: u64,
    every_ns: f64,
    /// Requests sent.
    done: u64,
}

impl Schedule {
    /// Creates a schedule of `rate` requests per second, above 0.
    pub(crate) fn new(rate: f64) -> Self {
        let burst = (rate * GRAIN.as_secs_f64()).ceil().max(1.0);
        Self { burst: burst as u64, every_ns: burst / rate * 1e9, done: 0 }
    }

    /// Returns how many unsent requests are scheduled up to `now_ns`.
    pub(crate) fn due(&self, now_ns: u64) -> u64 {
        let bursts = (now_ns as f64 / self.every_ns).floor() as u64 + 1;
        (bursts * self.burst).saturating_sub(self.done)
    }

    /// Returns the scheduled time of the next request, in nanoseconds from the start.
    pub(crate) fn next_ns(&self) -> u64 {
        ((self.done / self.burst) as f64 * self.every_ns).ceil() as u64
    }

    /// Marks the next request as sent.
    pub(crate) fn advance(&mut self) {
        self.done += 1;
    }
}

/// A request sent later than this after its scheduled time is overdue.
pub(crate) const OVERDUE: Duration = Duration::from_millis(1);

/// The open loop of connections that each have one outstanding request: free ones get the scheduled requests in turn.
pub(crate) struct Pacer {
    schedule: Schedule,
    pub(crate) start: Instant,
    free: VecDeque<usize>,
}

impl Pacer {
    /// Creates a schedule of `rate` requests per second.
    pub(crate) fn new(rate: f64) -> Self {
        Self { schedule: Schedule::new(rate), start: Instant::now(), free: VecDeque::new() }
    }

    /// Adds a connection that is free for a request.
    pub(crate) fn add(&mut self, connection: usize) {
        self.free.push_back(connection);
    }

    /// Returns a free connection and the time of the request that it has to send now, if it is time for one.
    pub(crate) fn next(&mut self, counters: &mut Counters) -> Option<(usize, Instant)> {
        let now = Instant::now();
        let now_ns = now.saturating_duration_since(self.start).as_nanos() as u64;
        if self.schedule.due(now_ns) == 0 {
            return None;
        }
        let connection = self.free.pop_front()?;
        let due = self.next_due();
        self.schedule.advance();
        counters.overdue += u64::from(now > due + OVERDUE);
        Some((connection, due))
    }

    /// Returns the time of the next request if a connection is free for it, at the latest `until`.
    pub(crate) fn wake(&self, until: Instant) -> Instant {
        if self.free.is_empty() { until } else { until.min(self.next_due()) }
    }

    fn next_due(&self) -> Instant {
        self.start + Duration::from_nanos(self.schedule.next_ns())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::runner::Worker;

    /// Checks that a worker sends all requests scheduled so far and none before its time. Does not
    /// depend on how fast the machine is: moves the worker's start into the past, and compares with
    /// the time that has really passed.
    pub(crate) fn check_open_loop(worker: &mut impl Worker, rate: f64) {
        worker.prepare(&AtomicBool::new(false)).unwrap();
        let base = Instant::now();
        let mut counters = Counters::default();
        for behind in [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1)] {
            let start = base - behind;
            worker.start(start);
            while (counters.sent as f64) < rate * behind.as_secs_f64() {
                worker.step(Instant::now() + GRAIN, &mut counters).unwrap();
                let most = rate * start.elapsed().as_secs_f64() + 1.0;
                assert!(counters.sent as f64 <= most, "{} of {most} {behind:?}", counters.sent);
            }
        }
        assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    }

    #[test]
    fn schedules_every_request() {
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
