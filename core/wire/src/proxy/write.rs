//! Writing PROXY headers as a proxy does. For tools and tests.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

use super::{BINARY_SIGNATURE, Route};

/// Appends a header of version 1. If the endpoints are of two families, both are written as v6.
pub fn line(out: &mut Vec<u8>, route: Route) {
    let Route { client, server } = route;
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = match (client.ip(), server.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            write!(text, "PROXY TCP4 {from} {to} {} {}\r\n", client.port(), server.port())
        }
        (from, to) => {
            let (from, to) = (to_v4_mapped(from), to_v4_mapped(to));
            write!(text, "PROXY TCP6 {from} {to} {} {}\r\n", client.port(), server.port())
        }
    };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a header of version 2 for a client's connection. `extensions` are encoded TLVs, truncated
/// to 65,000 bytes. If the endpoints are of two families, both are written as v6.
pub fn relayed(out: &mut Vec<u8>, route: Route, extensions: &[u8]) {
    let mut block = Vec::new();
    let family = match (route.client.ip(), route.server.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            block.extend([from, to].map(|ip| ip.octets()).as_flattened());
            0x11
        }
        (from, to) => {
            block.extend([from, to].map(|ip| to_v4_mapped(ip).octets()).as_flattened());
            0x21
        }
    };
    block.extend([route.client, route.server].map(|end| end.port().to_be_bytes()).as_flattened());
    block.extend(extensions.iter().take(65_000));
    version_2(out, 0x21, family, &block);
}

/// Appends a header of version 2 for a connection of the proxy itself.
pub fn local(out: &mut Vec<u8>) {
    version_2(out, 0x20, 0, &[]);
}

fn version_2(out: &mut Vec<u8>, command: u8, family: u8, block: &[u8]) {
    out.extend_from_slice(BINARY_SIGNATURE);
    out.extend_from_slice(&[command, family]);
    // Always fits: extensions are truncated to 65,000 bytes.
    debug_assert!(block.len() <= usize::from(u16::MAX));
    out.extend_from_slice(&u16::try_from(block.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(block);
}

pub(super) fn to_v4_mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
