//! The clocks of the process: that of the tracker, and the wall clock.

use std::sync::Arc;
use std::time::SystemTime;

use front::Clock;
use replication::{Clocks, Now};

pub(super) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the unix time at tick 0, seconds. It changes when the system's clock is set.
pub(crate) fn unix_offset_s(clock: Clock) -> u64 {
    let elapsed_ms = clock.elapsed().as_millis() as u64;
    // To the nearest: ticks begin with seconds of unix time, but for what the clocks differ by.
    (unix_ms().saturating_sub(elapsed_ms) + 500) / 1000
}

pub(super) fn clocks(clock: Clock) -> Clocks {
    Arc::new(move || Now { tick: clock.now(), unix_ms: unix_ms() })
}
