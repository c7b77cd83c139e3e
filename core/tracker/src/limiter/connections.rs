//! How many connections each prefix holds: a map with an entry for each prefix that holds any, so
//! the connections themselves bound it. It is cut in parts with a lock each; a connection takes the
//! lock twice in its life.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts of the map. More than workers, mostly.
const PARTS: usize = 64;

/// Connections by the keyed hash of their prefix.
pub(super) struct ConnectionLimiter {
    parts: [Mutex<BTreeMap<u64, u32>>; PARTS],
}

/// Leave to hold a connection. It ends when this is dropped.
pub struct ConnectionPermit {
    /// None: nobody counts this one.
    taken: Option<(Arc<ConnectionLimiter>, u64)>,
}

impl ConnectionLimiter {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::default()) }
    }

    /// One more connection of a prefix, if it holds fewer than `max`.
    pub(super) fn take(self: &Arc<Self>, name: u64, max: u32) -> Option<ConnectionPermit> {
        let mut part = self.part(name)?;
        let held = part.get(&name).copied().unwrap_or(0);
        if held >= max {
            return None;
        }
        part.insert(name, held + 1);
        Some(ConnectionPermit { taken: Some((Arc::clone(self), name)) })
    }

    /// Whether a prefix holds fewer than `max`.
    pub(super) fn has_room(&self, name: u64, max: u32) -> bool {
        self.part(name).is_none_or(|part| part.get(&name).is_none_or(|held| *held < max))
    }

    fn leave(&self, name: u64) {
        let Some(mut part) = self.part(name) else { return };
        if let Some(held) = part.get_mut(&name) {
            *held -= 1;
            if *held == 0 {
                part.remove(&name);
            }
        }
    }

    fn part(&self, name: u64) -> Option<MutexGuard<'_, BTreeMap<u64, u32>>> {
        let part = self.parts.get(name as usize % PARTS)?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    pub(super) fn prefixes(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap().len()).sum()
    }
}

impl ConnectionPermit {
    /// One that is not counted.
    pub fn free() -> Self {
        Self { taken: None }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some((connections, name)) = self.taken.take() {
            connections.leave(name);
        }
    }
}
