//! Finds blocks that came to the log much later than they were cut.

/// Blocks that come later than this add no peers: a removal that was cut after them may be forgotten. The rest of
/// [`swarm::REMOVALS_KEPT_S`] is for clocks that differ.
const LATE_MS: i64 = 45_000;
/// A node that stores a block so late tells of its peers again, because others may not have added them.
pub(crate) const TELL_AGAIN_MS: u64 = 30_000;
/// How long the shortest delay is remembered: one to two of these.
const WINDOW_MS: u64 = 60_000;

const _: () = assert!(TELL_AGAIN_MS < LATE_MS as u64);
const _: () = assert!(LATE_MS < 1000 * swarm::REMOVALS_KEPT_S as i64);

/// The shortest delay between cutting and storing that was seen lately: clocks of nodes and servers differ, so a delay
/// is long or short only beside others.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    window_ms: u64,
    shortest: Option<i64>,
    /// That of the window before.
    before: Option<i64>,
}

impl Delays {
    /// Notes a block that was cut at `cut_ms` and stored at `stored_ms`, unix ms by the clocks of a node and of a server.
    /// Returns true if that took much longer than for other blocks. `now_ms` is of the steady clock.
    pub(crate) fn is_late(&mut self, now_ms: u64, cut_ms: u64, stored_ms: u64) -> bool {
        if now_ms >= self.window_ms + WINDOW_MS {
            self.window_ms = now_ms;
            self.before = self.shortest.take();
        }
        let delay = (stored_ms as i64).saturating_sub_unsigned(cut_ms);
        let shortest = self.shortest.map_or(delay, |known| known.min(delay));
        self.shortest = Some(shortest);
        delay - self.before.map_or(shortest, |known| known.min(shortest)) >= LATE_MS
    }
}

/// Returns true if a block that comes now was cut so long ago that it may be late.
pub(crate) fn is_old(now_unix_ms: u64, cut_ms: u64) -> bool {
    (now_unix_ms as i64).saturating_sub_unsigned(cut_ms) >= LATE_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_late_beside_others() {
        for offset in [-1_000_000, 0, 5_000_000] {
            let mut delays = Delays::default();
            let mut late = |now_ms: u64, delay_ms: i64| {
                let cut_ms = 1_700_000_000_000 + now_ms;
                delays.is_late(now_ms, cut_ms, cut_ms.saturating_add_signed(offset + delay_ms))
            };
            assert!(!late(1000, 30));
            assert!(!late(1100, 44_000) && late(1200, 45_100) && !late(1300, 10));
            // The shortest delay is remembered, but not for ever: the server's clock may have been set.
            assert!(late(59_000, 90_000) && late(100_000, 90_000));
            assert!(!late(200_000, 90_000));
        }
    }
}
