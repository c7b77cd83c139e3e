//! Stamps: when and where a row was last changed. Of two changes of a row, the one with the later stamp wins.
//!
//! A stamp is 44 bits of unix ms, an 11-bit counter and the number of the node (0 outside clusters). It is a hybrid
//! logical clock: never earlier than the machine's clock, and always later than every stamp that this node has merged.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

/// Longest time by which stamps of other nodes may be ahead of this machine's clock, ms. Later stamps are left out
/// until the clock has caught up.
const AHEAD_MS_MAX: u64 = 3_600_000;
const NODE_BITS: u32 = 8;
const NODE_MASK: i64 = (1 << NODE_BITS) - 1;
const TIME_SHIFT: u32 = 11 + NODE_BITS;

/// A row's stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Stamp(i64);

impl Stamp {
    /// The stamp of rows that an older version of tidegate has written: earlier than every other.
    pub(super) const OLDEST: Self = Self(1 << NODE_BITS);

    /// Returns the first stamp of a time.
    pub(super) fn at(unix_ms: u64) -> Self {
        Self(i64::try_from(unix_ms).unwrap_or(i64::MAX).min(i64::MAX >> TIME_SHIFT) << TIME_SHIFT)
    }

    pub(super) fn unix_ms(self) -> u64 {
        (self.0 >> TIME_SHIFT).unsigned_abs()
    }

    /// Returns the node that changed the row; 0: outside a cluster.
    pub(super) fn node(self) -> u8 {
        (self.0 & NODE_MASK) as u8
    }

    /// Returns true if other nodes must leave the change out when their clock shows `now_ms`.
    pub(super) fn is_refused(self, now_ms: u64) -> bool {
        self.0 <= 0 || self.unix_ms() > now_ms + AHEAD_MS_MAX
    }

    pub(super) fn number(self) -> i64 {
        self.0
    }
}

impl ToSql for Stamp {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, rusqlite::Error> {
        self.0.to_sql()
    }
}

impl FromSql for Stamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

/// The clock of one node, for one transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) node: u8,
    /// The last stamp given or merged.
    pub(super) last: Stamp,
    /// The machine's clock, unix ms.
    pub(super) now_ms: u64,
}

impl Clock {
    /// Returns a stamp that is later than all before.
    pub(super) fn next(&mut self) -> Stamp {
        let after_last = (self.last.0 | NODE_MASK).saturating_add(1);
        self.last = Stamp(Stamp::at(self.now_ms).0.max(after_last) | i64::from(self.node));
        self.last
    }

    /// Returns the machine's clock, Unix time in seconds.
    pub(super) fn now_s(self) -> i64 {
        (self.now_ms / 1000).cast_signed()
    }

    /// Makes the next stamps later than `stamp`.
    pub(super) fn see(&mut self, stamp: Stamp) {
        self.last = self.last.max(stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_increase_whatever_the_machines_clock_does() {
        let mut clock = Clock { node: 7, last: Stamp::default(), now_ms: 1_700_000_000_000 };
        let first = clock.next();
        assert_eq!(first.unix_ms(), clock.now_ms);
        assert!(first.node() == 7 && first > Stamp::OLDEST);
        clock.now_ms -= 5000;
        let second = clock.next();
        assert!(second > first);
        let ahead = Stamp::at(clock.now_ms + 9000);
        clock.see(ahead);
        assert!(clock.next() > ahead);
        // More stamps in a millisecond than the counter has values.
        let many: Vec<_> = (0..5000).map(|_| clock.next()).collect();
        assert!(many.is_sorted_by(|one, next| one < next));
        assert!(many.iter().all(|stamp| stamp.node() == 7));
    }

    #[test]
    fn stamps_far_ahead_are_refused() {
        let now = 1_700_000_000_000;
        assert!(!Stamp::at(now + AHEAD_MS_MAX).is_refused(now));
        assert!(Stamp::at(now + AHEAD_MS_MAX + 1).is_refused(now));
        assert!(Stamp::at(u64::MAX).is_refused(now));
        assert!(Stamp(0).is_refused(now) && Stamp(-1).is_refused(now));
    }
}
