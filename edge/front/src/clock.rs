//! The one place of the serving path where time is read.

use std::time::Instant;
use types::Tick;

/// Counts the seconds since the process started. Copied to every worker, so all agree on [`Tick`].
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at tick 0. Called once, by the binary.
    pub fn start() -> Self {
        Self(Instant::now())
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
    }
}
