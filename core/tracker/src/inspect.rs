//! Operators' view of torrents and peers, and their changes to them. An announce never waits for these
//! longer than for a batch of other announces.

use std::slice;
use std::sync::Arc;

use swarm::{TorrentDetails, TorrentStats};
use types::{InfoHash, Refusal, Tick, limits};

use crate::access::{AccessLists, HashList};
use crate::{ListenerPolicy, Tracker};

impl Tracker {
    /// Returns a torrent with at most `peers_max` of its peers, and at most
    /// [`types::limits::INSPECT_PEERS_MAX`].
    pub fn torrent(&self, now: Tick, hash: &InfoHash, peers_max: usize) -> Option<TorrentDetails> {
        let mut details = self.store.inspect(now, hash, peers_max)?;
        details.stats = self.with_downloads(&details.stats);
        Some(details)
    }

    /// Calls `see` with every torrent, without holding a lock. A torrent may come twice if others are
    /// removed meanwhile; none is left out.
    pub fn overview(&self, mut see: impl FnMut(&TorrentStats)) {
        self.store.each_torrent(|stats| see(&self.with_downloads(stats)));
    }

    /// Raises the store's count of downloads to the durable one, as clients get it.
    fn with_downloads(&self, stats: &TorrentStats) -> TorrentStats {
        let mut stats = *stats;
        self.downloads.raise(&stats.info_hash, &mut stats.counts.downloads);
        stats
    }

    /// Freezes a torrent, known or not, or unfreezes it. The announces of a frozen torrent are refused; its peers
    /// stay until they time out, and scrapes are answered.
    ///
    /// Returns false, and does nothing, if that would freeze more than [`types::limits::FROZEN_MAX`].
    pub fn freeze(&self, hash: &InfoHash, frozen: bool) -> bool {
        if !frozen {
            self.frozen.remove(slice::from_ref(hash));
            return true;
        }
        let has_room = self.frozen.len() < limits::FROZEN_MAX || self.frozen.contains(hash);
        if has_room {
            self.frozen.insert(slice::from_ref(hash));
        }
        has_room
    }

    /// Refuses a torrent as an announce at a listener would be, by lists and freezing. Listeners that ask for
    /// keys or tokens refuse clients without them before.
    ///
    /// # Errors
    ///
    /// `Torrent`, `Denied`, `NotAllowed` or `Frozen`.
    pub fn admit(&self, listener: &ListenerPolicy, hash: &InfoHash) -> Result<(), Refusal> {
        listener.lists.admit(&self.live, hash)?;
        if self.frozen.contains(hash) { Err(Refusal::Frozen) } else { Ok(()) }
    }

    /// Returns the allow lists of files and folders that decide at any listener, each once.
    pub fn allow_files(&self) -> Vec<Arc<HashList>> {
        self.files(|lists| vec![&lists.allow, &lists.torrents])
    }

    /// Returns the deny lists of files that decide at any listener, each once.
    pub fn deny_files(&self) -> Vec<Arc<HashList>> {
        self.files(|lists| vec![&lists.deny])
    }

    /// Returns the lists that are not empty, each once.
    fn files(&self, of: impl Fn(&AccessLists) -> Vec<&Arc<HashList>>) -> Vec<Arc<HashList>> {
        let settings = self.settings();
        let mut files: Vec<Arc<HashList>> = Vec::new();
        for list in settings.listeners.iter().flat_map(|listener| of(&listener.lists)) {
            if !list.is_empty() && !files.iter().any(|known| Arc::ptr_eq(known, list)) {
                files.push(Arc::clone(list));
            }
        }
        files
    }

    /// Returns the frozen torrents.
    pub fn frozen(&self) -> &HashList {
        &self.frozen
    }
}
