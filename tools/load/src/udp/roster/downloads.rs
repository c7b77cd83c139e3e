//! The downloads that the peers of a roster complete.

use std::time::{Duration, Instant};

use super::Roster;

/// A completed download that a peer has announced.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// The torrent's number.
    pub torrent: u32,
    /// When the tracker acknowledged it, or when the roster gave the request up.
    pub at: Instant,
    /// False if the tracker did not acknowledge it: it may have counted it.
    pub is_acknowledged: bool,
    /// True if it is the first one of its peer. A tracker may know the peer of a later one as a seeder, and then it does not
    /// count.
    pub is_first: bool,
}

impl Roster {
    /// Returns all downloads that were completed.
    pub fn downloads(&self) -> impl Iterator<Item = Download> {
        self.peers.completed.iter().map(|completed| Download {
            torrent: completed.torrent,
            at: self.start + Duration::from_millis(completed.at_ms.into()),
            is_acknowledged: completed.is_acknowledged,
            is_first: completed.is_first,
        })
    }
}
