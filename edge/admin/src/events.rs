//! Events of the tracker, published to event streams and webhooks.
//!
//! Publishing never waits for a subscriber. A subscriber that falls behind misses events and learns how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::clock::since_epoch;
use crate::json::json_text;
use crate::schema::ToSchema;

/// Events queued for the slowest subscriber.
const QUEUE_MAX: usize = 4096;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A torrent was announced for the first time.
    TorrentAdded,
    /// A torrent was removed.
    TorrentRemoved,
    /// A peer completed a torrent.
    Completed,
    /// A network was banned, through the API or automatically.
    Ban,
    /// A key was used for the first time.
    KeyFirstUsed,
    /// Configuration and lists were reloaded, or a reload failed.
    Reload,
    /// Something that needs the operator's attention.
    Warning,
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
}

impl Default for EventHub {
    fn default() -> Self {
        Self { subscribers: broadcast::Sender::new(QUEUE_MAX), published: AtomicU64::new(0) }
    }
}

impl EventHub {
    /// Publishes an event to all current subscribers.
    pub fn publish(&self, kind: EventKind, data: Value) {
        let id = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        let time = since_epoch(SystemTime::now()).as_secs();
        // Fails only without subscribers.
        let _ = self.subscribers.send(Arc::new(Event { id, time, kind, data }));
    }

    /// Returns whether there are subscribers.
    pub fn has_subscribers(&self) -> bool {
        self.subscribers() > 0
    }

    /// Returns the number of subscribers.
    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers.receiver_count()
    }

    /// Subscribes to events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.subscribers.subscribe()
    }

    /// Returns the number of events published so far.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }
}

impl Event {
    /// Serializes the event.
    pub(crate) fn to_json(&self) -> String {
        json_text(self)
    }
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::TorrentAdded,
        Self::TorrentRemoved,
        Self::Completed,
        Self::Ban,
        Self::KeyFirstUsed,
        Self::Reload,
        Self::Warning,
    ];

    /// Returns the kind with this label.
    pub(crate) fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }

    /// Returns its name in the API.
    pub fn label(self) -> &'static str {
        match self {
            Self::TorrentAdded => "torrent_added",
            Self::TorrentRemoved => "torrent_removed",
            Self::Completed => "completed",
            Self::Ban => "ban",
            Self::KeyFirstUsed => "key_first_used",
            Self::Reload => "reload",
            Self::Warning => "warning",
        }
    }
}
