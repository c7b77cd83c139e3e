//! Frames as the generator sends them: Ethernet, IPv4, UDP.

use std::net::{Ipv4Addr, SocketAddrV4};

use xdp::frame::v4_header;

/// Link-layer addresses of the tracker's end and of the generator's.
pub(super) const TRACKER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

const UDP: usize = 8;
/// 198.18.0.0/15 is for benchmarks (RFC 2544). To a tracker it is a public network.
const CLIENTS: u32 = 198 << 24 | 18 << 16;

/// Returns the address of a client. Clients are spread over networks, so that no peer limit of a network is in their
/// way.
pub(super) fn client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(CLIENTS | (number * 4))
}

/// Writes a frame from a client to the tracker. The UDP checksum is left out, as it may be in IPv4.
pub(super) fn frame(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let udp_len = (UDP + payload.len()) as u16;
    let mut frame = [TRACKER_MAC, GENERATOR_MAC].concat();
    frame.extend([0x08, 0]);
    frame.extend(v4_header(*from.ip(), *to.ip(), udp_len, 0));
    frame.extend([from.port(), to.port(), udp_len, 0].map(u16::to_be_bytes).concat());
    frame.extend(payload);
    frame
}
