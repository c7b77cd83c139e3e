//! Blocks of WebTorrent peers.
//!
//! The body is a sequence of groups:
//!
//! | bytes | group |
//! |---|---|
//! | 20 | info hash |
//! | 2 | number of peers |
//! | 20 + 8 + 16 + 2 each | peers: peer id, connection, the client's address (a v4 address as a v4-mapped one), [`Word`] |
//!
//! All connections of a block are of the node that wrote it. Others need the address only to tell downloads
//! from different networks apart; of a peer that is gone it is unspecified.

use std::net::{IpAddr, Ipv6Addr};

use types::{ConnectionKey, InfoHash, PeerId, WebPeer};

use super::{Word, take};

/// A change of a WebTorrent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebChange {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer.
    pub peer: WebPeer,
    /// The client's address; unspecified if the peer is gone.
    pub address: IpAddr,
    /// The peer's current state; its age is 0.
    pub word: Word,
}

/// Bytes of an info hash and a number of peers.
const GROUP_LEN: usize = 20 + 2;
/// Bytes of a peer.
const PEER_LEN: usize = 20 + 8 + 16 + 2;

/// The most bytes that [`encode_web_changes`] appends for a change.
pub const WEB_CHANGE_BYTES_MAX: usize = GROUP_LEN + PEER_LEN;

/// Appends the groups of `changes` to `body`: by torrent, and for each peer in the order given. A change takes
/// at most [`WEB_CHANGE_BYTES_MAX`] bytes.
pub fn encode_web_changes(changes: &[WebChange], body: &mut Vec<u8>) {
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by_key(|at| changes[*at].info_hash.0);
    let of_torrents = order.chunk_by(|a, b| changes[*a].info_hash == changes[*b].info_hash);
    for group in of_torrents.flat_map(|torrent| torrent.chunks(u16::MAX.into())) {
        let Some(first) = group.first() else { continue };
        body.extend_from_slice(&changes[*first].info_hash.0);
        body.extend_from_slice(&(group.len() as u16).to_le_bytes());
        for at in group {
            let WebChange { peer, address, word, .. } = changes[*at];
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            body.extend_from_slice(&peer.peer_id.0);
            body.extend_from_slice(&peer.connection.0.to_le_bytes());
            body.extend_from_slice(&address.octets());
            body.extend_from_slice(&word.0.to_le_bytes());
        }
    }
}

/// Yields the groups of a block of WebTorrent peers, whose lengths and nodes have been checked.
#[derive(Clone, Copy, Debug)]
pub struct WebGroups<'a> {
    node: u8,
    rest: &'a [u8],
}

impl<'a> WebGroups<'a> {
    /// Returns the groups of a body that `node` wrote; `None` if they do not add up to it, or if a connection
    /// is another node's.
    pub(super) fn check(body: &'a [u8], node: u16) -> Option<Self> {
        let groups = Self { node: u8::try_from(node).ok()?, rest: body };
        let is_own = |peer: WebChange| peer.peer.connection.node() == groups.node;
        let mut all = groups;
        let are_own = all.by_ref().all(|mut group| group.peers.all(is_own));
        (are_own && all.rest.is_empty()).then_some(groups)
    }

    /// Returns the node that holds the connections of all peers.
    pub fn node(&self) -> u8 {
        self.node
    }
}

impl<'a> Iterator for WebGroups<'a> {
    type Item = WebGroup<'a>;

    fn next(&mut self) -> Option<WebGroup<'a>> {
        let mut rest = self.rest;
        let info_hash = InfoHash(take(&mut rest)?);
        let count = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let (peers, rest) = rest.split_at_checked(count * PEER_LEN)?;
        self.rest = rest;
        Some(WebGroup { info_hash, peers: WebPeers { info_hash, bytes: peers } })
    }
}

/// A torrent's WebTorrent peers, or some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebGroup<'a> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Its peers.
    pub peers: WebPeers<'a>,
}

/// Yields the peers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebPeers<'a> {
    info_hash: InfoHash,
    bytes: &'a [u8],
}

impl Iterator for WebPeers<'_> {
    type Item = WebChange;

    fn next(&mut self) -> Option<WebChange> {
        let mut rest = self.bytes;
        let peer_id = PeerId(take(&mut rest)?);
        let connection = ConnectionKey(u64::from_le_bytes(take(&mut rest)?));
        let address: [u8; 16] = take(&mut rest)?;
        let word = Word(u16::from_le_bytes(take(&mut rest)?));
        self.bytes = rest;
        Some(WebChange {
            info_hash: self.info_hash,
            peer: WebPeer { connection, peer_id },
            address: IpAddr::V6(Ipv6Addr::from(address)).to_canonical(),
            word,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.bytes.len() / PEER_LEN;
        (len, Some(len))
    }
}

impl ExactSizeIterator for WebPeers<'_> {}
