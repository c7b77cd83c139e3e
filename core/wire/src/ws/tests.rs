use super::frame::Opcode;
use super::read::ReadEvent;
use super::{CloseCode, Event, ProtocolError, Reader, accept_key, switching_protocols};
use crate::http::{ParsedRequest, Upgrade, UpgradeError, read_head, upgrade_error};
use types::limits;

const MAX: usize = 1000;
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// An event that keeps nothing borrowed.
#[derive(Clone, Debug, PartialEq)]
enum OwnedEvent {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    Error(ProtocolError),
}

/// Removes all complete events from `input`, and returns them.
fn events(reader: &mut Reader, input: &mut Vec<u8>, max: usize) -> Vec<OwnedEvent> {
    let mut parsed = Vec::new();
    loop {
        let ReadEvent { consumed, event } = reader.read(input, max);
        parsed.push(match event {
            Event::Partial => {
                input.drain(..consumed);
                return parsed;
            }
            Event::Text(text) => OwnedEvent::Text(text.into()),
            Event::Binary(bytes) => OwnedEvent::Binary(bytes.into()),
            Event::Ping(payload) => OwnedEvent::Ping(payload.into()),
            Event::Pong(payload) => OwnedEvent::Pong(payload.into()),
            Event::Close(code) => OwnedEvent::Close(code.map(|code| code.0)),
            Event::Error(error) => OwnedEvent::Error(error),
        });
        input.drain(..consumed);
    }
}

fn all(bytes: &[u8]) -> Vec<OwnedEvent> {
    events(&mut Reader::for_client_frames(), &mut bytes.to_vec(), MAX)
}

fn error_of(bytes: &[u8]) -> ProtocolError {
    match all(bytes).last() {
        Some(OwnedEvent::Error(error_of)) => *error_of,
        other => panic!("{other:?}"),
    }
}

/// A masked frame, written byte by byte after the RFC, with any first byte and the shortest length.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..=125 => bytes.push(0x80 | len as u8),
        len @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(KEY);
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ KEY[at % 4]));
    bytes
}

const FIN: u8 = 0x80;
const CONTINUED: u8 = Opcode::Continuation as u8;
const TEXT: u8 = Opcode::Text as u8;
const BINARY: u8 = Opcode::Binary as u8;
const CLOSE: u8 = FIN | Opcode::Close as u8;
const PING: u8 = FIN | Opcode::Ping as u8;
const PONG: u8 = FIN | Opcode::Pong as u8;

/// Frames of every kind, and what they say.
fn conversation() -> (Vec<u8>, Vec<OwnedEvent>) {
    let long = "ä".repeat(200);
    let bytes = [
        frame(FIN | TEXT, b"hello"),
        frame(FIN | TEXT, b""),
        frame(PING, b"are you there"),
        frame(FIN | BINARY, &[0xff, 0]),
        frame(TEXT, "grü".as_bytes()),
        frame(PING, b""),
        // Split within a character.
        frame(CONTINUED, &"ß ".as_bytes()[..1]),
        frame(CONTINUED, b""),
        frame(PONG, b"yes"),
        frame(FIN | CONTINUED, &"ß €".as_bytes()[1..]),
        frame(BINARY, &[0xff]),
        frame(FIN | CONTINUED, &[0xfe]),
        frame(FIN | TEXT, long.as_bytes()),
        frame(CLOSE, &[&1001_u16.to_be_bytes()[..], b"bye"].concat()),
        // Data after a close frame is ignored.
        vec![0xff; 9],
    ];
    let parsed = [
        OwnedEvent::Text("hello".into()),
        OwnedEvent::Text(String::new()),
        OwnedEvent::Ping(b"are you there".into()),
        OwnedEvent::Binary(vec![0xff, 0]),
        OwnedEvent::Ping(Vec::new()),
        OwnedEvent::Pong(b"yes".into()),
        OwnedEvent::Text("grüß €".into()),
        OwnedEvent::Binary(vec![0xff, 0xfe]),
        OwnedEvent::Text(long),
        OwnedEvent::Close(Some(1001)),
    ];
    (bytes.concat(), parsed.into())
}

