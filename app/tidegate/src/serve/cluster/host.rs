//! The process as the cluster's thread sees it: tracker, records and messages between browsers; and the cluster as
//! management sees it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use admin::Records;
use admin::records::{self, ReplicationState};
use cluster::nats::Status;
use cluster::{
    BoxFuture, ClusterNode, ClusterRecords, ClusterStatus, Figures, Host, Identity, Letters,
    PeerTimes, Rows, RowsError, RowsPart, Store,
};
use front::Clock;
use front::webtorrent::RemoteLetters;
use replication::{Now, SharedAccounts};
use tracker::counters::MetricsRegistry;
use tracker::{RequestKind, Service, SessionOrigin, SessionWalk, Tracker};

use super::LiveSecrets;
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
        let _ = self.tracker.import_sessions(now.tick, ago_s, SessionOrigin::OtherNode, body);
    }

    fn accounts(&self) -> Option<&Arc<dyn SharedAccounts>> {
        self.accounts.as_ref()
    }
}

/// WebTorrent messages between browsers at different nodes.
pub(super) struct WorkerLetters {
    letters: Arc<OnceLock<RemoteLetters>>,
    since: Instant,
}

impl WorkerLetters {
    pub(super) fn new(letters: Arc<OnceLock<RemoteLetters>>) -> Option<Self> {
        letters.get()?;
        Some(Self { letters, since: Instant::now() })
    }
}

impl Letters for WorkerLetters {
    fn wait(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.letters.get() {
                Some(letters) => letters.wait().await,
                None => std::future::pending().await,
            }
        })
    }

    fn take(&self) -> Vec<(u8, Vec<u8>)> {
        self.letters.get().map(|letters| letters.take(self.since.elapsed())).unwrap_or_default()
    }

    fn deliver(&self, from: u8, body: &[u8]) -> bool {
        self.letters.get().is_some_and(|letters| letters.deliver(from, body).is_ok())
    }
}

pub(super) struct RecordRows(pub(super) Arc<Records>);

impl Rows for RecordRows {
    fn digests(&self) -> Vec<u64> {
        self.0.digests()
    }

    fn range_digests(&self, kind: u8) -> Vec<u64> {
        self.0.range_digests(kind)
    }

    fn next_changes(&self) -> BoxFuture<'_, Vec<u8>> {
        Box::pin(self.0.next_changes())
    }

    fn read_ranges(
        &self,
        kind: u8,
        ranges: Vec<u16>,
        cursor: Vec<u8>,
    ) -> BoxFuture<'_, Result<RowsPart, RowsError>> {
        Box::pin(async move {
            let records::RowsPart { body, next } = self.0.read_ranges(kind, ranges, cursor).await?;
            Ok(RowsPart { body, next })
        })
    }

    fn merge(&self, from: u8, body: Vec<u8>) -> BoxFuture<'_, Result<(), RowsError>> {
        Box::pin(async move { Ok(self.0.merge(from, body).await?) })
    }
}

pub(super) struct StatusSource {
    pub(super) identity: Identity,
    pub(super) status: Arc<Status>,
    pub(super) tracker: Arc<Tracker>,
    pub(super) letters: Arc<OnceLock<RemoteLetters>>,
    pub(super) records: Arc<Records>,
    pub(super) is_ignored: Arc<AtomicBool>,
    pub(super) secrets: Arc<LiveSecrets>,
}

impl StatusSource {
    pub(super) fn read(&self) -> ClusterStatus {
        let mut status = self.identity.status(self.status.overview());
        status.secret_number = self.secrets.number();
        self.add_letters(&mut status);
        add_records(&mut status.records, self.records.replication());
        if let Some(own) = status.own() {
            self.complete(own);
        }
        status.judged()
    }

    fn add_letters(&self, status: &mut ClusterStatus) {
        let letters = self.letters.get().map(RemoteLetters::counts).unwrap_or_default();
        status.add_letters("sent", [("published", letters.sent), ("dropped", letters.unsent)]);
        let received = [
            ("delivered", letters.delivered),
            ("gone", letters.gone),
            ("mailbox_full", letters.mailbox_full),
            ("misaddressed", letters.misaddressed),
        ];
        status.add_letters("received", received);
    }

    fn complete(&self, own: &mut ClusterNode) {
        let totals = self.tracker.totals();
        let peers = [totals.v4, totals.v6, totals.web].map(|it| it.seeders + it.leechers);
        own.peers = peers.iter().sum();
        own.torrents = totals.torrents;
        own.ignored = self.is_ignored.load(Ordering::Relaxed);
    }
}

fn add_records(into: &mut ClusterRecords, records: &ReplicationState) {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    into.left_out = load(&records.unsent);
    into.merged = load(&records.merged);
    into.stale = load(&records.stale);
    into.rejected = load(&records.rejected);
    into.unknown = load(&records.unknown);
    into.tombstones = load(&records.tombstones);
}
