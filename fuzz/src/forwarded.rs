//! Forwarded headers: `X-Forwarded-For` against a slow twin, and what a proxy appends against
//! everything that a client can send before it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::http::{ForwardedHeader, ParsedRequest, read_head};

/// The address that the nearest proxy appends.
const APPENDED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Checks `bytes` as the headers of a request, and as a value that a proxy appends to.
pub fn check(bytes: &[u8]) {
    let head = [b"GET / HTTP/1.1\r\n", bytes, b"\r\n\r\n"].concat();
    if let Some(found) = addresses(&head, ForwardedHeader::XForwardedFor) {
        let ParsedRequest::Complete(request) = read_head(&head) else { unreachable!() };
        assert_eq!(found, twin(&head[..request.consumed]), "{}", head.escape_ascii());
        let _ = addresses(&head, ForwardedHeader::Forwarded);
    }
    // A line of its own: what a client can put into one value.
    let value: Vec<u8> = bytes.iter().copied().filter(|byte| *byte >= b' ').collect();
    check_appended(&value);
    check_quoted(&value);
}

/// Whatever the client sent, in the same line or in lines before, the first address is the proxy's.
fn check_appended(value: &[u8]) {
    use ForwardedHeader::{Forwarded, XForwardedFor};
    let x = [b"X-Forwarded-For: ", value, b", 192.0.2.1"].concat();
    let lines = [b"x-forwarded-for: ", value, b"\r\nX-Forwarded-For:192.0.2.1"].concat();
    for header in [x, lines] {
        assert_first(&header, XForwardedFor);
    }
    let same = [b"Forwarded: ", value, b", for=192.0.2.1;proto=http"].concat();
    let lines = [b"forwarded: ", value, b"\r\nForwarded: proto=http;for=\"192.0.2.1:80\""].concat();
    for header in [same, lines] {
        assert_first(&header, Forwarded);
    }
}

/// The client's own header stands in a quoted string of the proxy's own element, escaped.
fn check_quoted(value: &[u8]) {
    let mut header = b"Forwarded: for=192.0.2.1;host=\"".to_vec();
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            header.push(b'\\');
        }
        header.push(*byte);
    }
    header.push(b'"');
    assert_first(&header, ForwardedHeader::Forwarded);
}

fn assert_first(header: &[u8], kind: ForwardedHeader) {
    let head = [b"GET / HTTP/1.1\r\n", header, b"\r\n\r\n"].concat();
    // The value may hold bytes that no header may.
    if let Some(found) = addresses(&head, kind) {
        assert_eq!(found.first(), Some(&Some(APPENDED)), "{}", header.escape_ascii());
    }
}

fn addresses(head: &[u8], kind: ForwardedHeader) -> Option<Vec<Option<IpAddr>>> {
    let ParsedRequest::Complete(request) = read_head(head) else { return None };
    Some(request.forwarded_addresses(kind).collect())
}

/// Reads `X-Forwarded-For` in the obvious way: all values as one list, turned around.
fn twin(head: &[u8]) -> Vec<Option<IpAddr>> {
    let mut found = Vec::new();
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"x-forwarded-for") {
            found.extend(value[1..].split(|byte| *byte == b',').map(address));
        }
    }
    found.reverse();
    found
}

fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry.trim_ascii()).ok()?;
    let quoted = entry.len() >= 2 && entry.starts_with('"') && entry.ends_with('"');
    let entry = if quoted { &entry[1..entry.len() - 1] } else { entry };
    let ip: IpAddr = if let Some(inside) = entry.strip_prefix('[') {
        let end = inside.find(']')?;
        match inside[end + 1..].chars().next() {
            None | Some(':') => inside[..end].parse().ok()?,
            Some(_) => return None,
        }
    } else if let Ok(v6) = entry.parse::<Ipv6Addr>() {
        v6.into()
    } else {
        let (ip, port) = entry.split_once(':').unwrap_or((entry, ""));
        // More than one colon is no port behind an IPv4 address.
        if port.contains(':') {
            return None;
        }
        ip.parse::<Ipv4Addr>().ok()?.into()
    };
    Some(ip.to_canonical())
}
