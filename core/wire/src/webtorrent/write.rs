//! Messages to clients. Every function appends one JSON object; [`crate::ws::text_with`] puts it into a
//! frame.

use arrayvec::ArrayVec;
use types::{InfoHash, Notice, OfferId, PeerId, Refusal, Retry, SwarmCounts};

use super::{Action, Offer};
use crate::bencode::append_decimal;

/// Appends the reply to an announce.
//= webtorrent#announce-reply
pub fn announce_reply(
    out: &mut Vec<u8>,
    info_hash: &InfoHash,
    counts: &SwarmCounts,
    interval_s: u32,
    warning: Option<Notice>,
) {
    out.extend_from_slice(b"{\"action\":\"announce\",\"info_hash\":");
    append_binary_string(out, &info_hash.0);
    out.extend_from_slice(b",\"complete\":");
    append_decimal(out, counts.seeders().into());
    out.extend_from_slice(b",\"incomplete\":");
    append_decimal(out, counts.leechers().into());
    out.extend_from_slice(b",\"interval\":");
    append_decimal(out, interval_s.into());
    if let Some(warning) = warning {
        out.extend_from_slice(b",\"warning message\":\"");
        // Notices need no escapes.
        out.extend_from_slice(warning.text().as_bytes());
        out.push(b'"');
    }
    out.push(b'}');
}

/// Writes the messages that are relayed from one client to others. They all start alike, so the start
/// is encoded once.
#[derive(Clone, Debug)]
pub struct Relay {
    start: ArrayVec<u8, START_MAX>,
}

/// The length of three constant texts, and of two binary strings with an escape for every byte.
const START_MAX: usize = 33 + BINARY_STRING_MAX + 11 + BINARY_STRING_MAX + 12;

impl Relay {
    /// Returns a writer for messages from the peer `from` in a torrent.
    pub fn new(info_hash: &InfoHash, from: &PeerId) -> Self {
        let mut relay = Self { start: ArrayVec::new() };
        relay.append(b"{\"action\":\"announce\",\"info_hash\":");
        relay.append(BinaryString::of(&info_hash.0).text());
        relay.append(b",\"peer_id\":");
        relay.append(BinaryString::of(&from.0).text());
        relay.append(b",\"offer_id\":");
        relay
    }

    /// Appends one of the peer's offers.
    #[inline]
    pub fn offer(&self, out: &mut Vec<u8>, offer: &Offer<'_>) {
        self.finish(out, &offer.id, b",\"offer\":", offer.json);
    }

    /// Appends the peer's answer to an offer of another peer. `json` is a JSON object.
    #[inline]
    pub fn answer(&self, out: &mut Vec<u8>, offer_id: &OfferId, json: &str) {
        self.finish(out, offer_id, b",\"answer\":", json);
    }

    //= webtorrent#opaque
    fn finish(&self, out: &mut Vec<u8>, id: &OfferId, key: &[u8], json: &str) {
        out.reserve(self.start.len() + BINARY_STRING_MAX + key.len() + json.len() + 1);
        out.extend_from_slice(&self.start);
        append_binary_string(out, &id.0);
        out.extend_from_slice(key);
        out.extend_from_slice(json.as_bytes());
        out.push(b'}');
    }

    fn append(&mut self, text: &[u8]) {
        // Always fits: START_MAX is the sum of all parts.
        let fits = self.start.try_extend_from_slice(text);
        debug_assert!(fits.is_ok());
    }
}

/// Appends the reply to a scrape. `info_hashes` must be distinct, and `counts` in the same order.
//= webtorrent#scrape-reply
pub fn scrape_reply(out: &mut Vec<u8>, info_hashes: &[InfoHash], counts: &[SwarmCounts]) {
    out.extend_from_slice(b"{\"action\":\"scrape\",\"files\":{");
    for (at, (hash, counts)) in info_hashes.iter().zip(counts).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        append_binary_string(out, &hash.0);
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

/// Appends a refusal. It repeats what is known of the request, because clients close the connection
/// when a message has no known action.
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
        append_binary_string(out, &info_hash.0);
        out.push(b',');
    }
    out.extend_from_slice(b"\"failure reason\":\"");
    // Refusal texts need no escapes; a test checks all of them.
    out.extend_from_slice(refusal.text().as_bytes());
    out.push(b'"');
    if let Some(interval_s) = refusal.interval_s() {
        out.extend_from_slice(b",\"interval\":");
        append_decimal(out, interval_s.into());
    }
    // As in BEP 31 for HTTP.
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

/// Appends 20 bytes as a string of 20 characters, escaping only what JSON requires.
//= webtorrent#binary-strings
#[inline]
pub fn append_binary_string(out: &mut Vec<u8>, bytes: &[u8; 20]) {
    out.extend_from_slice(BinaryString::of(bytes).text());
}

/// The length of the longest encoding of 20 bytes, all control characters, with quotes.
const BINARY_STRING_MAX: usize = 20 * 6 + 2;

/// 20 bytes, encoded as a JSON string.
struct BinaryString {
    // 8 bytes longer than needed, so that a whole table entry fits at the last byte.
    buffer: [u8; BINARY_STRING_MAX + 8],
    len: usize,
}

impl BinaryString {
    #[inline]
    fn of(bytes: &[u8; 20]) -> Self {
        let mut string = Self { buffer: [b'"'; _], len: 1 };
        for byte in bytes {
            // Every byte has an entry.
            let (text, len) = TABLE.get(usize::from(*byte)).unwrap_or(&([0; 8], 0));
            let buffer = string.buffer.get_mut(string.len..).unwrap_or_default();
            // The buffer is 8 bytes longer than the longest string.
            debug_assert!(buffer.len() >= text.len());
            if let Some(buffer) = buffer.first_chunk_mut() {
                *buffer = *text;
                string.len += len;
            }
        }
        if let Some(end) = string.buffer.get_mut(string.len) {
            *end = b'"';
            string.len += 1;
        }
        string
    }

    #[inline]
    fn text(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// The encoding of every byte as a character of a JSON string, and its length.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated at compile time, where an error stops the build"
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
        // Two bytes of UTF-8.
        0x80.. => return ([0xc0 | byte >> 6, 0x80 | byte & 0x3f, 0, 0, 0, 0, 0, 0], 2),
    };
    ([b'\\', short, 0, 0, 0, 0, 0, 0], 2)
}
