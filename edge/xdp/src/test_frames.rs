//! Builds frames as clients send them, for tests.

use std::net::{IpAddr, SocketAddr};

pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

pub(crate) const MAGIC: u64 = 0x0417_2710_1980;

/// Returns a frame with a datagram. Checksums are right.
pub(crate) fn frame(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    frame_between(from.parse().unwrap(), to.parse().unwrap(), payload)
}

pub(crate) fn frame_between(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let ethernet_type: u16 = if to.is_ipv4() { 0x0800 } else { 0x86dd };
    let head = [&SERVER_MAC[..], &CLIENT_MAC, &ethernet_type.to_be_bytes()].concat();
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let len = (28 + payload.len()) as u16;
            let head = [&[0x45, 0x2e][..], &len.to_be_bytes(), &[0x12, 0x34, 0, 0, 57, 17, 0, 0]];
            let mut head = [&head.concat()[..], &from.octets(), &to.octets()].concat();
            let checksum = naive_checksum(&head);
            head[10..12].copy_from_slice(&checksum.to_be_bytes());
            head
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = (8 + payload.len()) as u16;
            let head = [&[0x61, 0x23, 0x45, 0x67][..], &len.to_be_bytes(), &[17, 57]].concat();
            [&head[..], &from.octets(), &to.octets()].concat()
        }
        _ => panic!("{from} and {to} are of two families"),
    };
    let len = (8 + payload.len()) as u16;
    for number in [from.port(), to.port(), len, 0] {
        packet.extend(number.to_be_bytes());
    }
    packet.extend(payload);
    set_udp_checksum(&mut packet);
    [head, packet].concat()
}

pub(crate) fn connect(from: &str, to: &str) -> Vec<u8> {
    frame(from, to, &connect_payload(0x0102_0304))
}

pub(crate) fn connect_payload(transaction_id: u32) -> Vec<u8> {
    [&MAGIC.to_be_bytes()[..], &[0; 4], &transaction_id.to_be_bytes()].concat()
}

pub(crate) fn announce(from: &str, to: &str, id: u64) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 9, 9, 9, 9], &[0x55; 82]].concat();
    frame(from, to, &payload)
}

/// Returns the frame with a tag of its VLAN.
pub(crate) fn tagged(frame: &[u8], id: u16) -> Vec<u8> {
    let tag = [&[0x81, 0x00][..], &(0x6000 | id).to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

/// Returns the frame with other bytes at `at`.
pub(crate) fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Sets the checksum of an IP packet's datagram.
pub(crate) fn set_udp_checksum(packet: &mut [u8]) {
    let (at, _) = datagram_of(packet);
    packet[at + 6..at + 8].fill(0);
    let checksum = match udp_checksum(packet) {
        0 => 0xffff,
        other => other,
    };
    packet[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// Returns the checksum over an IP packet's pseudo-header and datagram: 0 if the datagram has the right one.
pub(crate) fn udp_checksum(packet: &[u8]) -> u16 {
    let (at, addresses) = datagram_of(packet);
    let datagram = &packet[at..];
    let pseudo = [addresses, &(datagram.len() as u32).to_be_bytes(), &[0, 0, 0, 17]].concat();
    naive_checksum(&[&pseudo, datagram].concat())
}

fn datagram_of(packet: &[u8]) -> (usize, &[u8]) {
    if packet[0] >> 4 == 4 { (20, &packet[12..20]) } else { (40, &packet[8..40]) }
}

/// The checksum of RFC 1071, word by word.
pub(crate) fn naive_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
