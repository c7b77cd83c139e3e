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
    /// True if the response may list peers compactly (BEP 23). False only for `compact=0`.
    pub compact: bool,
    /// True if peers in dictionaries come without peer ids.
    pub no_peer_id: bool,
}

/// The decoded parameters of an announce. A value that is missing or malformed is `None`.
#[derive(Default)]
struct Fields<'a> {
    /// The names met so far, as bits: only a name's first value counts.
    seen: u16,
    info_hash: Option<[u8; 20]>,
    peer_id: Option<[u8; 20]>,
    port: Option<u64>,
    uploaded: Option<u64>,
    downloaded: Option<u64>,
    left: &'a [u8],
    event: &'a [u8],
    numwant: Option<u64>,
    compact: &'a [u8],
    no_peer_id: &'a [u8],
}

/// Parses an announce's query (BEP 3, 21, 23, 52).
///
/// # Errors
///
/// Returns the refusal for the first that is missing or malformed of info hash, peer ID, port and bytes left.
/// Other malformed parameters count as missing.
///
/// Plain form: split at `&`, split at `=`, compare the name with each known one, decode the values
/// (`plain` in this module's tests, which check that both agree). Departures:
/// 1. A name is found by its first bytes, and its value is decoded where it stands, which also finds
///    the value's end. Only unknown parameters are searched for theirs.
//= bep3#announce-request
pub fn announce_query(query: &[u8]) -> Result<AnnounceQuery, Refusal> {
    let mut fields = Fields::default();
    let mut rest = query;
    while let Some((_, behind)) = fields.parameter(rest).split_first() {
        rest = behind;
    }
    if fields.seen & INFO_HASH == 0 {
        return Err(Refusal::InfoHashMissing);
    }
    let info_hash = match fields.info_hash {
        Some(info_hash) => info_hash,
        None => truncated_hash(query).ok_or(Refusal::InfoHashMalformed)?,
    };
    let peer_id = fields.peer_id.ok_or(Refusal::PeerIdMalformed)?;
    let port = fields.port.ok_or(Refusal::PortMalformed)?;
    //= bep3#announce-left
    let left = match fields.left {
        b"" => None,
        text => Some(left(text).ok_or(Refusal::LeftMalformed)?),
    };
    let want = |peers| NumWant::Peers(u16::try_from(peers).unwrap_or(u16::MAX));
    let announce = Announce {
        info_hash: InfoHash(info_hash),
        peer_id: PeerId(peer_id),
        port: u16::try_from(port).map_err(|_| Refusal::PortMalformed)?,
        event: event(fields.event),
        left,
        uploaded: fields.uploaded.unwrap_or(0),
        downloaded: fields.downloaded.unwrap_or(0),
        want: fields.numwant.map_or(NumWant::Default, want),
    };
    //= bep23#compact-advisory
    let compact = fields.compact != b"0";
    Ok(AnnounceQuery { announce, compact, no_peer_id: fields.no_peer_id == b"1" })
}

const INFO_HASH: u16 = 1;
const PEER_ID: u16 = 1 << 1;
const PORT: u16 = 1 << 2;
const UPLOADED: u16 = 1 << 3;
const DOWNLOADED: u16 = 1 << 4;
const LEFT: u16 = 1 << 5;
const EVENT: u16 = 1 << 6;
const NUMWANT: u16 = 1 << 7;
const COMPACT: u16 = 1 << 8;
const NO_PEER_ID: u16 = 1 << 9;

