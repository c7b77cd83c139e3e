//! What happens, told to whoever listens: streams of events and webhooks.
//!
//! Nobody waits for a listener: what one does not take in time, it misses, and is told how much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;
use utoipa::ToSchema;

/// Events that wait for the slowest listener.
const QUEUE_MAX: usize = 4096;

/// What kind of thing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A torrent was announced for the first time.
    TorrentAdded,
    /// A torrent is known no more.
    TorrentRemoved,
    /// A peer completed a torrent.
    Completed,
    /// A network was banned, by hand or by itself.
    Ban,
    /// A key was used for the first time.
    KeyFirstUsed,
    /// Configuration and lists were read again.
    Reload,
    /// Something that the operator should look at.
    Warning,
}

/// Something that has happened.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Event {
    /// Grows by one with each, from 1 at the start.
    pub id: u64,
    /// Seconds since 1970.
    pub time: u64,
    /// What kind of thing it is.
    pub kind: EventKind,
    /// What is to be known of it; what that is depends on the kind.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// Where events go through.
#[derive(Debug)]
pub struct EventHub {
    listeners: broadcast::Sender<Arc<Event>>,
    published: AtomicU64,
}

impl Default for EventHub {
    fn default() -> Self {
        Self { listeners: broadcast::Sender::new(QUEUE_MAX), published: AtomicU64::new(0) }
    }
}

impl EventHub {
    /// Tells all who listen now.
    pub fn publish(&self, kind: EventKind, data: Value) {
        let id = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = time.unwrap_or_default().as_secs();
        // Where nobody listens there is nobody to tell.
        let _ = self.listeners.send(Arc::new(Event { id, time, kind, data }));
    }

    /// Whether anybody listens.
    pub fn has_subscribers(&self) -> bool {
        self.listeners.receiver_count() > 0
    }

    /// Listens from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<Event>> {
        self.listeners.subscribe()
    }

    /// Events so far.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::TorrentAdded,
        Self::TorrentRemoved,
        Self::Completed,
        Self::Ban,
        Self::KeyFirstUsed,
        Self::Reload,
        Self::Warning,
    ];

    /// Its name in the API.
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
