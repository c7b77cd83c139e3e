//! Metadata of a peer in 16 bits: everything besides its address and role.

use types::{Tick, TooSoon, limits};

/// Seconds in a unit of age: a store does not tell two announces of a peer apart that are closer together.
pub const AGE_UNIT_S: u32 = 16;
/// Times wrap after this many units (3 days).
const UNITS: u32 = 1 << 14;

// An age is the difference of two times modulo `UNITS`. Every peer must have expired, including the
// sweep's delay, long before times wrap.
const _: () = assert!(limits::PEER_LIFETIME_S_MAX / AGE_UNIT_S < UNITS / 2);

/// When a peer last announced, in 14 bits of 16-second units, and two flags: "its download was
/// counted" and "partial seed" (BEP 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PeerMeta(pub u16);

impl PeerMeta {
    const COUNTED: u16 = 2;
    const PARTIAL: u16 = 1;

    /// Returns the metadata of a peer that announces now.
    pub fn new(now: Tick, counted: bool, partial: bool) -> Self {
        Self::aged(now, 0, counted, partial)
    }

    /// Returns the metadata of a peer that announced `age` units before `now`, which may be before
    /// tick 0.
    pub fn aged(now: Tick, age: u32, counted: bool, partial: bool) -> Self {
        let stamp = ((now.0 / AGE_UNIT_S).wrapping_sub(age) % UNITS) as u16;
        let flags = u16::from(counted) * Self::COUNTED + u16::from(partial) * Self::PARTIAL;
        Self((stamp << 2) | flags)
    }

    /// Returns this metadata, with the download marked as counted if `is_counted`.
    pub fn or_counted(self, is_counted: bool) -> Self {
        Self(if is_counted { self.0 | Self::COUNTED } else { self.0 })
    }

    /// Returns true if this peer's download has been counted.
    pub fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0
    }

    /// Returns true if the peer is a partial seed.
    pub fn is_partial(self) -> bool {
        self.0 & Self::PARTIAL != 0
    }

    /// Returns the units between the last announce and `now`. Returns 0 for an announce later than
    /// `now`, which happens when another thread has read the clock later.
    pub fn age(self, now: Tick) -> u32 {
        let age = (now.0 / AGE_UNIT_S).wrapping_sub(u32::from(self.0 >> 2)) % UNITS;
        if age < UNITS / 2 { age } else { 0 }
    }

    /// Checks the time of an announce that changes nothing about its peer, `min_interval_s` seconds after the last one
    /// at the earliest; 0 = no minimum.
    ///
    /// # Errors
    ///
    /// Returns the age of the last announce if this one surely comes too soon.
    #[inline]
    pub fn check_interval(self, now: Tick, min_interval_s: u32) -> Result<(), TooSoon> {
        // Apart, because most trackers enforce no minimal interval.
        if min_interval_s == 0 { Ok(()) } else { self.check_age(now, age_min(min_interval_s)) }
    }

    #[cold]
    fn check_age(self, now: Tick, age_min: u32) -> Result<(), TooSoon> {
        let age = self.age(now);
        if age < age_min { Err(TooSoon { age_s: age * AGE_UNIT_S }) } else { Ok(()) }
    }
}

/// Returns the age in units from which on a peer may have waited for `seconds`.
fn age_min(seconds: u32) -> u32 {
    seconds / AGE_UNIT_S
}

/// Returns the age in units past which a peer with a lifetime of `seconds` has expired: never
/// early, at most two units late.
pub fn age_max(seconds: u32) -> u32 {
    seconds.min(limits::PEER_LIFETIME_S_MAX).div_ceil(AGE_UNIT_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_and_flags_survive_the_wrap() {
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
    fn peers_that_waited_are_never_too_soon() {
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
    fn nothing_expires_early() {
        for seconds in [0, 1, 16, 17, 2700] {
            for start in 0..40 {
                let meta = PeerMeta::new(Tick(start), false, false);
                assert!(meta.age(Tick(start + seconds)) <= age_max(seconds));
                assert!(meta.age(Tick(start + seconds + 2 * AGE_UNIT_S)) > age_max(seconds));
            }
        }
    }
}
