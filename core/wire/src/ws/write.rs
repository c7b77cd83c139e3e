//! The server's frames, appended to a buffer: unmasked, one frame for each message.

use super::CloseCode;
use super::frame::{CONTROL_MAX, Opcode, frame_header};

/// Appends a text message. `write` appends the body, which must be UTF-8, and must not change the
/// bytes before it.
//= rfc6455#unmasked-server
pub fn text_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    // Reserve the header of most messages, those from 126 to 65535 bytes. For others, move the body.
    const LEN: usize = 4;
    let start = out.len();
    out.resize(start + LEN, 0);
    write(out);
    debug_assert!(out.len() >= start + LEN, "`write` removed bytes before the body");
    let body = out.len().saturating_sub(start + LEN);
    let (header, len) = frame_header(Opcode::Text, body);
    let header = header.get(..len).unwrap_or_default();
    if len != LEN {
        out.splice(start..start + LEN, header.iter().copied());
    } else if let Some(place) = out.get_mut(start..start + LEN) {
        place.copy_from_slice(header);
    }
}

/// Appends a text message.
pub fn text(out: &mut Vec<u8>, body: &str) {
    frame(out, Opcode::Text, body.as_bytes());
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
    let mut payload = [0; CONTROL_MAX];
    let reason = reason.get(..reason.floor_char_boundary(CONTROL_MAX - 2)).unwrap_or_default();
    let bytes = code.0.to_be_bytes().into_iter().chain(reason.bytes());
    payload.iter_mut().zip(bytes).for_each(|(buffer, byte)| *buffer = byte);
    frame(out, Opcode::Close, payload.get(..2 + reason.len()).unwrap_or_default());
}

fn truncate(payload: &[u8]) -> &[u8] {
    payload.get(..CONTROL_MAX).unwrap_or(payload)
}

fn frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    let (header, len) = frame_header(opcode, payload.len());
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    out.extend_from_slice(payload);
}
