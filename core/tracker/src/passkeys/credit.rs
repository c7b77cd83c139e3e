//! Credits a key with the transfers that its peers report, as far as a line can make them.
//!
//! Plain form: a bucket of bytes for each key, which a plausible rate fills and each report empties, and which is
//! full after the longest lifetime of a session: a peer reports at once what it transferred since its last announce.
//! Departure: what is kept is the time up to which the bucket has been emptied. It does not depend on the rate, which
//! can change at any time.
//!
//! The rate is that of a key, of all its peers and both directions together. A peer also gets no more than the rate
//! allows for the time since its own last announce. Another node or process has a bucket of its own: a key whose
//! sessions may come from there begins with a full one.

use types::Tick;

use super::KeyTotals;

/// The limits of the credit of keys.
#[derive(Clone, Copy)]
pub(super) struct CreditRule {
    /// 0 = unlimited.
    pub(super) bytes_per_ms: u64,
    /// Seconds for which a key may be credited at once.
    pub(super) window_s: u32,
    /// True if keys may have transferred something before their first announce here.
    pub(super) begins_full: bool,
}

/// The time up to which a key has been credited what it may have transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// Milliseconds since tick 0; 0 before the first announce.
    spent_ms: u64,
}

impl Credit {
    /// Returns the part of a peer's progress since its last announce, at `since`, that is credited: first the
    /// downloaded bytes, with which a user pays, then the uploaded ones.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: Tick,
        since: Tick,
        rule: CreditRule,
        progress: &KeyTotals,
    ) -> KeyTotals {
        let CreditRule { bytes_per_ms, window_s, begins_full } = rule;
        let is_nothing = progress.uploaded == 0 && progress.downloaded == 0;
        if bytes_per_ms == 0 || is_nothing && self.spent_ms > 0 {
            return *progress;
        }
        // A second that has begun may be over. Two announces in it share it.
        let end_ms = ms(now) + 1000;
        let begin_ms = match self.spent_ms {
            0 if begins_full => 0,
            0 => ms(since),
            spent_ms => spent_ms,
        };
        let begin_ms = begin_ms.max(end_ms.saturating_sub(u64::from(window_s) * 1000)).max(1);
        let left_ms = end_ms.saturating_sub(begin_ms).min(end_ms.saturating_sub(ms(since)));
        let left = left_ms.saturating_mul(bytes_per_ms);
        let downloaded = progress.downloaded.min(left);
        let uploaded = progress.uploaded.min(left - downloaded);
        // Rounded up, so that small reports do not add up to more.
        let used_ms = (downloaded + uploaded).div_ceil(bytes_per_ms);
        self.spent_ms = begin_ms + used_ms;
        KeyTotals { uploaded, downloaded, ..*progress }
    }
}

fn ms(at: Tick) -> u64 {
    u64::from(at.0) * 1000
}

/// Returns the bytes in a millisecond at a rate of `mbit_per_s`.
pub(super) const fn bytes_per_ms(mbit_per_s: u32) -> u64 {
    mbit_per_s as u64 * (1_000_000 / 8 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 GB/s, 45 minutes.
    const RULE: CreditRule =
        CreditRule { bytes_per_ms: 1_000_000, window_s: 2700, begins_full: false };
    const GB: u64 = 1_000_000_000;

    /// Returns the GB of the uploaded `claim` that are credited.
    fn take(credit: &mut Credit, now: u32, since: u32, claim: u64) -> u64 {
        let progress = KeyTotals { uploaded: claim * GB, ..KeyTotals::default() };
        credit.take(Tick(now), Tick(since), RULE, &progress).uploaded / GB
    }

    #[test]
    fn a_second_is_credited_once() {
        let mut credit = Credit::default();
        assert_eq!(take(&mut credit, 100, 100, 0), 0);
        // One second has begun at the first announce, and is over now.
        let claims: Vec<_> = (0..200).map(|_| take(&mut credit, 101, 100, 9)).collect();
        assert_eq!(claims.iter().sum::<u64>(), 2);
        assert_eq!([take(&mut credit, 102, 101, 9), take(&mut credit, 102, 102, 9)], [1, 0]);
        // Unused credit stays for later, but each peer has its own time, too.
        assert_eq!([take(&mut credit, 203, 202, 900), take(&mut credit, 203, 103, 900)], [2, 99]);
        // Another worker's clock may be behind.
        assert_eq!(take(&mut credit, 202, 103, 900), 0);
        assert_eq!(take(&mut credit, 90_000, 204, 90_000), 2700);
    }

    #[test]
    fn a_key_from_elsewhere_begins_with_a_full_bucket() {
        let rule = CreditRule { begins_full: true, ..RULE };
        let progress = KeyTotals { uploaded: 9000 * GB, downloaded: GB, ..KeyTotals::default() };
        let mut credit = Credit::default();
        let begun = credit.take(Tick(50_000), Tick(50_000), rule, &KeyTotals::default());
        assert_eq!(begun, KeyTotals::default());
        let credited = credit.take(Tick(50_000), Tick(49_000), rule, &progress);
        assert_eq!((credited.uploaded, credited.downloaded), (1000 * GB, GB));
        let credited = credit.take(Tick(50_000), Tick(47_000), rule, &progress);
        assert_eq!((credited.uploaded, credited.downloaded), (1698 * GB, GB));
        let unlimited = CreditRule { bytes_per_ms: 0, ..rule };
        assert_eq!(credit.take(Tick(50_000), Tick(50_000), unlimited, &progress), progress);
    }

    /// The line of a seedbox is full all the time, and each of its torrents reports its part once in half an hour.
    #[test]
    fn what_a_full_line_transfers_is_credited() {
        const TORRENTS: usize = 900;
        let mut credit = Credit::default();
        let (mut credited, mut claimed) = (0, 0);
        for now in (0..10_000).step_by(1800 / TORRENTS) {
            let Some(since) = u32::checked_sub(now, 1800) else {
                credit.take(Tick(now), Tick(now), RULE, &KeyTotals::default());
                continue;
            };
            // Torrents with 1 and 3 GB in turn.
            let downloaded = if now % 4 == 0 { GB / 4 } else { 3 * GB / 4 };
            let uploaded = 3 * downloaded;
            let progress = KeyTotals { uploaded, downloaded, ..KeyTotals::default() };
            let taken = credit.take(Tick(now), Tick(since), RULE, &progress);
            (credited, claimed) = (credited + taken.uploaded, claimed + uploaded);
        }
        assert_eq!(credited, claimed);
        assert!(claimed > 1000 * GB);
    }
}
