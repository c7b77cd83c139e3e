//! Request line and headers.

use std::mem::MaybeUninit;

use types::limits;

use super::upgrade::{self, Upgrade};
use crate::url::{self, Target, Url};

/// What the first bytes of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedRequest<'a> {
    /// The beginning of a request: more must come.
    Partial,
    /// A whole request.
    Complete(RequestHead<'a>),
    /// Nothing that can be served. Where the next request would start is unknown, so the
    /// connection ends with the answer.
    Invalid(RequestError),
}

/// A request without a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// Whether the answer has a body.
    pub method: Method,
    /// What is asked for.
    pub target: Target<'a>,
    /// KEY of `/announce/KEY` or `/KEY/announce`, or the same with `/scrape`.
    pub key: Option<&'a [u8]>,
    /// The path alone, from `/` up to the query.
    pub path: &'a [u8],
    /// What is behind the `?`.
    pub query: &'a [u8],
    /// What the connection shall become.
    pub upgrade: Upgrade<'a>,
    /// Whether the connection stays open afterwards.
    pub keep_alive: bool,
    /// Where the next request starts.
    pub consumed: usize,
    /// The bytes of the head itself, for [`RequestHead::forwarded_addresses`].
    pub(super) head: &'a [u8],
}

/// The two methods there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// With a body in the answer.
    Get,
    /// The same head without the body.
    ParsedRequest,
}

/// Why a request cannot be served as HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// 400: no HTTP/1 request, or one with a body.
    BadRequest,
    /// 400: a handshake of TLS.
    Tls,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 414: the request line alone is over [`limits::HTTP_HEAD_MAX`].
    UriTooLong,
    /// 431: the headers are over [`limits::HTTP_HEAD_MAX`] or [`limits::HTTP_HEADERS_MAX`].
    HeadersTooLarge,
}

/// Looks for a request at the start of `input`, which holds all that has come so far.
pub fn read_head(input: &[u8]) -> ParsedRequest<'_> {
    let mut headers = [const { MaybeUninit::uninit() }; limits::HTTP_HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(input, &mut headers);
    match status {
        Ok(httparse::Status::Complete(consumed)) if consumed <= limits::HTTP_HEAD_MAX => {
            whole(&parsed, input, consumed)
        }
        Ok(httparse::Status::Complete(_)) => ParsedRequest::Invalid(too_large(input)),
        Ok(httparse::Status::Partial) if input.len() < limits::HTTP_HEAD_MAX => {
            ParsedRequest::Partial
        }
        Ok(httparse::Status::Partial) => ParsedRequest::Invalid(too_large(input)),
        // The kind of record, and the first byte of its version.
        Err(_) if input.starts_with(&[22, 3]) => ParsedRequest::Invalid(RequestError::Tls),
        Err(httparse::Error::TooManyHeaders) => {
            ParsedRequest::Invalid(RequestError::HeadersTooLarge)
        }
        Err(_) => ParsedRequest::Invalid(RequestError::BadRequest),
    }
}

/// Which part of an overlong head is to blame.
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
        Some("HEAD") => Method::ParsedRequest,
        _ => return ParsedRequest::Invalid(RequestError::MethodNotAllowed),
    };
    let mut keep_alive = parsed.version == Some(1);
    let mut websocket = false;
    for header in parsed.headers.iter() {
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
    let head = input.get(..consumed).unwrap_or_default();
    ParsedRequest::Complete(RequestHead {
        method,
        target,
        key,
        path,
        query,
        upgrade,
        keep_alive,
        consumed,
        head,
    })
}

/// `close` wins over `keep-alive`, whatever the order; other tokens say nothing.
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
