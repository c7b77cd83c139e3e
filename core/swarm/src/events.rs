//! Torrents that come, go and are completed, for whoever listens.

use types::InfoHash;

/// What has happened to a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorrentEvent {
    /// Its first peer has come.
    Added(InfoHash),
    /// It was removed, or forgotten some time after its last peer had left.
    Removed(InfoHash),
    /// A peer has ended its download.
    Completed(InfoHash),
}

/// What a shard has heard and nobody has taken yet: nothing, unless somebody listens.
#[derive(Default)]
pub(crate) struct EventQueue {
    queued: Vec<TorrentEvent>,
    /// Events that are kept; 0 while nobody listens.
    capacity: usize,
    missed: u64,
}

impl EventQueue {
    /// Keeps up to `capacity` events from now on; 0 forgets all and stops.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        if capacity == 0 {
            *self = Self::default();
        } else if self.capacity == 0 {
            // At once, so that no announce waits for memory.
            *self = Self { queued: Vec::with_capacity(capacity), capacity, missed: 0 };
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: impl FnOnce() -> TorrentEvent) {
        if self.capacity == 0 {
            return;
        }
        if self.queued.len() < self.capacity {
            self.queued.push(event());
        } else {
            self.missed += 1;
        }
    }

    /// Moves what was heard to `events`, and says how much was not kept.
    pub(crate) fn drain_into(&mut self, events: &mut Vec<TorrentEvent>) -> u64 {
        events.append(&mut self.queued);
        std::mem::take(&mut self.missed)
    }
}
