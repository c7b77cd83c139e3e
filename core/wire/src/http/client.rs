//! The other direction: what a client asks, and how it reads the answer. For tools and tests.
//!
//! Answers of other trackers are read as leniently as most clients read them; what is not as it
//! should be is told where a client could live with it, and an error where it could not.

mod answer;
#[cfg(test)]
mod tests;

pub use answer::{
    AnnounceResponse, ResponseError, ScrapeEntry, ScrapeResponse, TrackerResponse, Violation,
    parse_announce, parse_scrape,
};

use std::mem::MaybeUninit;

use types::{Announce, Event, InfoHash, NumWant, limits};

use crate::bencode::append_decimal;
use crate::http::upgrade::lists;

/// Appends path and query of an announce to the tracker whose URL has `target` as its own. `key` is a
/// client's own number, by which a tracker may know it at another address.
//= bep3#announce-request
pub fn announce_target(out: &mut Vec<u8>, target: &str, announce: &Announce, key: u32) {
    let mut query = Query::behind(out, target);
    query.bytes("info_hash", &announce.info_hash.0);
    query.bytes("peer_id", &announce.peer_id.0);
    query.number("port", announce.port.into());
    query.number("uploaded", announce.uploaded);
    query.number("downloaded", announce.downloaded);
    // Trackers ask for it. A client that does not know yet misses something at any rate.
    query.number("left", announce.left.unwrap_or(LEFT_UNKNOWN));
    query.number("compact", 1);
    if let NumWant::Peers(peers) = announce.want {
        query.number("numwant", peers.into());
    }
    if let Some(word) = event(announce.event) {
        query.word("event", word);
    }
    query.hex("key", key);
}

/// What is left where the size is not known: a block of a piece, as other clients say.
const LEFT_UNKNOWN: u64 = 16384;

fn event(event: Event) -> Option<&'static str> {
    match event {
        Event::None => None,
        Event::Started => Some("started"),
        Event::Completed => Some("completed"),
        Event::Stopped => Some("stopped"),
        Event::Paused => Some("paused"),
    }
}

/// Appends path and query of a scrape. Nothing if the tracker's URL tells that there is none: BEP 48
/// wants `announce` behind the last `/` of its path. Trackers that know their users by a key put it
/// behind that, so any `/announce` will do.
//= bep48#scrape-url
pub fn scrape_target(out: &mut Vec<u8>, target: &str, hashes: &[InfoHash]) -> Option<()> {
    const WORD: &str = "/announce";
    let path = target.split('?').next().unwrap_or_default();
    let (before, rest) = target.split_at_checked(path.rfind(WORD)?)?;
    let rest = rest.strip_prefix(WORD)?;
    let mut query = Query::behind(out, &format!("{before}/scrape{rest}"));
    for hash in hashes {
        query.bytes("info_hash", &hash.0);
    }
    Some(())
}

/// Appends a request whose connection is meant to stay open, unless `close` is set.
pub fn get(out: &mut Vec<u8>, host: &str, target: &[u8], close: bool) {
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(target);
    get_end(out, host, close);
}

/// Appends what stands behind the target in [`get`], for those who write the same request many times.
pub fn get_end(out: &mut Vec<u8>, host: &str, close: bool) {
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\nUser-Agent: tidegate\r\n");
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// A query that grows behind what the URL has already.
struct Query<'a> {
    out: &'a mut Vec<u8>,
    next: u8,
}

impl<'a> Query<'a> {
    fn behind(out: &'a mut Vec<u8>, target: &str) -> Self {
        out.extend_from_slice(target.as_bytes());
        Self { out, next: if target.contains('?') { b'&' } else { b'?' } }
    }

    fn name(&mut self, name: &str) {
        self.out.push(self.next);
        self.next = b'&';
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'=');
    }

    fn word(&mut self, name: &str, word: &str) {
        self.name(name);
        self.out.extend_from_slice(word.as_bytes());
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        append_decimal(self.out, number);
    }

    fn hex(&mut self, name: &str, number: u32) {
        self.name(name);
        let bytes = number.to_be_bytes();
        self.out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    }

    //= bep3#percent-encoding
    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        self.name(name);
        for byte in bytes {
            // Which bytes need more than one cannot be foretold: a branch would be wrong too often.
            let (code, len) = PERCENT_CODES.get(usize::from(*byte)).copied().unwrap_or_default();
            let end = self.out.len() + len;
            self.out.extend_from_slice(&code);
            self.out.truncate(end);
        }
    }
}

/// How each byte is written in a query, and how many of the three bytes that takes.
static PERCENT_CODES: [([u8; 3], usize); 256] = percent_codes();

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "all bytes in turn")]
const fn percent_codes() -> [([u8; 3], usize); 256] {
    let mut percent_codes = [([0; 3], 0); 256];
    let mut at = 0;
    while at < percent_codes.len() {
        let byte = at as u8;
        percent_codes[at] = match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' | b'_' | b'~' => {
                ([byte, 0, 0], 1)
            }
            _ => ([b'%', digit(byte >> 4), digit(byte & 15)], 3),
        };
        at += 1;
    }
    percent_codes
}

