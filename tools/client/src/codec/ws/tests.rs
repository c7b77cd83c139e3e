//! Frames and the handshake against the tracker's side.

use std::borrow::Cow;

use wire::http::{ParsedRequest, Upgrade, read_head};
use wire::ws::{Event, Reader, switching_protocols};

use super::*;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const KEY: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

/// Checks that the tracker reads the one event `expected` from a frame.
fn check_event(mut frame: Vec<u8>, expected: Event<'_>) {
    let len = frame.len();
    let read = Reader::for_client_frames().read(&mut frame, usize::MAX);
    assert_eq!((read.consumed, read.event), (len, expected));
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(&mut out);
    out.strip_prefix(b"before").unwrap().to_vec()
}

#[test]
fn frames_round_trip() {
    for len in [0, 1, 125, 126, 65_535, 65_536] {
        let body = "x".repeat(len);
        let at_once = written(|out| text(out, MASK, &body));
        let with = written(|out| text_with(out, MASK, |out| out.extend(body.bytes())));
        assert_eq!(with, at_once, "{len}");
        check_event(at_once, Event::Text(Cow::Borrowed(&body)));
    }
    check_event(written(|out| binary(out, MASK, b"\xff\0")), Event::Binary(b"\xff\0".into()));
    check_event(written(|out| ping(out, MASK, b"?")), Event::Ping(b"?"));
    check_event(written(|out| pong(out, MASK, &[7; 200])), Event::Pong(&[7; 125]));
    let closed = written(|out| close(out, MASK, CloseCode::NORMAL, &"ß".repeat(100)));
    assert_eq!(closed.len(), 6 + 2 + 122, "the reason is cut between characters");
    check_event(closed, Event::Close(Some(CloseCode::NORMAL)));
}

//= rfc6455#accept
//= type=test
#[test]
fn accepts_the_servers_handshake() {
    assert_eq!(&handshake_key(b"the sample nonce"), KEY);
    let request = written(|out| request(out, "server.example.com", "/any/path", KEY));
    let ParsedRequest::Complete(parsed) = read_head(&request) else { panic!("{request:?}") };
    assert_eq!(parsed.upgrade, Upgrade::WebSocket { key: KEY, origin: None });
    let mut reply = written(|out| switching_protocols(out, KEY));
    let consumed = reply.len();
    for cut in 0..consumed {
        assert_eq!(read_handshake_reply(&reply[..cut], KEY), HandshakeReply::Partial);
    }
    reply.extend(b"\x81\0");
    assert_eq!(read_handshake_reply(&reply, KEY), HandshakeReply::Accepted { consumed });
    assert_eq!(read_handshake_reply(&reply, &[b'A'; 24]), HandshakeReply::Invalid);
    assert_eq!(read_handshake_reply(b"\x16\x03\x01", KEY), HandshakeReply::Invalid);
    let refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(read_handshake_reply(refused, KEY), HandshakeReply::Refused(403));
}
