//! For whom a proxy speaks: the PROXY protocol at the start of a TCP connection, versions 1 (a line
//! of text) and 2 (binary), and Cloudflare's Simple Proxy Protocol before each UDP datagram
//! ([`simple`]).
//!
//! Anybody can write such a header. Whether the sender may is the caller's business; so is what the
//! addresses in it are worth.

mod read;
pub mod simple;
#[cfg(test)]
mod tests;
mod write;

pub use read::{ParsedProxyHeader, ProxyHeader, ProxyHeaderError, Route, read};
pub use write::{line, local, relayed};

/// How a header of version 2 begins: no text, and no other protocol either.
const BINARY_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// How a header of version 1 begins.
const TEXT_PREFIX: &[u8; 6] = b"PROXY ";

/// Whether these first bytes of a connection are those of a header, whole or not. HTTP and TLS
/// begin otherwise.
pub fn is_proxy_header(input: &[u8]) -> bool {
    input.starts_with(TEXT_PREFIX) || input.starts_with(BINARY_SIGNATURE)
}
