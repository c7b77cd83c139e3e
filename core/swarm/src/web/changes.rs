//! Changes of WebTorrent peers, for the other nodes of a cluster.

use replication::block::WebChange;

/// A shard's changes of WebTorrent peers that have not been taken. Keeps none at first.
#[derive(Default)]
pub(crate) struct WebChangeQueue {
    changes: Vec<WebChange>,
    /// Most changes kept; 0 = none are.
    capacity: usize,
    /// Changes for which there was no room.
    missed: u64,
}

impl WebChangeQueue {
    /// Keeps up to `capacity` changes from now on. 0 drops all and stops.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        if capacity == 0 {
            *self = Self::default();
        }
        self.capacity = capacity;
    }

    pub(crate) fn push(&mut self, change: impl FnOnce() -> WebChange) {
        if self.capacity == 0 {
            return;
        }
        if self.changes.len() < self.capacity {
            self.changes.push(change());
        } else {
            self.missed += 1;
        }
    }

    /// Moves the changes to `changes`. Returns how many were lost because there was no room.
    pub(crate) fn drain_into(&mut self, changes: &mut Vec<WebChange>) -> u64 {
        changes.append(&mut self.changes);
        std::mem::take(&mut self.missed)
    }
}
