//! The identity of WebTorrent peers.

use crate::PeerId;

/// A connection of this process, as its owner numbers it. Opaque to all others; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u64);

/// The identity of a WebTorrent peer: its connection and its peer id. A peer id alone proves
/// nothing. The same id on another connection is another peer, so an id cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebPeer {
    /// The connection it announces on, where it can be reached.
    pub connection: ConnectionKey,
    /// What it calls itself.
    pub peer_id: PeerId,
}

impl WebPeer {
    /// The first in order.
    pub const MIN: Self = Self { connection: ConnectionKey(0), peer_id: PeerId([0; 20]) };
    /// The last in order.
    pub const MAX: Self = Self { connection: ConnectionKey(u64::MAX), peer_id: PeerId([0xff; 20]) };
}
