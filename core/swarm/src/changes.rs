//! Changes of peers, which a journal takes a few times a second.

use types::{InfoHash, PeerId, PeerKey};

use crate::StoreAnnounce;
use crate::block::{Change, Word};

/// A shard's changes that have not been taken. Keeps nothing unless it was given room.
#[derive(Default)]
pub(crate) struct ChangeQueue {
    changes: Vec<Change>,
    /// The ids of the changed peers, if the store keeps ids.
    ids: Vec<PeerId>,
    keeps_ids: bool,
    /// Most changes kept; 0 while none are.
    capacity: usize,
    missed: u64,
}

// A change is one store into memory that is already cached: it should stay within a cache line.
const _: () = assert!(size_of::<Change>() <= 44);

impl ChangeQueue {
    /// Returns a queue that keeps up to `capacity` changes, or none if that is 0.
    pub(crate) fn new(capacity: usize, keeps_ids: bool) -> Self {
        // Allocate now, so that no announce has to.
        Self {
            changes: Vec::with_capacity(capacity),
            ids: Vec::with_capacity(if keeps_ids { capacity } else { 0 }),
            keeps_ids,
            capacity,
            missed: 0,
        }
    }

    /// Keeps what an announce did to its peer, if changes are kept.
    #[inline]
    pub(crate) fn push(&mut self, announce: &StoreAnnounce, word: impl FnOnce() -> Word) {
        if self.capacity > 0 {
            let StoreAnnounce { info_hash, peer, .. } = *announce;
            self.append(Change { info_hash, peer, word: word() }, announce.peer_id);
        }
    }

    /// Keeps the removal of a peer, if changes are kept.
    #[inline]
    pub(crate) fn push_gone(&mut self, info_hash: InfoHash, peer: PeerKey) {
        if self.capacity > 0 {
            self.append(Change { info_hash, peer, word: Word::gone() }, PeerId::default());
        }
    }

    fn append(&mut self, change: Change, id: PeerId) {
        if self.changes.len() >= self.capacity {
            self.missed += 1;
            return;
        }
        self.changes.push(change);
        if self.keeps_ids {
            self.ids.push(id);
        }
    }

    /// Swaps the changes and their ids for empty vectors. Returns how many changes were lost because
    /// there was no room.
    pub(crate) fn take(&mut self, changes: &mut Vec<Change>, ids: &mut Vec<PeerId>) -> u64 {
        debug_assert!(changes.is_empty() && ids.is_empty());
        if self.capacity > 0 {
            // Nothing to do for vectors that were swapped before.
            changes.reserve_exact(self.capacity);
            ids.reserve_exact(if self.keeps_ids { self.capacity } else { 0 });
            std::mem::swap(&mut self.changes, changes);
            std::mem::swap(&mut self.ids, ids);
        }
        std::mem::take(&mut self.missed)
    }
}
