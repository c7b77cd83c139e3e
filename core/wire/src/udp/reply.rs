//! Answers, written into the buffer that they are sent from.
//!
//! Every function returns the length of the datagram so far. It returns 0 if even the fixed part does
//! not fit; send nothing then. The length of `slot` limits the datagram: pass a slice as long as the
//! largest payload of the socket's address family.

use types::{PackedV4, PackedV6, SwarmCounts};

use super::action;

/// The part of an announce's answer before the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceHead {
    /// The request's transaction id.
    pub transaction_id: u32,
    /// Seconds until the client should announce again.
    pub interval_s: u32,
    /// Peers without the complete torrent.
    pub leechers: u32,
    /// Peers with the complete torrent.
    pub seeders: u32,
}

/// Writes the answer to a connect request: 16 bytes.
//= bep15#connect-reply
pub fn connect_reply(slot: &mut [u8], transaction_id: u32, connection_id: u64) -> usize {
    let Some(reply) = slot.first_chunk_mut::<16>() else {
        return 0;
    };
    *reply = pair(head(action::CONNECT, transaction_id), connection_id);
    reply.len()
}

/// The length of [`AnnounceHead`] in bytes.
pub const ANNOUNCE_HEAD_LEN: usize = 20;

/// Writes the head of an announce's answer: [`ANNOUNCE_HEAD_LEN`] bytes. Append peers after it.
//= bep15#announce-reply
pub fn announce_reply(slot: &mut [u8], reply: &AnnounceHead) -> usize {
    let Some((fixed, rest)) = slot.split_first_chunk_mut::<16>() else {
        return 0;
    };
    let Some(seeders) = rest.first_chunk_mut::<4>() else {
        return 0;
    };
    let head = head(action::ANNOUNCE, reply.transaction_id);
    let interval_and_leechers = (u64::from(reply.interval_s) << 32) | u64::from(reply.leechers);
    *fixed = pair(head, interval_and_leechers);
    *seeders = reply.seeders.to_be_bytes();
    ANNOUNCE_HEAD_LEN
}

/// Appends as many v4 peers as fit to an announce's answer of `len` bytes. Returns the new length.
/// Only for requests over IPv4.
///
/// Most bytes that a tracker sends are written by this loop. Plain form:
///
/// ```text
/// for each peer: append the first 6 of its 8 bytes
/// ```
///
/// Departure: four peers at a time are packed in registers into three whole words. No store is
/// narrower than 8 bytes or overlaps another, and the whole run needs one bounds check.
//= bep15#announce-reply-v4
pub fn append_peers_v4(slot: &mut [u8], len: usize, peers: &[PackedV4]) -> usize {
    let (peers, buffer) = fit::<_, { PackedV4::WIRE_LEN }>(slot, len, peers);
    let (fours, last) = peers.as_chunks::<4>();
    let (rooms, buffer) = buffer.as_chunks_mut::<{ 4 * PackedV4::WIRE_LEN }>();
    for (four, buffer) in fours.iter().zip(rooms) {
        let [a, b, c, d] = four.map(|peer| u64::from_be_bytes(peer.0) >> 16);
        let (words, _) = buffer.as_chunks_mut::<8>();
        for (word, value) in
            words.iter_mut().zip([a << 16 | b >> 32, b << 32 | c >> 16, c << 48 | d])
        {
            *word = value.to_be_bytes();
        }
    }
    let (rooms, _) = buffer.as_chunks_mut();
    for (peer, buffer) in last.iter().zip(rooms) {
        *buffer = peer.wire();
    }
    len + peers.len() * PackedV4::WIRE_LEN
}

/// Appends v6 peers, as [`append_peers_v4`] does. Only for requests over IPv6.
//= bep15#announce-reply-v6
pub fn append_peers_v6(slot: &mut [u8], len: usize, peers: &[PackedV6]) -> usize {
    let (peers, buffer) = fit::<_, { PackedV6::WIRE_LEN }>(slot, len, peers);
    let (rooms, _) = buffer.as_chunks_mut();
    for (peer, buffer) in peers.iter().zip(rooms) {
        *buffer = peer.wire();
    }
    len + peers.len() * PackedV6::WIRE_LEN
}

/// Writes the answer to a scrape: 8 bytes, then 12 for each torrent, as many as fit.
//= bep15#scrape-reply
pub fn scrape_reply(slot: &mut [u8], transaction_id: u32, counts: &[SwarmCounts]) -> usize {
    let Some((start, buffer)) = slot.split_first_chunk_mut::<8>() else {
        return 0;
    };
    *start = head(action::SCRAPE, transaction_id).to_be_bytes();
    let (rooms, _) = buffer.as_chunks_mut::<12>();
    let mut len = start.len();
    for (counts, buffer) in counts.iter().zip(rooms) {
        len += buffer.len();
        let (fields, _) = buffer.as_chunks_mut::<4>();
        // Seeders come first, unlike in an announce's answer.
        for (field, value) in
            fields.iter_mut().zip([counts.seeders(), counts.downloads, counts.leechers()])
        {
            *field = value.to_be_bytes();
        }
    }
    len
}

/// Writes an error: 8 bytes, then the text, truncated to fit.
//= bep15#error-reply
pub fn error_reply(slot: &mut [u8], transaction_id: u32, text: &str) -> usize {
    let Some((start, buffer)) = slot.split_first_chunk_mut::<8>() else {
        return 0;
    };
    *start = head(action::ERROR, transaction_id).to_be_bytes();
    let (text, _) = text.split_at(text.floor_char_boundary(buffer.len()));
    for (to, from) in buffer.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    start.len() + text.len()
}

/// The first 8 bytes of every answer.
fn head(action: u32, transaction_id: u32) -> u64 {
    (u64::from(action) << 32) | u64::from(transaction_id)
}

/// Concatenates two words in big-endian order.
fn pair(first: u64, second: u64) -> [u8; 16] {
    ((u128::from(first) << 64) | u128::from(second)).to_be_bytes()
}

/// Returns the peers that fit after `len` bytes of `slot` at `SIZE` bytes each, and exactly the space
/// for them.
fn fit<'p, 's, Peer, const SIZE: usize>(
    slot: &'s mut [u8],
    len: usize,
    peers: &'p [Peer],
) -> (&'p [Peer], &'s mut [u8]) {
    debug_assert!(len <= slot.len(), "the answer so far is longer than its buffer");
    let free = slot.get_mut(len..).unwrap_or_default();
    let count = peers.len().min(free.len() / SIZE);
    let buffer = free.get_mut(..count * SIZE).unwrap_or_default();
    (peers.get(..count).unwrap_or_default(), buffer)
}
