//! The clock of the serving path. Time is read nowhere else.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use types::Tick;

/// Counts the seconds since the tracker started. Every worker has a copy, so all agree on [`Tick`].
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The system's clock, and the time at which it shows tick 0.
    System(Instant),
    /// A clock that shows this tick, and stands still until that changes. For tests of deadlines.
    Manual(&'static AtomicU32),
}

impl Clock {
    /// Returns a clock at tick 0.
    pub fn start() -> Self {
        Self::System(Instant::now())
    }

    /// Returns a clock that continues that of another process, `elapsed` after its start, so that
    /// values which depend on ticks, such as connection ids and ages, stay valid. It may have started
    /// before the machine.
    pub fn after(elapsed: Duration) -> Self {
        let now = Instant::now();
        // Where the system cannot express that, the clock starts at 0.
        Self::System(now.checked_sub(elapsed).unwrap_or(now))
    }

    /// Returns the present tick, which never decreases. Takes about 20 ns, so workers call it once for a
    /// batch or a read.
    pub fn now(&self) -> Tick {
        match self {
            // 2^32 seconds are 136 years: the cast cannot wrap in a process's life.
            Self::System(start) => Tick(start.elapsed().as_secs() as u32),
            Self::Manual(tick) => Tick(tick.load(Ordering::Relaxed)),
        }
    }

    /// Returns the time since tick 0. Takes as long as [`Self::now`].
    pub fn elapsed(&self) -> Duration {
        match self {
            Self::System(start) => start.elapsed(),
            Self::Manual(tick) => Duration::from_secs(tick.load(Ordering::Relaxed).into()),
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        let at = Instant::now();
        let tick = match self {
            Self::System(start) => Tick(at.duration_since(*start).as_secs() as u32),
            Self::Manual(_) => self.now(),
        };
        Moment { tick, at }
    }
}

/// The start of a measurement, with the precision of the system's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) tick: Tick,
    at: Instant,
}

impl Moment {
    pub(crate) fn elapsed(self) -> Duration {
        self.at.elapsed()
    }
}

/// Chooses one of 16 steps for a measurement, so that reading the clock costs next to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sampling(u8);

impl Sampling {
    const ONE_OF: u8 = 16;

    /// Returns the present time if the step that begins is to be measured.
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
    fn measures_one_step_of_sixteen() {
        let (clock, mut sampling) = (Clock::after(Duration::from_secs(5)), Sampling::default());
        let moments: Vec<_> = (0..64).filter_map(|_| sampling.begin(&clock)).collect();
        assert_eq!(moments.len(), 4);
        assert!(moments[0].tick >= Tick(5) && moments[0].tick <= clock.now());
        assert!(moments[0].elapsed() >= moments[3].elapsed());
    }
}