//= rfc6455#masking
//= rfc6455#fragmentation
//= rfc6455#close-last
//= type=test
#[test]
fn reads_same_events_from_any_fragmentation() {
    let (bytes, expected) = conversation();
    for cut in 0..=bytes.len() {
        let mut reader = Reader::for_client_frames();
        let mut input = bytes[..cut].to_vec();
        let mut parsed = events(&mut reader, &mut input, MAX);
        input.extend(&bytes[cut..]);
        parsed.extend(events(&mut reader, &mut input, MAX));
        assert_eq!((parsed, input.len()), (expected.clone(), 0), "{cut}");
    }
}

//= rfc6455#masked-client
//= rfc6455#reserved-bits
//= rfc6455#reserved-opcodes
//= rfc6455#control-frames
//= type=test
#[test]
fn rejects_invalid_headers_at_once() {
    for (bytes, expected) in [
        ([FIN | TEXT, 5], ProtocolError::Mask),
        ([FIN | 0x40 | TEXT, 0x80], ProtocolError::ReservedBits),
        ([FIN | 0x20 | TEXT, 0x80], ProtocolError::ReservedBits),
        ([FIN | 0x10 | TEXT, 0x80], ProtocolError::ReservedBits),
        ([0x09, 0x80], ProtocolError::ControlFragmented),
        ([CLOSE, 0xfe], ProtocolError::ControlTooLong),
        ([PING, 0xff], ProtocolError::ControlTooLong),
    ] {
        assert_eq!(error_of(&bytes), expected, "{bytes:?}");
        assert_eq!(expected.code(), CloseCode(1002));
    }
    for opcode in (3..=7).chain(11..=15) {
        assert_eq!(error_of(&[FIN | opcode, 0x80]), ProtocolError::ReservedOpcode, "{opcode}");
    }
    let mut masked = frame(FIN | TEXT, b"hello");
    let event = Reader::for_server_frames().read(&mut masked, MAX).event;
    assert_eq!(event, Event::Error(ProtocolError::Mask));
}

//= rfc6455#length-minimal
//= type=test
#[test]
fn rejects_lengths_not_in_shortest_form() {
    for (length, expected) in [
        (&125_u16.to_be_bytes()[..], Some(ProtocolError::Length)),
        (&126_u16.to_be_bytes(), None),
        (&0xffff_u64.to_be_bytes(), Some(ProtocolError::Length)),
        (&0x1_0000_u64.to_be_bytes(), Some(ProtocolError::TooBig)),
        (&(u64::MAX >> 1).to_be_bytes(), Some(ProtocolError::TooBig)),
        (&(1_u64 << 63).to_be_bytes(), Some(ProtocolError::Length)),
    ] {
        let second = if length.len() == 2 { 0xfe } else { 0xff };
        let bytes = [&[FIN | BINARY, second], length, &KEY].concat();
        assert!(all(&bytes).into_iter().eq(expected.map(OwnedEvent::Error)), "{length:?}");
    }
}

//= rfc6455#fragmentation
//= type=test
#[test]
fn rejects_interleaved_messages() {
    assert_eq!(error_of(&frame(CONTINUED, b"x")), ProtocolError::Continuation);
    assert_eq!(error_of(&frame(FIN | CONTINUED, b"x")), ProtocolError::Continuation);
    for second in [TEXT, FIN | TEXT, BINARY, FIN | BINARY] {
        assert_eq!(
            error_of(&[frame(TEXT, b"x"), frame(second, b"y")].concat()),
            ProtocolError::Interleaved
        );
    }
    let done = [frame(TEXT, b"x"), frame(FIN | CONTINUED, b"y"), frame(FIN | CONTINUED, b"z")];
    assert_eq!(error_of(&done.concat()), ProtocolError::Continuation);
}

//= rfc6455#message-limit
//= type=test
#[test]
fn rejects_oversized_messages_by_their_header() {
    let most = vec![b'x'; MAX];
    assert_eq!(all(&frame(FIN | BINARY, &most)), [OwnedEvent::Binary(most.clone())]);
    let more = frame(FIN | TEXT, &[b'x'; MAX + 1]);
    assert_eq!(error_of(&more[..8]), ProtocolError::TooBig);
    let rest = frame(CONTINUED, b"yz");
    let bytes = [&frame(TEXT, &most[1..]), &rest[..6]].concat();
    assert_eq!(error_of(&bytes), ProtocolError::TooBig);
    assert_eq!(ProtocolError::TooBig.code(), CloseCode(1009));
}

