//! Full scrapes: permits for clients, and all torrents in the order of their info hashes.
//!
//! Plain form of the list: collect all torrents, sort, write. Departures:
//! 1. Memory does not grow with the number of torrents. Each page is a pass over the store that keeps the
//!    smallest hashes after those of the last page. With 4 million torrents that is 31 passes, of which
//!    each reads little more than the hashes (`bench/record/2026-11-23-full-scrape.md`).
//! 2. A pass keeps up to twice a page, and selects when that is full. Nothing is assumed of how hashes
//!    are distributed: clients can invent them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use primitives::IpPrefix;
use types::{InfoHash, Refusal, Tick, limits};

use crate::{ListenerPolicyId, Policy, RequestKind, TorrentStats, Tracker, View};

/// The full scrapes that are being sent, and the clients that had one.
#[derive(Default)]
pub(crate) struct FullScrapes {
    /// Shared with each permit.
    running: Arc<()>,
    /// Full scrapes of the last hour, or of the interval if that is longer; the oldest first.
    recent: Mutex<VecDeque<(Tick, IpPrefix)>>,
}

/// Permission for one full scrape, held until it is sent.
#[derive(Debug)]
pub struct FullScrapePermit {
    _running: Arc<()>,
}

/// Seconds for which [`Policy::full_scrapes_per_hour`] counts.
const HOUR_S: u32 = 3600;

impl FullScrapes {
    /// Returns a permit for a client of `prefix`; `None` is a client without limits.
    fn permit(
        &self,
        now: Tick,
        policy: &Policy,
        prefix: Option<IpPrefix>,
    ) -> Result<FullScrapePermit, Refusal> {
        let mut recent = self.recent.lock();
        if let Some(prefix) = prefix {
            check_recent(&mut recent, now, policy, prefix)?;
        }
        // Only here, and under the lock, the number grows. One reference is that of `self`.
        if Arc::strong_count(&self.running) > limits::FULL_SCRAPES_AT_ONCE {
            return Err(Refusal::FullScrapesBusy { wait_min: 1 });
        }
        if let Some(prefix) = prefix {
            if recent.len() >= limits::FULL_SCRAPES_REMEMBERED {
                recent.pop_front();
            }
            recent.push_back((now, prefix));
        }
        Ok(FullScrapePermit { _running: Arc::clone(&self.running) })
    }
}

/// Refuses a client that had a full scrape less than an interval ago, and all if there were too many
/// within the hour. Forgets old ones.
fn check_recent(
    recent: &mut VecDeque<(Tick, IpPrefix)>,
    now: Tick,
    policy: &Policy,
    prefix: IpPrefix,
) -> Result<(), Refusal> {
    let (interval_s, per_hour) = (policy.full_scrape_interval_s, policy.full_scrapes_per_hour);
    let kept_s = interval_s.max(HOUR_S);
    while recent.front().is_some_and(|(at, _)| now.since(*at) >= kept_s) {
        recent.pop_front();
    }
    let wait_min = |at: Tick, of_s: u32| {
        let minutes = of_s.saturating_sub(now.since(at)).div_ceil(60);
        u16::try_from(minutes).unwrap_or(u16::MAX)
    };
    if let Some((at, _)) = recent.iter().rev().find(|(_, known)| *known == prefix)
        && now.since(*at) < interval_s
    {
        return Err(Refusal::FullScrapeTooSoon { wait_min: wait_min(*at, interval_s) });
    }
    let per_hour = per_hour as usize;
    let oldest_of_hour = recent.len().checked_sub(per_hour).and_then(|at| recent.get(at));
    match oldest_of_hour {
        Some((at, _)) if per_hour > 0 && now.since(*at) < HOUR_S => {
            Err(Refusal::FullScrapesBusy { wait_min: wait_min(*at, HOUR_S) })
        }
        _ => Ok(()),
    }
}

