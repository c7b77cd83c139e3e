//! The identity of WebTorrent peers.

use crate::PeerId;

/// A connection of this process, as its owner numbers it. Opaque to all others; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey(pub u64);

/// The identity of a WebTorrent peer: its connection and its peer id. A peer id alone proves
/// nothing. The same id on another connection is another peer, so an id cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WebPeer {
    /// The connection it announces on, where it can be reached.
    pub connection: ConnectionKey,
    /// What it calls itself.
    pub peer_id: PeerId,
}
