//! Datagrams that were lost in the last minutes, and outcomes of requests: a tracker that refuses nearly all of them looks
//! idle otherwise.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tracker::RequestKind;
use tracker::counters::{Counters, DropReason};
use types::Refusal;

/// Time for which requests count.
const REQUESTS_WINDOW: Duration = Duration::from_secs(300);
/// Time for which losses count.
const LOSSES_WINDOW: Duration = Duration::from_secs(600);
/// Time between two tallies that are kept.
const STEP: Duration = Duration::from_secs(10);
/// Requests in the window from which a share means something.
const REQUESTS_MIN: u64 = 50;
/// Percent of the requests above which a way to end is worth a warning.
const PERCENT: u64 = 90;

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The client got an error.
    Refused(Refusal),
    /// The client got nothing.
    Dropped(DropReason),
}

/// The drops that a setting of the operator causes. Others are faults of clients, or floods.
const DROPS: [DropReason; 6] = [
    DropReason::Banned,
    DropReason::UntrustedProxy,
    DropReason::BadProxyHeader,
    DropReason::ForbiddenOrigin,
    DropReason::TokenUnverified,
    DropReason::BadTls,
];

/// The cause by which nearly all requests ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommonEnding {
    pub(crate) cause: Cause,
    /// Percent of the requests that ended by it.
    pub(crate) percent: u64,
    /// All requests of the window.
    pub(crate) requests: u64,
}

/// Tallies of the last minutes.
#[derive(Default)]
pub(super) struct Recent {
    tallies: VecDeque<Tally>,
    last: Option<Tally>,
}

/// Requests by how they ended, and datagrams that were lost, since the start.
#[derive(Clone)]
struct Tally {
    at: Instant,
    lost: u64,
    served: u64,
    refused: Vec<u64>,
    dropped: Vec<u64>,
}

impl Recent {
    /// Notes the counters of all listeners, and how many datagrams have been lost so far.
    pub(super) fn add(&mut self, at: Instant, counters: &Counters, lost: u64) {
        let tally = Tally::new(at, counters, lost);
        if self.tallies.back().is_none_or(|last| at.duration_since(last.at) >= STEP) {
            self.tallies.push_back(tally.clone());
        }
        self.last = Some(tally);
        while self.tallies.front().is_some_and(|it| at.duration_since(it.at) > LOSSES_WINDOW) {
            self.tallies.pop_front();
        }
    }

    /// Returns the first and the last tally of a window that ends now.
    fn window(&self, window: Duration) -> Option<(&Tally, &Tally)> {
        let last = self.last.as_ref()?;
        let first = self.tallies.iter().find(|it| last.at.duration_since(it.at) <= window)?;
        Some((first, last))
    }

    /// Returns how many datagrams were lost in the last ten minutes.
    pub(super) fn losses(&self) -> u64 {
        self.window(LOSSES_WINDOW).map_or(0, |(first, last)| last.lost.saturating_sub(first.lost))
    }

    pub(super) fn common_ending(&self) -> Option<CommonEnding> {
        let (first, last) = self.window(REQUESTS_WINDOW)?;
        let since = |now: &[u64], old: &[u64]| -> Vec<u64> {
            now.iter().zip(old).map(|(now, old)| now.saturating_sub(*old)).collect()
        };
        let refused = since(&last.refused, &first.refused);
        let dropped = since(&last.dropped, &first.dropped);
        let served = last.served.saturating_sub(first.served);
        let requests = served + refused.iter().sum::<u64>() + dropped.iter().sum::<u64>();
        let refused = Refusal::ALL.into_iter().map(Cause::Refused).zip(refused);
        let dropped = DROPS.into_iter().map(Cause::Dropped).zip(dropped);
        let (cause, count) = refused.chain(dropped).max_by_key(|(_, count)| *count)?;
        let is_common = requests >= REQUESTS_MIN && count * 100 > requests * PERCENT;
        is_common.then(|| CommonEnding { cause, percent: count * 100 / requests, requests })
    }
}

impl Tally {
    fn new(at: Instant, counters: &Counters, lost: u64) -> Self {
        // Connects are answered before it is known how an announce ends. Refusals are responses of another kind.
        let kinds = [RequestKind::Announce, RequestKind::Scrape];
        let answered = |family: &[u64; RequestKind::ALL.len()]| -> u64 {
            kinds.iter().map(|kind| family[kind.index()]).sum()
        };
        Self {
            at,
            lost,
            served: counters.responses.iter().map(answered).sum(),
            refused: counters.refusals.to_vec(),
            dropped: DROPS.iter().map(|reason| counters.drops[reason.index()]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Family;

    use super::*;

    #[test]
    fn names_the_cause_of_nearly_all_requests_of_five_minutes() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        let mut counters = Counters::default();
        let mut add = |second: u64, refusals: u32, served: u32| {
            (0..refusals).for_each(|_| counters.refuse(Refusal::NotAllowed));
            (0..served).for_each(|_| counters.response(Family::V4, RequestKind::Announce));
            // Answered connects and floods change nothing.
            (0..100).for_each(|_| counters.response(Family::V4, RequestKind::Connect));
            (0..100).for_each(|_| counters.drop(DropReason::BadConnectionId));
            recent.add(start + Duration::from_secs(second), &counters, 0);
            recent.common_ending()
        };
        assert_eq!(add(0, 1000, 0), None, "what was before is not counted");
        assert_eq!(add(20, 49, 0), None, "too few");
        let cause = Cause::Refused(Refusal::NotAllowed);
        let all = CommonEnding { cause, percent: 100, requests: 50 };
        assert_eq!(add(21, 1, 0), Some(all));
        assert_eq!(add(30, 0, 5).map(|it| (it.percent, it.requests)), Some((90, 55)));
        assert_eq!(add(40, 0, 1), None, "fewer than nine of ten");
        assert_eq!(add(400, 0, 0), None, "long ago");
    }

    #[test]
    fn losses_are_forgotten_after_ten_minutes() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        for (minute, lost, expected) in
            [(0, 0, 0), (1, 5, 5), (2, 5, 5), (8, 7, 7), (12, 7, 2), (19, 7, 0)]
        {
            recent.add(start + Duration::from_secs(minute * 60), &Counters::default(), lost);
            assert_eq!(recent.losses(), expected, "minute {minute}");
        }
    }
}
