//! Client addresses from proxies: the PROXY protocol at the start of a TCP connection, version 1 (a
//! line of text) and version 2 (binary), and Cloudflare's Simple Proxy Protocol before each UDP
//! datagram ([`simple`]).
//!
//! Any sender can forge such a header. The caller must check that the sender is a trusted proxy, and
//! whether the addresses are usable.

mod read;
pub mod simple;
#[cfg(test)]
mod tests;

pub use read::{ParsedProxyHeader, ProxyHeader, Route, read};

/// The start of a header of version 2. Chosen to be neither text nor the start of another protocol.
const BINARY_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The start of a header of version 1.
const TEXT_PREFIX: &[u8; 6] = b"PROXY ";

/// Returns whether the first bytes of a connection start a header, complete or not. HTTP and TLS start
/// differently.
pub fn is_proxy_header(input: &[u8]) -> bool {
    input.starts_with(TEXT_PREFIX) || input.starts_with(BINARY_SIGNATURE)
}
