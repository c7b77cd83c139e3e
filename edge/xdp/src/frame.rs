//! Ethernet frames of UDP datagrams: parses requests, and builds the headers of replies.
//!
//! Pure functions of bytes. Frames may come with one VLAN tag (802.1Q), which replies keep. Whatever
//! else a network may carry (fragments, IP options, extension headers) is not parsed: the XDP program
//! leaves it to the UDP sockets. Checksums of requests are not verified, because the frame check
//! sequence was, and because virtual interfaces deliver partial sums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

/// Bytes of the longest headers before a payload: Ethernet with a tag, IPv6, UDP.
pub const HEADERS_MAX: usize = ETHERNET_LEN + TAG_LEN + V6_LEN + UDP_LEN;

/// Payload bytes up to which a v4 reply must not be fragmented. Longer replies may be: the message that
/// a path is too narrow would reach the kernel, which did not send them. It is what IPv6 allows on any
/// path (1,280 bytes), with the shorter header.
pub const UNFRAGMENTED_MAX: usize = 1252;

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;

const ETHERTYPE_V4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];
const ETHERTYPE_TAG: [u8; 2] = [0x81, 0x00];
const UDP: u8 = 17;
/// Version 4, and a header of five words.
const V4_WITHOUT_OPTIONS: u8 = 0x45;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
/// Hops that a reply may take.
const TTL: u8 = 64;

/// A UDP datagram in an Ethernet frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The source.
    pub from: SocketAddr,
    /// The destination.
    pub to: SocketAddr,
    /// The offsets of the payload in the frame, in bytes.
    pub payload: Range<usize>,
    /// The MAC address of the source.
    pub from_mac: [u8; 6],
    to_mac: [u8; 6],
    /// The control information of the VLAN tag, if there is one.
    tag: Option<[u8; 2]>,
}

impl Datagram {
    /// Parses `frame`. Returns `None` unless it is Ethernet with at most one tag, IP without options or
    /// fragments, and UDP whose length agrees with that of IP. Bytes after it are padding.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (to_mac, rest) = frame.split_first_chunk::<6>()?;
        let (from_mac, rest) = rest.split_first_chunk::<6>()?;
        let (mut ethertype, mut rest) = rest.split_first_chunk::<2>()?;
        let mut tag = None;
        if *ethertype == ETHERTYPE_TAG {
            let (bytes, after) = rest.split_first_chunk::<2>()?;
            tag = Some(*bytes);
            (ethertype, rest) = after.split_first_chunk::<2>()?;
        }
        let (from, to, udp_len, rest): (IpAddr, IpAddr, usize, &[u8]) = match *ethertype {
            ETHERTYPE_V4 => {
                let (from, to, len, rest) = parse_v4(rest)?;
                (from.into(), to.into(), len, rest)
            }
            ETHERTYPE_V6 => {
                let (from, to, len, rest) = parse_v6(rest)?;
                (from.into(), to.into(), len, rest)
            }
            _ => return None,
        };
        let (&[s0, s1, d0, d1, l0, l1, _, _], payload) = rest.split_first_chunk::<UDP_LEN>()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let payload_len = len.checked_sub(UDP_LEN)?;
        if len != udp_len || payload.len() < payload_len {
            return None;
        }
        let at = frame.len() - payload.len();
        Some(Self {
            from: SocketAddr::new(from, u16::from_be_bytes([s0, s1])),
            to: SocketAddr::new(to, u16::from_be_bytes([d0, d1])),
            payload: at..at + payload_len,
            from_mac: *from_mac,
            to_mac: *to_mac,
            tag,
        })
    }

    /// Returns the length of the headers of a reply.
    #[inline]
    pub fn reply_headers_len(&self) -> usize {
        let ip_len = if self.from.is_ipv4() { V4_LEN } else { V6_LEN };
        ETHERNET_LEN + if self.tag.is_some() { TAG_LEN } else { 0 } + ip_len + UDP_LEN
    }

    /// Writes the headers of a reply before its payload, which begins at [`HEADERS_MAX`] in `buffer` and
    /// fills the rest. Returns where the frame begins, which goes to `mac`. `id` should be random: it tells the
    /// fragments of a reply from those of others, if it is so long that it may be fragmented.
    ///
    /// # Panics
    ///
    /// Panics if `buffer` is shorter than [`HEADERS_MAX`], or if the payload is longer than a datagram.
    #[inline]
    pub fn write_reply_headers(&self, buffer: &mut [u8], mac: [u8; 6], id: u16) -> usize {
        let (headers, payload) = buffer.split_at_mut(HEADERS_MAX);
        let begin = HEADERS_MAX - self.reply_headers_len();
        let (_, headers) = headers.split_at_mut(begin);
        let udp_len = u16::try_from(payload.len() + UDP_LEN);
        let udp_len = udp_len.expect("expected a payload that fits a datagram");
        let ports = [self.to.port().to_be_bytes(), self.from.port().to_be_bytes()];
        let mut out = Writer { rest: headers };
        out.put(&mac);
        out.put(&self.to_mac);
        if let Some(tag) = self.tag {
            out.put(&ETHERTYPE_TAG);
            out.put(&tag);
        }
        let mut sum = Sum::default();
        match (self.to.ip(), self.from.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.put(&ETHERTYPE_V4);
                out.put(&v4_header(from, to, udp_len, id));
                sum.add(&from.octets());
                sum.add(&to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                out.put(&ETHERTYPE_V6);
                out.put(&v6_header(from, to, udp_len));
                sum.add(&from.octets());
                sum.add(&to.octets());
            }
            _ => unreachable!("`parse` returns addresses of one family"),
        }
        let [l0, l1] = udp_len.to_be_bytes();
        let [[s0, s1], [d0, d1]] = ports;
        // The rest of the pseudo header, and the UDP header with its checksum still zero.
        sum.add(&[0, UDP, l0, l1, s0, s1, d0, d1]);
        sum.add(&[l0, l1, 0, 0]);
        sum.add(payload);
        let [c0, c1] = match sum.checksum() {
            // Zero would say that there is none.
            [0, 0] => [0xff, 0xff],
            other => other,
        };
        out.put(&[s0, s1, d0, d1, l0, l1, c0, c1]);
        debug_assert!(out.rest.is_empty(), "expected headers of `reply_headers_len` bytes");
        begin
    }
}

