//! Parsing PROXY headers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use types::limits;

use super::{BINARY_SIGNATURE, TEXT_PREFIX};

/// The result of [`read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedProxyHeader {
    /// The start of a header. Read more bytes and try again.
    Partial,
    /// A complete header.
    Complete(ProxyHeader),
    /// No header, or an invalid one. Close the connection.
    Invalid,
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The ends of the client's connection. `None` if the connection is the proxy's own (such as a
    /// health check), or if the proxy does not know the client.
    pub route: Option<Route>,
    /// The length of the header in bytes. The client's data starts here.
    pub len: usize,
}

/// The two ends of the connection between client and proxy. V4-mapped v6 addresses are turned into v4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The client.
    pub client: SocketAddr,
    /// The proxy's address that the client connected to.
    pub server: SocketAddr,
}

/// The longest line of version 1, CRLF included.
const LINE_MAX: usize = 107;
/// The fixed part of version 2: signature, version and command, family and transport, length.
const PREFIX_LEN: usize = 16;

/// Parses the header at the start of `input`, which holds all bytes received so far.
//= proxy#versions
pub fn read(input: &[u8]) -> ParsedProxyHeader {
    if input.starts_with(BINARY_SIGNATURE) {
        binary(input)
    } else if input.starts_with(TEXT_PREFIX) {
        text(input)
    } else if TEXT_PREFIX.starts_with(input) || BINARY_SIGNATURE.starts_with(input) {
        ParsedProxyHeader::Partial
    } else {
        ParsedProxyHeader::Invalid
    }
}

/// Parses version 1: a line of fields separated by single spaces.
//= proxy#line-end
fn text(input: &[u8]) -> ParsedProxyHeader {
    let window = input.get(..LINE_MAX).unwrap_or(input);
    let end = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(window.len());
    match window.split_at(end) {
        (start, [b'\r', b'\n', ..]) => line(start).map_or(ParsedProxyHeader::Invalid, |route| {
            ParsedProxyHeader::Complete(ProxyHeader { route, len: end + 2 })
        }),
        // Wherever the line ends, its CRLF has two bytes.
        (start, [] | [b'\r']) if start.len() + 2 <= LINE_MAX => ParsedProxyHeader::Partial,
        _ => ParsedProxyHeader::Invalid,
    }
}

/// Parses a line without its end. Returns `None` if it is invalid, and `Some(None)` for `UNKNOWN`.
fn line(line: &[u8]) -> Option<Option<Route>> {
    let line = str::from_utf8(line).ok()?;
    let mut fields = line.split(' ').skip(1);
    let family = fields.next()?;
    //= proxy#unknown
    if family == "UNKNOWN" {
        return Some(None);
    }
    let (from, to) = (fields.next()?, fields.next()?);
    let (from_port, to_port) = (port(fields.next()?)?, port(fields.next()?)?);
    if fields.next().is_some() {
        return None;
    }
    //= proxy#line
    let (client, server) = match family {
        "TCP4" => (endpoint::<Ipv4Addr>(from, from_port)?, endpoint::<Ipv4Addr>(to, to_port)?),
        // A v6 address may end in a dotted v4 one: proxies write mapped addresses like that.
        "TCP6" => (endpoint::<Ipv6Addr>(from, from_port)?, endpoint::<Ipv6Addr>(to, to_port)?),
        _ => return None,
    };
    Some(Some(Route { client, server }))
}

fn endpoint<A>(text: &str, port: u16) -> Option<SocketAddr>
where
    A: FromStr,
    SocketAddr: From<(A, u16)>,
{
    text.parse::<A>().ok().map(|ip| canonical((ip, port).into()))
}

/// Parses a port: digits only, no leading zero.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    (is_plain && is_short).then(|| text.parse().ok())?
}

fn binary(input: &[u8]) -> ParsedProxyHeader {
    let Some((prefix, rest)) = input.split_first_chunk::<PREFIX_LEN>() else {
        return ParsedProxyHeader::Partial;
    };
    let [.., command, family, high, low] = *prefix;
    let len = usize::from(u16::from_be_bytes([high, low]));
    //= proxy#command
    if !matches!(command, 0x20 | 0x21) || PREFIX_LEN + len > limits::PROXY_HEADER_MAX {
        return ParsedProxyHeader::Invalid;
    }
    //= proxy#whole-header
    let Some(block) = rest.get(..len) else {
        return ParsedProxyHeader::Partial;
    };
    //= proxy#length
    let len = PREFIX_LEN + len;
    //= proxy#local
    if command == 0x20 {
        return ParsedProxyHeader::Complete(ProxyHeader { route: None, len });
    }
    //= proxy#extensions
    let route = match family {
        0x11 => block.first_chunk::<12>().map(|block| Some(route_v4(block))),
        0x21 => block.first_chunk::<36>().map(|block| Some(route_v6(block))),
        //= proxy#unspecified
        // Datagrams and Unix sockets are valid, but they cannot be clients of a TCP port.
        0x00..=0x02 | 0x10 | 0x12 | 0x20 | 0x22 | 0x30..=0x32 => Some(None),
        //= proxy#family
        _ => None,
    };
    route.map_or(ParsedProxyHeader::Invalid, |route| {
        ParsedProxyHeader::Complete(ProxyHeader { route, len })
    })
}

/// Parses source, destination, source port and destination port, big-endian.
//= proxy#addresses
fn route_v4(block: &[u8; 12]) -> Route {
    let [a, b, c, d, e, f, g, h, client_high, client_low, server_high, server_low] = *block;
    Route {
        client: (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([client_high, client_low])).into(),
        server: (Ipv4Addr::new(e, f, g, h), u16::from_be_bytes([server_high, server_low])).into(),
    }
}

/// Like [`route_v4`], with longer addresses.
pub(super) fn route_v6(block: &[u8; 36]) -> Route {
    let (addresses, ports) = block.split_at(32);
    let (client, server) = addresses.split_at(16);
    let endpoint = |address: &[u8], port: &[u8]| {
        let address: [u8; 16] = address.try_into().unwrap_or_default();
        let port = port.try_into().map(u16::from_be_bytes).unwrap_or_default();
        canonical((Ipv6Addr::from(address), port).into())
    };
    let (client_port, server_port) = ports.split_at(2);
    Route { client: endpoint(client, client_port), server: endpoint(server, server_port) }
}

fn canonical(endpoint: SocketAddr) -> SocketAddr {
    SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port())
}
