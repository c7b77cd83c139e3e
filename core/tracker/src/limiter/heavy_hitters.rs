//! Prefixes so far over their limit that even dropping their packets takes time from others.

use arrayvec::ArrayVec;
use primitives::IpPrefix;
use types::{Tick, limits};

use crate::frequent::Frequent;

/// The heavy hitters among one worker's clients. Counts requests of verified clients only, so a
/// client cannot have another's address blocked by forging it.
///
/// The suspects are the most frequent prefixes of a second's refusals. A map with a bound is as fast, and misses a
/// prefix that comes when it is full (`bench/record/2026-11-23-spread.md`).
#[derive(Debug, Default)]
pub struct HeavyHitters {
    second: Tick,
    /// The refusals of this second.
    suspects: Frequent<IpPrefix, 16>,
    blocked: ArrayVec<(IpPrefix, Tick), { limits::SOURCE_FILTER_MAX }>,
    has_changed: bool,
}

impl HeavyHitters {
    /// Counts a refused request of the prefix `from`. A prefix with more than `max` in this second is
    /// blocked for `time_s` seconds, if there is room for it. Returns whether it was blocked just now.
    pub(super) fn refused(&mut self, now: Tick, from: IpPrefix, max: u32, time_s: u32) -> bool {
        if self.second != now {
            self.second = now;
            self.suspects.clear();
        }
        if self.suspects.count(Some(from), 1) <= max {
            return false;
        }
        // Packets that were queued before the block still arrive.
        let is_known = self.blocked.iter().any(|(known, _)| *known == from);
        let is_new = !is_known && self.blocked.try_push((from, now.after(time_s))).is_ok();
        self.has_changed |= is_new;
        is_new
    }

    /// Ends the blocks whose time has passed.
    pub fn expire(&mut self, now: Tick) {
        let before = self.blocked.len();
        self.blocked.retain(|(_, until)| now < *until);
        self.has_changed |= self.blocked.len() != before;
    }

    /// Returns the blocked prefixes, or `None` if they are the same as at the last call.
    pub fn take_change(&mut self) -> Option<impl Iterator<Item = IpPrefix>> {
        std::mem::take(&mut self.has_changed).then(|| self.blocked.iter().map(|(from, _)| *from))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const MAX: u32 = 1000;

    fn v4(number: u32) -> IpPrefix {
        IpPrefix::v4(Ipv4Addr::from_bits(number), 32)
    }

    fn changed(heavy_hitters: &mut HeavyHitters) -> Option<Vec<IpPrefix>> {
        heavy_hitters.take_change().map(Iterator::collect)
    }

    #[test]
    fn heavy_hitter_is_blocked_for_a_time() {
        let mut heavy_hitters = HeavyHitters::default();
        for now in 0..3 {
            (0..MAX).for_each(|_| assert!(!heavy_hitters.refused(Tick(now), v4(1), MAX, 10)));
        }
        assert_eq!(changed(&mut heavy_hitters), None, "never too much in one second");
        let new = (0..100).filter(|_| heavy_hitters.refused(Tick(2), v4(1), MAX, 10));
        assert_eq!(new.count(), 1);
        assert_eq!(changed(&mut heavy_hitters), Some(vec![v4(1)]));
        assert_eq!(changed(&mut heavy_hitters), None);
        heavy_hitters.expire(Tick(11));
        assert_eq!(changed(&mut heavy_hitters), None);
        heavy_hitters.expire(Tick(12));
        assert_eq!(changed(&mut heavy_hitters), Some(vec![]));
    }

    #[test]
    fn blocks_are_bounded() {
        let mut heavy_hitters = HeavyHitters::default();
        for number in 0..2 * limits::SOURCE_FILTER_MAX as u32 {
            for _ in 0..=MAX {
                heavy_hitters.refused(Tick(number), v4(number), MAX, 1000);
            }
        }
        assert_eq!(changed(&mut heavy_hitters).unwrap().len(), limits::SOURCE_FILTER_MAX);
    }
}
