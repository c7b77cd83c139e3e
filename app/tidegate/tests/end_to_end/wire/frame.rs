//! Ethernet frames, written and read by hand.

use std::net::{IpAddr, SocketAddr};

use harness::network::TRACKER_MAC;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAG: u16 = 0x8100;
const UDP: u8 = 17;

/// The link layer of frames to the tracker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Where frames come from.
    pub(super) mac: [u8; 6],
    /// A tag with this VLAN id.
    pub(super) vlan: Option<u16>,
}

/// A frame, from its destination in the link layer on.
#[derive(Debug)]
pub(super) struct Frame(pub(super) Vec<u8>);

impl Frame {
    /// A datagram in a frame to the tracker.
    pub(super) fn datagram(link: Link, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Self {
        let mut frame = [TRACKER_MAC, link.mac].concat();
        if let Some(id) = link.vlan {
            frame.extend([TAG, id].map(u16::to_be_bytes).as_flattened());
        }
        frame.extend(if from.is_ipv4() { IPV4 } else { IPV6 }.to_be_bytes());
        frame.extend(ip_packet(from.ip(), to.ip(), &udp(from, to, payload)));
        // Ethernet's minimum.
        frame.resize(frame.len().max(60), 0);
        Self(frame)
    }

    /// Where it goes in the link layer.
    pub(super) fn destination(&self) -> &[u8] {
        &self.0[..6]
    }

    /// The id of the only tag.
    pub(super) fn vlan(&self) -> Option<u16> {
        (word(&self.0, 12) == TAG).then(|| word(&self.0, 14))
    }

    /// Where the IP packet begins, and its EtherType.
    fn start(&self) -> (usize, u16) {
        let at = if self.vlan().is_some() { 18 } else { 14 };
        (at, word(&self.0, at - 2))
    }

    /// The IP packet, without what fills the frame.
    fn ip(&self) -> &[u8] {
        let (at, kind) = self.start();
        let packet = &self.0[at..];
        let len = if kind == IPV4 { word(packet, 2) } else { 40 + word(packet, 4) };
        &packet[..usize::from(len)]
    }

    fn ip_payload(&self) -> (u8, &[u8]) {
        let packet = self.ip();
        if packet[0] >> 4 == 4 { (packet[9], &packet[20..]) } else { (packet[6], &packet[40..]) }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.ip_payload().1[8..]
    }

    pub(super) fn is_datagram(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let (_, kind) = self.start();
        if kind != if from.is_ipv4() { IPV4 } else { IPV6 } {
            return false;
        }
        let (protocol, datagram) = self.ip_payload();
        let is_from = self.ip()[..40].windows(16).any(|it| it == &*octets(from.ip()))
            || self.ip()[12..16] == *octets(from.ip());
        is_from && protocol == UDP && datagram[..4] == ports(from, to)
    }
}

fn ip_packet(from: IpAddr, to: IpAddr, datagram: &[u8]) -> Vec<u8> {
    let len = datagram.len() as u16;
    let addresses = [octets(from), octets(to)].concat();
    if from.is_ipv6() {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([UDP, 64]);
        packet.extend(addresses);
        packet.extend(datagram);
        return packet;
    }
    let mut packet = vec![0x45, 0];
    packet.extend((20 + len).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(addresses);
    let sum = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(datagram);
    packet
}

/// A UDP datagram with its checksum.
fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len() as u16).to_be_bytes();
    let mut datagram = [&ports(from, to)[..], &len, &[0, 0], payload].concat();
    let pseudo = [&[0, UDP][..], &len].concat();
    let sum = checksum(&[&octets(from.ip()), &octets(to.ip()), &pseudo, &datagram]);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// The Internet checksum of pieces, all but the last of which have even lengths.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let words = pieces.iter().flat_map(|piece| piece.chunks(2));
    let sum: u32 = words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn ports(from: SocketAddr, to: SocketAddr) -> [u8; 4] {
    let ([a, b], [c, d]) = (from.port().to_be_bytes(), to.port().to_be_bytes());
    [a, b, c, d]
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
