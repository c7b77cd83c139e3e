//! Events of torrents: added, removed, completed.

use types::InfoHash;

/// An event of a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorrentEvent {
    /// Its first peer came.
    Added(InfoHash),
    /// It was removed, or expired some time after its last peer left.
    Removed(InfoHash),
    /// A peer completed its download.
    Completed(InfoHash),
}
