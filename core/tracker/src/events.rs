//! Events of torrents. While there is no listener nothing is stored, and an announce pays one branch.

use swarm::Store;
pub use swarm::TorrentEvent;

/// The events of a tracker since they were last taken, up to [`types::limits::EVENTS_MAX`] of them.
///
/// There is one stream: a caller that serves several listeners distributes the events itself.
pub struct EventStream<'a>(pub(crate) &'a Store);

impl EventStream<'_> {
    /// Starts to store events until they are taken.
    pub fn listen(&self) {
        self.0.listen(true);
    }

    /// Stops, and drops events that were not taken.
    pub fn stop(&self) {
        self.0.listen(false);
    }

    /// Appends the events to `into`, those of one torrent in order. Returns how many were lost because
    /// there was no room for them.
    pub fn take(&self, into: &mut Vec<TorrentEvent>) -> u64 {
        self.0.take_events(into)
    }
}
