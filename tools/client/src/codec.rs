//! The client's side of the codecs: requests to bytes, and bytes to responses.
//!
//! Pure functions over buffers of the caller, for [`Session`](crate::Session), for load testers and for tests of
//! trackers. Frames of servers are read by [`wire::ws::Reader`]; the tracker's side of the codecs is `core/wire`.

pub mod bencode;
pub mod http;
pub mod udp;
pub mod webtorrent;
pub mod ws;

use std::net::SocketAddr;

use types::PeerKey;

/// Returns peers in compact form (BEP 7, 23) of one family, and whether the list ends behind one of them.
pub fn compact_peers(bytes: &[u8], is_v6: bool) -> (Vec<SocketAddr>, bool) {
    if is_v6 {
        let (peers, rest) = bytes.as_chunks();
        (peers.iter().map(|it| PeerKey::V6(*it).socket_addr()).collect(), rest.is_empty())
    } else {
        let (peers, rest) = bytes.as_chunks();
        (peers.iter().map(|it| PeerKey::V4(*it).socket_addr()).collect(), rest.is_empty())
    }
}
