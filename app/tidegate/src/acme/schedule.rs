//! When a certificate is to be obtained: in time, and not too often, whatever server and clocks do.
//!
//! That a certificate is due is told by the wall clock, which knows what a certificate's validity
//! means, and which may jump. How often it is tried is told by the steady clock, so that no jump makes
//! a storm. Nothing here reads a clock or draws a random number.

use std::time::{Duration, Instant, SystemTime};

use net::tls::Certificate;

/// What the clocks say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) wall: SystemTime,
    pub(super) steady: Instant,
}

impl Now {
    pub(super) fn read() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }
}

/// Who is to blame when there is no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// The server: it cannot be reached, or is not well. Whatever the host, it will not work.
    Server,
    /// The host, as the server sees it, or what we asked for.
    Host,
}

impl FailureScope {
    /// The first pause after a failure, and the longest. A server that is down is soon asked again; a
    /// host that it refuses must wait, because authorities count: Let's Encrypt takes five failures
    /// of a host in an hour.
    fn pauses(self) -> [Duration; 2] {
        match self {
            Self::Server => [Duration::from_secs(10), Duration::from_secs(3600)],
            Self::Host => [Duration::from_secs(60), Duration::from_secs(6 * 3600)],
        }
    }
}

/// Each pause is so many times as long as the one before.
const BACKOFF_FACTOR: u32 = 3;
/// Bounds of the pause after a success, whatever the clock says of the new certificate. Let's Encrypt
/// gives five certificates for the same names in a week.
const SUCCESS_PAUSE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(2 * 24 * 3600)];
/// The longest that a server's wish to be left alone is granted.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// Pauses after failures, each longer than the one before.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Gives the pause that is due after one more failure. `random` is from 0 to 1: it spreads those
    /// who failed together. `retry_after` is for how long the server wants to be left alone, if it said so.
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

    /// All is well.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// How long it still lasts.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }
}

/// When one host's certificate is to be obtained.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// `None` while there is no certificate: at once.
    due: Option<SystemTime>,
    pub(super) backoff: Backoff,
}

impl Schedule {
    /// There is a certificate. It is to be renewed at two thirds of its lifetime, or up to a twelfth of
    /// that before, by `random` from 0 to 1.
    pub(super) fn set_validity(&mut self, validity: [SystemTime; 2], random: f64) {
        let [begins, expires] = validity;
        let lifetime = expires.duration_since(begins).unwrap_or_default();
        let part = 2.0 / 3.0 - random / 12.0;
        self.due = begins.checked_add(lifetime.mul_f64(part));
    }

    /// There is a new certificate, just obtained.
    pub(super) fn obtained(&mut self, now: Instant, validity: [SystemTime; 2], random: f64) {
        self.set_validity(validity, random);
        self.backoff.reset();
        // To a clock that is wrong, the new certificate may look as old as the one before.
        let [begins, expires] = validity;
        let lifetime = expires.duration_since(begins).unwrap_or_default();
        self.backoff.until = Some(now + (lifetime / 3).clamp(SUCCESS_PAUSE[0], SUCCESS_PAUSE[1]));
    }

    /// The authority suggests a time to renew at, which counts if it is earlier (RFC 9773).
    pub(super) fn suggest(&mut self, at: SystemTime) {
        self.due = self.due.map(|due| due.min(at));
    }

    /// How long to wait until the certificate is to be obtained, as far as the clocks can tell now.
    pub(super) fn wait(&self, now: Now) -> Duration {
        let due = self.due.and_then(|due| due.duration_since(now.wall).ok()).unwrap_or_default();
        due.max(self.backoff.left(now.steady))
    }
}

