//! Frames of UDP datagrams: whatever parses gets a reply that parses, too.

use net::REPLY_MAX;
use xdp::frame::{Datagram, HEADERS_MAX};

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
    // The reply to the reply goes back.
    let mut again = vec![0; HEADERS_MAX];
    again.extend(&payload);
    let begin = back.write_reply_headers(&mut again, back.from_mac, 0);
    let back = Datagram::parse(&again[begin..]).expect("the reply to the reply does not parse");
    assert_eq!((back.from, back.to), (request.from, request.to));
}