#[test]
fn rejects_too_many_fragments() {
    let few =
        [frame(BINARY, b""), frame(CONTINUED, b"").repeat(limits::WS_FRAGMENTS_MAX as usize - 1)];
    assert_eq!(all(&few.concat()), []);
    let many = [few.concat(), frame(CONTINUED, b"")].concat();
    assert_eq!(error_of(&many), ProtocolError::Fragments);
    assert_eq!(ProtocolError::Fragments.code(), CloseCode(1008));
}

//= rfc6455#text-utf8
//= type=test
#[test]
fn rejects_invalid_utf8_early() {
    for bad in [&b"\xc0\xaf"[..], b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xff", b"\xe2\x82"] {
        assert_eq!(error_of(&frame(FIN | TEXT, bad)), ProtocolError::NotUtf8, "{bad:?}");
        let halves = [frame(TEXT, &bad[..1]), frame(FIN | CONTINUED, &bad[1..])];
        assert_eq!(error_of(&halves.concat()), ProtocolError::NotUtf8, "{bad:?}");
    }
    assert_eq!(error_of(&frame(TEXT, b"\xed\xa0")), ProtocolError::NotUtf8);
    assert_eq!(
        error_of(&[frame(TEXT, b"\xed"), frame(CONTINUED, b"\xa0")].concat()),
        ProtocolError::NotUtf8
    );
    assert_eq!(all(&frame(TEXT, b"\xf0\x9f\x98")), []);
    assert_eq!(ProtocolError::NotUtf8.code(), CloseCode(1007));
}

//= rfc6455#close-payload
//= type=test
#[test]
fn rejects_invalid_close_codes() {
    let close = |code: u16, reason: &[u8]| {
        let payload = [&code.to_be_bytes(), reason].concat();
        all(&frame(CLOSE, &payload)).pop()
    };
    assert_eq!(all(&frame(CLOSE, b"")), [OwnedEvent::Close(None)]);
    assert_eq!(error_of(&frame(CLOSE, b"\x03")), ProtocolError::CloseCode);
    for code in 0..=u16::MAX {
        let fine = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        let expected = if fine {
            OwnedEvent::Close(Some(code))
        } else {
            OwnedEvent::Error(ProtocolError::CloseCode)
        };
        assert_eq!(close(code, b""), Some(expected), "{code}");
    }
    assert_eq!(close(1000, b"\xff"), Some(OwnedEvent::Error(ProtocolError::NotUtf8)));
    assert_eq!(close(1000, "grüß".as_bytes()), Some(OwnedEvent::Close(Some(1000))));
}

#[test]
fn reads_nothing_after_an_error() {
    let input = [frame(FIN | CONTINUED, b""), frame(FIN | TEXT, b"hello")].concat();
    assert_eq!(all(&input), [OwnedEvent::Error(ProtocolError::Continuation)]);
}

/// Returns the events that a client reads from the bytes that `write` appends to a buffer.
fn server_says(write: impl Fn(&mut Vec<u8>)) -> Vec<OwnedEvent> {
    let mut out = b"before".to_vec();
    write(&mut out);
    assert_eq!(out.drain(..6).as_slice(), b"before");
    events(&mut Reader::for_server_frames(), &mut out, usize::MAX)
}

//= rfc6455#unmasked-server
//= rfc6455#pong
//= rfc6455#close-answer
//= type=test
#[test]
fn server_frames_round_trip() {
    for len in [0, 1, 124, 125, 126, 127, 65_535, 65_536, 70_000] {
        let body = "x".repeat(len);
        let text = [OwnedEvent::Text(body.clone())];
        assert_eq!(server_says(|out| super::text(out, &body)), text, "{len}");
        let with = |out: &mut Vec<u8>| super::text_with(out, |out| out.extend(body.bytes()));
        assert_eq!(server_says(with), text, "{len}");
    }
    assert_eq!(server_says(|out| super::ping(out, b"?")), [OwnedEvent::Ping(b"?".into())]);
    assert_eq!(server_says(|out| super::pong(out, &[7; 200])), [OwnedEvent::Pong(vec![7; 125])]);
    let close = |out: &mut Vec<u8>| super::close(out, CloseCode::GOING_AWAY, &"ß".repeat(100));
    assert_eq!(server_says(close), [OwnedEvent::Close(Some(1001))]);
    let mut out = Vec::new();
    close(&mut out);
    assert_eq!(out.len(), 2 + 2 + 122, "the reason is cut between characters");
}

