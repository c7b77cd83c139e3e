//! Frozen torrents: a small set beside the store. A torrent's record needs no flag for it, and an
//! announce pays one branch while the set is empty.
//!
//! A plain sorted vector, replaced as a whole: nothing here needs a measurement.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use types::{InfoHash, Refusal, limits};

/// Torrents whose announces are refused.
#[derive(Default)]
pub(crate) struct Frozen {
    is_any: AtomicBool,
    /// Sorted.
    hashes: ArcSwap<Vec<InfoHash>>,
    change: Mutex<()>,
}

impl Frozen {
    /// Refuses frozen torrents.
    #[inline]
    pub(crate) fn admit(&self, hash: &InfoHash) -> Result<(), Refusal> {
        if self.contains(hash) { Err(Refusal::Frozen) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn contains(&self, hash: &InfoHash) -> bool {
        self.is_any.load(Ordering::Relaxed) && self.search(hash)
    }

    #[cold]
    fn search(&self, hash: &InfoHash) -> bool {
        self.hashes.load().binary_search(hash).is_ok()
    }

    /// Freezes or unfreezes a torrent. Returns false, and does nothing, if that would freeze more than
    /// [`limits::FROZEN_MAX`].
    pub(crate) fn set(&self, hash: &InfoHash, frozen: bool) -> bool {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hashes = Vec::clone(&self.hashes.load());
        match hashes.binary_search(hash) {
            Ok(at) if !frozen => drop(hashes.remove(at)),
            Err(_) if frozen && hashes.len() >= limits::FROZEN_MAX => return false,
            Err(at) if frozen => hashes.insert(at, *hash),
            _ => return true,
        }
        let is_any = !hashes.is_empty();
        self.hashes.store(Arc::new(hashes));
        self.is_any.store(is_any, Ordering::Relaxed);
        true
    }

    pub(crate) fn all(&self) -> Arc<Vec<InfoHash>> {
        self.hashes.load_full()
    }
}
