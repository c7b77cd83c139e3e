//! A shard: keys whose hashes have the same shard bits, and the sessions of their peers.
//!
//! The tag of a session has the shard bits of its key, so that an announce locks one shard. Keys and sessions
//! are found by keyed hashes: clients can neither choose a shard nor make entries of a table collide.

use std::sync::Arc;

use hashbrown::HashTable;
use primitives::prefetch_all;
use types::{Tick, limits};

use super::record::KeyRecord;
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
    pub(super) totals: TotalsTable,
    /// Keys used for the first time, which were not taken yet.
    pub(super) first_uses: Vec<KeyId>,
}

/// Totals of keys that were not taken yet. Beside the keys: most have none.
#[derive(Default)]
pub(super) struct TotalsTable(HashTable<KeyChange>);

struct KeyChange {
    id: KeyId,
    totals: KeyTotals,
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
            totals: TotalsTable::default(),
            first_uses: Vec::new(),
        }
    }

    /// Removes a key, but not its totals. Ends the sessions that count against its quota: nothing renews them any
    /// more. Others expire.
    pub(super) fn remove_key(&mut self, hash: KeyHash) {
        let Ok(found) = self.keys.find_entry(hash.short(), |key| key.hash == hash) else {
            debug_assert!(false, "a numbered key has no record");
            return;
        };
        let (key, _) = found.remove();
        for tag in key.quota.iter().flat_map(|quota| quota.sessions()) {
            self.sessions.remove(tag);
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

impl TotalsTable {
    /// Twice as many as a shard has keys: keys may be removed, and the totals never taken.
    const MAX: usize = 2 * limits::USER_KEYS_MAX / SHARDS;

    #[inline]
    pub(super) fn add(&mut self, id: KeyId, progress: &KeyTotals) {
        if let Some(known) = self.0.find_mut(spread(id), |known| known.id == id) {
            known.totals = known.totals.plus(progress);
        } else if self.0.len() < Self::MAX {
            let new = KeyChange { id, totals: *progress };
            self.0.insert_unique(spread(id), new, |known| spread(known.id));
        }
    }

    pub(super) fn take(&mut self, into: &mut Vec<(KeyId, KeyTotals)>) {
        into.extend(self.0.drain().map(|KeyChange { id, totals }| (id, totals)));
    }
}

/// Returns a hash. It needs no key: clients do not choose numbers.
#[inline]
fn spread(KeyId(number): KeyId) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}