/// The hex digit of a number below 16.
const fn digit(number: u8) -> u8 {
    number + if number < 10 { b'0' } else { b'A' - 10 }
}

/// The first bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedResponse<'a> {
    /// More must come.
    Partial,
    /// A whole head.
    Complete(ResponseHead<'a>),
    /// No HTTP/1.
    Invalid,
}

/// Status line and headers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: u16,
    /// How long the body is.
    pub length: Length,
    /// Whether the server means to keep the connection open.
    pub keep_alive: bool,
    /// Where it is to be asked instead: `Location`.
    pub location: Option<&'a [u8]>,
    /// How the body is encoded, `identity` aside, which is all that is asked for.
    pub encoding: Option<&'a [u8]>,
    /// Where the body starts.
    pub consumed: usize,
}

/// How long a body is (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many bytes.
    Bytes(u64),
    /// [`Chunk`]s tell.
    Chunked,
    /// It ends with the connection.
    Connection,
}

/// Looks for the head of an answer at the start of `input`, which holds all that has come so far.
pub fn read_head(input: &[u8]) -> ParsedResponse<'_> {
    let mut headers = [const { MaybeUninit::uninit() }; limits::HTTP_HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut parsed, input, &mut headers) {
        Ok(httparse::Status::Complete(consumed)) => match response(&parsed, consumed) {
            Some(response) => ParsedResponse::Complete(response),
            None => ParsedResponse::Invalid,
        },
        Ok(httparse::Status::Partial) => ParsedResponse::Partial,
        Err(_) => ParsedResponse::Invalid,
    }
}

fn response<'a>(parsed: &httparse::Response<'_, 'a>, consumed: usize) -> Option<ResponseHead<'a>> {
    let status = parsed.code?;
    let values = |name: &'static str| {
        let same = parsed.headers.iter().filter(move |it| it.name.eq_ignore_ascii_case(name));
        same.map(|header| header.value.trim_ascii())
    };
    let mut lengths = values("content-length");
    let length = match lengths.next() {
        // Two that differ are a way to smuggle answers.
        Some(text) if lengths.any(|other| other != text) => return None,
        Some(text) => Some(Length::Bytes(std::str::from_utf8(text).ok()?.parse().ok()?)),
        None => None,
    };
    let length = if matches!(status, 100..200 | 204 | 304) {
        Length::Bytes(0)
    } else if values("transfer-encoding").any(|value| lists(value, b"chunked")) {
        Length::Chunked
    } else {
        length.unwrap_or(Length::Connection)
    };
    let connection = |token| values("connection").any(|value| lists(value, token));
    let keep_alive = !connection(b"close")
        && (parsed.version == Some(1) || connection(b"keep-alive"))
        && length != Length::Connection;
    let identity = |value: &&[u8]| !value.eq_ignore_ascii_case(b"identity");
    let encoding = values("content-encoding").find(identity);
    let location = values("location").next();
    Some(ResponseHead { status, length, keep_alive, location, encoding, consumed })
}

/// What stands at the start of what is left of a chunked body (RFC 9112, 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// More must come.
    Partial,
    /// A piece of the body.
    Data {
        /// The piece.
        bytes: &'a [u8],
        /// Where the next chunk starts.
        consumed: usize,
    },
    /// The end of the body.
    End {
        /// Where the next answer starts.
        consumed: usize,
    },
    /// No chunk.
    Invalid,
}

/// Takes the chunk at the start of `input`. Trailers are passed over.
pub fn read_chunk(input: &[u8]) -> Chunk<'_> {
    let (start, len) = match httparse::parse_chunk_size(input) {
        Ok(httparse::Status::Complete(found)) => found,
        Ok(httparse::Status::Partial) => return Chunk::Partial,
        Err(_) => return Chunk::Invalid,
    };
    let rest = input.get(start..).unwrap_or_default();
    if len == 0 {
        let mut headers = [httparse::EMPTY_HEADER; limits::HTTP_HEADERS_MAX];
        return match httparse::parse_headers(rest, &mut headers) {
            Ok(httparse::Status::Complete((trailers, _))) => {
                Chunk::End { consumed: start + trailers }
            }
            Ok(httparse::Status::Partial) => Chunk::Partial,
            Err(_) => Chunk::Invalid,
        };
    }
    let Some((bytes, rest)) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len))
    else {
        return Chunk::Partial;
    };
    match rest {
        [b'\r', b'\n', ..] => Chunk::Data { bytes, consumed: start + bytes.len() + 2 },
        [] | [b'\r'] => Chunk::Partial,
        _ => Chunk::Invalid,
    }
}
