//! Events of torrents: added, removed, completed.

use types::InfoHash;

/// An event of a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorrentEvent {
    /// Its first peer came.
    Added(InfoHash),
    /// It was removed, or expired some time after its last peer left.
    Removed(InfoHash),
    /// A peer completed its download.
    Completed(InfoHash),
}

/// A shard's events that have not been read. Records nothing while there is no listener.
#[derive(Default)]
pub(crate) struct EventQueue {
    queued: Vec<TorrentEvent>,
    /// Most events kept; 0 while there is no listener.
    capacity: usize,
    missed: u64,
}

impl EventQueue {
    /// Keeps up to `capacity` events from now on. 0 drops all events and stops.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        if capacity == 0 {
            *self = Self::default();
        } else if self.capacity == 0 {
            // Allocate now, so that no announce has to.
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

    /// Moves the events to `events`. Returns how many were lost because the queue was full.
    pub(crate) fn drain_into(&mut self, events: &mut Vec<TorrentEvent>) -> u64 {
        events.append(&mut self.queued);
        std::mem::take(&mut self.missed)
    }
}
