//! The client's side: handshake and frames. For tests, load testers and tracker clients.
//! [`super::Reader::for_server_frames`] reads the server's frames.
//!
//! Keys and masks are arguments, because the caller owns the source of randomness.

use super::frame::{Opcode, header, mask as apply};
use super::write::{close_payload, text_frame, truncate};
use super::{CloseCode, accept_key};

/// Appends the upgrade request. `target` is path and query, `key` is 16 random bytes in base64.
pub fn request(out: &mut Vec<u8>, host: &str, target: &str, key: &[u8; 24]) {
    for part in [b"GET ", target.as_bytes(), b" HTTP/1.1\r\nHost: ", host.as_bytes()] {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(
        b"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: ",
    );
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n\r\n");
}

/// The result of [`read_handshake_reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeReply {
    /// The start of a response. Read more bytes and try again.
    Partial,
    /// The server accepts; frames follow.
    Accepted {
        /// The length of the response in bytes. Frames start here.
        consumed: usize,
    },
    /// The server refuses with this status.
    Refused(u16),
    /// Not a valid response, or the response to another key.
    Invalid,
}

/// Parses the server's response at the start of `input`, which holds all bytes received so far.
pub fn read_handshake_reply(input: &[u8], key: &[u8; 24]) -> HandshakeReply {
    let mut headers = [httparse::EMPTY_HEADER; types::limits::HTTP_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let consumed = match response.parse(input) {
        Ok(httparse::Status::Complete(consumed)) => consumed,
        Ok(httparse::Status::Partial) => return HandshakeReply::Partial,
        Err(_) => return HandshakeReply::Invalid,
    };
    let accepts = |header: &httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("sec-websocket-accept")
            && header.value.trim_ascii() == accept_key(key)
    };
    match response.code {
        Some(101) if response.headers.iter().any(accepts) => HandshakeReply::Accepted { consumed },
        Some(101) | None => HandshakeReply::Invalid,
        Some(code) => HandshakeReply::Refused(code),
    }
}

/// Appends a text message, masked with `mask`.
pub fn text(out: &mut Vec<u8>, mask: [u8; 4], body: &str) {
    frame(out, mask, Opcode::Text, body.as_bytes());
}

/// Appends a text message, masked with `mask`. `write` appends the body, which must be UTF-8, and must
/// not change the bytes before it.
pub fn text_with(out: &mut Vec<u8>, mask: [u8; 4], write: impl FnOnce(&mut Vec<u8>)) {
    text_frame(out, Some(mask), write);
}

/// Appends a binary message, masked with `mask`.
pub fn binary(out: &mut Vec<u8>, mask: [u8; 4], body: &[u8]) {
    frame(out, mask, Opcode::Binary, body);
}

/// Appends a ping. The payload is truncated to 125 bytes.
pub fn ping(out: &mut Vec<u8>, mask: [u8; 4], payload: &[u8]) {
    frame(out, mask, Opcode::Ping, truncate(payload));
}

/// Appends the answer to a ping, with the ping's payload.
pub fn pong(out: &mut Vec<u8>, mask: [u8; 4], payload: &[u8]) {
    frame(out, mask, Opcode::Pong, truncate(payload));
}

/// Appends a close frame; see [`super::close()`].
pub fn close(out: &mut Vec<u8>, mask: [u8; 4], code: CloseCode, reason: &str) {
    let (payload, len) = close_payload(code, reason);
    frame(out, mask, Opcode::Close, payload.get(..len).unwrap_or_default());
}

fn frame(out: &mut Vec<u8>, mask: [u8; 4], opcode: Opcode, payload: &[u8]) {
    let (header, len) = header(opcode, payload.len(), true);
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    apply(out.get_mut(start..).unwrap_or_default(), mask);
}
