//! WebSocket (RFC 6455): the handshake, and masked frames. [`wire::ws::Reader::for_server_frames`] reads the
//! server's frames.
//!
//! Keys and masks are arguments, because the caller owns the source of randomness.

#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use types::limits;
use wire::ws::{CloseCode, Opcode, accept_key, frame_header, mask as apply_mask};

/// Returns the `Sec-WebSocket-Key` of a handshake: 16 random bytes in base64.
pub fn handshake_key(random: &[u8; 16]) -> [u8; 24] {
    let mut key = [0; 24];
    let written = STANDARD.encode_slice(random, &mut key);
    debug_assert!(written == Ok(key.len()), "16 bytes are 24 digits");
    key
}

/// Appends the upgrade request. `target` is path and query, `key` is a [`handshake_key`].
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
    let mut headers = [httparse::EMPTY_HEADER; limits::HTTP_HEADERS_MAX];
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
    let start = out.len();
    write(out);
    let (header, len) = header(Opcode::Text, out.len().saturating_sub(start), mask);
    apply_mask(out.get_mut(start..).unwrap_or_default(), mask);
    out.splice(start..start, header.into_iter().take(len));
}

/// Appends a binary message, masked with `mask`.
pub fn binary(out: &mut Vec<u8>, mask: [u8; 4], body: &[u8]) {
    frame(out, mask, Opcode::Binary, body);
}

/// Appends a ping, masked with `mask`. The payload is truncated to 125 bytes.
pub fn ping(out: &mut Vec<u8>, mask: [u8; 4], payload: &[u8]) {
    frame(out, mask, Opcode::Ping, payload.get(..CONTROL_MAX).unwrap_or(payload));
}

/// Appends the answer to a ping, masked with `mask`. The payload is the ping's.
pub fn pong(out: &mut Vec<u8>, mask: [u8; 4], payload: &[u8]) {
    frame(out, mask, Opcode::Pong, payload.get(..CONTROL_MAX).unwrap_or(payload));
}

/// Appends a close frame, masked with `mask`. The reason is text for people, truncated to 123 bytes.
pub fn close(out: &mut Vec<u8>, mask: [u8; 4], code: CloseCode, reason: &str) {
    let mut payload = code.0.to_be_bytes().to_vec();
    let (reason, _) = reason.split_at(reason.floor_char_boundary(CONTROL_MAX - payload.len()));
    payload.extend_from_slice(reason.as_bytes());
    frame(out, mask, Opcode::Close, &payload);
}

/// The longest payload of a control frame (RFC 6455, 5.5).
const CONTROL_MAX: usize = 125;

fn frame(out: &mut Vec<u8>, mask: [u8; 4], opcode: Opcode, payload: &[u8]) {
    let (header, len) = header(opcode, payload.len(), mask);
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(out.get_mut(start..).unwrap_or_default(), mask);
}

/// Encodes the header of a masked frame with `payload` bytes. Returns the header and its length.
fn header(opcode: Opcode, payload: usize, mask: [u8; 4]) -> ([u8; 14], usize) {
    let (plain, len) = frame_header(opcode, payload);
    let mut header = [0; 14];
    let bytes = plain.into_iter().take(len).chain(mask);
    header.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = byte);
    let [_, second, ..] = &mut header;
    *second |= 0x80;
    (header, len + mask.len())
}
