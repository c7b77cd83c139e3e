//! Headers built byte by byte, truncated everywhere and overlong.

use types::limits;

use super::*;

fn route(client: &str, server: &str) -> Route {
    Route { client: client.parse().unwrap(), server: server.parse().unwrap() }
}

fn complete(input: &[u8]) -> ProxyHeader {
    match read(input) {
        ParsedProxyHeader::Complete(header) => header,
        other => panic!("{other:?} of {}", input.escape_ascii()),
    }
}

fn assert_invalid(input: &[u8]) {
    assert_eq!(read(input), ParsedProxyHeader::Invalid, "{}", input.escape_ascii());
}

/// A header of version 2, with its parts as they are given.
fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a".to_vec();
    bytes.extend([command, family]);
    bytes.extend((block.len() as u16).to_be_bytes());
    bytes.extend(block);
    bytes
}

/// 192.0.2.1:4711 to 198.51.100.2:443.
const BLOCK_V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x67, 1, 187];

/// 2001:db8::1:4711 to 2001:db8::2:443.
fn block_v6() -> [u8; 36] {
    let mut block = [0; 36];
    for (at, last) in [(0, 1), (16, 2)] {
        block[at..at + 4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        block[at + 15] = last;
    }
    block[32..].copy_from_slice(&[0x12, 0x67, 1, 187]);
    block
}

/// Good headers of all kinds, with what they say.
fn headers() -> Vec<(Vec<u8>, Option<Route>)> {
    let v4 = route("192.0.2.1:4711", "198.51.100.2:443");
    let v6 = route("[2001:db8::1]:4711", "[2001:db8::2]:443");
    let with_extensions = [BLOCK_V4.as_slice(), &[4, 0, 3, 1, 2, 3, 0xea, 0, 0]].concat();
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (text("PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"), Some(v4)),
        (text("PROXY TCP6 2001:db8::1 2001:DB8:0::2 4711 443\r\n"), Some(v6)),
        (text("PROXY TCP6 ::ffff:192.0.2.1 ::ffff:c633:6402 4711 443\r\n"), Some(v4)),
        (
            text("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"),
            Some(route("255.255.255.255:65535", "255.255.255.255:65535")),
        ),
        (text("PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n"), Some(route("0.0.0.0:0", "0.0.0.0:0"))),
        (text("PROXY UNKNOWN\r\n"), None),
        (text("PROXY UNKNOWN TCP4 what ever\r\n"), None),
        (binary(0x21, 0x11, &BLOCK_V4), Some(v4)),
        (binary(0x21, 0x21, &block_v6()), Some(v6)),
        (binary(0x21, 0x11, &with_extensions), Some(v4)),
        (binary(0x20, 0x00, &[]), None),
        (binary(0x20, 0xff, &[9; 7]), None),
        (binary(0x21, 0x00, &[9; 7]), None),
        (binary(0x21, 0x12, &BLOCK_V4), None),
        (binary(0x21, 0x31, &[0; 216]), None),
    ]
}

//= proxy#versions
//= proxy#line
//= proxy#unknown
//= proxy#local
//= proxy#unspecified
//= proxy#addresses
//= proxy#length
//= proxy#extensions
//= type=test
#[test]
fn reads_route_of_both_versions() {
    for (mut bytes, route) in headers() {
        let header = ProxyHeader { route, len: bytes.len() };
        assert_eq!(complete(&bytes), header, "{}", bytes.escape_ascii());
        bytes.extend(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(complete(&bytes), header, "with a request behind it");
    }
}

//= proxy#whole-header
//= type=test
#[test]
fn every_prefix_of_a_header_is_partial() {
    for (bytes, _) in headers() {
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), ParsedProxyHeader::Partial, "{cut} of {bytes:?}");
        }
    }
}

