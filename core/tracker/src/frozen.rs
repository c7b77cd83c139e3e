//! Frozen torrents: a small set beside the store, so that a torrent's record has nothing to keep and an
//! announce pays one branch while the set is empty.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use types::{InfoHash, Refusal, limits};

/// Torrents whose announces are refused.
#[derive(Default)]
pub(crate) struct Frozen {
    any: AtomicBool,
    /// In order.
    hashes: ArcSwap<Vec<InfoHash>>,
    change: Mutex<()>,
}

impl Frozen {
    #[inline]
    pub(crate) fn admit(&self, hash: &InfoHash) -> Result<(), Refusal> {
        if self.contains(hash) { Err(Refusal::Frozen) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn contains(&self, hash: &InfoHash) -> bool {
        self.any.load(Ordering::Relaxed) && self.search(hash)
    }

    #[cold]
    fn search(&self, hash: &InfoHash) -> bool {
        self.hashes.load().binary_search(hash).is_ok()
    }

    /// Puts a torrent in or takes it out; false if it is one more than there may be.
    pub(crate) fn set(&self, hash: &InfoHash, frozen: bool) -> bool {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hashes = Vec::clone(&self.hashes.load());
        match hashes.binary_search(hash) {
            Ok(at) if !frozen => drop(hashes.remove(at)),
            Err(_) if frozen && hashes.len() >= limits::FROZEN_MAX => return false,
            Err(at) if frozen => hashes.insert(at, *hash),
            _ => return true,
        }
        let any = !hashes.is_empty();
        self.hashes.store(Arc::new(hashes));
        self.any.store(any, Ordering::Relaxed);
        true
    }

    pub(crate) fn all(&self) -> Arc<Vec<InfoHash>> {
        self.hashes.load_full()
    }
}
