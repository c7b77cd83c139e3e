//! Times of two clocks: the wall clock, which the records use, and the tracker's ticks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use types::Tick;

/// Returns the Unix time in seconds. It may go back when the machine's clock is set.
pub type UnixTime = Arc<dyn Fn() -> i64 + Send + Sync>;

/// One moment, read from both clocks.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Unix time, seconds.
    pub time: i64,
    /// The tracker's time.
    pub tick: Tick,
}

impl ClockReading {
    /// Converts a Unix time to a tick. Times before tick 0 become tick 0.
    pub(crate) fn tick_at(self, time: i64) -> Tick {
        match u32::try_from(time.saturating_sub(self.time)) {
            Ok(seconds) => self.tick.after(seconds),
            Err(_) if time > self.time => Tick(u32::MAX),
            Err(_) => Tick(0),
        }
    }

    /// Converts a tick to a Unix time.
    pub(crate) fn time_at(self, tick: Tick) -> i64 {
        self.time.saturating_add(i64::from(tick.0) - i64::from(self.tick.0))
    }
}

/// Returns the time since 1970, or 0 for times before: a machine's clock that is not set yet may show
/// one, and a certificate may claim one.
pub(crate) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_between_times_and_ticks() {
        let now = ClockReading { time: 1000, tick: Tick(50) };
        assert_eq!(now.tick_at(1010), Tick(60));
        assert_eq!(now.tick_at(1000), Tick(50));
        assert_eq!(now.tick_at(999), Tick(0));
        assert_eq!(now.tick_at(i64::MAX), Tick(u32::MAX));
        assert_eq!(now.tick_at(i64::MIN), Tick(0));
        assert_eq!(now.time_at(Tick(45)), 995);
        assert_eq!(now.time_at(Tick(60)), 1010);
    }
}