impl View<'_> {
    /// Returns a permit for a full scrape of a client at `from`, with the `key` of its URL: the
    /// [order of checks](crate::admission) of a scrape, then whether the listener has full scrapes, and
    /// how many there were. `from` must be verified.
    ///
    /// # Errors
    ///
    /// As [`View::authorize`] for a scrape; then `FullScrape` if the listener has none or is private, and the
    /// errors of [`View::permit_listing`].
    pub fn authorize_full_scrape(
        &self,
        listener_policy: ListenerPolicyId,
        from: IpAddr,
        key: Option<&[u8]>,
    ) -> Result<FullScrapePermit, Refusal> {
        self.authorize(listener_policy, from, RequestKind::Scrape, key)?;
        // At a private listener, any user could list what others share.
        let listener = self.listener(listener_policy);
        if !listener.full_scrape || listener.is_private() {
            return Err(Refusal::FullScrape);
        }
        self.permit_listing(from)
    }

    /// Returns a permit to list all torrents for a client at `from` that may see statistics. It counts as
    /// a full scrape.
    ///
    /// # Errors
    ///
    /// `FullScrapesBusy` if there are as many as the tracker sends at a time. For clients that are not exempt
    /// also `FullScrapeTooSoon` if their prefix had one within [`Policy::full_scrape_interval_s`], and
    /// `FullScrapesBusy` if there were [`Policy::full_scrapes_per_hour`].
    pub fn permit_listing(&self, from: IpAddr) -> Result<FullScrapePermit, Refusal> {
        let prefix = (!self.is_exempt(from)).then(|| self.prefix(from));
        self.tracker.full_scrapes.permit(self.now, &self.settings.policy, prefix)
    }
}

/// All torrents that a listener serves, in the order of their info hashes, page by page. A torrent that
/// comes or goes meanwhile may be missing.
#[derive(Debug)]
pub struct TorrentPages {
    /// Twice a page at most.
    rows: Vec<TorrentStats>,
    page_max: usize,
    /// The last torrent of the last page.
    after: Option<InfoHash>,
    is_at_end: bool,
}

impl TorrentPages {
    /// Returns the pages from the first on. Each has `page_max` torrents at most.
    pub fn new(page_max: usize) -> Self {
        Self { rows: Vec::new(), page_max: page_max.max(1), after: None, is_at_end: false }
    }

    /// Reads the next page, by a pass over the store that holds no lock for long. Returns `None` at the
    /// end. A page may be empty, because lists refuse its torrents.
    pub fn next_page(
        &mut self,
        tracker: &Tracker,
        listener_policy: ListenerPolicyId,
    ) -> Option<&[TorrentStats]> {
        if self.is_at_end {
            return None;
        }
        self.read(tracker);
        let settings = tracker.settings();
        let lists = &listener_policy.of(&settings.listeners).lists;
        if !lists.serve_all(&tracker.live) {
            self.rows.retain(|row| lists.admit(&tracker.live, &row.info_hash).is_ok());
        }
        if tracker.downloads.is_on() {
            for TorrentStats { info_hash, counts, .. } in &mut self.rows {
                tracker.downloads.raise(info_hash, &mut counts.downloads);
            }
        }
        Some(&self.rows)
    }

    /// Replaces the rows with the smallest hashes after the last page.
    fn read(&mut self, tracker: &Tracker) {
        let Self { rows, page_max, after, .. } = self;
        rows.clear();
        // Hashes above this one are not among the smallest.
        let until = Cell::new(None);
        let is_wanted = |hash: &InfoHash| {
            after.is_none_or(|after| *hash > after)
                && until.get().is_none_or(|until| *hash <= until)
        };
        tracker.store.each_torrent_where(is_wanted, |stats| {
            rows.push(*stats);
            if rows.len() >= 2 * *page_max {
                let (_, largest, _) =
                    rows.select_nth_unstable_by_key(*page_max - 1, |row| row.info_hash);
                until.set(Some(largest.info_hash));
                rows.truncate(*page_max);
            }
        });
        rows.sort_unstable_by_key(|row| row.info_hash);
        self.is_at_end = until.get().is_none() && rows.len() <= *page_max;
        rows.truncate(*page_max);
        *after = rows.last().map(|row| row.info_hash);
        // A torrent that moved meanwhile was visited twice.
        rows.dedup_by_key(|row| row.info_hash);
    }
}

#[cfg(test)]
mod tests;
