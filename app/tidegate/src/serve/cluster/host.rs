//! The tracker as the host of the cluster's thread, which reads its state and imports into it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cluster::{Figures, Host, PeerTimes, Store};
use front::Clock;
use replication::{Now, SharedAccounts};
use tracker::counters::MetricsRegistry;
use tracker::{RequestKind, Service, SessionOrigin, SessionWalk, Tracker};

use crate::serve::time::unix_ms;
use crate::serve::transfer::SESSIONS_BYTES;

pub(super) struct TrackerHost {
    tracker: Arc<Tracker>,
    clock: Clock,
    registry: Arc<MetricsRegistry>,
    /// When announces were last counted, and how many there were.
    announces: Mutex<(Instant, u64)>,
    session_changes: Mutex<SessionWalk>,
    accounts: Option<Arc<dyn SharedAccounts>>,
}

impl TrackerHost {
    pub(super) fn new(
        tracker: Arc<Tracker>,
        clock: Clock,
        registry: Arc<MetricsRegistry>,
        accounts: Option<Arc<dyn SharedAccounts>>,
    ) -> Self {
        tracker.passkeys().keep_session_changes();
        let announces = Mutex::new((Instant::now(), 0));
        let session_changes = Mutex::new(SessionWalk::of_changes());
        Self { tracker, clock, registry, announces, session_changes, accounts }
    }

    fn announces_per_s(&self) -> u64 {
        let kind = RequestKind::Announce.index();
        let count = |counters: &tracker::counters::Counters| -> u64 {
            counters.responses.iter().filter_map(|family| family.get(kind)).sum()
        };
        let all: u64 = self.registry.read().iter().map(|(_, counters)| count(counters)).sum();
        let mut last = self.announces.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, before) = std::mem::replace(&mut *last, (Instant::now(), all));
        let seconds = at.elapsed().as_secs_f64();
        if seconds > 0.0 { (all.saturating_sub(before) as f64 / seconds).round() as u64 } else { 0 }
    }
}

impl Host for TrackerHost {
    fn store(&self) -> &Store {
        self.tracker.store()
    }

    fn now(&self) -> Now {
        Now { tick: self.clock.now(), unix_ms: unix_ms() }
    }

    fn peer_times(&self) -> PeerTimes {
        let settings = self.tracker.settings();
        // The longest that any node may hand out.
        let longest = settings.policy.interval(Service::Udp4, settings.pacing().stretch_max);
        let interval_s = longest.interval_s.saturating_add(longest.jitter_s);
        PeerTimes { lifetime_s: settings.lifetimes().peer_s, interval_s }
    }

    fn figures(&self) -> Figures {
        let totals = self.tracker.totals();
        let peers = [totals.v4, totals.v6, totals.web].map(|it| it.seeders + it.leechers);
        let announces_per_s = self.announces_per_s();
        Figures { peers, torrents: totals.torrents, announces_per_s }
    }

    fn take_sessions(&self, now: Now, body: &mut Vec<u8>) -> bool {
        let mut walk = self.session_changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.tracker.passkeys().export_sessions(now.tick, &mut walk, SESSIONS_BYTES, body)
    }

    fn import_sessions(&self, now: Now, ago_s: u32, body: &[u8]) {
        // A body that does not add up is of another version.
        let _ = self.tracker.import_sessions(now.tick, ago_s, SessionOrigin::OtherNode, body);
    }

    fn accounts(&self) -> Option<&Arc<dyn SharedAccounts>> {
        self.accounts.as_ref()
    }
}
