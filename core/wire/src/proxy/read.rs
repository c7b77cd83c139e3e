//! Reading a PROXY header.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use types::limits;

use super::{BINARY_SIGNATURE, TEXT_PREFIX};

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedProxyHeader {
    /// The beginning of a header.
    Partial {
        /// Bytes that must come before it can be whole, at least 1.
        missing: usize,
    },
    /// A whole header.
    Complete(ProxyHeader),
    /// No header, or none that means anything. The connection has to be given up.
    Invalid(ProxyHeaderError),
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Whose connection this is. `None`: the proxy's own, or one of somebody that it cannot name.
    pub route: Option<Route>,
    /// Bytes of the header; what the client sent begins behind them.
    pub len: usize,
}

/// The two ends of the connection that the proxy was asked for. A v4-mapped v6 address is its v4
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Who asked.
    pub client: SocketAddr,
    /// Whom it reached: an address of the proxy.
    pub server: SocketAddr,
}

/// Why there is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// It begins as none does: the sender does not speak the protocol.
    Absent,
    /// It begins as one and goes on as none.
    Malformed,
    /// It is longer than [`limits::PROXY_HEADER_MAX`].
    TooLong,
}

/// The longest line of version 1 with its end.
const LINE_MAX: usize = 107;
/// The shortest: `PROXY UNKNOWN`.
const LINE_MIN: usize = 15;
/// Signature, version and command, family and transport, length.
const PREFIX_LEN: usize = 16;

/// Looks for a header at the start of `input`, which holds all that has come so far.
//= proxy#versions
pub fn read(input: &[u8]) -> ParsedProxyHeader {
    if input.starts_with(BINARY_SIGNATURE) {
        binary(input)
    } else if input.starts_with(TEXT_PREFIX) {
        text(input)
    } else if TEXT_PREFIX.starts_with(input) {
        ParsedProxyHeader::Partial { missing: LINE_MIN - input.len() }
    } else if BINARY_SIGNATURE.starts_with(input) {
        ParsedProxyHeader::Partial { missing: PREFIX_LEN - input.len() }
    } else {
        ParsedProxyHeader::Invalid(ProxyHeaderError::Absent)
    }
}

/// Version 1: a line of words between single spaces.
//= proxy#line-end
fn text(input: &[u8]) -> ParsedProxyHeader {
    let window = input.get(..LINE_MAX).unwrap_or(input);
    let Some(end) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return match LINE_MAX.checked_sub(input.len()) {
            None | Some(0 | 1) => ParsedProxyHeader::Invalid(ProxyHeaderError::Malformed),
            // An end has two bytes, wherever it comes.
            Some(_) => {
                ParsedProxyHeader::Partial { missing: LINE_MIN.saturating_sub(input.len()).max(2) }
            }
        };
    };
    match window.get(end..) {
        Some(b"\r") if end + 1 < LINE_MAX => ParsedProxyHeader::Partial { missing: 1 },
        Some([b'\r', b'\n', ..]) => match line(window.get(..end).unwrap_or_default()) {
            Some(route) => ParsedProxyHeader::Complete(ProxyHeader { route, len: end + 2 }),
            None => ParsedProxyHeader::Invalid(ProxyHeaderError::Malformed),
        },
        _ => ParsedProxyHeader::Invalid(ProxyHeaderError::Malformed),
    }
}

/// What a line says, or `None` when it is not as the protocol has it.
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
        // A v6 address may end in a dotted v4 one: proxies write mapped addresses so.
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

/// Digits only, and no zero in front.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    (is_plain && is_short).then(|| text.parse().ok())?
}

/// Version 2.
fn binary(input: &[u8]) -> ParsedProxyHeader {
    let Some((prefix, rest)) = input.split_first_chunk::<PREFIX_LEN>() else {
        return ParsedProxyHeader::Partial { missing: PREFIX_LEN - input.len() };
    };
    let [.., command, family, high, low] = *prefix;
    let len = usize::from(u16::from_be_bytes([high, low]));
    //= proxy#command
    if !matches!(command, 0x20 | 0x21) {
        return ParsedProxyHeader::Invalid(ProxyHeaderError::Malformed);
    }
    if PREFIX_LEN + len > limits::PROXY_HEADER_MAX {
        return ParsedProxyHeader::Invalid(ProxyHeaderError::TooLong);
    }
    //= proxy#whole-header
    let Some(block) = rest.get(..len) else {
        return ParsedProxyHeader::Partial { missing: len - rest.len() };
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
        // Datagrams and Unix sockets: there are such clients, but none of a TCP port.
        0x00..=0x02 | 0x10 | 0x12 | 0x20 | 0x22 | 0x30..=0x32 => Some(None),
        //= proxy#family
        _ => None,
    };
    match route {
        Some(route) => ParsedProxyHeader::Complete(ProxyHeader { route, len }),
        None => ParsedProxyHeader::Invalid(ProxyHeaderError::Malformed),
    }
}

/// Source, destination, source port, destination port; big-endian.
//= proxy#addresses
fn route_v4(block: &[u8; 12]) -> Route {
    let [a, b, c, d, e, f, g, h, client_high, client_low, server_high, server_low] = *block;
    Route {
        client: (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([client_high, client_low])).into(),
        server: (Ipv4Addr::new(e, f, g, h), u16::from_be_bytes([server_high, server_low])).into(),
    }
}

/// The same with longer addresses.
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
