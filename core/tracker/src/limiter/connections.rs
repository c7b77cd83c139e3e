//! How many connections each prefix holds: a map with an entry for each prefix that holds any, so the
//! connections themselves bound it. It is sharded, with a lock for each shard; a connection takes one
//! lock when it opens and one when it closes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards of the map: mostly more than workers.
const SHARDS: usize = 64;

/// Connections by the keyed hash of their prefix.
pub(super) struct ConnectionLimiter {
    shards: [Mutex<BTreeMap<u64, u32>>; SHARDS],
}

/// Permission to hold a connection. Ends when it is dropped.
pub struct ConnectionPermit {
    /// `None` if the connection is not counted.
    counted: Option<(Arc<ConnectionLimiter>, u64)>,
}

impl ConnectionLimiter {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Returns a permit if the prefix with this hash holds fewer than `max`.
    pub(super) fn take(self: &Arc<Self>, hash: u64, max: u32) -> Option<ConnectionPermit> {
        let mut shard = self.shard(hash);
        let held = shard.get(&hash).copied().unwrap_or(0);
        if held >= max {
            return None;
        }
        shard.insert(hash, held + 1);
        Some(ConnectionPermit { counted: Some((Arc::clone(self), hash)) })
    }

    /// Returns whether the prefix with this hash holds fewer than `max`.
    pub(super) fn has_room(&self, hash: u64, max: u32) -> bool {
        self.shard(hash).get(&hash).is_none_or(|held| *held < max)
    }

    fn release(&self, hash: u64) {
        let mut shard = self.shard(hash);
        let Some(held) = shard.get_mut(&hash) else {
            debug_assert!(false, "a permit is released that was never counted");
            return;
        };
        *held -= 1;
        if *held == 0 {
            shard.remove(&hash);
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, BTreeMap<u64, u32>> {
        self.shards[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn prefixes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

impl ConnectionPermit {
    /// Returns a permit that counts for no prefix.
    pub fn uncounted() -> Self {
        Self { counted: None }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some((limiter, hash)) = self.counted.take() {
            limiter.release(hash);
        }
    }
}
