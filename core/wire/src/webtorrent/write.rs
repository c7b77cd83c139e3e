//! What clients are told. Every function appends one JSON object; [`crate::ws::text_with`] makes a
//! frame of it.

use arrayvec::ArrayVec;
use types::{InfoHash, OfferId, PeerId, Refusal, Retry, SwarmCounts};

use super::{Action, Offer};
use crate::bencode::append_decimal;

/// Appends the answer to an announce.
//= webtorrent#announce-reply
pub fn announce_reply(
    out: &mut Vec<u8>,
    info_hash: &InfoHash,
    counts: &SwarmCounts,
    interval_s: u32,
) {
    out.extend_from_slice(b"{\"action\":\"announce\",\"info_hash\":");
    binary(out, &info_hash.0);
    out.extend_from_slice(b",\"complete\":");
    append_decimal(out, counts.seeders().into());
    out.extend_from_slice(b",\"incomplete\":");
    append_decimal(out, counts.leechers().into());
    out.extend_from_slice(b",\"interval\":");
    append_decimal(out, interval_s.into());
    out.push(b'}');
}

/// What passes from one client to others. All of its messages begin alike, so that is made once.
#[derive(Clone, Debug)]
pub struct Relay {
    start: ArrayVec<u8, START_MAX>,
}

/// Three texts, and two identifiers of which every byte is an escape.
const START_MAX: usize = 33 + IDENTIFIER_MAX + 11 + IDENTIFIER_MAX + 12;

impl Relay {
    /// For messages from the peer `from` of a torrent.
    pub fn new(info_hash: &InfoHash, from: &PeerId) -> Self {
        let mut relay = Self { start: ArrayVec::new() };
        relay.append(b"{\"action\":\"announce\",\"info_hash\":");
        relay.append(Identifier::of(&info_hash.0).text());
        relay.append(b",\"peer_id\":");
        relay.append(Identifier::of(&from.0).text());
        relay.append(b",\"offer_id\":");
        relay
    }

    /// Appends one of the peer's offers.
    #[inline]
    pub fn offer(&self, out: &mut Vec<u8>, offer: &Offer<'_>) {
        self.finish(out, &offer.id, b",\"offer\":", offer.json);
    }

    /// Appends the peer's answer to another one's offer. `json` is a JSON object.
    #[inline]
    pub fn answer(&self, out: &mut Vec<u8>, offer_id: &OfferId, json: &str) {
        self.finish(out, offer_id, b",\"answer\":", json);
    }

    //= webtorrent#opaque
    fn finish(&self, out: &mut Vec<u8>, id: &OfferId, key: &[u8], json: &str) {
        out.reserve(self.start.len() + IDENTIFIER_MAX + key.len() + json.len() + 1);
        out.extend_from_slice(&self.start);
        binary(out, &id.0);
        out.extend_from_slice(key);
        out.extend_from_slice(json.as_bytes());
        out.push(b'}');
    }

    fn append(&mut self, text: &[u8]) {
        // Always fits: START_MAX is the sum of all that comes.
        let fits = self.start.try_extend_from_slice(text);
        debug_assert!(fits.is_ok());
    }
}

/// Appends the answer to a scrape. `info_hashes` are distinct, and `counts` theirs.
//= webtorrent#scrape-reply
pub fn scrape_reply(out: &mut Vec<u8>, info_hashes: &[InfoHash], counts: &[SwarmCounts]) {
    out.extend_from_slice(b"{\"action\":\"scrape\",\"files\":{");
    for (at, (hash, counts)) in info_hashes.iter().zip(counts).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        binary(out, &hash.0);
        out.extend_from_slice(b":{\"complete\":");
        append_decimal(out, counts.seeders().into());
        out.extend_from_slice(b",\"incomplete\":");
        append_decimal(out, counts.leechers().into());
        out.extend_from_slice(b",\"downloaded\":");
        append_decimal(out, counts.downloads.into());
        out.push(b'}');
    }
    out.extend_from_slice(b"}}");
}

/// Appends a refusal. Clients close a connection over a message without an action they know, so what
/// is known of the request is repeated.
//= webtorrent#failure
pub fn failure(
    out: &mut Vec<u8>,
    refusal: Refusal,
    action: Option<Action>,
    info_hash: Option<&InfoHash>,
) {
    out.push(b'{');
    out.extend_from_slice(match action {
        Some(Action::Announce) => b"\"action\":\"announce\",".as_slice(),
        Some(Action::Scrape) => b"\"action\":\"scrape\",",
        None => b"",
    });
    if let Some(info_hash) = info_hash {
        out.extend_from_slice(b"\"info_hash\":");
        binary(out, &info_hash.0);
        out.push(b',');
    }
    out.extend_from_slice(b"\"failure reason\":\"");
    // Our own sentences need no escapes; a test reads them all.
    out.extend_from_slice(refusal.text().as_bytes());
    out.push(b'"');
    // As BEP 31 has it over HTTP.
    match refusal.retry() {
        Retry::Never => out.extend_from_slice(b",\"retry in\":\"never\""),
        Retry::Minutes(minutes) => {
            out.extend_from_slice(b",\"retry in\":");
            append_decimal(out, minutes.into());
        }
        Retry::Unspecified => {}
    }
    out.push(b'}');
}

/// Appends 20 bytes as a string of 20 characters, with no escapes but those that must be.
//= webtorrent#binary-strings
#[inline]
pub(super) fn binary(out: &mut Vec<u8>, bytes: &[u8; 20]) {
    out.extend_from_slice(Identifier::of(bytes).text());
}

/// The longest string that stands for 20 bytes, with its quotes: all control characters.
const IDENTIFIER_MAX: usize = 20 * 6 + 2;

/// A string that stands for 20 bytes.
struct Identifier {
    // Room for a whole entry of the table at the last byte.
    room: [u8; IDENTIFIER_MAX + 8],
    len: usize,
}

impl Identifier {
    #[inline]
    fn of(bytes: &[u8; 20]) -> Self {
        let mut identifier = Self { room: [b'"'; _], len: 1 };
        for byte in bytes {
            // Every byte has its entry.
            let (text, len) = TABLE.get(usize::from(*byte)).unwrap_or(&([0; 8], 0));
            let room = identifier.room.get_mut(identifier.len..).unwrap_or_default();
            if let Some(room) = room.first_chunk_mut() {
                *room = *text;
                identifier.len += len;
            }
        }
        if let Some(end) = identifier.room.get_mut(identifier.len) {
            *end = b'"';
            identifier.len += 1;
        }
        identifier
    }

    #[inline]
    fn text(&self) -> &[u8] {
        self.room.get(..self.len).unwrap_or_default()
    }
}

/// Every byte as a character of a JSON string, and its length.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the compiler does it, and would say so"
)]
static TABLE: [([u8; 8], usize); 256] = {
    let mut table = [([0; 8], 0); 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = character(byte as u8);
        byte += 1;
    }
    table
};

const fn character(byte: u8) -> ([u8; 8], usize) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        0..0x20 => {
            let low = byte & 15;
            let low = if low < 10 { b'0' + low } else { b'a' + low - 10 };
            return ([b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), low, 0, 0], 6);
        }
        0x20..0x80 => return ([byte, 0, 0, 0, 0, 0, 0, 0], 1),
        // In UTF-8.
        0x80.. => return ([0xc0 | byte >> 6, 0x80 | byte & 0x3f, 0, 0, 0, 0, 0, 0], 2),
    };
    ([b'\\', short, 0, 0, 0, 0, 0, 0], 2)
}
