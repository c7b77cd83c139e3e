//! The two clocks: the tracker's own, which is never set, and the wall clock, by which blocks are cut.

use std::sync::Arc;

use types::Tick;

use crate::merge::MergeTime;

/// A wall clock that moves by more than this against the tracker's clock was set.
pub const CLOCK_STEP_MS: u64 = 10_000;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The tracker's clock.
    pub tick: Tick,
    /// Unix time, milliseconds.
    pub unix_ms: u64,
}

impl Now {
    /// Returns the unix time at tick 0, in milliseconds.
    pub fn epoch_ms(self) -> u64 {
        self.unix_ms.saturating_sub(u64::from(self.tick.0) * 1000)
    }

    /// Returns the unix time at tick 0, in minutes.
    pub fn epoch_min(self) -> u32 {
        (self.epoch_ms() / 60_000).try_into().unwrap_or(u32::MAX)
    }
}

/// Reads both clocks.
pub type Clocks = Arc<dyn Fn() -> Now + Send + Sync>;

/// Places the cuts of blocks on a store's clock: the one rule for journal, upgrade and cluster.
///
/// A block's age is the wall-clock time since its cut. The wall clock is read once, as the anchor, and continued by the
/// tracker's clock, so that setting it while blocks are merged ages no peer.
#[derive(Clone, Copy, Debug)]
pub struct ReplayClock {
    anchor: Now,
    /// Milliseconds to add to the times of cuts.
    shift_ms: i64,
    /// Seconds added to all ages.
    older_s: u32,
    /// The greatest age of a block, in seconds.
    ago_s_max: u32,
    /// True if times are cut to whole seconds before they are compared.
    in_whole_seconds: bool,
}

impl ReplayClock {
    /// Returns the clock for blocks whose times are by the same wall clock as `anchor`.
    pub fn new(anchor: Now) -> Self {
        Self { anchor, shift_ms: 0, older_s: 0, ago_s_max: u32::MAX, in_whole_seconds: false }
    }

    /// Counts ages in whole seconds of unix time, as ticks are in a cluster: each node then computes the same
    /// time of a peer's announce.
    #[must_use]
    pub fn in_whole_seconds(self) -> Self {
        Self { in_whole_seconds: true, ..self }
    }

    /// Adds `shift_ms` to the times of all cuts, because the wall clock was set since, or because some of the
    /// time does not count.
    #[must_use]
    pub fn shifted(self, shift_ms: i64) -> Self {
        Self { shift_ms, ..self }
    }

    /// Adds `older_s` seconds to all ages. With [`crate::AGE_UNIT_S`], what the store knows of the same unit of time wins.
    #[must_use]
    pub fn older_by(self, older_s: u32) -> Self {
        Self { older_s, ..self }
    }

    /// Bounds the age of a block, whatever the wall clock says, before [`Self::older_by`].
    #[must_use]
    pub fn at_most(self, ago_s_max: u32) -> Self {
        Self { ago_s_max, ..self }
    }

    /// Returns the time of a block that was cut at `cut_ms`, in unix milliseconds. A cut that is ahead of the
    /// clock is taken for the present.
    pub fn time(&self, now: Now, cut_ms: u64) -> MergeTime {
        let cut_ms = cut_ms.saturating_add_signed(self.shift_ms);
        let wall_ms = self.anchor.unix_ms + u64::from(now.tick.since(self.anchor.tick)) * 1000;
        let ago_s = if self.in_whole_seconds {
            (wall_ms / 1000).saturating_sub(cut_ms / 1000)
        } else {
            wall_ms.saturating_sub(cut_ms) / 1000
        };
        let ago_s = u32::try_from(ago_s).unwrap_or(u32::MAX).min(self.ago_s_max);
        let cut_ago_s = ago_s.saturating_add(self.older_s);
        MergeTime { now: now.tick, cut_ago_s, epoch_min: now.epoch_min() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANCHOR: Now = Now { tick: Tick(100), unix_ms: 1_700_000_000_900 };

    /// Returns the age of a block cut at that time, when the wall clock was set far ahead since the anchor.
    fn ago_s(clock: ReplayClock, ticks: u32, cut_ms: u64) -> u32 {
        let now = Now { tick: Tick(100 + ticks), unix_ms: 9_900_000_000_000 };
        let time = clock.time(now, cut_ms);
        assert_eq!(time.now, now.tick);
        time.cut_ago_s
    }

    #[test]
    fn shifts_bounds_and_additions_apply_in_that_order() {
        let clock = ReplayClock::new(ANCHOR).shifted(-60_000).older_by(16).at_most(300);
        assert_eq!(ago_s(clock, 0, ANCHOR.unix_ms), 60 + 16);
        assert_eq!(ago_s(clock, 1000, ANCHOR.unix_ms), 300 + 16);
        assert_eq!(ago_s(clock.shifted(60_000), 0, ANCHOR.unix_ms), 16);
    }
}
