//! The stream's clock, by which blocks are cut, so that their ages are the same at all nodes.
//!
//! Each look-up of the stream says what its server's clock shows. That is compared with the steady clock here, so a wall
//! clock that is set changes nothing.
//!
//! Plain form: the time of the stream. Departure: times are those of the node's wall clock, corrected by whole units of
//! age, so that a node's store and the others have a peer's announce in the same unit.

use replication::AGE_UNIT_S;

use crate::seam::Time;

/// A wall clock that differs by more is a problem.
const LARGE_MS: u64 = 2000;
/// No clock differs by more, for sums: a million years.
const AHEAD_MAX: i64 = 1 << 55;
/// Answers that take twice as long are inaccurate.
const SLOW_MS: u64 = 500;
const UNIT_MS: i64 = AGE_UNIT_S as i64 * 1000;
/// A correction stays until it is wrong by more: one that changes moves peers from one unit to another.
const TOLERANCE_MS: u64 = 12_000;

/// The stream's clock, compared with this node's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamClock {
    /// The stream's clock minus the steady clock; `None` before the first look-up.
    offset_ms: Option<i64>,
    /// The greatest error of that.
    error_ms: u64,
    correction_ms: i64,
}

impl StreamClock {
    /// Takes the time `server_ms`, unix ms, that a look-up found, which began at `asked_ms` of the steady clock. Returns
    /// by how many milliseconds the steady clock lost against the stream's since the last look-up: this machine stood
    /// still for so long, or the stream has another leader.
    pub(crate) fn looked_up(&mut self, now: Time, asked_ms: u64, server_ms: u64) -> u64 {
        let way_ms = now.steady_ms.saturating_sub(asked_ms) / 2;
        let offset_ms = (server_ms as i64).saturating_sub_unsigned(now.steady_ms - way_ms);
        let before_ms = self.offset_ms.unwrap_or(offset_ms);
        let moved_ms = offset_ms.saturating_sub(before_ms);
        // An answer that waited here or there says less than an earlier one.
        let is_slow = self.is_known() && way_ms > SLOW_MS;
        if is_slow && moved_ms.unsigned_abs() <= way_ms + self.error_ms {
            return 0;
        }
        self.offset_ms = Some(offset_ms);
        self.error_ms = way_ms;
        self.follow(now);
        u64::try_from(moved_ms).unwrap_or_default().saturating_sub(way_ms)
    }

    /// Returns true after the first look-up.
    pub(crate) fn is_known(&self) -> bool {
        self.offset_ms.is_some()
    }

    /// Corrects the wall clock if it was set. Call before [`Self::correction_ms`].
    pub(crate) fn follow(&mut self, now: Time) {
        let ahead_ms = self.ahead_ms(now);
        if ahead_ms.abs_diff(self.correction_ms) > TOLERANCE_MS {
            self.correction_ms = (ahead_ms + UNIT_MS / 2).div_euclid(UNIT_MS) * UNIT_MS;
        }
    }

    /// Returns by how much this node's wall clock is ahead of the stream's, in milliseconds; 0 if that is not known.
    pub(crate) fn ahead_ms(&self, now: Time) -> i64 {
        let stream_ms =
            self.offset_ms.map(|offset_ms| offset_ms.saturating_add_unsigned(now.steady_ms));
        let ahead_ms = stream_ms.map_or(0, |it| (now.unix_ms as i64).saturating_sub(it));
        ahead_ms.clamp(-AHEAD_MAX, AHEAD_MAX)
    }

    /// Returns the milliseconds to subtract from this node's wall clock for the time of the stream, and to add to
    /// the times of blocks: whole units of age.
    pub(crate) fn correction_ms(&self) -> i64 {
        self.correction_ms
    }

    /// Returns the time of the stream, as exactly as it is known.
    pub(crate) fn stream_time(&self, now: Time) -> Time {
        Time { unix_ms: now.unix_ms.saturating_add_signed(-self.ahead_ms(now)), ..now }
    }

    /// Returns true if the wall clock differs by more than an operator should accept.
    pub(crate) fn is_wrong(&self, now: Time) -> bool {
        self.ahead_ms(now).unsigned_abs() > LARGE_MS + self.error_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX_MS: u64 = 1_700_000_000_000;

    /// Returns the time `steady_ms` after the start of a node whose wall clock is ahead.
    fn at(steady_ms: u64, ahead_ms: i64) -> Time {
        Time { steady_ms, unix_ms: (UNIX_MS + steady_ms).saturating_add_signed(ahead_ms) }
    }

    #[test]
    fn a_machine_that_stood_still_finds_out() {
        let mut clock = StreamClock::default();
        assert_eq!(clock.looked_up(at(0, 0), 0, UNIX_MS), 0);
        assert_eq!(clock.looked_up(at(5000, 0), 5000, UNIX_MS + 5000), 0);
        assert_eq!(clock.looked_up(at(6000, 90_000), 6000, UNIX_MS + 96_000), 90_000);
        // The server's clock was set back.
        assert_eq!(clock.looked_up(at(7000, 90_000), 7000, UNIX_MS), 0);
        // An answer that waited for 10 s.
        assert_eq!(clock.looked_up(at(17_000, 0), 7000, UNIX_MS + 1000), 0);
        assert_eq!(clock.ahead_ms(at(17_000, 0)), 7000);
        // Extremes.
        assert_eq!(clock.looked_up(at(8000, 0), 9000, u64::MAX), 0);
        clock.looked_up(at(9000, 0), 0, 0);
    }
}
