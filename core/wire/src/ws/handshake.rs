//! The server's response in the handshake (RFC 6455, 4.2.2).

use sha1::{Digest, Sha1};

/// The constant with which a server proves that it speaks WebSocket (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the value of `Sec-WebSocket-Accept` for a request's `Sec-WebSocket-Key`, in base64.
//= rfc6455#accept
pub fn accept_key(key: &[u8; 24]) -> [u8; 28] {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut text = [b'='; 28];
    for (three, four) in digest.chunks(3).zip(text.chunks_mut(4)) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (24 - 8 * three.len());
        // One digit more than bytes; the rest stays padding.
        for (at, digit) in four.iter_mut().enumerate().take(three.len() + 1) {
            *digit = base64_digit(bits >> (18 - 6 * at) & 63);
        }
    }
    text
}

/// Returns a base64 digit (RFC 4648, table 1).
fn base64_digit(value: u32) -> u8 {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    DIGITS.get(value as usize).copied().unwrap_or(b'=')
}

/// Appends the response that accepts a WebSocket. It names no subprotocol and no extension, which
/// declines those that the client offers.
//= rfc6455#extensions
pub fn switching_protocols(out: &mut Vec<u8>, key: &[u8; 24]) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: ",
    );
    out.extend_from_slice(&accept_key(key));
    out.extend_from_slice(b"\r\n\r\n");
}
