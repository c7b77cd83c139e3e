//! Who a WebTorrent peer is.

use crate::PeerId;

/// A connection of this process, as its holder knows it. Opaque to everybody else; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey(pub u64);

/// The identity of a WebTorrent peer: the connection on which it announces, and what it calls
/// itself. A peer id alone proves nothing: the same id on another connection is another peer, so
/// that nobody can take an id over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WebPeer {
    /// Where it can be reached.
    pub connection: ConnectionKey,
    /// What it calls itself.
    pub peer_id: PeerId,
}
