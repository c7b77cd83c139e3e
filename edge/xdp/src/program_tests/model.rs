//! A model of the program, written plainly: the twin that tests compare it with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use primitives::IpPrefix;
use primitives::siphash::siphash_slice_ip;

use crate::IdSlices;
use crate::bpf::action;
use crate::interface::Endpoint;
use crate::next_hops::{NextHop, NextHops};
use crate::test_frames::{MAGIC, naive_checksum, set_udp_checksum};

/// The reason for what the program did with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// It is not for a listener, or nothing that the program reads.
    Foreign,
    Connect,
    Steered,
    Passed,
    Banned,
    Blocked,
    BadId,
    WrongMagic,
    TooShort,
}

/// The program's result for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// The listener whose counts change.
    pub(super) listener: usize,
    pub(super) payload_len: usize,
    pub(super) frame: Vec<u8>,
}

/// Everything that the maps hold, but for rates.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) steering: bool,
    pub(super) has_socket: bool,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) passed: Vec<IpPrefix>,
    pub(super) blocked: Vec<IpPrefix>,
    pub(super) bans: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(super) ids: Option<IdSlices>,
    pub(super) next_hops: NextHops,
    pub(super) vlans: Vec<u16>,
}

/// A datagram with correct headers.
struct Datagram<'a> {
    ip_at: usize,
    from: SocketAddr,
    endpoint: Endpoint,
    payload: &'a [u8],
}

impl Verdict {
    /// Returns the program's return value.
    pub(super) fn action(&self) -> u32 {
        match self.outcome {
            Outcome::Foreign | Outcome::Passed => action::PASS,
            Outcome::Connect => action::TX,
            Outcome::Steered => action::REDIRECT,
            _ => action::DROP,
        }
    }
}

impl Model {
    /// Returns the id of an address in a slice.
    pub(super) fn id(&self, slice: u32, ip: IpAddr) -> u64 {
        siphash_slice_ip::<2, 4>(&self.ids.unwrap().key, slice, ip)
    }

    pub(super) fn verdict(&self, frame: &[u8]) -> Verdict {
        let verdict = |outcome, listener, payload_len| Verdict {
            outcome,
            listener,
            payload_len,
            frame: frame.to_vec(),
        };
        let Some((ip_at, packet)) = self.ip_packet(frame) else {
            return verdict(Outcome::Foreign, 0, 0);
        };
        let Some((from, endpoint)) = self.endpoint(packet) else {
            return verdict(Outcome::Foreign, 0, 0);
        };
        let listener = endpoint.listener.into();
        let Some(payload) = payload(packet) else { return verdict(Outcome::Passed, listener, 0) };
        if !is_host(from.ip()) || from.ip() == endpoint.address.ip() || from.port() == 0 {
            return verdict(Outcome::Passed, listener, payload.len());
        }
        let datagram = Datagram { ip_at, from, endpoint, payload };
        let outcome = self.judge(&datagram);
        let mut verdict = verdict(outcome, listener, payload.len());
        if outcome == Outcome::Connect && !self.answer(&mut verdict.frame, &datagram) {
            verdict.outcome = self.steer(&datagram);
        }
        verdict
    }

