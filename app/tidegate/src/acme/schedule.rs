//! Decides when to obtain a certificate: in time, and not too often, whatever server and clocks do.
//!
//! When to renew depends on the wall clock, to which a certificate's validity refers, and which may
//! jump. How often it is tried depends on the monotonic clock, so that a jump causes no storm of
//! requests. Nothing here reads a clock or draws a random number.

use std::time::{Duration, Instant, SystemTime};

use net::tls::Certificate;

#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) wall: SystemTime,
    pub(super) monotonic: Instant,
}

impl Now {
    pub(super) fn read() -> Self {
        Self { wall: SystemTime::now(), monotonic: Instant::now() }
    }
}

/// Scope of a failure: the hosts that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// The server cannot be reached or does not work: requests for other hosts will fail, too.
    Server,
    /// The server refuses this host or this request.
    Host,
}

impl FailureScope {
    /// Returns the first and the longest pause after failures. An unreachable server is retried soon; a
    /// refused host must wait, because authorities limit failures: Let's Encrypt allows five per host
    /// and hour.
    fn pauses(self) -> [Duration; 2] {
        match self {
            Self::Server => [Duration::from_secs(10), Duration::from_secs(3600)],
            Self::Host => [Duration::from_secs(60), Duration::from_secs(6 * 3600)],
        }
    }
}

const BACKOFF_FACTOR: u32 = 3;
/// Bounds of the pause after a success, even if by the clock the new certificate must be renewed. Let's
/// Encrypt allows five certificates for the same names per week.
const SUCCESS_PAUSE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(2 * 24 * 3600)];
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Counts a failure and returns the pause after it. `random`, from 0 to 1, spreads clients that failed
    /// at the same time. `retry_after` is how long the server asked us to wait, if it did.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        scope: FailureScope,
        retry_after: Option<Duration>,
        random: f64,
    ) -> Duration {
        let [first, longest] = scope.pauses();
        let grown =
            BACKOFF_FACTOR.checked_pow(self.failures).and_then(|factor| first.checked_mul(factor));
        let pause = grown.unwrap_or(longest).min(longest).mul_f64(0.75 + random / 2.0);
        let pause = pause.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX));
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + pause);
        pause
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// When to renew. `None` = at once, as there is no certificate.
    due: Option<SystemTime>,
    pub(super) backoff: Backoff,
}

impl Schedule {
    /// Schedules the renewal of a certificate: at two thirds of its lifetime, or earlier by up to a twelfth
    /// of the lifetime, depending on `random` from 0 to 1.
    pub(super) fn set_validity(&mut self, validity: [SystemTime; 2], random: f64) {
        let [begins, expires] = validity;
        let lifetime = expires.duration_since(begins).unwrap_or_default();
        let part = 2.0 / 3.0 - random / 12.0;
        self.due = begins.checked_add(lifetime.mul_f64(part));
    }

    /// Schedules the renewal of a certificate that was just obtained.
    pub(super) fn obtained(&mut self, now: Instant, validity: [SystemTime; 2], random: f64) {
        self.set_validity(validity, random);
        self.backoff.reset();
        // By a wrong clock, the new certificate may be due at once.
        let [begins, expires] = validity;
        let lifetime = expires.duration_since(begins).unwrap_or_default();
        self.backoff.until = Some(now + (lifetime / 3).clamp(SUCCESS_PAUSE[0], SUCCESS_PAUSE[1]));
    }

    /// Renews earlier if the authority suggests so (RFC 9773).
    pub(super) fn suggest(&mut self, at: SystemTime) {
        self.due = self.due.map(|due| due.min(at));
    }

    /// Returns how long to wait before obtaining the certificate, as far as the clocks can tell now.
    pub(super) fn wait(&self, now: Now) -> Duration {
        let due = self.due.and_then(|due| due.duration_since(now.wall).ok()).unwrap_or_default();
        due.max(self.backoff.left(now.monotonic))
    }
}