impl<'a> Fields<'a> {
    /// Decodes the parameter at the start of `text`. Returns what stands behind it: the next `&`, or
    /// nothing.
    #[inline]
    fn parameter(&mut self, text: &'a [u8]) -> &'a [u8] {
        // The first bytes choose the only name that the parameter may have.
        match text {
            [b'i', b'n', ..] => self.named(INFO_HASH, text, b"info_hash", |fields, value| {
                twenty_bytes(value, &mut fields.info_hash)
            }),
            [b'p', b'e', ..] => self.named(PEER_ID, text, b"peer_id", |fields, value| {
                twenty_bytes(value, &mut fields.peer_id)
            }),
            [b'p', b'o', ..] => {
                self.named(PORT, text, b"port", |fields, value| number(value, &mut fields.port))
            }
            [b'u', ..] => self.named(UPLOADED, text, b"uploaded", |fields, value| {
                number(value, &mut fields.uploaded)
            }),
            [b'd', ..] => self.named(DOWNLOADED, text, b"downloaded", |fields, value| {
                number(value, &mut fields.downloaded)
            }),
            [b'l', ..] => {
                self.named(LEFT, text, b"left", |fields, value| text_value(value, &mut fields.left))
            }
            [b'e', ..] => self
                .named(EVENT, text, b"event", |fields, value| text_value(value, &mut fields.event)),
            [b'n', b'u', ..] => self.named(NUMWANT, text, b"numwant", |fields, value| {
                number(value, &mut fields.numwant)
            }),
            [b'n', b'o', ..] => self.named(NO_PEER_ID, text, b"no_peer_id", |fields, value| {
                text_value(value, &mut fields.no_peer_id)
            }),
            [b'c', b'o', b'm', ..] => self.named(COMPACT, text, b"compact", |fields, value| {
                text_value(value, &mut fields.compact)
            }),
            //= bep3#announce-ip
            //= bep7#foreign-address
            // Skipped: ip, ipv4 and ipv6 would let a client aim traffic at a victim; key and
            // trackerid are not used.
            _ => skip(text),
        }
    }

    /// Decodes the parameter at the start of `text` by `decode` if its name is `name` and comes for the
    /// first time. The length of a name is known to the compiler, which compares it in one or two
    /// words.
    #[inline]
    fn named<const N: usize>(
        &mut self,
        bit: u16,
        text: &'a [u8],
        name: &[u8; N],
        decode: impl FnOnce(&mut Self, &'a [u8]) -> &'a [u8],
    ) -> &'a [u8] {
        let value = match text.split_first_chunk::<N>() {
            Some((first, [b'=', value @ ..])) if first == name => value,
            // A name without `=` has an empty value.
            Some((first, rest @ ([] | [b'&', ..]))) if first == name => rest,
            _ => return skip(text),
        };
        if self.seen & bit != 0 {
            return skip(value);
        }
        self.seen |= bit;
        decode(self, value)
    }
}

/// Bytes searched one by one before a vectorised search begins.
const SHORT: usize = 24;

/// Returns `text` from the next `&` on: nothing if there is none.
#[inline]
fn skip(text: &[u8]) -> &[u8] {
    // Most unknown parameters are short: a vectorised search would cost more to set up.
    let (start, rest) = text.split_at(text.len().min(SHORT));
    if let Some(at) = start.iter().position(|byte| *byte == b'&') {
        return text.get(at..).unwrap_or_default();
    }
    match memchr::memchr(b'&', rest) {
        Some(at) => rest.get(at..).unwrap_or_default(),
        None => &[],
    }
}

/// Stores the value at the start of `text` as it stands; returns what stands behind it. Such values
/// have few bytes, so looking at each is faster than a vectorised search.
#[inline]
fn text_value<'a>(text: &'a [u8], value: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| *byte == b'&').unwrap_or(text.len());
    let (own, behind) = text.split_at(end);
    *value = own;
    behind
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

    /// Returns whether the scrape names no torrent: it asks for all.
    //= bep48#full-scrape
    pub fn asks_for_all(&self) -> bool {
        !parameters(self.query).any(|(name, _)| name == b"info_hash")
    }

    /// Writes the requested info hashes to `buffer` and returns the filled part. Hashes are sorted and
    /// distinct, because they become the keys of a dictionary.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::InfoHashMalformed`] if a hash has neither 20 nor 32 bytes, and
    /// [`Refusal::FullScrape`] if there is none.
    //= bep48#scrape-request
    pub fn read_into<'b>(
        &self,
        buffer: &'b mut [ScrapedHash; limits::SCRAPE_HASHES_HTTP_MAX],
    ) -> Result<&'b [ScrapedHash], Refusal> {
        let mut len = 0;
        let named = parameters(self.query).filter(|(name, _)| *name == b"info_hash");
        for ((_, value), slot) in named.zip(buffer.iter_mut()) {
            let mut hash = None;
            twenty_bytes(value, &mut hash);
            *slot = match hash {
                Some(hash) => ScrapedHash { info_hash: InfoHash(hash), rest: None },
                None => ScrapedHash::v2(value).ok_or(Refusal::InfoHashMalformed)?,
            };
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

/// A torrent as a scrape names it, which the response repeats. Sorts as its bytes do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrapedHash {
    /// The torrent: the hash itself, or the first 20 bytes of a v2 hash (BEP 52).
    pub info_hash: InfoHash,
    /// The other 12 bytes of a v2 hash that was not truncated by the client.
    pub rest: Option<[u8; 12]>,
}

impl ScrapedHash {
    #[cold]
    fn v2(value: &[u8]) -> Option<Self> {
        let hash = thirty_two_bytes(value)?;
        let (first, rest) = hash.split_first_chunk()?;
        Some(Self { info_hash: InfoHash(*first), rest: rest.first_chunk().copied() })
    }
}

