//! Answers, written into the slot that they are sent from.
//!
//! Every function gives the length of the datagram so far, and 0 when the slot does not even take
//! what must be there: nothing is sent then. None writes over the end of its slot. The slot's length
//! is therefore the limit of the datagram: pass it cut to what the socket's family carries.

use types::{PackedV4, PackedV6, SwarmCounts};

use super::action;

/// What an answer to an announce says before it lists peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceHead {
    /// The request's.
    pub transaction_id: u32,
    /// Seconds until the client shall announce again.
    pub interval_s: u32,
    /// Peers that are not complete.
    pub leechers: u32,
    /// Peers that are.
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

/// Bytes of the head of an answer to an announce.
pub const ANNOUNCE_HEAD_LEN: usize = 20;

/// Writes the head of an answer to an announce: [`ANNOUNCE_HEAD_LEN`] bytes. Peers are appended.
//= bep15#announce-reply
pub fn announce_reply(slot: &mut [u8], reply: &AnnounceHead) -> usize {
    let Some((fixed, rest)) = slot.split_first_chunk_mut::<16>() else {
        return 0;
    };
    let Some(seeders) = rest.first_chunk_mut::<4>() else {
        return 0;
    };
    let head = head(action::ANNOUNCE, reply.transaction_id);
    let figures = (u64::from(reply.interval_s) << 32) | u64::from(reply.leechers);
    *fixed = pair(head, figures);
    *seeders = reply.seeders.to_be_bytes();
    ANNOUNCE_HEAD_LEN
}

/// Appends v4 peers to an announce's answer that is `len` bytes long, as many as fit, and gives the
/// new length. Only for requests that came over IPv4.
///
/// This is the loop that most bytes leave through. In plain words:
///
/// ```text
/// for each peer: copy the first 6 of its 8 bytes behind the last
/// ```
///
/// Departure: four peers at a time, packed in registers into three whole words, so that no store is
/// narrower than 8 bytes or crosses another and there is one bounds check for the whole run.
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

/// Appends v6 peers, as [`append_peers_v4`] does. Only for requests that came over IPv6.
//= bep15#announce-reply-v6
pub fn append_peers_v6(slot: &mut [u8], len: usize, peers: &[PackedV6]) -> usize {
    let (peers, buffer) = fit::<_, { PackedV6::WIRE_LEN }>(slot, len, peers);
    let (rooms, _) = buffer.as_chunks_mut();
    for (peer, buffer) in peers.iter().zip(rooms) {
        *buffer = peer.wire();
    }
    len + peers.len() * PackedV6::WIRE_LEN
}

/// Writes the answer to a scrape: 8 bytes and 12 for each torrent, as many as fit.
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
        // Seeders first, unlike in an announce's answer.
        for (field, value) in
            fields.iter_mut().zip([counts.seeders(), counts.downloads, counts.leechers()])
        {
            *field = value.to_be_bytes();
        }
    }
    len
}

/// Writes an error: 8 bytes and the text, cut to what fits.
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

/// Two words, the first first.
fn pair(first: u64, second: u64) -> [u8; 16] {
    ((u128::from(first) << 64) | u128::from(second)).to_be_bytes()
}

/// Those of `peers` that fit behind `len` bytes at `SIZE` bytes each, and exactly the room for them.
fn fit<'p, 's, Peer, const SIZE: usize>(
    slot: &'s mut [u8],
    len: usize,
    peers: &'p [Peer],
) -> (&'p [Peer], &'s mut [u8]) {
    let free = slot.get_mut(len..).unwrap_or_default();
    let count = peers.len().min(free.len() / SIZE);
    let buffer = free.get_mut(..count * SIZE).unwrap_or_default();
    (peers.get(..count).unwrap_or_default(), buffer)
}
