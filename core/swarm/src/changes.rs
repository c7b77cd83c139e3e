//! Changes of peers, which a journal takes a few times a second.

use replication::block::{Change, Word};
use types::{InfoHash, PeerId, PeerKey};

use crate::StoreAnnounce;

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

    /// Returns true if changes are kept.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.changes.capacity() > 0
    }

    /// Records the change that an announce made to its peer.
    #[inline]
    pub(crate) fn push(&mut self, announce: &StoreAnnounce, word: Word) {
        if self.is_on() {
            self.append(&announce.info_hash, &announce.peer, (word, false), &announce.peer_id);
        }
    }

    /// Records that a peer has announced again.
    #[inline]
    pub(crate) fn push_refresh(&mut self, announce: &StoreAnnounce, word: Word) {
        if self.is_on() {
            self.append(&announce.info_hash, &announce.peer, (word, true), &announce.peer_id);
        }
    }

    /// Records the removal of a peer.
    #[inline]
    pub(crate) fn push_gone(&mut self, info_hash: &InfoHash, peer: &PeerKey) {
        if self.is_on() {
            self.append(info_hash, peer, (Word::gone(), false), &PeerId([0; 20]));
        }
    }

    /// Records a peer's state, which has not changed here, because other nodes have another one.
    #[cold]
    pub(crate) fn push_contradiction(
        &mut self,
        peer: &(InfoHash, PeerKey),
        word: Word,
        id: &PeerId,
    ) {
        if self.is_on() {
            self.append(&peer.0, &peer.1, (word, true), id);
        }
    }

    // Inline copies of it slow down announces that change nothing.
    #[inline(never)]
    fn append(
        &mut self,
        info_hash: &InfoHash,
        peer: &PeerKey,
        (word, is_refresh): (Word, bool),
        id: &PeerId,
    ) {
        if self.changes.len() == self.changes.capacity() {
            self.missed += 1;
            return;
        }
        self.changes.push(Change { info_hash: *info_hash, peer: *peer, word, is_refresh });
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
