//! Cloudflare's Simple Proxy Protocol: 38 bytes before each datagram, there and back.
//!
//! ```text
//! magic 2 | client's address 16 | proxy's address 16 | client's port 2 | proxy's port 2 | datagram
//! ```
//!
//! Big-endian; v4 addresses are written as v4-mapped v6 ones.

use super::Route;
use super::read::route_v6;
use super::write::to_v4_mapped;

/// How every header begins.
const MAGIC: [u8; 2] = [0x56, 0xec];
/// Bytes of a header.
pub const HEADER_LEN: usize = 38;

/// A datagram that has come through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedDatagram<'a> {
    /// Whose it is, and where the proxy got it.
    pub route: Route,
    /// The header as it came: the answer has to begin with the same bytes.
    pub header: &'a [u8; HEADER_LEN],
    /// What the client sent.
    pub datagram: &'a [u8],
}

/// Takes a datagram out of its wrapping; `None` when it has none.
//= spp#header
pub fn unwrap(datagram: &[u8]) -> Option<ProxiedDatagram<'_>> {
    let (header, datagram) = datagram.split_first_chunk::<HEADER_LEN>()?;
    let (magic, block) = header.split_last_chunk::<36>()?;
    (magic == MAGIC).then(|| ProxiedDatagram { route: route_v6(block), header, datagram })
}

/// Appends a header; the datagram goes behind it. For tools and tests.
pub fn header(out: &mut Vec<u8>, route: Route) {
    out.extend_from_slice(&MAGIC);
    for end in [route.client, route.server] {
        out.extend_from_slice(&to_v4_mapped(end.ip()).octets());
    }
    for end in [route.client, route.server] {
        out.extend_from_slice(&end.port().to_be_bytes());
    }
}
