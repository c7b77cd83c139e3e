//! Events of the tracker, published to event streams and webhooks.
//!
//! Publishing never waits for a subscriber. A subscriber that falls behind misses events and learns how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::annotation::{Annotation, AnnotationKind};
use crate::clock::since_epoch;
use crate::json::json_text;
use crate::named::named;
use utoipa::ToSchema;

/// Events queued for the slowest subscriber.
const QUEUE_MAX: usize = 4096;
/// Annotations that wait to be kept. They are taken each second.
const ANNOTATIONS_MAX: usize = 100;
/// Networks banned automatically within a minute that are a wave worth an annotation.
const BAN_WAVE: u32 = 10;
/// Seconds in which bans are counted.
const BAN_WAVE_S: u64 = 60;

named! {
    /// The kind of an event.
    pub enum EventKind {
        TorrentAdded = "torrent_added", "A torrent was announced for the first time.";
        TorrentRemoved = "torrent_removed", "A torrent was removed.";
        Completed = "completed", "A peer completed a torrent.";
        Ban = "ban", "A network was banned, through the API or automatically.";
        KeyFirstUsed = "key_first_used", "A key was used for the first time.";
        Reload = "reload", "Configuration and lists were reloaded, or a reload failed.";
        Warning = "warning", "Something needs your attention.";
        /// Posted to webhooks only.
        Accounting = "accounting",
            "What users transferred, for a private site: posted in batches until they are accepted.";
    }
}

/// An event.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Event {
    /// Sequence number, from 1 at the start of the process.
    pub id: u64,
    /// Unix time, seconds.
    pub time: u64,
    /// The kind of event.
    pub kind: EventKind,
    /// Details; their fields depend on the kind.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// Passes events to all subscribers.
#[derive(Debug)]
pub struct EventHub {
    subscribers: broadcast::Sender<Arc<Event>>,
    published: AtomicU64,
    noted: Mutex<Noted>,
}

/// Annotations and automatic bans that are noted for the history of statistics.
#[derive(Debug, Default)]
struct Noted {
    annotations: Vec<Annotation>,
    /// When counting of automatic bans began, and how many there were since.
    bans: (u64, u32),
}

impl Default for EventHub {
    fn default() -> Self {
        let (published, noted) = Default::default();
        Self { subscribers: broadcast::Sender::new(QUEUE_MAX), published, noted }
    }
}

impl EventHub {
    /// Publishes an event to all current subscribers.
    pub fn publish(&self, kind: EventKind, data: Value) {
        let id = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        let time = since_epoch(SystemTime::now()).as_secs();
        self.noted.lock().event(kind, time, &data);
        // Fails only without subscribers.
        let _ = self.subscribers.send(Arc::new(Event { id, time, kind, data }));
    }

    /// Keeps an annotation of this moment for the history of statistics.
    pub fn annotate(&self, kind: AnnotationKind, text: impl Into<String>) {
        let time = since_epoch(SystemTime::now()).as_secs();
        self.noted.lock().add(time, kind, text.into());
    }

    /// Returns the annotations since the last call.
    pub(crate) fn take_annotations(&self) -> Vec<Annotation> {
        std::mem::take(&mut self.noted.lock().annotations)
    }

    /// Returns whether there are subscribers.
    pub fn has_subscribers(&self) -> bool {
        self.subscribers() > 0
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers.receiver_count()
    }

    /// Subscribes to events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.subscribers.subscribe()
    }

    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }
}

impl Noted {
    fn add(&mut self, time: u64, kind: AnnotationKind, text: String) {
        if self.annotations.len() < ANNOTATIONS_MAX {
            self.annotations.push(Annotation { time, kind, text });
        }
    }

    /// Notes an event if it is worth an annotation.
    fn event(&mut self, kind: EventKind, time: u64, data: &Value) {
        let count = |name: &str| data[name].as_array().map_or(0, Vec::len);
        match kind {
            EventKind::Reload if count("problems") > 0 => {
                self.add(time, AnnotationKind::ReloadFailed, "Reload failed".into());
            }
            EventKind::Reload => {
                let text = match count("changed") {
                    0 => "Reloaded".into(),
                    1 => "Reloaded: 1 setting changed".into(),
                    changed => format!("Reloaded: {changed} settings changed"),
                };
                self.add(time, AnnotationKind::Reload, text);
            }
            EventKind::Ban if data["automatic"] == true => {
                let (since, bans) = self.bans;
                self.bans = if time < since + BAN_WAVE_S { (since, bans + 1) } else { (time, 1) };
                if self.bans.1 == BAN_WAVE {
                    let text = format!("{BAN_WAVE} networks and more banned within a minute");
                    self.add(time, AnnotationKind::BanWave, text);
                }
            }
            _ => {}
        }
    }
}

impl Event {
    pub(crate) fn to_json(&self) -> String {
        json_text(self)
    }
}

impl EventKind {
    pub(crate) fn from_label(label: &str) -> Option<Self> {
        Self::all().find(|kind| kind.label() == label)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reloads_and_waves_of_bans_are_annotated() {
        use AnnotationKind::{BanWave, Reload, ReloadFailed, Stop};
        let hub = EventHub::default();
        hub.publish(EventKind::Reload, json!({ "changed": ["a", "b"], "needs_restart": [] }));
        hub.publish(EventKind::Reload, json!({ "problems": ["x"] }));
        hub.publish(EventKind::Completed, json!({}));
        (0..2 * BAN_WAVE).for_each(|_| hub.publish(EventKind::Ban, json!({ "automatic": true })));
        (0..BAN_WAVE).for_each(|_| hub.publish(EventKind::Ban, json!({ "automatic": false })));
        hub.annotate(Stop, "Stopped");
        let kinds: Vec<_> = hub.take_annotations().into_iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [Reload, ReloadFailed, BanWave, Stop]);
        assert!(hub.take_annotations().is_empty());
    }

    #[test]
    fn bans_that_are_far_apart_are_no_wave() {
        let mut noted = Noted::default();
        for time in 0..3 * u64::from(BAN_WAVE) {
            noted.event(EventKind::Ban, 10 * time, &json!({ "automatic": true }));
        }
        assert!(noted.annotations.is_empty());
    }
}