const REQUEST: &str = "GET /any/path?x=y HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
     Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     Origin: http://example.com\r\nSec-WebSocket-Protocol: chat, superchat\r\n\
     Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Version: 13\r\n\r\n";
const NONCE: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

fn upgrade(request: &str) -> Upgrade<'_> {
    match read_head(request.as_bytes()) {
        ParsedRequest::Complete(request) => request.upgrade,
        other => panic!("{other:?}"),
    }
}

//= rfc6455#client-handshake
//= type=test
#[test]
fn accepts_upgrade_headers_in_any_case_and_list() {
    let ParsedRequest::Complete(request) = read_head(REQUEST.as_bytes()) else { panic!() };
    assert_eq!(request.path, b"/any/path");
    let plain = Upgrade::WebSocket { key: NONCE, origin: Some(b"http://example.com") };
    assert_eq!(request.upgrade, plain);
    for (from, to) in [
        ("Upgrade: websocket", "UPGRADE:h2c , WebSocket"),
        ("Connection: Upgrade", "connection: keep-alive, upgrade"),
        ("Connection: Upgrade", "Connection: keep-alive\r\nConnection: UPGRADE"),
        ("Upgrade: websocket", "Upgrade: other\r\nUpgrade: websocket"),
    ] {
        assert_eq!(upgrade(&REQUEST.replace(from, to)), plain, "{to}");
    }
    let no_page = REQUEST.replace("Origin: http://example.com\r\n", "");
    assert_eq!(upgrade(&no_page), Upgrade::WebSocket { key: NONCE, origin: None });
}

//= rfc6455#client-handshake
//= rfc6455#version
//= type=test
#[test]
fn rejects_invalid_upgrade_requests() {
    use UpgradeError::{Connection, Key, Request, Version};
    for (from, to, expected) in [
        ("Upgrade: websocket", "Upgrade: h2c", Upgrade::None),
        ("Upgrade: websocket", "Upgrade: websockets", Upgrade::None),
        ("GET ", "HEAD ", Upgrade::Invalid(Request)),
        ("HTTP/1.1", "HTTP/1.0", Upgrade::Invalid(Request)),
        ("Host", "Hast", Upgrade::Invalid(Request)),
        ("Connection: Upgrade", "Connection: keep-alive", Upgrade::Invalid(Connection)),
        ("Version: 13", "Version: 8", Upgrade::Invalid(Version)),
        ("Version: 13", "Version: 130", Upgrade::Invalid(Version)),
        ("Sec-WebSocket-Version: 13", "a: b", Upgrade::Invalid(Version)),
        ("dGhl", "dGh", Upgrade::Invalid(Key)),
        ("dGhl", "dG-l", Upgrade::Invalid(Key)),
        ("jZQ==", "jZQQ=", Upgrade::Invalid(Key)),
        ("Sec-WebSocket-Key", "Key", Upgrade::Invalid(Key)),
        (
            "Origin: http://example.com",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            Upgrade::Invalid(Key),
        ),
    ] {
        assert_eq!(upgrade(&REQUEST.replacen(from, to, 1)), expected, "{to}");
    }
    let response = |broken| {
        let mut out = Vec::new();
        upgrade_error(&mut out, broken);
        String::from_utf8(out).unwrap()
    };
    for broken in [Request, Connection, Key] {
        assert!(response(broken).starts_with("HTTP/1.1 400 Bad Request\r\n"), "{broken:?}");
    }
    let version = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\n";
    assert!(response(Version).starts_with(version));
}

//= rfc6455#accept
//= rfc6455#extensions
//= type=test
#[test]
fn the_handshake_is_that_of_the_rfc() {
    // The RFC's own example (1.3).
    assert_eq!(&accept_key(NONCE), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let mut out = Vec::new();
    switching_protocols(&mut out, NONCE);
    let text = std::str::from_utf8(&out).unwrap();
    assert!(text.starts_with("HTTP/1.1 101 ") && text.ends_with("\r\n\r\n"));
    assert!(!text.contains("Extensions") && !text.contains("Protocol:"));
}