/// The first moment, and the last, in which a certificate is good.
pub(super) fn validity(certificate: &Certificate) -> [SystemTime; 2] {
    [certificate.begins(), certificate.expires()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Clocks of a test, in step until one of them is set.
    #[derive(Clone, Copy)]
    struct Clocks(Now);

    impl Clocks {
        fn start() -> Self {
            let wall = SystemTime::UNIX_EPOCH + 20_000 * DAY;
            Self(Now { wall, steady: Instant::now() })
        }

        fn pass(&mut self, time: Duration) {
            self.0.wall += time;
            self.0.steady += time;
        }
    }

    /// Goes on for `time`, asleep for what the schedule says or a minute at most, as the thread does;
    /// `attempt` is what happens whenever a certificate is due. Gives how often it was, and how often
    /// the thread woke up.
    fn simulate(
        clocks: &mut Clocks,
        schedule: &mut Schedule,
        time: Duration,
        mut attempt: impl FnMut(Now, &mut Schedule),
    ) -> [u32; 2] {
        let end = clocks.0.steady + time;
        let [mut attempts, mut turns] = [0, 0];
        while clocks.0.steady < end {
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
            schedule.obtained(now.steady, [now.wall, now.wall + lifetime], 0.5);
        }
    }

    fn refuse(scope: FailureScope) -> impl FnMut(Now, &mut Schedule) {
        move |now, schedule| {
            schedule.backoff.fail(now.steady, scope, None, 0.5);
        }
    }

    #[test]
    fn renewal_is_at_two_thirds_of_the_lifetime() {
        let mut clocks = Clocks::start();
        for random in [0.0, 0.3, 1.0] {
            let mut schedule = Schedule::default();
            assert!(schedule.wait(clocks.0).is_zero(), "there is none yet");
            schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], random);
            let wait = schedule.wait(clocks.0);
            assert!((52 * DAY..=60 * DAY).contains(&wait), "{wait:?}");
            clocks.pass(wait);
            assert!(schedule.wait(clocks.0).is_zero());
        }
        // One that is read back when it should have been renewed long ago.
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall - 80 * DAY, clocks.0.wall + 10 * DAY], 0.5);
        assert!(schedule.wait(clocks.0).is_zero());
        let mut schedule = Schedule::default();
        let [attempts, _] = simulate(&mut clocks, &mut schedule, 365 * DAY, give(90 * DAY));
        assert_eq!(attempts, 7, "one at first, and then every 56 days");
    }

    #[test]
    fn a_week_without_the_server_is_survived_in_time() {
        let mut clocks = Clocks::start();
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall - 60 * DAY, clocks.0.wall + 30 * DAY], 0.5);
        let down = simulate(&mut clocks, &mut schedule, 7 * DAY, refuse(FailureScope::Server));
        assert!((7 * 24..7 * 24 + 10).contains(&down[0]), "{down:?}");
        // When it is back, it takes no longer than the longest pause.
        let back = simulate(&mut clocks, &mut schedule, 2 * HOUR, give(90 * DAY));
        assert_eq!(back[0], 1);
    }

    #[test]
    fn a_host_that_is_refused_waits_longer() {
        let mut clocks = Clocks::start();
        let mut schedule = Schedule::default();
        let [attempts, _] = simulate(&mut clocks, &mut schedule, HOUR, refuse(FailureScope::Host));
        assert_eq!(attempts, 5);
        let [attempts, _] =
            simulate(&mut clocks, &mut schedule, 7 * DAY, refuse(FailureScope::Host));
        assert!((20..40).contains(&attempts), "{attempts}");
    }

    #[test]
    fn pauses_grow_spread_and_heed_the_server() {
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
    fn a_clock_that_jumps_makes_no_storm() {
        // Ten years ahead, and all the server gives has expired long ago by this clock.
        let mut clocks = Clocks::start();
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], 0.5);
        let truth = clocks.0.wall;
        clocks.0.wall += 3650 * DAY;
        let expired = move |now: Now, schedule: &mut Schedule| {
            schedule.obtained(now.steady, [truth, truth + 90 * DAY], 0.5);
        };
        let [attempts, turns] = simulate(&mut clocks, &mut schedule, 7 * DAY, expired);
        assert_eq!(attempts, 4, "one every other day");
        assert!(turns <= 7 * 24 * 60 + 10);
        // Back again: the last certificate is good, and stays.
        clocks.0.wall -= 3650 * DAY;
        let [attempts, _] = simulate(&mut clocks, &mut schedule, 40 * DAY, give(90 * DAY));
        assert_eq!(attempts, 0);
        // To 1970: nothing is due before the clock is right again, but a missing one is.
        clocks.0.wall = SystemTime::UNIX_EPOCH;
        assert_eq!(simulate(&mut clocks, &mut schedule, 40 * DAY, give(90 * DAY))[0], 0);
        assert_eq!(simulate(&mut clocks, &mut Schedule::default(), DAY, give(90 * DAY))[0], 1);
        clocks.0.wall = truth + 365 * DAY;
        assert_eq!(simulate(&mut clocks, &mut schedule, DAY, give(90 * DAY))[0], 1);
    }

    #[test]
    fn a_clock_that_jumps_while_the_server_is_down_neither_hurries_nor_stops_it() {
        let start = Clocks::start();
        let expiring = [start.0.wall - 85 * DAY, start.0.wall + 5 * DAY];
        // By how many days the clock goes wrong on the third day, until the sixth.
        for days in [-30_000_i64, -90, -1, 1, 90, 3650] {
            let (mut clocks, mut schedule) = (start, Schedule::default());
            schedule.set_validity(expiring, 0.5);
            let mut attempts =
                simulate(&mut clocks, &mut schedule, 3 * DAY, refuse(FailureScope::Server))[0];
            let jump = u32::try_from(days.abs()).unwrap() * DAY;
            let right = clocks.0.wall;
            let wrong = if days < 0 { right.checked_sub(jump) } else { right.checked_add(jump) };
            clocks.0.wall = wrong.unwrap();
            let odd =
                simulate(&mut clocks, &mut schedule, 3 * DAY, refuse(FailureScope::Server))[0];
            // By a clock that is 90 days late there is time; by others the renewal is overdue.
            assert!(if days <= -90 { odd <= 1 } else { (70..74).contains(&odd) }, "{days}: {odd}");
            clocks.0.wall = right + 3 * DAY;
            attempts +=
                odd + simulate(&mut clocks, &mut schedule, DAY, refuse(FailureScope::Server))[0];
            assert!(attempts <= 7 * 24 + 10, "{days}: {attempts}");
            // It has expired meanwhile, and is renewed as soon as there is somebody to do it.
            assert_eq!(
                simulate(&mut clocks, &mut schedule, 2 * HOUR, give(90 * DAY))[0],
                1,
                "{days}"
            );
            assert_eq!(
                simulate(&mut clocks, &mut schedule, 50 * DAY, give(90 * DAY))[0],
                0,
                "{days}"
            );
        }
    }

    #[test]
    fn a_machine_that_slept_is_in_time_when_it_wakes() {
        let (mut clocks, mut schedule) = (Clocks::start(), Schedule::default());
        schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], 0.5);
        assert_eq!(simulate(&mut clocks, &mut schedule, DAY, give(90 * DAY))[0], 0);
        // The steady clock may stand still in the meantime.
        clocks.0.wall += 100 * DAY;
        assert_eq!(simulate(&mut clocks, &mut schedule, HOUR, give(90 * DAY))[0], 1);
        // Asleep in the pause after a failure, it waits for no more than what was left of it.
        clocks.0.wall += 100 * DAY;
        clocks.0.steady += 3 * DAY;
        assert_eq!(simulate(&mut clocks, &mut schedule, HOUR, refuse(FailureScope::Server))[0], 6);
        let left = schedule.wait(clocks.0);
        clocks.0.wall += 100 * DAY;
        assert_eq!(schedule.wait(clocks.0), left);
        assert!(left <= HOUR);
    }

    #[test]
    fn lifetimes_of_seconds_and_of_nothing_are_no_busy_loop() {
        let mut clocks = Clocks::start();
        for (seconds, at_most) in [(60, 120), (6, 360), (0, 360)] {
            let mut schedule = Schedule::default();
            let lifetime = Duration::from_secs(seconds);
            let [attempts, _] = simulate(&mut clocks, &mut schedule, HOUR, give(lifetime));
            assert!((60..=at_most).contains(&attempts), "{attempts}");
        }
    }

    #[test]
    fn an_authority_may_call_a_certificate_back_but_not_delay_its_renewal() {
        let clocks = Clocks::start();
        let mut schedule = Schedule::default();
        schedule.set_validity([clocks.0.wall, clocks.0.wall + 90 * DAY], 0.0);
        schedule.suggest(clocks.0.wall + 80 * DAY);
        assert_eq!(schedule.wait(clocks.0), 60 * DAY);
        schedule.suggest(clocks.0.wall - DAY);
        assert!(schedule.wait(clocks.0).is_zero());
    }
}
