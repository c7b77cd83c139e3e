//! Decides how long a worker waits for more datagrams before it receives again.
//!
//! Thirty datagrams cost little more in system calls than three, so a busy worker serves up to half as
//! many requests again with the same CPU time if it lets them gather. The price is latency. It is worth
//! paying only where CPU time is scarce: a worker with time to spare answers at once.
//!
//! The load decides: the part of the worker's capacity that the datagrams would take if all of them
//! came in large batches. The part of the time that the worker is awake is no measure of it, because
//! waiting reduces it: a worker is awake as long for 130,000 requests/s with a delay as for 65,000
//! requests/s without one. The size of the batches tells these apart. The system calls of a round cost
//! about as much as one more datagram, so of a round with `n` datagrams, `n / (n + 1)` is work that no
//! waiting saves.
//!
//! The load is computed from clock readings alone, without more system calls. Where other programs
//! keep the core busy, a worker seems busier than it is and waits earlier, which is right: its CPU time is
//! scarce.

use std::io;
use std::time::{Duration, Instant};

use super::BATCH_MAX;
use super::engine_loop::Round;

/// A batch of this size is worth its system calls.
const MIN_BATCH: usize = BATCH_MAX / 2;

/// Up to this load, a worker answers at once. A quarter of the capacity is measured as up to this.
const LOAD_MIN: f32 = 0.3;
/// From this load on, the delay is [`DELAY_MAX`]. It grows with the load in between, so that a load
/// that varies does not switch it on and off.
const LOAD_MAX: f32 = 0.5;

/// Shorter delays cost more than they save: the thread goes to sleep and wakes again.
const DELAY_MIN: Duration = Duration::from_micros(10);
/// Longer delays save nothing more. At half of the capacity ten datagrams gather in this time.
const DELAY_MAX: Duration = Duration::from_micros(75);

/// The load is an average of about this time: several hundred requests where it has an effect, but not
/// longer than a client would notice.
const AVERAGING_S: f32 = 0.004;

/// Linux may let a thread sleep for longer than it asked, by 50 µs unless the thread sets this.
#[cfg(target_os = "linux")]
const TIMER_SLACK: Duration = Duration::from_micros(1);

/// The next step of a worker, before it receives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Receive at once: there may be more.
    Receive,
    /// Sleep for this long, whatever arrives meanwhile.
    Delay(Duration),
    /// Sleep until something arrives, or has arrived already.
    Poll,
}

/// Measures the load of a worker, and decides what it does after each round.
pub(super) struct Coalescer {
    /// The end of the last round.
    ended: Instant,
    /// Since when the worker is awake, but not from before the last round ended.
    awake_since: Instant,
    /// Between 0 and 1.
    load: f32,
}

impl Coalescer {
    /// Returns the coalescer of an idle worker.
    pub(super) fn new(now: Instant) -> Self {
        Self { ended: now, awake_since: now, load: 0.0 }
    }

    /// Ends a round. Returns what to do next; after a sleep, call [`Coalescer::woke`].
    pub(super) fn next(&mut self, now: Instant, round: Round) -> Next {
        self.measure(now, round.datagrams as f32);
        match round.largest_batch {
            0 => Next::Poll,
            MIN_BATCH.. => Next::Receive,
            _ => self.delay().map_or(Next::Poll, Next::Delay),
        }
    }

    /// Ends a sleep.
    pub(super) fn woke(&mut self, now: Instant) {
        self.awake_since = now;
    }

    /// Adds a round to the load.
    fn measure(&mut self, now: Instant, datagrams: f32) {
        let seconds_since = |then| now.saturating_duration_since(then).as_secs_f32();
        let (round_s, awake_s) = (seconds_since(self.ended), seconds_since(self.awake_since));
        let work_s = awake_s * datagrams / (datagrams + 1.0);
        // A moving average, in which a round longer than its time replaces all that was before.
        self.load += (work_s - self.load * round_s) / round_s.max(AVERAGING_S);
        (self.ended, self.awake_since) = (now, now);
    }

