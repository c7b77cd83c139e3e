//! The queries of announces and scrapes.
//!
//! Parameters come in any order. Unknown ones are skipped without decoding, because clients put raw
//! bytes there (aria2's `key`). If a name repeats, its first value counts. A `+` is a plus sign:
//! clients write bytes as `%XX`, never as HTML forms do.

use types::{Announce, Event, InfoHash, NumWant, PeerId, Refusal, limits};

use crate::url::parameters;

/// The parameters of an HTTP announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceQuery {
    /// The announce itself.
    pub announce: Announce,
    /// Whether the response may list peers compactly (BEP 23). False only for `compact=0`.
    pub compact: bool,
    /// Whether peers in dictionaries come without peer ids.
    pub no_peer_id: bool,
}

/// The raw values of an announce's parameters.
#[derive(Default)]
struct Raw<'a> {
    info_hash: Option<&'a [u8]>,
    peer_id: Option<&'a [u8]>,
    port: Option<&'a [u8]>,
    uploaded: Option<&'a [u8]>,
    downloaded: Option<&'a [u8]>,
    left: Option<&'a [u8]>,
    event: Option<&'a [u8]>,
    numwant: Option<&'a [u8]>,
    compact: Option<&'a [u8]>,
    no_peer_id: Option<&'a [u8]>,
}

/// Parses an announce's query. Returns the refusal for the first missing or malformed parameter.
//= bep3#announce-request
pub fn announce_query(query: &[u8]) -> Result<AnnounceQuery, Refusal> {
    let raw = Raw::read(query);
    let info_hash = raw.info_hash.ok_or(Refusal::InfoHashMissing)?;
    let info_hash = twenty_bytes(info_hash).ok_or(Refusal::InfoHashMalformed)?;
    let peer_id = raw.peer_id.and_then(twenty_bytes).ok_or(Refusal::PeerIdMalformed)?;
    let port = raw.port.and_then(number).ok_or(Refusal::PortMalformed)?;
    //= bep3#announce-left
    let left = match raw.left {
        None | Some(b"") => None,
        Some(text) => Some(left(text).ok_or(Refusal::LeftMalformed)?),
    };
    let announce = Announce {
        info_hash: InfoHash(info_hash),
        peer_id: PeerId(peer_id),
        port: u16::try_from(port).map_err(|_| Refusal::PortMalformed)?,
        event: event(raw.event.unwrap_or_default()),
        left,
        uploaded: raw.uploaded.and_then(number).unwrap_or(0),
        downloaded: raw.downloaded.and_then(number).unwrap_or(0),
        want: want(raw.numwant),
    };
    //= bep23#compact-advisory
    let compact = raw.compact != Some(b"0");
    Ok(AnnounceQuery { announce, compact, no_peer_id: raw.no_peer_id == Some(b"1") })
}

impl<'a> Raw<'a> {
    fn read(query: &'a [u8]) -> Self {
        let mut raw = Self::default();
        for (name, value) in parameters(query) {
            let slot = match name {
                b"info_hash" => &mut raw.info_hash,
                b"peer_id" => &mut raw.peer_id,
                b"port" => &mut raw.port,
                b"uploaded" => &mut raw.uploaded,
                b"downloaded" => &mut raw.downloaded,
                b"left" => &mut raw.left,
                b"event" => &mut raw.event,
                b"numwant" => &mut raw.numwant,
                b"compact" => &mut raw.compact,
                b"no_peer_id" => &mut raw.no_peer_id,
                //= bep3#announce-ip
                //= bep7#foreign-address
                // Skipped: ip, ipv4 and ipv6 would let a client aim traffic at a victim; key and
                // trackerid are not used.
                _ => continue,
            };
            slot.get_or_insert(value);
        }
        raw
    }
}

/// A scrape's query, which names at most [`limits::SCRAPE_HASHES_HTTP_MAX`] torrents.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeQuery<'a> {
    query: &'a [u8],
}

impl<'a> ScrapeQuery<'a> {
    /// Wraps a scrape's query; nothing is parsed yet.
    pub fn new(query: &'a [u8]) -> Self {
        Self { query }
    }

    /// Writes the requested info hashes to `buffer` and returns the filled part. Hashes are sorted and
    /// distinct, because they become the keys of a dictionary. Returns a refusal if a hash is
    /// malformed or if there is none.
    //= bep48#scrape-request
    pub fn read_into<'b>(
        &self,
        buffer: &'b mut [InfoHash; limits::SCRAPE_HASHES_HTTP_MAX],
    ) -> Result<&'b [InfoHash], Refusal> {
        let mut len = 0;
        let named = parameters(self.query).filter(|(name, _)| *name == b"info_hash");
        for ((_, value), slot) in named.zip(buffer.iter_mut()) {
            *slot = InfoHash(twenty_bytes(value).ok_or(Refusal::InfoHashMalformed)?);
            len += 1;
        }
        //= bep48#full-scrape
        if len == 0 {
            return Err(Refusal::FullScrape);
        }
        let named = buffer.get_mut(..len).unwrap_or_default();
        //= bep3#bencode-sorted-keys
        named.sort_unstable();
        Ok(dedup(named))
    }
}

/// Moves the distinct hashes of a sorted slice to its front and returns them.
fn dedup(hashes: &mut [InfoHash]) -> &[InfoHash] {
    let mut kept = 0_usize;
    for at in 0..hashes.len() {
        let Some(hash) = hashes.get(at).copied() else { break };
        let last = kept.checked_sub(1).and_then(|last| hashes.get(last));
        if last != Some(&hash) {
            if let Some(slot) = hashes.get_mut(kept) {
                *slot = hash;
            }
            kept += 1;
        }
    }
    hashes.get(..kept).unwrap_or_default()
}

/// Percent-decodes exactly 20 bytes. Returns `None` for any other length or a bad escape.
//= bep3#percent-encoding
fn twenty_bytes(text: &[u8]) -> Option<[u8; 20]> {
    let mut bytes = [0; 20];
    let mut rest = text;
    for byte in &mut bytes {
        let (first, behind) = rest.split_first()?;
        (*byte, rest) = if *first == b'%' {
            let ([high, low], behind) = behind.split_first_chunk()?;
            ((hex(*high)? << 4) | hex(*low)?, behind)
        } else {
            (*first, behind)
        };
    }
    rest.is_empty().then_some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Parses a decimal number of at most 64 bits, digits only.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses the number of bytes left. Clients that do not know it yet send -1 or all ones; both count
/// as "more than 0".
fn left(text: &[u8]) -> Option<u64> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let value = number(unsigned).or_else(|| {
        unsigned.iter().all(u8::is_ascii_digit).then_some(u64::MAX).filter(|_| !unsigned.is_empty())
    })?;
    Some(if unsigned.len() < text.len() { u64::MAX } else { value })
}

//= bep3#announce-event
//= bep21#event-paused
fn event(text: &[u8]) -> Event {
    match text {
        b"started" => Event::Started,
        b"completed" => Event::Completed,
        b"stopped" => Event::Stopped,
        b"paused" => Event::Paused,
        _ => Event::None,
    }
}

fn want(text: Option<&[u8]>) -> NumWant {
    match text.and_then(number) {
        Some(peers) => NumWant::Peers(u16::try_from(peers).unwrap_or(u16::MAX)),
        None => NumWant::Default,
    }
}
