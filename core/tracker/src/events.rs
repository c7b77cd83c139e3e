//! What happens to torrents, for whoever listens: nothing is kept, and nothing costs more than a branch,
//! while nobody does.

use swarm::Store;
pub use swarm::TorrentEvent as Event;

/// The events of a tracker since they were taken last, up to [`types::limits::EVENTS_MAX`] of them. There
/// is one for all: who hands them on to several does that by itself.
pub struct Feed<'a>(pub(crate) &'a Store);

impl Feed<'_> {
    /// Keeps events from now on, until they are taken.
    pub fn listen(&self) {
        self.0.listen(true);
    }

    /// Keeps none any more, and forgets those that were not taken.
    pub fn stop(&self) {
        self.0.listen(false);
    }

    /// Moves the events to `into`, those of one torrent in order; gives the number of those for which
    /// there was no room.
    pub fn take(&self, into: &mut Vec<Event>) -> u64 {
        self.0.take_events(into)
    }
}
