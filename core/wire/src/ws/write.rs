//! The server's frames, appended to a buffer: unmasked, one frame for each message.

use super::CloseCode;
use super::frame::{CONTROL_MAX, Opcode, header, mask};

/// Appends a text message.
//= rfc6455#unmasked-server
pub fn text(out: &mut Vec<u8>, body: &str) {
    frame(out, Opcode::Text, body.as_bytes());
}

/// Appends a text message. `write` appends the body, which must be UTF-8, and must not change the
/// bytes before it.
pub fn text_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    text_frame(out, None, write);
}

/// Appends a text message in one frame, masked if there is a `key`.
#[inline]
pub(super) fn text_frame(
    out: &mut Vec<u8>,
    key: Option<[u8; 4]>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    // Reserve the header of most messages, those from 126 to 65535 bytes. For others, move the body.
    const LEN: usize = 4;
    let key_len = key.map_or(0, |key| key.len());
    let start = out.len();
    let buffer = LEN + key_len;
    out.resize(start + buffer, 0);
    write(out);
    debug_assert!(out.len() >= start + buffer, "`write` removed bytes before the body");
    let body = out.len().saturating_sub(start + buffer);
    let (header, len) = header(Opcode::Text, body, key.is_some());
    let head = header.into_iter().take(len).chain(key.into_iter().flatten());
    if len != LEN {
        out.splice(start..start + buffer, head);
    } else if let Some(place) = out.get_mut(start..start + buffer) {
        place.iter_mut().zip(head).for_each(|(place, byte)| *place = byte);
    }
    if let Some(key) = key {
        mask(out.get_mut(start + len + key_len..).unwrap_or_default(), key);
    }
}

/// Appends a ping. The payload is truncated to 125 bytes.
pub fn ping(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, Opcode::Ping, truncate(payload));
}

/// Appends the answer to a ping, with the ping's payload.
//= rfc6455#pong
pub fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, Opcode::Pong, truncate(payload));
}

/// Appends a close frame, the last frame of a connection. The reason is text for people, truncated to
/// 123 bytes.
//= rfc6455#close-answer
pub fn close(out: &mut Vec<u8>, code: CloseCode, reason: &str) {
    let (payload, len) = close_payload(code, reason);
    frame(out, Opcode::Close, payload.get(..len).unwrap_or_default());
}

/// Returns a close frame's payload as an array and its length.
pub(super) fn close_payload(code: CloseCode, reason: &str) -> ([u8; CONTROL_MAX], usize) {
    let mut payload = [0; CONTROL_MAX];
    let reason = reason.get(..reason.floor_char_boundary(CONTROL_MAX - 2)).unwrap_or_default();
    let bytes = code.0.to_be_bytes().into_iter().chain(reason.bytes());
    payload.iter_mut().zip(bytes).for_each(|(buffer, byte)| *buffer = byte);
    (payload, 2 + reason.len())
}

/// Truncates the payload of a control frame.
pub(super) fn truncate(payload: &[u8]) -> &[u8] {
    payload.get(..CONTROL_MAX).unwrap_or(payload)
}

fn frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    let (header, len) = header(opcode, payload.len(), false);
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    out.extend_from_slice(payload);
}
