//! The request line and the headers.

use std::mem::MaybeUninit;

use types::limits;

use super::upgrade::{self, Upgrade};
use crate::url::{self, Target, Url};

/// The result of [`read_head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedRequest<'a> {
    /// The start of a request. Read more bytes and try again.
    Partial,
    /// A complete request.
    Complete(RequestHead<'a>),
    /// Not a request that can be served. The start of the next request is unknown, so close the
    /// connection after the response.
    Invalid(RequestError),
}

/// A request, which has no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// Says whether the response has a body.
    pub method: Method,
    /// The endpoint, with the query.
    pub target: Target<'a>,
    /// The passkey in the path: `KEY` of `/announce/KEY` or `/KEY/announce`, likewise for `/scrape`.
    pub key: Option<&'a [u8]>,
    /// The path from its first `/` up to the query.
    pub path: &'a [u8],
    /// The text after the `?`.
    pub query: &'a [u8],
    /// The protocol that the client wants to upgrade to.
    pub upgrade: Upgrade<'a>,
    /// True if the connection stays open after the response.
    pub keep_alive: bool,
    /// True if the client speaks HTTP/1.1: it takes bodies in chunks.
    pub is_http_1_1: bool,
    /// True if a web browser sent the request, perhaps on behalf of a page that its user visits.
    pub is_browser: bool,
    /// The length of the head in bytes. The next request starts here.
    pub consumed: usize,
    /// The bytes of the head, where headers are searched that most requests do not need.
    pub(super) head: &'a [u8],
}

/// The supported methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The response has a body.
    Get,
    /// The response has the same head and no body.
    Head,
}

/// The reason why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// 400: not an HTTP/1 request, or a request with a body.
    BadRequest,
    /// 400: a TLS handshake.
    Tls,
    /// 405: the method is neither GET nor HEAD.
    MethodNotAllowed,
    /// 414: the request line alone exceeds [`limits::HTTP_HEAD_MAX`].
    UriTooLong,
    /// 431: the headers exceed [`limits::HTTP_HEAD_MAX`] or [`limits::HTTP_HEADERS_MAX`].
    HeadersTooLarge,
}

/// Parses the request at the start of `input`, which holds all bytes received and not yet consumed.
pub fn read_head(input: &[u8]) -> ParsedRequest<'_> {
    let mut headers = [const { MaybeUninit::uninit() }; limits::HTTP_HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(input, &mut headers);
    match status {
        Ok(httparse::Status::Complete(consumed)) if consumed <= limits::HTTP_HEAD_MAX => {
            whole(&parsed, input, consumed)
        }
        Ok(httparse::Status::Partial) if input.len() < limits::HTTP_HEAD_MAX => {
            ParsedRequest::Partial
        }
        Ok(_) => ParsedRequest::Invalid(too_large(input)),
        // A TLS record: type 22 (handshake), then the first byte of the version.
        Err(_) if input.starts_with(&[22, 3]) => ParsedRequest::Invalid(RequestError::Tls),
        Err(httparse::Error::TooManyHeaders) => {
            ParsedRequest::Invalid(RequestError::HeadersTooLarge)
        }
        Err(_) => ParsedRequest::Invalid(RequestError::BadRequest),
    }
}

/// Returns the error for a head over the limit: the request line is too long, or the headers are.
fn too_large(input: &[u8]) -> RequestError {
    let line = input.iter().take(limits::HTTP_HEAD_MAX).position(|byte| *byte == b'\n');
    if line.is_some() { RequestError::HeadersTooLarge } else { RequestError::UriTooLong }
}

fn whole<'a>(
    parsed: &httparse::Request<'_, 'a>,
    input: &'a [u8],
    consumed: usize,
) -> ParsedRequest<'a> {
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => return ParsedRequest::Invalid(RequestError::MethodNotAllowed),
    };
    let is_http_1_1 = parsed.version == Some(1);
    let mut keep_alive = is_http_1_1;
    let mut websocket = false;
    let mut is_browser = false;
    for header in parsed.headers.iter() {
        is_browser |= marks_browser(header);
        match header.name.len() {
            7 if header.name.eq_ignore_ascii_case("upgrade") => {
                websocket |= upgrade::lists(header.value, b"websocket");
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                keep_alive = connection(header.value, keep_alive);
            }
            14 if header.name.eq_ignore_ascii_case("content-length") && header.value != b"0" => {
                return ParsedRequest::Invalid(RequestError::BadRequest);
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                return ParsedRequest::Invalid(RequestError::BadRequest);
            }
            _ => {}
        }
    }
    let upgrade = if websocket { upgrade::read(parsed) } else { Upgrade::None };
    let Url { target, key, path, query } = url::read(parsed.path.unwrap_or_default().as_bytes());
    debug_assert!(parsed.path.is_some() && consumed <= input.len(), "httparse found a request");
    let head = input.get(..consumed).unwrap_or_default();
    ParsedRequest::Complete(RequestHead {
        method,
        target,
        key,
        path,
        query,
        upgrade,
        keep_alive,
        is_http_1_1,
        is_browser,
        consumed,
        head,
    })
}

/// Returns whether a header is one that browsers send and BitTorrent clients do not. A page cannot change
/// these headers of its visitor's browser, only have `Referer` and `Origin` left out.
///
/// `Accept` is no criterion: Java's clients send one that begins with `text/html`. Nor is
/// `Sec-Fetch-Mode`: Node's `fetch` sends it, without the other headers of its kind.
#[inline]
fn marks_browser(header: &httparse::Header<'_>) -> bool {
    let name = header.name;
    match name.len() {
        6 => name.eq_ignore_ascii_case("origin"),
        7 => name.eq_ignore_ascii_case("referer"),
        10 => header.value.starts_with(b"Mozilla/") && name.eq_ignore_ascii_case("user-agent"),
        14 => {
            name.eq_ignore_ascii_case("sec-fetch-site")
                || name.eq_ignore_ascii_case("sec-fetch-dest")
        }
        _ => false,
    }
}

/// Returns whether the connection stays open, given the value of a `Connection` header. `close` wins
/// over `keep-alive` in any order; other tokens are ignored.
fn connection(value: &[u8], default: bool) -> bool {
    let mut keep_alive = default;
    for token in value.split(|byte| *byte == b',') {
        let token = token.trim_ascii();
        if token.eq_ignore_ascii_case(b"close") {
            return false;
        }
        keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
    }
    keep_alive
}
