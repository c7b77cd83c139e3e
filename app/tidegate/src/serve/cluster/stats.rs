//! Reads the state of the cluster: figures of its threads, and what only the application knows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use admin::Records;
use admin::records::ReplicationState;
use cluster::nats::Status;
use cluster::{ClusterNode, ClusterRecords, ClusterStatus, Identity};
use front::webtorrent::RemoteLetters;
use tracker::Tracker;

use super::LiveSecrets;

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