pub(super) fn validity(certificate: &Certificate) -> [SystemTime; 2] {
    [certificate.begins(), certificate.expires()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Simulated clocks, which run in step until one of them is set.
    #[derive(Clone, Copy)]
    struct Clocks(Now);

    impl Clocks {
        fn start() -> Self {
            let wall = SystemTime::UNIX_EPOCH + 20_000 * DAY;
            Self(Now { wall, monotonic: Instant::now() })
        }

        fn pass(&mut self, time: Duration) {
            self.0.wall += time;
            self.0.monotonic += time;
        }
    }

    /// Simulates the thread for `time`. Returns the number of attempts and of wake-ups.
    fn simulate(
        clocks: &mut Clocks,
        schedule: &mut Schedule,
        time: Duration,
        mut attempt: impl FnMut(Now, &mut Schedule),
    ) -> [u32; 2] {
        let end = clocks.0.monotonic + time;
        let [mut attempts, mut turns] = [0, 0];
        while clocks.0.monotonic < end {
            turns += 1;
            if schedule.wait(clocks.0).is_zero() {
                attempts += 1;
                attempt(clocks.0, schedule);
            }
            let wait = schedule.wait(clocks.0);
            assert!(!wait.is_zero(), "a busy loop");
            clocks.pass(wait.min(Duration::from_secs(60)));
        }
        [attempts, turns]
    }

    fn give(lifetime: Duration) -> impl FnMut(Now, &mut Schedule) {
        move |now, schedule| {
            schedule.obtained(now.monotonic, [now.wall, now.wall + lifetime], 0.5);
        }
    }

    #[test]
    fn renews_at_two_thirds_of_lifetime() {
        let mut clocks = Clocks::start();
        for random in [0.0, 0.3, 1.0] {
            let mut schedule = Schedule::default();
            assert!(schedule.wait(clocks.0).is_zero(), "no certificate yet");
            schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], random);
            let wait = schedule.wait(clocks.0);
            assert!((52 * DAY..=60 * DAY).contains(&wait), "{wait:?}");
            clocks.pass(wait);
            assert!(schedule.wait(clocks.0).is_zero());
        }
        // A saved certificate that should have been renewed long ago.
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall - 80 * DAY, clocks.0.wall + 10 * DAY], 0.5);
        assert!(schedule.wait(clocks.0).is_zero());
        let mut schedule = Schedule::default();
        let [attempts, _] = simulate(&mut clocks, &mut schedule, 365 * DAY, give(90 * DAY));
        assert_eq!(attempts, 7, "one at first, and then every 56 days");
    }

    #[test]
    fn pauses_grow_and_respect_retry_after() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> =
            (0..8).map(|_| backoff.fail(now, FailureScope::Server, None, 0.5).as_secs()).collect();
        assert_eq!(pauses, [10, 30, 90, 270, 810, 2430, 3600, 3600]);
        for _ in 0..100 {
            assert_eq!(backoff.fail(now, FailureScope::Server, None, 0.5), HOUR);
        }
        backoff.reset();
        assert_eq!(backoff.left(now), Duration::ZERO);
        assert_eq!(backoff.fail(now, FailureScope::Server, None, 0.0), Duration::from_millis(7500));
        assert_eq!(backoff.left(now), Duration::from_millis(7500));
        assert_eq!(
            backoff.fail(now, FailureScope::Server, None, 1.0),
            Duration::from_millis(37_500)
        );
        assert_eq!(backoff.fail(now, FailureScope::Host, Some(5 * HOUR), 0.5), 5 * HOUR);
        assert_eq!(backoff.fail(now, FailureScope::Host, Some(100 * DAY), 0.5), DAY);
    }

    #[test]
    fn clock_jump_causes_no_storm() {
        // The clock is ten years ahead: by it, every certificate from the server has expired.
        let mut clocks = Clocks::start();
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], 0.5);
        let truth = clocks.0.wall;
        clocks.0.wall += 3650 * DAY;
        let expired = move |now: Now, schedule: &mut Schedule| {
            schedule.obtained(now.monotonic, [truth, truth + 90 * DAY], 0.5);
        };
        let [attempts, turns] = simulate(&mut clocks, &mut schedule, 7 * DAY, expired);
        assert_eq!(attempts, 4, "one every other day");
        assert!(turns <= 7 * 24 * 60 + 10);
        // Set back: the last certificate is valid and stays.
        clocks.0.wall -= 3650 * DAY;
        let [attempts, _] = simulate(&mut clocks, &mut schedule, 40 * DAY, give(90 * DAY));
        assert_eq!(attempts, 0);
        // Set to 1970: nothing is renewed until the clock is corrected, but a missing certificate is obtained.
        clocks.0.wall = SystemTime::UNIX_EPOCH;
        assert_eq!(simulate(&mut clocks, &mut schedule, 40 * DAY, give(90 * DAY))[0], 0);
        assert_eq!(simulate(&mut clocks, &mut Schedule::default(), DAY, give(90 * DAY))[0], 1);
        clocks.0.wall = truth + 365 * DAY;
        assert_eq!(simulate(&mut clocks, &mut schedule, DAY, give(90 * DAY))[0], 1);
    }

    #[test]
    fn short_lifetimes_cause_no_busy_loop() {
        let mut clocks = Clocks::start();
        for (seconds, at_most) in [(60, 120), (6, 360), (0, 360)] {
            let mut schedule = Schedule::default();
            let lifetime = Duration::from_secs(seconds);
            let [attempts, _] = simulate(&mut clocks, &mut schedule, HOUR, give(lifetime));
            assert!((60..=at_most).contains(&attempts), "{attempts}");
        }
    }

    #[test]
    fn authority_can_advance_but_not_delay_renewal() {
        let clocks = Clocks::start();
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], 0.0);
        schedule.suggest(clocks.0.wall + 80 * DAY);
        assert_eq!(schedule.wait(clocks.0), 60 * DAY);
        schedule.suggest(clocks.0.wall - DAY);
        assert!(schedule.wait(clocks.0).is_zero());
    }
}
