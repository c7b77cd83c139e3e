//! Announces as the store sees them.

use std::net::IpAddr;

use types::{Families, InfoHash, PeerId, PeerKey, Role, WebPeer};

/// The effect of an announce on its swarm.
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

/// Most peers of a torrent with public addresses of one host or network; 0 = unlimited.
///
/// A new peer above a cap replaces the one that announced longest ago: of its host, or of the v4 address or v6 /56 with
/// the most peers in its network. Other addresses share no pages of the store, so they can be many, and no cap applies
/// to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCaps {
    /// At one v4 address, or in one v6 /64.
    pub per_address: u16,
    /// In one v4 /24 or v6 /48; at most, and if unlimited,
    /// [`types::limits::PEERS_PER_NETWORK_MAX`].
    pub per_network: u16,
}

/// One announce that the tracker has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAnnounce {
    /// The caller's number for this announce, which comes with the answer.
    pub slot: u8,
    /// The torrent.
    pub info_hash: InfoHash,
    /// The announcing peer.
    pub peer: PeerKey,
    /// The peer's id; kept only with [`crate::Options::keep_peer_ids`].
    pub peer_id: PeerId,
    /// The peer's role.
    pub role: Role,
    /// The change to make to the peer.
    pub action: Action,
    /// Minimal interval in seconds for an announce that changes nothing about its peer; an earlier
    /// one is rejected. 0 = no minimum. Ages are kept in units of 16 s: an announce counts as too
    /// soon only if it surely is.
    pub min_interval_s: u32,
    /// Applied when the peer is new.
    pub caps: PeerCaps,
    /// Most peers in the answer, within the protocol's limit; 0 means none.
    pub want: u16,
    /// Address families of the peers in the answer.
    pub families: Families,
}

impl StoreAnnounce {
    /// Returns an update without limits that wants no peers: for tests.
    #[doc(hidden)]
    pub fn update(info_hash: InfoHash, peer: PeerKey, role: Role) -> Self {
        Self {
            slot: 0,
            info_hash,
            peer,
            peer_id: PeerId::default(),
            role,
            action: Action::Update { completed: false },
            min_interval_s: 0,
            caps: PeerCaps::default(),
            want: 0,
            families: Families::Own,
        }
    }
}

/// One WebTorrent announce that the tracker has admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreWebAnnounce {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The announcing peer.
    pub peer: WebPeer,
    /// The client's address, by which `caps` and the network's share of memory count.
    pub address: IpAddr,
    /// The peer's role.
    pub role: Role,
    /// The change to make to the peer.
    pub action: Action,
    /// As in [`StoreAnnounce`].
    pub min_interval_s: u32,
    /// Applied when the peer is new. For exempt clients 0.
    pub caps: PeerCaps,
    /// Most peers to relay offers to, up to [`types::limits::WEB_OFFERS_MAX`].
    pub want: u16,
    /// Seconds by which the peer may be silent for longer than others: its interval is longer by as many.
    pub extra_s: u32,
}