/// Returns the addresses of a v4 packet, the length of what follows its header, and the bytes after it.
#[inline]
fn parse_v4(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, usize, &[u8])> {
    let (header, rest) = packet.split_first_chunk::<V4_LEN>()?;
    let &[version, _, l0, l1, _, _, f0, f1, _, protocol, _, _, ref addresses @ ..] = header;
    let &[s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
    // More fragments, or an offset.
    let is_fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    if version != V4_WITHOUT_OPTIONS || is_fragment || protocol != UDP {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([l0, l1])).checked_sub(V4_LEN)?;
    Some((Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3), len, rest))
}

/// Returns the addresses of a v6 packet, the length of what follows its header, and the bytes after it.
#[inline]
fn parse_v6(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr, usize, &[u8])> {
    let (header, rest) = packet.split_first_chunk::<V6_LEN>()?;
    let (&[version, _, _, _, l0, l1, protocol, _], addresses) = header.split_first_chunk::<8>()?;
    let (from, to) = addresses.split_first_chunk::<16>()?;
    if version >> 4 != 6 || protocol != UDP {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    Some((Ipv6Addr::from(*from), Ipv6Addr::from(*to.first_chunk::<16>()?), len, rest))
}

/// Returns the header of a v4 packet with a datagram of `udp_len` bytes. The packet has the number `id` if the datagram
/// is so long that it may be fragmented.
#[inline]
pub fn v4_header(from: Ipv4Addr, to: Ipv4Addr, udp_len: u16, id: u16) -> [u8; V4_LEN] {
    let is_long = usize::from(udp_len) > UNFRAGMENTED_MAX + UDP_LEN;
    let (id, [f0, f1]) = if is_long { (id, [0, 0]) } else { (0, DONT_FRAGMENT) };
    let [l0, l1] = udp_len.saturating_add(V4_LEN as u16).to_be_bytes();
    let [i0, i1] = id.to_be_bytes();
    let mut header = [0; V4_LEN];
    header[..10].copy_from_slice(&[V4_WITHOUT_OPTIONS, 0, l0, l1, i0, i1, f0, f1, TTL, UDP]);
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&to.octets());
    let mut sum = Sum::default();
    sum.add(&header);
    [header[10], header[11]] = sum.checksum();
    header
}

#[inline]
fn v6_header(from: Ipv6Addr, to: Ipv6Addr, udp_len: u16) -> [u8; V6_LEN] {
    let [l0, l1] = udp_len.to_be_bytes();
    let mut header = [0; V6_LEN];
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, l0, l1, UDP, TTL]);
    header[8..24].copy_from_slice(&from.octets());
    header[24..].copy_from_slice(&to.octets());
    header
}

/// Appends to a buffer.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (place, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.rest = rest;
    }
}

/// A sum of the Internet checksum (RFC 1071), eight bytes at a time. Such a sum does not depend on the
/// order of bytes, so words are added as the processor reads them.
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    /// Adds `bytes`. All but the last addition must be of an even number.
    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.add_word(word.try_into().unwrap_or_default());
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.add_word(word);
        }
    }

    #[inline]
    fn add_word(&mut self, word: [u8; 8]) {
        let (sum, carry) = self.0.overflowing_add(u64::from_ne_bytes(word));
        self.0 = sum + u64::from(carry);
    }

    /// Returns the checksum, as it is in a packet.
    #[inline]
    fn checksum(self) -> [u8; 2] {
        let fold = |sum: u64, bits: u32| (sum & ((1 << bits) - 1)) + (sum >> bits);
        // 64 bits to 33, 32 (with a carry), 17, 16, and the last carry.
        let sum = fold(fold(fold(fold(fold(self.0, 32), 32), 16), 16), 16);
        (!(sum as u16)).to_ne_bytes()
    }
}

#[cfg(test)]
mod tests;
