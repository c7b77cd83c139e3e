//! Collects what the hot path has counted, for the writer of the records.

use std::sync::Arc;

use serde_json::json;
use tracker::{KeyId, KeyTotals, Tracker};

use crate::clock::ClockReading;
use crate::events::{EventHub, EventKind};
use crate::records::tables::bans::BanRow;
use crate::records::{CountSource, PendingCounts};

/// Takes counts from the tracker, and publishes events about automatic bans and first uses of keys.
pub struct CountCollector {
    tracker: Arc<Tracker>,
    hub: Arc<EventHub>,
    now: Box<dyn Fn() -> ClockReading + Send>,
}

impl CountCollector {
    /// Collects from `tracker` and publishes events to `hub`.
    pub fn new(
        tracker: Arc<Tracker>,
        hub: Arc<EventHub>,
        now: impl Fn() -> ClockReading + Send + 'static,
    ) -> Self {
        Self { tracker, hub, now: Box::new(now) }
    }
}

impl CountSource for CountCollector {
    fn collect(&mut self, pending: &mut PendingCounts) {
        let now = (self.now)();
        self.tracker.downloads().take_changed(&mut pending.downloads);
        let mut totals: Vec<(KeyId, KeyTotals)> = Vec::new();
        self.tracker.passkeys().take_totals(&mut totals);
        totals.into_iter().for_each(|(KeyId(key), delta)| pending.add(key, delta));
        let mut first_uses = Vec::new();
        self.tracker.passkeys().take_first_uses(&mut first_uses);
        pending.first_uses.extend(first_uses.into_iter().map(|KeyId(key)| (key, now.time)));
        let mut banned = Vec::new();
        self.tracker.bans().take_automatic(&mut banned);
        for (network, until, reason) in banned {
            let expires = until.map(|tick| now.time_at(tick));
            let (network, reason) = (network.to_string(), reason.label());
            let data = json!({ "network": network, "reason": reason, "automatic": true, "expires": expires });
            self.hub.publish(EventKind::Ban, data);
            let (reason, created) = (reason.into(), now.time);
            pending.bans.push(BanRow { network, reason, automatic: true, created, expires });
        }
    }

    fn on_written(&mut self, first_uses: &[u32]) {
        for key in first_uses {
            self.hub.publish(EventKind::KeyFirstUsed, json!({ "key": key }));
        }
    }
}
