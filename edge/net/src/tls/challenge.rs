//! The handshake by which an ACME authority verifies that this server controls a host (RFC 8737).

use rustls::server::ClientHello;

/// The protocol that such a handshake negotiates. No data follows it.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";

/// Returns whether a client offers only this protocol. A client that also offers HTTP gets HTTP.
pub(super) fn is_acme_challenge(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(PROTOCOL) && offered.next().is_none())
}