    /// Returns how long to wait after a small batch, or `None` if the worker has time to spare.
    fn delay(&self) -> Option<Duration> {
        let part = (self.load - LOAD_MIN) / (LOAD_MAX - LOAD_MIN);
        (part > 0.0).then(|| DELAY_MIN + (DELAY_MAX - DELAY_MIN).mul_f32(part.min(1.0)))
    }
}

/// Enables the calling thread to sleep for as little as [`DELAY_MIN`]. Without it, delays are longer.
/// Other systems have no such setting.
pub(super) fn sleep_precisely() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_timerslack(TIMER_SLACK.as_nanos() as u64)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time per datagram, and the additional time per round. The worker serves up to 270,000 datagrams/s.
    const DATAGRAM: Duration = Duration::from_nanos(3600);
    const ROUND: Duration = Duration::from_nanos(4000);

    /// A worker on a clock of its own, and datagrams that come at a steady rate.
    struct Worker {
        coalescer: Coalescer,
        now: Instant,
        /// The time at which the next datagram comes.
        due: Instant,
    }

    /// Counts of a worker's rounds, datagrams and delays, and its longest delay.
    #[derive(Debug, Default)]
    struct Outcome {
        rounds: u32,
        datagrams: u32,
        delays: u32,
        longest: Duration,
    }

    impl Worker {
        fn new() -> Self {
            let now = Instant::now();
            Self { coalescer: Coalescer::new(now), now, due: now }
        }

        /// Runs the worker for `time`, while `rate` datagrams a second arrive.
        fn serve(&mut self, rate: u32, time: Duration) -> Outcome {
            let mut outcome = Outcome::default();
            let end = self.now + time;
            while self.now < end {
                let mut received = 0;
                while self.due <= self.now && received < BATCH_MAX {
                    self.due += Duration::from_secs(1) / rate;
                    received += 1;
                }
                self.now += ROUND + DATAGRAM * received as u32;
                outcome.rounds += 1;
                outcome.datagrams += received as u32;
                match self.coalescer.next(self.now, round(&[received])) {
                    Next::Receive => continue,
                    Next::Delay(delay) => {
                        self.now += delay;
                        outcome.delays += 1;
                        outcome.longest = outcome.longest.max(delay);
                    }
                    Next::Poll => self.now = self.now.max(self.due),
                }
                self.coalescer.woke(self.now);
            }
            outcome
        }
    }

    fn round(batches: &[usize]) -> Round {
        let mut round = Round::default();
        batches.iter().for_each(|batch| round.add_batch(*batch));
        round
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn below_a_quarter_of_the_capacity_nothing_waits() {
        for rate in [100, 5_000, 20_000, 50_000, 67_000] {
            let outcome = Worker::new().serve(rate, SECOND);
            assert_eq!(outcome.delays, 0, "{rate}/s: {outcome:?}");
            assert!(outcome.datagrams >= rate - 1, "{rate}/s: {outcome:?}");
        }
    }

    #[test]
    fn from_half_of_the_capacity_batches_are_large() {
        let mut worker = Worker::new();
        worker.serve(140_000, SECOND / 10);
        let outcome = worker.serve(140_000, SECOND);
        assert!(outcome.longest > DELAY_MAX * 9 / 10, "{outcome:?}");
        assert!(outcome.datagrams / outcome.rounds >= 16, "{outcome:?}");
        assert!(outcome.delays * 10 > outcome.rounds * 9, "{outcome:?}");
    }

    #[test]
    fn full_batches_are_followed_at_once_and_empty_rounds_by_sleep() {
        let now = Instant::now();
        let mut coalescer = Coalescer::new(now);
        for (batches, next) in [
            (&[0, 0][..], Next::Poll),
            (&[MIN_BATCH, 0], Next::Receive),
            (&[1, MIN_BATCH - 1], Next::Poll),
            (&[], Next::Poll),
        ] {
            // The clock may stand still.
            assert_eq!(coalescer.next(now, round(batches)), next, "{batches:?}");
        }
        coalescer.load = 1.0;
        assert_eq!(coalescer.next(now, round(&[1])), Next::Delay(DELAY_MAX));
    }
}
