//! The identity of WebTorrent peers.

use crate::{PeerId, limits};

/// A connection of a node of the cluster: node 8, worker 10, generation 22, place 24 bits, the node's
/// highest. Opaque to all but its owner.
///
/// The generation counts the connections of the worker, so a key comes again after 2²² of them at the
/// earliest, if the same place is free then. What is kept of a closed connection must not last that long:
/// - An offer's tag lasts [`limits::OFFER_LIFETIME_S`], in which a worker would have to accept 70,000
///   connections a second. Even then an answer reaches a stranger only if a WebSocket holds the
///   same place with the same one of 2²² generations.
/// - Peers are removed when their connection ends. A node that missed it keeps them until they expire.
///
/// Processes begin with random generations, because others may know the connections of the process before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u64);

impl ConnectionKey {
    const GENERATION_BITS: u32 = 22;
    const WORKER_BITS: u32 = 10;
    const PLACE_BITS: u32 = 24;

    /// Returns the key of the connection at a place of a worker's table. `node` is 0 outside clusters. Only
    /// the lower 22 bits of `generation` matter.
    #[inline]
    pub fn new(node: u8, worker: usize, generation: u64, place: usize) -> Self {
        debug_assert!(worker < limits::WORKERS_MAX && place < 1 << Self::PLACE_BITS);
        let generation = generation % (1 << Self::GENERATION_BITS);
        let key = u64::from(node) << Self::WORKER_BITS | worker as u64;
        let key = key << Self::GENERATION_BITS | generation;
        Self(key << Self::PLACE_BITS | place as u64)
    }

    /// Returns the node that holds the connection; 0 outside clusters.
    #[inline]
    pub fn node(self) -> u8 {
        (self.0 >> (u64::BITS - u8::BITS)) as u8
    }

    /// Returns the number of the worker that holds the connection.
    #[inline]
    pub fn worker(self) -> usize {
        (self.0 >> (Self::GENERATION_BITS + Self::PLACE_BITS)) as usize % (1 << Self::WORKER_BITS)
    }

    /// Returns the place in the worker's table.
    #[inline]
    pub fn place(self) -> usize {
        (self.0 % (1 << Self::PLACE_BITS)) as usize
    }
}

const _: () = {
    let own = ConnectionKey::WORKER_BITS + ConnectionKey::GENERATION_BITS;
    assert!(u8::BITS + own + ConnectionKey::PLACE_BITS == u64::BITS);
    // The connections that a worker would have to accept in a second, to reuse a key while an offer lasts.
    assert!((1 << ConnectionKey::GENERATION_BITS) / limits::OFFER_LIFETIME_S > 69_000);
    assert!(limits::WORKERS_MAX <= 1 << ConnectionKey::WORKER_BITS);
    assert!(limits::CONNECTIONS_MAX <= 1 << ConnectionKey::PLACE_BITS);
};

/// The identity of a WebTorrent peer: its connection and its peer id. A peer id alone proves
/// nothing. The same id on another connection is another peer, so an id cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebPeer {
    /// The connection it announces on, where it can be reached.
    pub connection: ConnectionKey,
    /// The id that it gives itself.
    pub peer_id: PeerId,
}

impl WebPeer {
    /// The first in order.
    pub const MIN: Self = Self { connection: ConnectionKey(0), peer_id: PeerId([0; 20]) };
    /// The last in order.
    pub const MAX: Self = Self { connection: ConnectionKey(u64::MAX), peer_id: PeerId([0xff; 20]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_where_its_connection_is() {
        let last = (1 << ConnectionKey::PLACE_BITS) - 1;
        for (node, worker, place) in
            [(0, 0, 0), (255, limits::WORKERS_MAX - 1, last), (1, 2, 3), (7, 0, last)]
        {
            for generation in [0, 1, (1 << 22) - 1, u64::MAX] {
                let key = ConnectionKey::new(node, worker, generation, place);
                assert_eq!((key.node(), key.worker(), key.place()), (node, worker, place));
                let next = ConnectionKey::new(node, worker, generation.wrapping_add(1), place);
                assert_ne!(key, next);
                // After 2^22 generations.
                let again = generation.wrapping_add(1 << 22);
                assert_eq!(key, ConnectionKey::new(node, worker, again, place));
            }
        }
    }
}