/// Returns the info hash of an announce whose first one does not have 20 bytes, if it has 32: a v2 hash,
/// truncated.
//= bep52#truncated-hash
#[cold]
fn truncated_hash(query: &[u8]) -> Option<[u8; 20]> {
    let (_, value) = parameters(query).find(|(name, _)| *name == b"info_hash")?;
    thirty_two_bytes(value)?.first_chunk().copied()
}

/// Percent-decodes a value of exactly 32 bytes.
//= bep52#full-hash
fn thirty_two_bytes(value: &[u8]) -> Option<[u8; 32]> {
    let (mut bytes, mut rest) = ([0; 32], value);
    for decoded in &mut bytes {
        (*decoded, rest) = match rest {
            [b'%', high, low, behind @ ..] => {
                let (high, low) = (hex(*high), hex(*low));
                (high | low <= 15).then_some((high << 4 | low, behind))?
            }
            [b'%', ..] | [] => return None,
            [raw, behind @ ..] => (*raw, behind),
        };
    }
    rest.is_empty().then_some(bytes)
}

/// Returns the first value of a parameter, as it stands in the query.
pub fn parameter<'a>(query: &'a [u8], name: &str) -> Option<&'a [u8]> {
    parameters(query).find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
}

/// Moves the distinct hashes of a sorted slice to its front and returns them.
fn dedup(hashes: &mut [ScrapedHash]) -> &[ScrapedHash] {
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

/// Percent-decodes the value at the start of `text`, which ends at `&`, and stores it if it has
/// exactly 20 bytes. Returns what stands behind it.
//= bep3#percent-encoding
#[inline]
fn twenty_bytes<'a>(text: &'a [u8], value: &mut Option<[u8; 20]>) -> &'a [u8] {
    // A copy of the longest value that is valid, and of what follows it. Masked positions need no bounds
    // checks, and the padding ends the value as an `&` does.
    let mut window = [b'&'; WINDOW];
    let len = text.len().min(LONGEST + 1);
    let (copy, _) = window.split_at_mut(len);
    copy.copy_from_slice(text.split_at(len).0);
    let byte = |at: usize| window.get(at % WINDOW).copied().unwrap_or(b'&');
    let mut bytes = [0; 20];
    let mut at = 0;
    for decoded in &mut bytes {
        *decoded = match byte(at) {
            b'%' => {
                let (high, low) = (hex(byte(at + 1)), hex(byte(at + 2)));
                if high | low > 15 {
                    return skip(text);
                }
                at += 3;
                high << 4 | low
            }
            b'&' => return skip(text),
            raw => {
                at += 1;
                raw
            }
        };
    }
    if byte(at) != b'&' {
        return skip(text);
    }
    *value = Some(bytes);
    text.get(at..).unwrap_or_default()
}

/// 20 bytes as `%XX`.
const LONGEST: usize = 60;
const WINDOW: usize = 64;

/// The value of a hex digit, above 15 for any other byte.
#[inline]
fn hex(digit: u8) -> u8 {
    HEX.get(usize::from(digit)).copied().unwrap_or(u8::MAX)
}

static HEX: [u8; 256] = hex_values();

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "all bytes in turn")]
const fn hex_values() -> [u8; 256] {
    let mut values = [u8::MAX; 256];
    let mut at = 0;
    while at < values.len() {
        let byte = at as u8;
        values[at] = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => u8::MAX,
        };
        at += 1;
    }
    values
}

/// Parses the decimal number at the start of `text`, which ends at `&`, and stores it if it has
/// digits only and at most 64 bits. Returns what stands behind it.
#[inline]
fn number<'a>(text: &'a [u8], value: &mut Option<u64>) -> &'a [u8] {
    let (mut number, mut rest) = (0_u64, text);
    while let [digit @ b'0'..=b'9', behind @ ..] = rest {
        let next = number.checked_mul(10).and_then(|tens| tens.checked_add((digit - b'0').into()));
        let Some(next) = next else { return skip(rest) };
        (number, rest) = (next, behind);
    }
    if let [] | [b'&', ..] = rest {
        *value = (rest.len() < text.len()).then_some(number);
        rest
    } else {
        skip(rest)
    }
}

/// Parses the number of bytes left. Clients that do not know it yet send -1 or all ones; both count
/// as "more than 0".
fn left(text: &[u8]) -> Option<u64> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let mut value = None;
    number(unsigned, &mut value);
    let value = value.or_else(|| {
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

#[cfg(test)]
mod tests;
