//! The other direction: what a client sends, and what it reads. For tools and tests.

use types::{Announce, Event, InfoHash, NumWant};

use super::options::kind;
use super::{MAGIC, action};

/// An answer, as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A connection id.
    Connect {
        /// To be sent with everything else.
        connection_id: u64,
    },
    /// The answer to an announce.
    Announce {
        /// Seconds until the next.
        interval_s: u32,
        /// Peers that are not complete.
        leechers: u32,
        /// Peers that are.
        seeders: u32,
        /// 6 bytes a peer over IPv4, 18 over IPv6.
        peers: &'a [u8],
    },
    /// Seeders, downloads and leechers of each torrent asked for, 12 bytes each.
    Scrape(&'a [u8]),
    /// Why there is no other answer.
    Error(&'a [u8]),
}

/// Appends a connect request.
pub fn connect(out: &mut Vec<u8>, transaction_id: u32) {
    head(out, MAGIC, action::CONNECT, transaction_id);
}

/// An announce, with all that only this protocol has.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceRequest<'a> {
    /// What the tracker has given.
    pub connection_id: u64,
    /// To be found in the answer.
    pub transaction_id: u32,
    /// What it says.
    pub announce: &'a Announce,
    /// A client's own number, by which a tracker may know it at another address.
    pub key: u32,
    /// Path and query of the tracker's URL (BEP 41); left out when it is empty.
    pub url: &'a [u8],
}

/// Appends an announce without a key; `url` (path and query, BEP 41) is left out when it is empty.
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
    /// Appends it.
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
        // No address: that of the datagram counts.
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&key.to_be_bytes());
        let want = match announce.want {
            NumWant::Default => -1,
            NumWant::Peers(peers) => i32::from(peers),
        };
        out.extend_from_slice(&want.to_be_bytes());
        out.extend_from_slice(&announce.port.to_be_bytes());
        for piece in url.chunks(usize::from(u8::MAX)) {
            // A chunk is at most 255 bytes long.
            let len = u8::try_from(piece.len()).unwrap_or(u8::MAX);
            out.extend_from_slice(&[kind::URL_DATA, len]);
            out.extend_from_slice(piece);
        }
    }
}

/// Appends a scrape.
pub fn scrape(out: &mut Vec<u8>, connection_id: u64, transaction_id: u32, hashes: &[InfoHash]) {
    head(out, connection_id, action::SCRAPE, transaction_id);
    hashes.iter().for_each(|hash| out.extend_from_slice(&hash.0));
}

/// Reads an answer: its transaction id, and what it says. Nothing if it is none.
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
