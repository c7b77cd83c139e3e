//! UDP (BEP 15): encoding requests and decoding replies. All integers are big-endian.

#[cfg(test)]
mod tests;

use types::{Announce, Event, InfoHash, NumWant};
use wire::udp::{MAGIC, action};

/// A decoded reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The reply to a connect request.
    Connect {
        /// The connection id, to be sent with every other request.
        connection_id: u64,
    },
    /// The reply to an announce.
    Announce {
        /// Seconds until the next announce.
        interval_s: u32,
        /// Peers without the complete torrent.
        leechers: u32,
        /// Peers with the complete torrent.
        seeders: u32,
        /// Packed peers: 6 bytes each over IPv4, 18 over IPv6.
        peers: &'a [u8],
    },
    /// The reply to a scrape: seeders, downloads and leechers of each torrent, 12 bytes each.
    Scrape(&'a [u8]),
    /// The text of an error.
    Error(&'a [u8]),
}

/// The type of an option with a part of the tracker's URL (BEP 41).
const URL_DATA: u8 = 2;

/// Appends a connect request.
pub fn connect(out: &mut Vec<u8>, transaction_id: u32) {
    head(out, MAGIC, action::CONNECT, transaction_id);
}

/// An announce, with the fields that only this protocol has.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceRequest<'a> {
    /// The connection id from the tracker.
    pub connection_id: u64,
    /// The reply repeats it.
    pub transaction_id: u32,
    /// The announce itself.
    pub announce: &'a Announce,
    /// A number of the client's choice, by which a tracker can recognize it at another address.
    pub key: u32,
    /// Path and query of the tracker's URL (BEP 41), left out if empty.
    pub url: &'a [u8],
}

/// Appends an announce without a key. `url` (path and query, BEP 41) is left out if empty.
pub fn announce(
    out: &mut Vec<u8>,
    connection_id: u64,
    transaction_id: u32,
    announce: &Announce,
    url: &[u8],
) {
    AnnounceRequest { connection_id, transaction_id, announce, key: 0, url }.write(out);
}

impl AnnounceRequest<'_> {
    /// Appends the announce.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { connection_id, transaction_id, announce, key, url } = self;
        head(out, *connection_id, action::ANNOUNCE, *transaction_id);
        out.extend_from_slice(&announce.info_hash.0);
        out.extend_from_slice(&announce.peer_id.0);
        out.extend_from_slice(&announce.downloaded.to_be_bytes());
        out.extend_from_slice(&announce.left.unwrap_or(u64::MAX).to_be_bytes());
        out.extend_from_slice(&announce.uploaded.to_be_bytes());
        let event: u32 = match announce.event {
            Event::None | Event::Paused => 0,
            Event::Completed => 1,
            Event::Started => 2,
            Event::Stopped => 3,
        };
        out.extend_from_slice(&event.to_be_bytes());
        // No IP address: the tracker uses the datagram's source.
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&key.to_be_bytes());
        let want = match announce.want {
            NumWant::Default => -1,
            NumWant::Peers(peers) => i32::from(peers),
        };
        out.extend_from_slice(&want.to_be_bytes());
        out.extend_from_slice(&announce.port.to_be_bytes());
        for piece in url.chunks(usize::from(u8::MAX)) {
            // Always fits: a chunk has at most 255 bytes.
            let len = u8::try_from(piece.len()).unwrap_or(u8::MAX);
            out.extend_from_slice(&[URL_DATA, len]);
            out.extend_from_slice(piece);
        }
    }
}

/// Appends a scrape.
pub fn scrape(out: &mut Vec<u8>, connection_id: u64, transaction_id: u32, hashes: &[InfoHash]) {
    head(out, connection_id, action::SCRAPE, transaction_id);
    hashes.iter().for_each(|hash| out.extend_from_slice(&hash.0));
}

/// Decodes a reply and its transaction id. Returns `None` if the datagram is not a reply.
pub fn decode_reply(datagram: &[u8]) -> Option<(u32, Reply<'_>)> {
    let (action, rest) = number(datagram)?;
    let (transaction_id, rest) = number(rest)?;
    let reply = match action {
        action::CONNECT => {
            let id = rest.first_chunk()?;
            Reply::Connect { connection_id: u64::from_be_bytes(*id) }
        }
        action::ANNOUNCE => {
            let (interval_s, rest) = number(rest)?;
            let (leechers, rest) = number(rest)?;
            let (seeders, peers) = number(rest)?;
            Reply::Announce { interval_s, leechers, seeders, peers }
        }
        action::SCRAPE => Reply::Scrape(rest),
        action::ERROR => Reply::Error(rest),
        _ => return None,
    };
    Some((transaction_id, reply))
}

fn head(out: &mut Vec<u8>, connection_id: u64, action: u32, transaction_id: u32) {
    out.extend_from_slice(&connection_id.to_be_bytes());
    out.extend_from_slice(&action.to_be_bytes());
    out.extend_from_slice(&transaction_id.to_be_bytes());
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}
