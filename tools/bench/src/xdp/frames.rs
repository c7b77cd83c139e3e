//! Frames as the generator sends them: Ethernet, IPv4 or IPv6, UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Link-layer addresses of the tracker's end and of the generator's.
pub(super) const TRACKER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[cfg(test)]
const ETHERNET: usize = 14;
const UDP: usize = 8;
const IS_UDP: u8 = 17;
const TIME_TO_LIVE: u8 = 64;

/// An address family of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the bytes before a datagram's payload.
    #[cfg(test)]
    pub(super) fn headers(self) -> usize {
        ETHERNET + UDP + if self == Self::V4 { 20 } else { 40 }
    }

    /// Returns the address of a client. Clients are spread over networks, so that no peer limit of a
    /// network is in their way.
    pub(super) fn client(self, number: u32) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from_bits(CLIENTS_V4 | (number * 4)).into(),
            Self::V6 => Ipv6Addr::from_bits(CLIENTS_V6 | (u128::from(number) << 64) | 1).into(),
        }
    }
}

/// 198.18.0.0/15 is for benchmarks (RFC 2544). To a tracker it is a public network.
const CLIENTS_V4: u32 = 198 << 24 | 18 << 16;
/// Each client has a /64 of 2001:db8::/32 (RFC 3849).
const CLIENTS_V6: u128 = 0x2001_0db8_0002 << 80;

/// Writes a frame from a client to the tracker. The UDP checksum is left out where it may be: in IPv4.
pub(super) fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut frame = [TRACKER_MAC, GENERATOR_MAC].concat();
    let udp_len = (UDP + payload.len()) as u16;
    let mut udp = [from.port(), to.port(), udp_len, 0].map(u16::to_be_bytes).concat();
    udp.extend(payload);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0];
            header.extend((20 + udp_len).to_be_bytes());
            // No fragment, and none allowed.
            header.extend([0, 0, 0x40, 0, TIME_TO_LIVE, IS_UDP, 0, 0]);
            header.extend([from.octets(), to.octets()].concat());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([0x08, 0]);
            frame.extend(header);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            let length = u32::from(udp_len).to_be_bytes();
            let pseudo = [&addresses[..], &length, &[0, 0, 0, IS_UDP], &udp].concat();
            // 0 would mean that there is none.
            let sum = if checksum(&pseudo) == 0 { 0xffff } else { checksum(&pseudo) };
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(udp_len.to_be_bytes());
            frame.extend([IS_UDP, TIME_TO_LIVE]);
            frame.extend(addresses);
        }
        _ => unreachable!("both ends are of one family"),
    }
    frame.extend(udp);
    frame
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::CONNECT;

    #[test]
    fn frames_are_valid() {
        let v4 =
            frame("198.18.0.4:1024".parse().unwrap(), "192.0.2.1:80".parse().unwrap(), &CONNECT);
        assert_eq!(v4.len(), Family::V4.headers() + CONNECT.len());
        // A valid header has the sum 0, and so has a datagram with its pseudo header.
        assert_eq!(checksum(&v4[14..34]), 0);
        assert_eq!(
            (&v4[12..15], &v4[34..42]),
            (&[8, 0, 0x45][..], &[4, 0, 0, 80, 0, 24, 0, 0][..])
        );
        let v6 = frame(
            "[2001:db8::1]:1024".parse().unwrap(),
            "[2001:db8::2]:80".parse().unwrap(),
            &[7; 33],
        );
        assert_eq!(v6.len(), Family::V6.headers() + 33);
        let length = 41_u32.to_be_bytes();
        assert_eq!(checksum(&[&v6[22..54], &length, &[0, 0, 0, 17], &v6[54..]].concat()), 0);
    }

    #[test]
    fn clients_are_spread() {
        for family in [Family::V4, Family::V6] {
            assert_ne!(family.client(0), family.client(32_000));
        }
        assert_eq!(Family::V4.client(64).to_string(), "198.18.1.0");
        assert_eq!(Family::V6.client(2).to_string(), "2001:db8:2:2::1");
    }
}
