//! The UDP tracker protocol (BEP 15) and the options after an announce (BEP 41).
//!
//! [`decode`] parses a datagram into a [`Request`]. The `*_reply` functions write answers into the
//! buffer that the engine sends.
//!
//! All integers are big-endian. Every request has the same head:
//!
//! ```text
//! 0 u64 connection_id (connect: the magic) | 8 u32 action | 12 u32 transaction_id | 16 ...
//! ```
//!
//! Connection ids are only parsed here; the tracker verifies them. No answer may be sent before that,
//! and [`Request::Connected`] is the one place where the id must be verified.

mod options;
mod reply;
#[cfg(test)]
mod tests;

pub use options::Options;
pub use reply::{
    ANNOUNCE_HEAD_LEN, AnnounceHead, announce_reply, append_peers_v4, append_peers_v6,
    connect_reply, error_reply, scrape_reply,
};

use types::{Announce, Event, InfoHash, NumWant, PeerId, Refusal, limits};

/// The protocol id, which a connect request has in place of a connection id.
pub const MAGIC: u64 = 0x417_2710_1980;

/// Bytes of the head of a request: connection id, action and transaction id. A connect has nothing else.
pub const HEAD_LEN: usize = 16;

/// Action numbers of requests and answers.
pub mod action {
    /// Asks for a connection id, and answers that.
    pub const CONNECT: u32 = 0;
    /// Announces, and answers that.
    pub const ANNOUNCE: u32 = 1;
    /// Asks for counts, and answers that.
    pub const SCRAPE: u32 = 2;
    /// Refuses a request.
    pub const ERROR: u32 = 3;
}

/// A decoded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Requests a connection id. The only request that is answered without one.
    Connect {
        /// The answer must repeat it.
        transaction_id: u32,
    },
    /// Any other request. It must not be answered unless the connection id is valid.
    Connected {
        /// The connection id, to be verified against the client's address.
        connection_id: u64,
        /// The answer must repeat it.
        transaction_id: u32,
        /// The request itself.
        request: UnverifiedRequest<'a>,
    },
}

/// A request with a connection id. Verify the id before you use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnverifiedRequest<'a> {
    /// An announce.
    Announce {
        /// The announce itself.
        announce: Announce,
        /// The options after it (BEP 41).
        options: Options<'a>,
    },
    /// A scrape of at least one torrent.
    Scrape(InfoHashes<'a>),
    /// A request that cannot be served. Answer with the refusal only if the connection id is valid.
    Malformed(Refusal),
}

/// The reason why a datagram is never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than 16 bytes, the head of a request.
    TooShort,
    /// A connect request without the protocol id.
    WrongMagic,
}

/// The info hashes of a scrape: 1 to [`limits::SCRAPE_HASHES_UDP_MAX`], in the client's order, repeats
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoHashes<'a>(&'a [[u8; 20]]);

/// Decodes a datagram (BEP 15). Extra bytes after a complete request are ignored.
///
/// # Errors
///
/// Returns an error for datagrams that are never answered: shorter than 16 bytes, or a connect request without
/// the protocol id. Everything else that is wrong is [`UnverifiedRequest::Malformed`].
pub fn decode(datagram: &[u8]) -> Result<Request<'_>, DecodeError> {
    //= bep15#packet-minimum
    let Some((head, body)) = datagram.split_first_chunk::<HEAD_LEN>() else {
        return Err(DecodeError::TooShort);
    };
    let head = u128::from_be_bytes(*head);
    let (connection_id, action, transaction_id) = split_head(head);
    let request = match action {
        //= bep15#connect-request
        action::CONNECT if connection_id == MAGIC => {
            return Ok(Request::Connect { transaction_id });
        }
        action::CONNECT => return Err(DecodeError::WrongMagic),
        action::ANNOUNCE => decode_announce(body),
        action::SCRAPE => decode_scrape(body),
        _ => UnverifiedRequest::Malformed(Refusal::UnknownAction),
    };
    Ok(Request::Connected { connection_id, transaction_id, request })
}

