//! Outcomes of the requests of the last minutes: a tracker that refuses nearly all of them looks idle otherwise.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tracker::RequestKind;
use tracker::counters::{Counters, DropReason};
use types::Refusal;

/// Length of the window: older requests are ignored.
const WINDOW: Duration = Duration::from_secs(300);
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
pub(super) struct Endings {
    recent: VecDeque<(Instant, Tally)>,
    last: Option<Tally>,
}

/// Requests by how they ended, since the start.
#[derive(Clone)]
struct Tally {
    served: u64,
    refused: Vec<u64>,
    dropped: Vec<u64>,
}

impl Endings {
    /// Notes the counters of all listeners.
    pub(super) fn add(&mut self, now: Instant, counters: &Counters) {
        let tally = Tally::new(counters);
        if self.recent.back().is_none_or(|(at, _)| now.duration_since(*at) >= STEP) {
            self.recent.push_back((now, tally.clone()));
        }
        self.last = Some(tally);
        while self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.recent.pop_front();
        }
    }

    pub(super) fn common(&self) -> Option<CommonEnding> {
        let (first, last) = (&self.recent.front()?.1, self.last.as_ref()?);
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
    fn new(counters: &Counters) -> Self {
        // Connects are answered before it is known how an announce ends. Refusals are responses of another kind.
        let kinds = [RequestKind::Announce, RequestKind::Scrape];
        let answered = |family: &[u64; RequestKind::ALL.len()]| -> u64 {
            kinds.iter().map(|kind| family[kind.index()]).sum()
        };
        Self {
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
        let (mut endings, start) = (Endings::default(), Instant::now());
        let mut counters = Counters::default();
        let mut add = |second: u64, refusals: u32, served: u32| {
            (0..refusals).for_each(|_| counters.refuse(Refusal::NotAllowed));
            (0..served).for_each(|_| counters.response(Family::V4, RequestKind::Announce));
            // Answered connects and floods change nothing.
            (0..100).for_each(|_| counters.response(Family::V4, RequestKind::Connect));
            (0..100).for_each(|_| counters.drop(DropReason::BadConnectionId));
            endings.add(start + Duration::from_secs(second), &counters);
            endings.common()
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
}
