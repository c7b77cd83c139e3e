//! Torrents that come, go and are completed, for whoever listens.

use types::InfoHash;

/// What has happened to a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorrentEvent {
    /// Its first peer has come.
    Added(InfoHash),
    /// It was removed, or forgotten some time after its last peer had left.
    Removed(InfoHash),
    /// A peer has ended its download.
    Completed(InfoHash),
}

/// What a shard has heard and nobody has taken yet: nothing, unless somebody listens.
#[derive(Default)]
pub(crate) struct Ear {
    heard: Vec<TorrentEvent>,
    /// Events that are kept; 0 while nobody listens.
    room: usize,
    missed: u64,
}

impl Ear {
    /// Keeps up to `room` events from now on; 0 forgets all and stops.
    pub(crate) fn listen(&mut self, room: usize) {
        if room == 0 {
            *self = Self::default();
        } else if self.room == 0 {
            // At once, so that no announce waits for memory.
            *self = Self { heard: Vec::with_capacity(room), room, missed: 0 };
        }
    }

    #[inline]
    pub(crate) fn hear(&mut self, event: impl FnOnce() -> TorrentEvent) {
        if self.room == 0 {
            return;
        }
        if self.heard.len() < self.room {
            self.heard.push(event());
        } else {
            self.missed += 1;
        }
    }

    /// Moves what was heard to `events`, and says how much was not kept.
    pub(crate) fn take(&mut self, events: &mut Vec<TorrentEvent>) -> u64 {
        events.append(&mut self.heard);
        std::mem::take(&mut self.missed)
    }
}