    /// Returns the IP packet of a frame for one host, and where it begins.
    fn ip_packet<'a>(&self, frame: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let is_for_one = frame[0] & 1 == 0;
        let kind = |at| u16::from_be_bytes([frame[at], frame[at + 1]]);
        if frame.len() < 18 || !is_for_one {
            return None;
        }
        let at = match kind(12) {
            0x8100 if self.vlans.contains(&(kind(14) & 0xfff)) => 18,
            0x8100 => return None,
            _ => 14,
        };
        matches!(kind(at - 2), 0x0800 | 0x86dd).then_some(())?;
        let version = if kind(at - 2) == 0x0800 { 4 } else { 6 };
        (frame.len() > at && frame[at] >> 4 == version).then(|| (at, &frame[at..]))
    }

    /// Returns source and endpoint of a datagram without options and fragments.
    fn endpoint(&self, packet: &[u8]) -> Option<(SocketAddr, Endpoint)> {
        let is_v4 = packet[0] >> 4 == 4;
        let header = if is_v4 { 20 } else { 40 };
        if packet.len() < header + 8 {
            return None;
        }
        let is_plain = match is_v4 {
            true => packet[0] == 0x45 && packet[9] == 17 && packet[6] & 0x3f == 0 && packet[7] == 0,
            false => packet[6] == 17,
        };
        let address = |at: usize| -> IpAddr {
            match is_v4 {
                true => Ipv4Addr::from_octets(packet[at..at + 4].try_into().unwrap()).into(),
                false => Ipv6Addr::from_octets(packet[at..at + 16].try_into().unwrap()).into(),
            }
        };
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let (source, destination) = if is_v4 { (12, 16) } else { (8, 24) };
        let from = SocketAddr::new(address(source), port(header));
        let to = SocketAddr::new(address(destination), port(header + 2));
        let found = self.endpoints.iter().find(|endpoint| endpoint.address == to);
        is_plain.then(|| found.map(|endpoint| (from, *endpoint)))?
    }

    fn judge(&self, datagram: &Datagram<'_>) -> Outcome {
        let ip = datagram.from.ip();
        let Endpoint { answers, verifies, filters, .. } = datagram.endpoint;
        let contains = |networks: &[IpPrefix]| networks.iter().any(|network| network.contains(ip));
        let next_hop = if ip.is_ipv4() { self.next_hops.v4 } else { self.next_hops.v6 };
        if matches!(next_hop, NextHop::Unknown) || contains(&self.passed) {
            return Outcome::Passed;
        }
        if filters && self.is_banned(ip) {
            return Outcome::Banned;
        }
        if filters && contains(&self.blocked) {
            return Outcome::Blocked;
        }
        let dropped = |outcome| if verifies { outcome } else { self.steer(datagram) };
        let Some(head) = datagram.payload.first_chunk::<16>() else {
            return dropped(Outcome::TooShort);
        };
        let (Some(ids), true) = (self.ids, answers || verifies) else {
            return self.steer(datagram);
        };
        let head = u128::from_be_bytes(*head);
        let (id, action) = ((head >> 64) as u64, (head >> 32) as u32);
        match action {
            0 if id != MAGIC => dropped(Outcome::WrongMagic),
            0 if answers && datagram.payload.len() == 16 => Outcome::Connect,
            0 => self.steer(datagram),
            _ => {
                let previous = ids.current.checked_sub(1).filter(|slice| *slice > 0);
                let next = ids.current.checked_add(1).filter(|_| ids.accepts_next);
                let slices = [Some(ids.current), previous, next];
                let is_valid = slices.into_iter().flatten().any(|slice| id == self.id(slice, ip));
                if is_valid { self.steer(datagram) } else { dropped(Outcome::BadId) }
            }
        }
    }

    fn steer(&self, datagram: &Datagram<'_>) -> Outcome {
        let steers = self.steering && self.has_socket && datagram.payload.len() <= 1472;
        if steers { Outcome::Steered } else { Outcome::Passed }
    }

    /// Returns whether the whole /24 of an address is within one banned range.
    fn is_banned(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip else { return false };
        let [a, b, c, _] = ip.octets();
        let (first, last) = (Ipv4Addr::new(a, b, c, 0), Ipv4Addr::new(a, b, c, 255));
        self.bans.iter().any(|(from, to)| *from <= first && last <= *to)
    }

    /// Turns a connect into its answer. Returns false if nothing may be sent.
    fn answer(&self, frame: &mut [u8], datagram: &Datagram<'_>) -> bool {
        let ip = datagram.from.ip();
        let (server_mac, client_mac): ([u8; 6], [u8; 6]) =
            (frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap());
        // The engine's own rule, so that program and engine are compared.
        let Some(destination) = self.next_hops.mac(ip, client_mac) else { return false };
        frame[..6].copy_from_slice(&destination);
        frame[6..12].copy_from_slice(&server_mac);
        let packet = &mut frame[datagram.ip_at..];
        let header = if ip.is_ipv4() { 20 } else { 40 };
        match (datagram.endpoint.address.ip(), ip) {
            (IpAddr::V4(server), IpAddr::V4(client)) => {
                packet[..2].copy_from_slice(&[0x45, 0]);
                packet[4..12].copy_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
                packet[12..16].copy_from_slice(&server.octets());
                packet[16..20].copy_from_slice(&client.octets());
                let checksum = naive_checksum(&packet[..20]);
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(server), IpAddr::V6(client)) => {
                packet[..4].copy_from_slice(&[0x60, 0, 0, 0]);
                packet[7] = 64;
                packet[8..24].copy_from_slice(&server.octets());
                packet[24..40].copy_from_slice(&client.octets());
            }
            _ => unreachable!("source and destination are of one family"),
        }
        packet[header..header + 2].copy_from_slice(&datagram.endpoint.address.port().to_be_bytes());
        packet[header + 2..header + 4].copy_from_slice(&datagram.from.port().to_be_bytes());
        let transaction_id: [u8; 4] = datagram.payload[12..16].try_into().unwrap();
        let id = self.id(self.ids.unwrap().current, ip);
        let payload = [&[0; 4], &transaction_id[..], &id.to_be_bytes()].concat();
        let packet = &mut packet[..header + 24];
        packet[header + 8..].copy_from_slice(&payload);
        set_udp_checksum(packet);
        true
    }
}

/// Returns the payload of a datagram that fills its packet.
fn payload(packet: &[u8]) -> Option<&[u8]> {
    let is_v4 = packet[0] >> 4 == 4;
    let header = if is_v4 { 20 } else { 40 };
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let ip_payload = if is_v4 { number(2).checked_sub(20)? } else { number(4) };
    let udp_len = number(header + 4);
    let has_checksum = is_v4 || number(header + 6) != 0;
    if udp_len != ip_payload || !has_checksum {
        return None;
    }
    packet.get(header + 8..header + udp_len)
}

/// Returns whether an answer could reach a host with this address.
fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => ip.segments()[..4] != [0; 4] && ip.octets()[0] != 0xff,
    }
}
