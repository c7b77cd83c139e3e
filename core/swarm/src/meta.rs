//! What the store knows of a peer besides its address and role, in 16 bits.

use types::{Tick, limits};

/// Seconds in a unit of age.
pub(crate) const AGE_UNIT_S: u32 = 16;
/// Stamps wrap after so many units (3 days).
const UNITS: u32 = 1 << 14;

// An age is told from the difference of two stamps, so whatever is kept must be gone, sweeps
// included, long before the stamps come round.
const _: () = assert!(limits::PEER_LIFETIME_S_MAX / AGE_UNIT_S < UNITS / 2);

/// When a peer last announced, and two facts about it: 14 bits of time in units of 16 seconds, one
/// for "its download was counted", one for "partial seed" (BEP 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct PeerMeta(pub(crate) u16);

impl PeerMeta {
    const COUNTED: u16 = 2;
    const PARTIAL: u16 = 1;

    pub(crate) fn new(now: Tick, counted: bool, partial: bool) -> Self {
        let stamp = (now.0 / AGE_UNIT_S % UNITS) as u16;
        let flags = u16::from(counted) * Self::COUNTED + u16::from(partial) * Self::PARTIAL;
        Self((stamp << 2) | flags)
    }

    /// This peer's download has been counted.
    pub(crate) fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0
    }

    /// The peer is a partial seed.
    pub(crate) fn is_partial(self) -> bool {
        self.0 & Self::PARTIAL != 0
    }

    /// Units between the mark and `now`; 0 for a mark from later than `now`, which another thread
    /// with a later look at the clock has made.
    pub(crate) fn age(self, now: Tick) -> u32 {
        let age = (now.0 / AGE_UNIT_S).wrapping_sub(u32::from(self.0 >> 2)) % UNITS;
        if age < UNITS / 2 { age } else { 0 }
    }
}

/// The age in units from which on a peer may have waited for `seconds`.
pub(crate) fn age_min(seconds: u32) -> u32 {
    seconds / AGE_UNIT_S
}

/// The age in units past which something that may live `seconds` is dead: never early, at most two
/// units late.
pub(crate) fn age_max(seconds: u32) -> u32 {
    seconds.min(limits::PEER_LIFETIME_S_MAX).div_ceil(AGE_UNIT_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_survives_the_wrap_and_both_facts_stay() {
        for start in [0, 5, AGE_UNIT_S * (UNITS - 1), AGE_UNIT_S * UNITS * 7 + 3] {
            let meta = PeerMeta::new(Tick(start), true, false);
            assert!(meta.is_counted());
            assert!(!meta.is_partial());
            assert_eq!(meta.age(Tick(start)), 0);
            assert_eq!(meta.age(Tick(start / AGE_UNIT_S * AGE_UNIT_S + 100 * AGE_UNIT_S)), 100);
        }
        assert!(PeerMeta::new(Tick(9), false, true).is_partial());
    }

    #[test]
    fn a_mark_from_the_future_is_young() {
        for start in [0, 15, 16, AGE_UNIT_S * UNITS - 1] {
            let meta = PeerMeta::new(Tick(start + AGE_UNIT_S), false, false);
            assert_eq!(meta.age(Tick(start)), 0);
        }
    }

    #[test]
    fn nobody_who_has_waited_is_too_young() {
        for seconds in [0, 1, 15, 16, 31, 32, 45, 885] {
            for start in 0..40 {
                let meta = PeerMeta::new(Tick(start), false, false);
                assert!(meta.age(Tick(start + seconds)) >= age_min(seconds));
                let early = Tick((start + seconds).saturating_sub(2 * AGE_UNIT_S).max(start));
                assert!(seconds < 2 * AGE_UNIT_S || meta.age(early) < age_min(seconds));
            }
        }
    }

    #[test]
    fn nothing_dies_early() {
        for seconds in [0, 1, 16, 17, 2700] {
            for start in 0..40 {
                let meta = PeerMeta::new(Tick(start), false, false);
                assert!(meta.age(Tick(start + seconds)) <= age_max(seconds));
                assert!(meta.age(Tick(start + seconds + 2 * AGE_UNIT_S)) > age_max(seconds));
            }
        }
    }
}
