//! Connects the records with the memory of the tracker and of the API: collects what the hot path has
//! counted, and applies changes once they are committed.

use std::sync::Arc;

use rusqlite::Connection;
use serde_json::json;
use tracing::warn;
use tracker::access::HashList;
use tracker::{DownloadsChange, IpPrefix, KeyId, KeyTotals, SiteKeyRule, Tracker};

use crate::api::Api;
use crate::control::Command;
use crate::events::EventKind;
use crate::records::tables::bans::BanRow;
use crate::records::tables::lists::List;
use crate::records::tables::settings;
use crate::records::{ChangeSource, LiveState, PendingCounts, RecordOp};
use crate::restore::{self, apply_key, edit_list};

/// The memory of the tracker and of the API, for the writer of the records.
pub struct Live(Arc<Api>);

impl Live {
    /// Returns the memory of `api` and of its tracker.
    pub fn new(api: Arc<Api>) -> Self {
        Self(api)
    }

    /// Does what handlers of the API do for their own changes.
    fn apply_of_cluster(&self, change: &RecordOp, db: &Connection) {
        let (api, tracker) = (&*self.0, self.0.tracker());
        match change {
            RecordOp::SettingsPut(_) => match settings::all(db) {
                Ok(values) => api.apply_settings(values),
                Err(error) => warn!(%error, "settings of another node not applied"),
            },
            RecordOp::TorrentRemoved { hash } => {
                tracker.store().remove(hash);
            }
            RecordOp::PeersRemoved { address } => {
                tracker.store().remove_peers_at(*address);
            }
            _ => {}
        }
    }

    fn put_bans(&self, rows: &[BanRow]) {
        let now = self.0.clock_reading();
        let ban = |row: &BanRow| {
            let network = row.network.parse::<IpPrefix>();
            let network = network.inspect_err(|_| {
                warn!(network = row.network, "malformed ban was not applied");
            });
            Some((network.ok()?, row.expires.map(|time| now.tick_at(time))))
        };
        self.0.tracker().bans().put(&rows.iter().filter_map(ban).collect::<Vec<_>>());
    }
}

impl List {
    /// Returns the list in the tracker's memory; `None` for the frozen torrents.
    pub(crate) fn live_list(self, tracker: &Tracker) -> Option<&HashList> {
        match self {
            Self::Allow => Some(tracker.allowed()),
            Self::Deny => Some(tracker.denied()),
            Self::Frozen => None,
        }
    }

    /// Returns the lists of files that hold beside the list in the tracker's memory, each once.
    pub(crate) fn files(self, tracker: &Tracker) -> Vec<Arc<HashList>> {
        match self {
            Self::Allow => tracker.allow_files(),
            Self::Deny => tracker.deny_files(),
            Self::Frozen => Vec::new(),
        }
    }

    /// Returns the number of entries, with those of files. An entry of several lists counts for each.
    pub(crate) fn all_entries(self, tracker: &Tracker) -> usize {
        let live = self.live_list(tracker).map_or(0, HashList::len);
        live + self.files(tracker).iter().map(|list| list.len()).sum::<usize>()
    }
}

impl LiveState for Live {
    fn collect(&mut self, pending: &mut PendingCounts) {
        let (now, tracker) = (self.0.clock_reading(), self.0.tracker());
        tracker.downloads().take_changed(|change| match change {
            DownloadsChange::Removed(torrent) => pending.remove_downloads(torrent),
            DownloadsChange::Added(torrent, added) => pending.add_downloads(torrent, added),
        });
        let mut totals: Vec<(KeyId, KeyTotals)> = Vec::new();
        tracker.passkeys().take_totals(&mut totals);
        totals.into_iter().for_each(|(KeyId(key), delta)| pending.add(key, delta));
        let mut first_uses = Vec::new();
        tracker.passkeys().take_first_uses(&mut first_uses);
        pending.first_uses.extend(first_uses.into_iter().map(|KeyId(key)| (key, now.time)));
        let mut banned = Vec::new();
        tracker.bans().take_automatic(&mut banned);
        for (network, until, reason) in banned {
            let expires = until.map(|tick| now.time_at(tick));
            let (network, reason) = (network.to_string(), reason.label());
            let data = json!({ "network": network, "reason": reason, "automatic": true, "expires": expires });
            self.0.hub().publish(EventKind::Ban, data);
            let (reason, created) = (reason.into(), now.time);
            pending.bans.push(BanRow { network, reason, automatic: true, created, expires });
        }
        self.0.keep_annotations();
        self.0.recorder.collect(&mut pending.history);
    }

    fn on_written(&mut self, first_uses: &[u32]) {
        for key in first_uses {
            self.0.hub().publish(EventKind::KeyFirstUsed, json!({ "key": key }));
        }
    }

    fn take_over(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        restore::take_over(self.0.tracker(), db, self.0.clock_reading())
    }

    fn apply(&mut self, change: RecordOp, source: ChangeSource<'_>) {
        let (api, tracker) = (&*self.0, self.0.tracker());
        if let RecordOp::SettingsPut(values) = &change
            && let Some((_, Some(secrets))) =
                values.iter().find(|(name, _)| name == settings::SECRETS)
        {
            api.control(Command::SecretsRecorded(secrets.clone()));
        }
        match change {
            RecordOp::ListAdded { list, hashes } => edit_list(tracker, list, &hashes, true),
            RecordOp::ListRemoved { list, hashes } => edit_list(tracker, list, &hashes, false),
            RecordOp::ReasonsPut(rows) => restore::put_reasons(tracker, &rows),
            RecordOp::ReasonsRemoved { hashes } => tracker.torrent_reasons().remove(&hashes),
            RecordOp::KeyPut(row) => apply_key(tracker, &row, api.clock_reading()),
            RecordOp::KeyRemoved { id } => {
                tracker.passkeys().remove(KeyId(id));
                if let Some(site) = tracker.site() {
                    site.set_key_rule(KeyId(id), SiteKeyRule::default());
                }
            }
            RecordOp::BansPut(rows) => self.put_bans(&rows),
            RecordOp::BanRemoved { network } => {
                if let Ok(network) = network.parse::<IpPrefix>() {
                    tracker.bans().remove(&[network]);
                }
            }
            RecordOp::TokenPut(row) => api.authenticator().add(row),
            RecordOp::TokenRemoved { id } => api.forget_token(id),
            RecordOp::WebhookPut(row) => api.webhooks().add(row),
            RecordOp::WebhookRemoved { id } => api.webhooks().remove(id),
            RecordOp::NodeIgnored { node, is_ignored } => {
                api.control(Command::NodeIgnored { node, is_ignored });
            }
            RecordOp::DownloadsAdded(added) if tracker.downloads().is_on() => {
                tracker.downloads().add(added.into_iter());
            }
            // In the records only. Of a changed key and of downloads, the result comes instead.
            RecordOp::KeyChanged { .. }
            | RecordOp::KeyTotals { .. }
            | RecordOp::Downloads { .. }
            | RecordOp::DownloadsAdded(_) => {}
            RecordOp::SettingsPut(_)
            | RecordOp::TorrentRemoved { .. }
            | RecordOp::PeersRemoved { .. } => {
                if let ChangeSource::Cluster(db) = source {
                    self.apply_of_cluster(&change, db);
                }
            }
        }
    }
}
