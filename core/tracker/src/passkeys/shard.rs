//! A shard: keys whose hashes have the same shard bits, and the sessions of their peers.
//!
//! The tag of a session has the shard bits of its key, so that an announce locks one shard. Keys and sessions
//! are found by keyed hashes: clients can neither choose a shard nor make entries of a table collide.

use std::sync::Arc;

use hashbrown::HashTable;
use primitives::prefetch_all;
use types::{Tick, limits};

use super::record::{KeyChange, KeyRecord, UNCHANGED};
use super::sessions::{Lifetimes, SessionLimits, Sessions};
use super::{KeyHash, KeyId, KeyTotals};

/// Number of shards, a power of two. Of ten million keys and sixteen million sessions, each has some 40,000
/// and 65,000: a table of that size doubles within a few milliseconds. With 1024 shards announces take as long,
/// but tables are so small that allocators keep their memory when sessions expire.
pub(super) const SHARDS: usize = 256;
/// The bits of a hash that choose the shard. Within a table, the lowest and the highest bits count.
pub(super) const SHARD_BITS: u64 = (SHARDS as u64 - 1) << SHARD_SHIFT;
const SHARD_SHIFT: u32 = 40;

/// Keys, and the sessions of their peers.
pub(super) struct Shard {
    pub(super) keys: HashTable<KeyRecord>,
    pub(super) sessions: Sessions,
    /// Totals that were not taken yet, once for each key that has some.
    pub(super) changed: Vec<KeyChange>,
    /// Keys used for the first time, which were not taken yet.
    pub(super) first_uses: Vec<KeyId>,
    /// Totals of removed keys, which were not taken yet.
    pub(super) retired: Vec<(KeyId, KeyTotals)>,
}

/// Returns the number of the shard of a key, or of a session, by its hash.
#[inline]
pub(super) fn shard_of(hash: u64) -> usize {
    ((hash & SHARD_BITS) >> SHARD_SHIFT) as usize
}

#[inline]
pub(super) fn find_key(keys: &mut HashTable<KeyRecord>, hash: KeyHash) -> Option<&mut KeyRecord> {
    keys.find_mut(hash.short(), |key| key.hash == hash)
}

/// Prefetches the entry where a table begins to look for this hash.
#[inline]
pub(super) fn prefetch_entry<T>(table: &HashTable<T>, hash: u64) {
    // hashbrown begins where the lowest bits say; most entries are there or a few places behind. The table's own
    // iterator over a hash finds exactly the right ones, but takes longer than that saves.
    let first = hash as usize & table.num_buckets().wrapping_sub(1);
    table.get_bucket(first).into_iter().for_each(prefetch_all);
}

/// Returns memory to the allocator if the table is nearly empty. Takes as long as growing.
pub(super) fn shrink_if_sparse<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    if table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, hash);
    }
}

impl Shard {
    /// Returns an empty shard. `session_limits` are those of all shards.
    pub(super) fn new(session_limits: Arc<SessionLimits>) -> Self {
        Self {
            keys: HashTable::new(),
            sessions: Sessions::new(session_limits),
            changed: Vec::new(),
            first_uses: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// Removes a key, and keeps its totals until they are taken. Ends the sessions that count against its
    /// quota: nothing renews them any more. Others expire.
    pub(super) fn retire_key(&mut self, hash: KeyHash) {
        let Ok(found) = self.keys.find_entry(hash.short(), |key| key.hash == hash) else {
            debug_assert!(false, "a numbered key has no record");
            return;
        };
        let (key, _) = found.remove();
        if key.change != UNCHANGED {
            let KeyChange { totals, .. } = self.changed.swap_remove(key.change as usize);
            if let Some(moved) = self.changed.get(key.change as usize)
                && let Some(other) = find_key(&mut self.keys, moved.key)
            {
                other.change = key.change;
            }
            // Bounded, in case the totals are never taken.
            if self.retired.len() < limits::USER_KEYS_MAX / SHARDS {
                self.retired.push((key.id, totals));
            }
        }
        for tag in key.quota.iter().flat_map(|quota| quota.sessions()) {
            self.sessions.remove(tag);
        }
    }

    /// Appends the totals of keys that have changed to `into`, and resets them.
    pub(super) fn take_totals(&mut self, into: &mut Vec<(KeyId, KeyTotals)>) {
        into.append(&mut self.retired);
        for KeyChange { key, totals } in self.changed.drain(..) {
            if let Some(key) = find_key(&mut self.keys, key) {
                key.change = UNCHANGED;
                into.push((key.id, totals));
            }
        }
    }

    /// Removes sessions whose lifetime has passed, and returns memory to the allocator.
    pub(super) fn expire(&mut self, now: Tick, lifetimes: Lifetimes) {
        self.sessions.expire(now, lifetimes, |expired| {
            if let Some(place) = expired.place
                && let Some(key) = find_key(&mut self.keys, place.key)
            {
                key.leave_quota(expired.session.tag, place);
            }
        });
        self.sessions.shrink();
    }
}