//= proxy#versions
//= type=test
#[test]
fn rejects_other_protocols_by_their_first_bytes() {
    for bytes in
        [b"G".as_slice(), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PROXi", b"\r\n\r\n\r"]
    {
        assert_invalid(bytes);
        assert!(!is_proxy_header(bytes));
    }
    for (bytes, _) in headers() {
        assert!(is_proxy_header(&bytes));
    }
}

//= proxy#line
//= type=test
#[test]
fn rejects_inexact_lines() {
    for text in [
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 \r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 1\r\n",
        "PROXY  TCP4 192.0.2.1 198.51.100.2 4711 443\r\n",
        "PROXY TCP4  192.0.2.1 198.51.100.2 4711 443\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.2 4711 443\r\n",
        "PROXY TCP5 192.0.2.1 198.51.100.2 4711 443\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 4711 443\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.2 4711 443\r\n",
        "PROXY TCP6 [2001:db8::1] [2001:db8::2] 4711 443\r\n",
        "PROXY TCP6 fe80::1%eth0 2001:db8::2 4711 443\r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.2 4711 443\r\n",
        "PROXY TCP4 192.0.2.256 198.51.100.2 4711 443\r\n",
        "PROXY TCP4 192.0.2 198.51.100.2 4711 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 04711 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 +4711 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2  443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\0\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY unknown\r\n",
        "PROXY \r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4711 44\u{663}\r\n",
    ] {
        assert_invalid(text.as_bytes());
    }
    assert_invalid(b"PROXY TCP4 192.0.2.1 \xff 4711 443\r\n");
}

//= proxy#line-end
//= type=test
#[test]
fn rejects_lines_without_crlf_in_time() {
    assert_invalid(b"PROXY UNKNOWN\n");
    assert_invalid(b"PROXY UNKNOWN\rx");
    assert_invalid(b"PROXY UNKNOWN\r\r\n");
    let line = |len: usize| [b"PROXY UNKNOWN ".as_slice(), &vec![b'x'; len - 16], b"\r\n"].concat();
    assert_eq!(complete(&line(107)).len, 107);
    assert_invalid(&line(108));
    // A line whose end can only come too late is rejected at once.
    assert_eq!(read(&line(200)[..105]), ParsedProxyHeader::Partial);
    for cut in [106, 107, 150] {
        assert_invalid(&line(200)[..cut]);
    }
}

//= proxy#command
//= proxy#family
//= type=test
#[test]
fn rejects_unknown_commands_and_families() {
    for command in (0..=255).filter(|command| !matches!(command, 0x20 | 0x21)) {
        assert_invalid(&binary(command, 0x11, &BLOCK_V4));
    }
    for family in 0..=255_u8 {
        let is_known = family >> 4 <= 3 && family & 15 <= 2;
        let is_tcp = matches!(family, 0x11 | 0x21);
        match read(&binary(0x21, family, &block_v6())) {
            ParsedProxyHeader::Complete(header) => {
                assert!(is_known, "{family:x}");
                assert_eq!(header.route.is_some(), is_tcp, "{family:x}");
            }
            other => assert!(!is_known, "{other:?} of {family:x}"),
        }
    }
}

//= proxy#addresses
//= type=test
#[test]
fn rejects_addresses_past_the_length() {
    for (family, due) in [(0x11, 12), (0x21, 36)] {
        for len in 0..=40 {
            let bytes = [binary(0x21, family, &vec![1; len]), vec![1; 40]].concat();
            match read(&bytes) {
                ParsedProxyHeader::Complete(header) => {
                    assert!(len >= due && header.len == 16 + len)
                }
                ParsedProxyHeader::Invalid => assert!(len < due),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn rejects_overlong_headers_by_their_length() {
    let longest = [BLOCK_V4.as_slice(), &vec![0; limits::PROXY_HEADER_MAX - 28]].concat();
    let bytes = binary(0x21, 0x11, &longest);
    assert_eq!(complete(&bytes).len, limits::PROXY_HEADER_MAX);
    let bytes = binary(0x21, 0x11, &[longest.as_slice(), &[0]].concat());
    assert_invalid(&bytes[..16]);
    assert_invalid(&binary(0x20, 0, &[0; 65535]));
}

//= spp#header
//= type=test
#[test]
fn strips_simple_headers() {
    let mut bytes = vec![0x56, 0xec];
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    bytes.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    bytes.extend([0x12, 0x67, 0x1b, 0x39]);
    bytes.extend(b"datagram");
    let wrapped = simple::unwrap(&bytes).unwrap();
    assert_eq!(wrapped.route, route("192.0.2.1:4711", "[2001:db8::2]:6969"));
    assert_eq!((wrapped.header.as_slice(), wrapped.datagram), (&bytes[..38], &b"datagram"[..]));
    for cut in 0..38 {
        assert_eq!(simple::unwrap(&bytes[..cut]), None);
    }
    assert!(simple::unwrap(&bytes[..38]).unwrap().datagram.is_empty());
    for at in 0..2 {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert_eq!(simple::unwrap(&other), None);
    }
}
