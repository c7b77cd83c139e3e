//! Frames of UDP datagrams: whatever parses gets a reply that parses, too, and whose checksums are right.

use net::REPLY_MAX;
use xdp::frame::{Datagram, HEADERS_MAX, UNFRAGMENTED_MAX};

/// The first two bytes choose the length of the reply and where it goes; the rest is the frame.
pub fn check(bytes: &[u8]) {
    let Some((&[high, low], frame)) = bytes.split_first_chunk::<2>() else { return };
    let Some(request) = Datagram::parse(frame) else { return };
    assert!(request.payload.end <= frame.len());
    let len = usize::from(u16::from_be_bytes([high, low])) % (REPLY_MAX + 1);
    let payload: Vec<u8> = frame.iter().cycle().take(len).copied().collect();
    let mac = if high & 1 == 1 { [2, 0, 0, 0, 0, low] } else { request.from_mac };
    let mut buffer = vec![0; HEADERS_MAX];
    buffer.extend(&payload);
    let begin = request.write_reply_headers(&mut buffer, mac, 0x1234);
    let reply = &buffer[begin..];
    assert_eq!(reply.len(), request.reply_headers_len() + len);
    let back = Datagram::parse(reply).expect("the reply does not parse");
    assert_eq!((back.from, back.to), (request.to, request.from));
    assert_eq!((&reply[back.payload.clone()], back.payload.end), (&payload[..], reply.len()));
    assert_eq!(reply[6..12], frame[..6]);
    assert_eq!((&reply[..6], &request.from_mac[..]), (&mac[..], &frame[6..12]));
    check_sums(reply, request.from.is_ipv4(), back.payload.start - 8);
    // The reply to the reply goes back.
    let mut again = vec![0; HEADERS_MAX];
    again.extend(&payload);
    let begin = back.write_reply_headers(&mut again, back.from_mac, 0);
    let back = Datagram::parse(&again[begin..]).expect("the reply to the reply does not parse");
    assert_eq!((back.from, back.to), (request.from, request.to));
}

/// The UDP header begins at `udp_at`.
fn check_sums(frame: &[u8], is_v4: bool, udp_at: usize) {
    let (ip, udp) = frame.split_at(udp_at);
    let addresses = if is_v4 {
        let header = &ip[ip.len() - 20..];
        assert_eq!(sum(header), 0xffff);
        let may_fragment = udp.len() > UNFRAGMENTED_MAX + 8;
        assert_eq!(header[6..8], if may_fragment { [0, 0] } else { [0x40, 0] });
        &header[12..]
    } else {
        &ip[ip.len() - 32..]
    };
    assert_ne!(udp[6..8], [0, 0]);
    let pseudo_header = [addresses, &(udp.len() as u32).to_be_bytes(), &[0, 0, 0, 17]].concat();
    assert_eq!(sum(&[&pseudo_header, udp].concat()), 0xffff);
}

/// The sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
