//! Changes of peers, which a journal takes a few times a second.

use replication::block::Change;
use types::PeerId;

/// A shard's changes that have not been taken. Keeps as many as it has room for, so none at first.
#[derive(Default)]
pub(crate) struct ChangeQueue {
    /// Never grows: its capacity is the room.
    changes: Vec<Change>,
    /// The ids of the changed peers, if the store keeps ids.
    ids: Vec<PeerId>,
    keeps_ids: bool,
    /// Changes for which there was no room.
    missed: u64,
}

// A change is less than a cache line, written behind the one before.
const _: () = assert!(size_of::<Change>() == 42);

impl ChangeQueue {
    /// Returns a queue with room for `capacity` changes.
    pub(crate) fn new(capacity: usize, keeps_ids: bool) -> Self {
        // Allocate now, so that no announce has to.
        Self {
            changes: Vec::with_capacity(capacity),
            ids: Vec::with_capacity(if keeps_ids { capacity } else { 0 }),
            keeps_ids,
            missed: 0,
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.changes.capacity() > 0
    }

    #[inline]
    pub(crate) fn push(&mut self, id: &PeerId, change: impl FnOnce() -> Change) {
        if self.is_on() {
            self.append(id, change());
        }
    }

    // Inline copies of it slow down announces that change nothing.
    #[inline(never)]
    fn append(&mut self, id: &PeerId, change: Change) {
        if self.changes.len() == self.changes.capacity() {
            self.missed += 1;
            return;
        }
        self.changes.push(change);
        if self.keeps_ids {
            self.ids.push(*id);
        }
    }

    /// Swaps the changes and their ids for empty vectors. Returns how many changes were lost because
    /// there was no room.
    pub(crate) fn take(&mut self, changes: &mut Vec<Change>, ids: &mut Vec<PeerId>) -> u64 {
        debug_assert!(changes.is_empty() && ids.is_empty());
        if self.changes.capacity() == 0 {
            return 0;
        }
        // Nothing to do for vectors that were swapped before.
        changes.reserve_exact(self.changes.capacity());
        ids.reserve_exact(self.ids.capacity());
        std::mem::swap(&mut self.changes, changes);
        std::mem::swap(&mut self.ids, ids);
        std::mem::take(&mut self.missed)
    }
}
