//! Announces as the store sees them.

use types::{Families, InfoHash, PeerId, PeerKey, Role, WebPeer};

/// What an announce does to its swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Adds the peer or refreshes it. A peer known in another role moves.
    Update {
        /// The peer has just completed its download. Counted once for each peer.
        completed: bool,
    },
    /// Removes the peer. The answer holds no peers.
    Stop,
}

/// One announce that the tracker has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAnnounce {
    /// The caller's number for this announce, which the sink gets with the answer.
    pub slot: u8,
    /// The torrent.
    pub info_hash: InfoHash,
    /// The announcing peer.
    pub peer: PeerKey,
    /// The peer's id; kept only with [`crate::Options::keep_peer_ids`].
    pub peer_id: PeerId,
    /// The peer's role.
    pub role: Role,
    /// What to do with the peer.
    pub action: Action,
    /// Minimal interval in seconds for an announce that changes nothing about its peer; an earlier
    /// one is not done. 0 = no minimum. Ages are kept in units of 16 s: an announce counts as too
    /// soon only if it surely is.
    pub min_interval_s: u32,
    /// Most peers in the answer, within the protocol's limit; 0 means none.
    pub want: u16,
    /// Address families of the peers in the answer.
    pub families: Families,
    /// Answer with ids, through [`types::PeerSink::peer_with_id`]. Peers whose id is not kept get
    /// an id of zeros.
    pub with_ids: bool,
}

/// One WebTorrent announce that the tracker has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreWebAnnounce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The announcing peer.
    pub peer: WebPeer,
    /// The peer's role.
    pub role: Role,
    /// What to do with the peer.
    pub action: Action,
    /// As in [`StoreAnnounce`].
    pub min_interval_s: u32,
    /// Most peers to relay offers to, up to [`types::limits::WEB_OFFERS_MAX`].
    pub want: u16,
}
