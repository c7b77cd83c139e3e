//! HTTP (BEP 3, 7, 21, 23, 24, 48 over HTTP/1.1): writing requests and parsing responses.
//!
//! Responses are parsed as leniently as most clients do. A flaw that a client tolerates is reported
//! as a violation; one that it does not tolerate is a [`ResponseError`].

mod answer;
#[cfg(test)]
mod tests;

pub use answer::{ResponseError, TrackerResponse, parse_announce, parse_scrape};

use std::mem::MaybeUninit;

use types::{Announce, Event, InfoHash, NumWant, limits};

/// Appends the path and query of an announce. `target` is the path and query of the tracker's URL.
/// `key` is a number of the client's choice, by which a tracker can recognize it at another address.
//= bep3#announce-request
pub fn announce_target(out: &mut Vec<u8>, target: &str, announce: &Announce, key: u32) {
    let mut query = Query::behind(out, target);
    query.bytes("info_hash", &announce.info_hash.0);
    query.bytes("peer_id", &announce.peer_id.0);
    query.number("port", announce.port.into());
    query.number("uploaded", announce.uploaded);
    query.number("downloaded", announce.downloaded);
    // Trackers require it. A client that does not know the size yet is not complete in any case.
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

/// Bytes left if the size is unknown: one block of a piece, as other clients send.
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

/// Appends the path and query of a scrape. Returns `None` if the tracker's URL does not support it:
/// BEP 48 requires that the last part of the path starts with `announce`. Private trackers put a
/// passkey after that part, so `/announce` may stand anywhere in the path.
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

/// Appends a GET request. With `close`, it asks the server to close the connection.
pub fn get(out: &mut Vec<u8>, host: &str, target: &[u8], close: bool) {
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(target);
    get_end(out, host, close);
}

/// Appends the part of [`get`] after the target, for callers that write the same request many times.
pub fn get_end(out: &mut Vec<u8>, host: &str, close: bool) {
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\nUser-Agent: tidegate\r\n");
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// A query to which parameters are appended, after those that the URL already has.
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
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(number).as_bytes());
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
            // Always copy three bytes and cut off what is too much: which bytes need an escape is
            // random, so a branch would be mispredicted too often.
            let Some((code, len)) = PERCENT_CODES.get(usize::from(*byte)) else { continue };
            let end = self.out.len() + len;
            self.out.extend_from_slice(code);
            self.out.truncate(end);
        }
    }
}

/// The form of each byte in a query, and how many of the three bytes it takes.
static PERCENT_CODES: [([u8; 3], usize); 256] = percent_codes();

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

/// Returns the hex digit of a number below 16.
const fn digit(number: u8) -> u8 {
    number + if number < 10 { b'0' } else { b'A' - 10 }
}

/// The result of [`read_head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedResponse<'a> {
    /// The start of a response. Read more bytes and try again.
    Partial,
    /// A complete head.
    Complete(ResponseHead<'a>),
    /// Not an HTTP/1 response.
    Invalid,
}

/// The status line and headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: u16,
    /// The length of the body.
    pub length: Length,
    /// True if the server keeps the connection open.
    pub keep_alive: bool,
    /// The redirect's target: `Location`.
    pub location: Option<&'a [u8]>,
    /// The body's `Content-Encoding`, unless it is `identity`. Requests ask for no other.
    pub encoding: Option<&'a [u8]>,
    /// The length of the head in bytes. The body starts here.
    pub consumed: usize,
}

/// The length of a body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This number of bytes.
    Bytes(u64),
    /// The body is a sequence of [`Chunk`]s.
    Chunked,
    /// The body ends with the connection.
    Connection,
}

/// Parses the head of a response at the start of `input`, which holds all bytes received and not yet
/// consumed.
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
        // Two lengths that differ could smuggle a second response.
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

/// Returns whether a comma-separated list contains `token`, ignoring ASCII case.
fn lists(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(token))
}

/// The result of [`read_chunk`] (RFC 9112, 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// The start of a chunk. Read more bytes and try again.
    Partial,
    /// A part of the body.
    Data {
        /// The chunk's bytes.
        bytes: &'a [u8],
        /// Where the next chunk starts.
        consumed: usize,
    },
    /// The end of the body.
    End {
        /// Where the next response starts.
        consumed: usize,
    },
    /// Not a chunk.
    Invalid,
}

/// Parses the chunk at the start of `input`. Trailers are skipped.
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
