//! One announce, as the store sees it.

use types::{Families, InfoHash, PeerId, PeerKey, Role, WebPeer};

/// What an announce does to its swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Adds the peer or refreshes it. A peer known in another role moves.
    Update {
        /// The peer has just ended its download, which is counted, once for each peer.
        completed: bool,
    },
    /// Removes the peer. Its answer holds no peers.
    Stop,
}

/// One announce, after the tracker has allowed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAnnounce {
    /// The caller's number for this announce. The sink gets it back with the answer.
    pub slot: u8,
    /// The torrent.
    pub info_hash: InfoHash,
    /// Who announces.
    pub peer: PeerKey,
    /// What it calls itself; kept only with [`crate::Options::keep_peer_ids`].
    pub peer_id: PeerId,
    /// What it is to the swarm.
    pub role: Role,
    /// What happens to it.
    pub action: Action,
    /// The seconds since the peer's last announce that must have passed, for one that changes nothing
    /// about the peer; else it is not done. 0 is never. Ages are known to 16 seconds: one is taken for
    /// too young only if it is surely younger.
    pub min_interval_s: u32,
    /// Peers wanted, already capped; 0 means none.
    pub want: u16,
    /// The families whose peers may be in the answer.
    pub families: Families,
    /// Answer with ids, by [`types::StoreSink::peer_with_id`]. Peers whose id is not kept come
    /// with an id of zeros.
    pub with_ids: bool,
}

/// One WebTorrent announce, after the tracker has allowed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreWebAnnounce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Who announces.
    pub peer: WebPeer,
    /// What it is to the swarm.
    pub role: Role,
    /// What happens to it.
    pub action: Action,
    /// As in [`StoreAnnounce`].
    pub min_interval_s: u32,
    /// Peers wanted, at most [`types::limits::WEB_OFFERS_MAX`].
    pub want: u16,
}