/// Splits the head into connection id, action and transaction id.
#[expect(clippy::cast_possible_truncation, reason = "splits the number in three")]
fn split_head(head: u128) -> (u64, u32, u32) {
    ((head >> 64) as u64, (head >> 32) as u32, head as u32)
}

//= bep15#announce-request
fn decode_announce(body: &[u8]) -> UnverifiedRequest<'_> {
    let Some((fields, options)) = body.split_first_chunk::<82>() else {
        return UnverifiedRequest::Malformed(Refusal::Truncated);
    };
    match announce_fields(fields) {
        Some(announce) => UnverifiedRequest::Announce { announce, options: Options::new(options) },
        None => UnverifiedRequest::Malformed(Refusal::Truncated),
    }
}

/// Decodes the fields after the head. Never returns `None`: the array is as long as all fields
/// together. The compiler sees that and removes every check, so the caller's length check is the only
/// one.
fn announce_fields(fields: &[u8; 82]) -> Option<Announce> {
    let (info_hash, rest) = fields.split_first_chunk()?;
    let (peer_id, rest) = rest.split_first_chunk()?;
    let (downloaded, rest) = rest.split_first_chunk()?;
    let (left, rest) = rest.split_first_chunk()?;
    let (uploaded, rest) = rest.split_first_chunk()?;
    let (event, rest) = rest.split_first_chunk()?;
    //= bep15#announce-ip
    // Address and key are ignored: a tracker that trusts the address would aim traffic at a victim.
    let (_ip, rest) = rest.split_first_chunk::<4>()?;
    let (_key, rest) = rest.split_first_chunk::<4>()?;
    let (want, rest) = rest.split_first_chunk()?;
    let (port, _) = rest.split_first_chunk()?;
    Some(Announce {
        info_hash: InfoHash(*info_hash),
        peer_id: PeerId(*peer_id),
        port: u16::from_be_bytes(*port),
        event: event_of(u32::from_be_bytes(*event)),
        left: left_of(u64::from_be_bytes(*left)),
        uploaded: u64::from_be_bytes(*uploaded),
        downloaded: u64::from_be_bytes(*downloaded),
        want: want_of(i32::from_be_bytes(*want)),
    })
}

//= bep15#announce-event
fn event_of(number: u32) -> Event {
    match number {
        1 => Event::Completed,
        2 => Event::Started,
        3 => Event::Stopped,
        _ => Event::None,
    }
}

/// Clients send all ones before they know the torrent's size.
fn left_of(bytes: u64) -> Option<u64> {
    (bytes != u64::MAX).then_some(bytes)
}

//= bep15#announce-num-want
fn want_of(peers: i32) -> NumWant {
    match u32::try_from(peers) {
        Ok(peers) => NumWant::Peers(u16::try_from(peers).unwrap_or(u16::MAX)),
        Err(_) => NumWant::Default,
    }
}

//= bep15#scrape-request
fn decode_scrape(body: &[u8]) -> UnverifiedRequest<'_> {
    let (hashes, _) = body.as_chunks::<20>();
    if hashes.is_empty() {
        return UnverifiedRequest::Malformed(if body.is_empty() {
            Refusal::FullScrape
        } else {
            Refusal::Truncated
        });
    }
    //= bep15#scrape-count
    let served = hashes.get(..limits::SCRAPE_HASHES_UDP_MAX).unwrap_or(hashes);
    UnverifiedRequest::Scrape(InfoHashes(served))
}

impl InfoHashes<'_> {
    /// Returns the number of hashes, at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the hashes in the client's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = InfoHash> {
        self.0.iter().map(|hash| InfoHash(*hash))
    }

    /// Copies the hashes to `buffer` and returns the filled part.
    pub fn copy_to<'b>(
        &self,
        buffer: &'b mut [InfoHash; limits::SCRAPE_HASHES_UDP_MAX],
    ) -> &'b [InfoHash] {
        for (slot, hash) in buffer.iter_mut().zip(self.iter()) {
            *slot = hash;
        }
        buffer.get(..self.len()).unwrap_or_default()
    }
}
