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
}
