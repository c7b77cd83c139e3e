//! The server's response in the handshake (RFC 6455, 4.2.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The constant with which a server proves that it speaks WebSocket (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the value of `Sec-WebSocket-Accept` for a request's `Sec-WebSocket-Key`, in base64.
//= rfc6455#accept
pub fn accept_key(key: &[u8; 24]) -> [u8; 28] {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut text = [0; 28];
    let written = STANDARD.encode_slice(digest, &mut text);
    debug_assert!(written == Ok(text.len()), "20 bytes are 28 digits");
    text
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
