//! Client addresses from the headers of HTTP proxies: `X-Forwarded-For` and `Forwarded` (RFC 7239).
//!
//! Both headers are lists. Each proxy appends the address of its own client, so the lists are read
//! from the right: everything to the left of an entry was there before, and may be forged. Quoted
//! strings are matched from the right, too, so that a quote that a client left open cannot hide what
//! the proxy appended.

use std::net::IpAddr;

use super::RequestHead;

/// The header that the operator's proxies write. The other one cannot be trusted: a proxy forwards
/// headers that it does not know, so any client can send it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For: 192.0.2.1, 198.51.100.2`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=192.0.2.1;proto=https, for="[2001:db8::2]:4711"`
    Forwarded,
}

impl<'a> RequestHead<'a> {
    /// Returns the addresses that proxies appended, starting with the entry of the nearest proxy. All
    /// headers of that name form one list. `None` is an entry without an address: unknown, obfuscated
    /// or malformed. V4-mapped v6 addresses are returned as v4.
    //= rfc7239#elements
    pub fn forwarded_addresses(
        &self,
        header: ForwardedHeader,
    ) -> impl Iterator<Item = Option<IpAddr>> + use<'a> {
        let name = match header {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        };
        self.values(name).rev().flat_map(move |value| {
            split_from_right(value, b',', header == ForwardedHeader::Forwarded).map(move |entry| {
                match header {
                    ForwardedHeader::XForwardedFor => address(entry),
                    ForwardedHeader::Forwarded => forwarded_for(entry),
                }
            })
        })
    }
}

/// Returns the address of an element's `for` parameter. `None` if it is missing, repeated or not an
/// address.
//= rfc7239#obfuscated
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut nodes = split_from_right(element, b';', true).filter_map(|pair| {
        let (name, value) = pair.split_at_checked(b"for=".len())?;
        name.eq_ignore_ascii_case(b"for=").then_some(value)
    });
    let node = nodes.next()?;
    if nodes.next().is_some() { None } else { address(node) }
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`, quoted
/// or not. The port may be obfuscated and is ignored.
//= rfc7239#for-node
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?;
    let text = match text.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => text,
    };
    let bare = match text.strip_prefix('[') {
        Some(rest) => {
            let (ip, port) = rest.split_once(']')?;
            (port.is_empty() || port.starts_with(':')).then_some(ip)?
        }
        None if text.bytes().filter(|byte| *byte == b':').count() == 1 => text.split_once(':')?.0,
        None => text,
    };
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Returns the trimmed parts between separators, the last part first. With `has_quotes`, separators
/// inside quoted strings do not count.
fn split_from_right(text: &[u8], separator: u8, has_quotes: bool) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = last_separator(text, separator, has_quotes);
        let (before, part) = match at {
            Some(at) => (text.get(..at), text.get(at + 1..).unwrap_or_default()),
            None => (None, text),
        };
        rest = before;
        Some(part.trim_ascii())
    })
}

fn last_separator(text: &[u8], separator: u8, has_quotes: bool) -> Option<usize> {
    let mut in_quotes = false;
    for (at, byte) in text.iter().enumerate().rev() {
        if *byte == b'"' && has_quotes {
            // An odd number of backslashes before a quote escapes it, but only inside a string.
            let before = text.get(..at).unwrap_or_default();
            let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            if !in_quotes || backslashes % 2 == 0 {
                in_quotes = !in_quotes;
            }
        } else if *byte == separator && !in_quotes {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{ParsedRequest, read_head};

    /// The addresses of a request with these headers, `-` for an entry without one.
    fn forwarded_addresses(header: ForwardedHeader, headers: &str) -> String {
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
        let ParsedRequest::Complete(request) = read_head(text.as_bytes()) else { panic!("{text}") };
        let shown = |hop: Option<IpAddr>| hop.map_or_else(|| "-".into(), |ip| ip.to_string());
        request.forwarded_addresses(header).map(shown).collect::<Vec<String>>().join(" ")
    }

    fn x_forwarded_for(value: &str) -> String {
        forwarded_addresses(ForwardedHeader::XForwardedFor, &format!("X-Forwarded-For: {value}"))
    }

    fn forwarded(value: &str) -> String {
        forwarded_addresses(ForwardedHeader::Forwarded, &format!("Forwarded: {value}"))
    }

    #[test]
    fn reads_lists_from_the_right_across_headers() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        let x = "X-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nHost: x\r\nx-forwarded-for:3.3.3.3";
        let lines = "Forwarded: for=192.0.2.1\r\nforwarded:for=192.0.2.2";
        let other_names = "X-Forwarded-For-Me: 1.1.1.1\r\nForwarded-For: 2.2.2.2";
        for (headers, by_x, by_forwarded) in [
            (x, "3.3.3.3 2.2.2.2 1.1.1.1", ""),
            (lines, "", "192.0.2.2 192.0.2.1"),
            (other_names, "", ""),
        ] {
            assert_eq!(forwarded_addresses(XForwardedFor, headers), by_x);
            assert_eq!(forwarded_addresses(Forwarded, headers), by_forwarded);
        }
    }

    #[test]
    fn parses_addresses_with_ports_brackets_and_quotes() {
        for (value, expected) in [
            ("5.6.7.8:4711", "5.6.7.8"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("\"[2001:db8::1]\"", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:5.6.7.8", "5.6.7.8"),
            ("9.9.9.9, , unknown,\t", "- - - 9.9.9.9"),
            ("[2001:db8::1]80, [2001:db8::1, \"9.9.9.9, 1.2.3.4.5", "- - - -"),
        ] {
            assert_eq!(x_forwarded_for(value), expected, "{value}");
        }
    }

    //= rfc7239#elements
    //= rfc7239#for-node
    //= rfc7239#obfuscated
    //= type=test
    #[test]
    fn parses_parameters_and_quoted_strings() {
        let quoted = r#"for=192.0.2.1, proto=https ; for="192.0.2.2:_port";host="a, for=9.9.9.9""#;
        for (value, expected) in [
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            (
                "for=192.0.2.1;proto=http;by=203.0.113.43, FOR=198.51.100.17",
                "198.51.100.17 192.0.2.1",
            ),
            (quoted, "192.0.2.2 192.0.2.1"),
            ("for=unknown, for=_hidden, for=\"_SEVKISEK:80\", ", "- - - -"),
            ("by=192.0.2.1;proto=http", "-"),
            ("for=192.0.2.1;for=192.0.2.2", "-"),
            ("for = 192.0.2.1", "-"),
            ("for=192.0.2.1, for=\"192.0.2.1", "-"),
            ("for=\"\\1.2.3.4\"", "-"),
        ] {
            assert_eq!(forwarded(value), expected, "{value}");
        }
    }

    //= rfc7239#trust
    //= type=test
    #[test]
    fn client_quotes_cannot_hide_the_proxys_entry() {
        // The client sends a header, and its proxy appends to it.
        for made_up in
            [r#"for=""#, r#"for="9.9.9.9"#, r#"host="a\"#, r#"for=9.9.9.9;host=""#, r"\", ";"]
        {
            let found = forwarded(&format!("{made_up}, for=192.0.2.1;proto=http"));
            assert!(found.starts_with("192.0.2.1"), "{made_up}");
        }
        // The client sends a host that its proxy quotes.
        for host in
            [r#"\", for=9.9.9.9"#, r#"\\\", for=9.9.9.9;x=\"y"#, r", for=9.9.9.9\\", ";for=9.9.9.9"]
        {
            assert_eq!(forwarded(&format!("for=192.0.2.1;host=\"{host}\"")), "192.0.2.1", "{host}");
        }
    }
}
