//! The one place of the serving path where time is read.

use std::time::{Duration, Instant};
use types::Tick;

/// Counts the seconds since the tracker started. Copied to every worker, so all agree on [`Tick`].
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at tick 0. Called once, by the binary.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Goes on where another process's clock was `elapsed` after its start, so that what depends on
    /// ticks, as connection ids do, is good in both.
    pub fn after(elapsed: Duration) -> Self {
        let now = Instant::now();
        // A time before the machine's own start is nobody's: whoever says so starts at 0.
        Self(now.checked_sub(elapsed).unwrap_or(now))
    }

    /// The tick now: monotonic; about 20 ns, so workers ask once for a batch or a read.
    pub fn now(&self) -> Tick {
        // 2^32 seconds are 136 years: the cast cannot wrap in a process's life.
        Tick(self.0.elapsed().as_secs() as u32)
    }

    /// The time now, to measure from.
    pub(crate) fn moment(&self) -> Moment {
        let at = Instant::now();
        Moment { since_start: at.duration_since(self.0), at }
    }
}

/// A time, to the nanosecond where it began to be measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    since_start: Duration,
    at: Instant,
}

impl Moment {
    /// The tick that it is in.
    pub(crate) fn tick(self) -> Tick {
        Tick(self.since_start.as_secs() as u32)
    }

    /// How long ago it is.
    pub(crate) fn elapsed(self) -> Duration {
        self.at.elapsed()
    }
}

/// Chooses what is measured: one of so many turns that looking at the clock costs next to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sampling(u8);

impl Sampling {
    const ONE_OF: u8 = 16;

    /// The time now, if what begins is to be measured.
    #[inline]
    pub(crate) fn begin(&mut self, clock: &Clock) -> Option<Moment> {
        self.0 = (self.0 + 1) % Self::ONE_OF;
        (self.0 == 0).then(|| clock.moment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_zero() {
        assert!(Clock::start().now() < Tick(60));
        let resumed = Clock::after(Duration::from_millis(1500)).now();
        assert!(resumed >= Tick(1) && resumed < Tick(60));
        assert!(Clock::after(Duration::MAX).now() < Tick(60));
    }

    #[test]
    fn one_turn_of_many_is_measured() {
        let (clock, mut sampling) = (Clock::after(Duration::from_secs(5)), Sampling::default());
        let moments: Vec<_> = (0..64).filter_map(|_| sampling.begin(&clock)).collect();
        assert_eq!(moments.len(), 4);
        assert!(moments[0].tick() >= Tick(5) && moments[0].tick() <= clock.now());
        assert!(moments[0].elapsed() >= moments[3].elapsed());
    }
}
