//! Cloudflare's Simple Proxy Protocol: 38 bytes before each datagram, in both directions.
//!
//! ```text
//! magic 2 | client's address 16 | proxy's address 16 | client's port 2 | proxy's port 2 | datagram
//! ```
//!
//! Big-endian; v4 addresses are written as v4-mapped v6 ones.

use super::Route;
use super::read::route_v6;

/// The start of every header.
const MAGIC: [u8; 2] = [0x56, 0xec];
/// The length of a header in bytes.
pub const HEADER_LEN: usize = 38;

/// A datagram forwarded by a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedDatagram<'a> {
    /// The client, and the proxy's address that it sent to.
    pub route: Route,
    /// The received header. The answer must start with the same bytes.
    pub header: &'a [u8; HEADER_LEN],
    /// The client's datagram.
    pub datagram: &'a [u8],
}

/// Splits the header off a datagram. Returns `None` if there is no header.
//= spp#header
pub fn unwrap(datagram: &[u8]) -> Option<ProxiedDatagram<'_>> {
    let (header, datagram) = datagram.split_first_chunk::<HEADER_LEN>()?;
    let (magic, block) = header.split_last_chunk::<36>()?;
    (magic == MAGIC).then(|| ProxiedDatagram { route: route_v6(block), header, datagram })
}
