//! Headers that only some responses depend on. They are searched when they are needed: most requests are
//! announces, whose responses depend on none.

use std::net::{IpAddr, Ipv6Addr};

use memchr::{memchr, memchr_iter};

use super::RequestHead;

impl<'a> RequestHead<'a> {
    /// Returns the values of all headers of a name, in order.
    pub(super) fn values(
        &self,
        name: &'static str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a> {
        let head = self.head;
        // A header follows the end of each line, that of the request included.
        memchr_iter(b'\n', head).filter_map(move |before| {
            let line = head.get(before + 1..)?;
            let (found, rest) = line.split_at_checked(name.len())?;
            let is_it = found.eq_ignore_ascii_case(name.as_bytes());
            let value = rest.strip_prefix(b":").filter(|_| is_it)?;
            let end = memchr(b'\n', value).unwrap_or(value.len());
            value.get(..end).map(<[u8]>::trim_ascii)
        })
    }

    /// Returns whether the client takes a gzip-compressed body (RFC 9110, 12.5.3).
    pub fn accepts_gzip(&self) -> bool {
        let mut codings =
            self.values("accept-encoding").flat_map(|value| value.split(|byte| *byte == b','));
        codings.any(|coding| {
            let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let is_gzip =
                [b"gzip".as_slice(), b"x-gzip"].iter().any(|it| name.eq_ignore_ascii_case(it));
            // A weight of 0 excludes a coding; any other one has a digit that is not 0.
            is_gzip && parts.all(|weight| weight.iter().any(|byte| matches!(byte, b'1'..=b'9')))
        })
    }

    /// Returns the name that the client gives itself; empty if it has no `User-Agent` header.
    pub fn user_agent(&self) -> &'a [u8] {
        self.values("user-agent").next().unwrap_or_default()
    }

    /// Returns whether the client asks for JSON and nothing else.
    pub fn wants_json(&self) -> bool {
        self.values("accept").eq([b"application/json".as_slice()])
    }

    /// Returns the host of the `Host` header, without the port: a name of letters, digits, `.`, `-` and `_`,
    /// or an address, IPv6 in brackets. `None` if there is no such header, several, or one with anything
    /// else.
    pub fn host(&self) -> Option<&'a str> {
        let mut values = self.values("host");
        let text = str::from_utf8(values.next()?).ok()?;
        if values.next().is_some() {
            return None;
        }
        host_of(text)
    }
}

/// Returns the host of an authority, `HOST` or `HOST:PORT`, as [`RequestHead::host`] does.
pub fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(end) => authority.split_at_checked(end + 2)?,
        None => authority.split_at_checked(authority.find(':').unwrap_or(authority.len()))?,
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
        return None;
    }
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(ip) => ip.parse::<Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    is_host.then_some(host)
}

/// Returns whether a text can be the name of a host, or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=253).contains(&host.len()) && host.bytes().all(is_plain)
}

/// Returns whether `host`, as [`RequestHead::host`] returns it, is this machine for itself.
pub fn is_loopback_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{ParsedRequest, read_head};

    fn with<T>(headers: &str, read: impl Fn(&RequestHead<'_>) -> T) -> T {
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
        match read_head(text.as_bytes()) {
            ParsedRequest::Complete(request) => read(&request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn gzip_is_accepted_unless_its_weight_is_zero() {
        for (value, expected) in [
            ("gzip", true),
            ("deflate, GZip;q=0.5", true),
            ("x-gzip", true),
            ("br, gzip ; q=1.0", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzipped", false),
            ("identity", false),
            ("", false),
        ] {
            let header = format!("ACCEPT-encoding:{value}\r\n");
            assert_eq!(with(&header, |request| request.accepts_gzip()), expected, "{value}");
        }
        assert!(!with("", |request| request.accepts_gzip()));
        assert!(with("Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n", |request| request
            .accepts_gzip()));
    }

    #[test]
    fn host_is_a_plain_name_or_address() {
        for (value, expected) in [
            ("tracker.example", Some("tracker.example")),
            ("Tracker_1.example:6969", Some("Tracker_1.example")),
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("[2001:db8::1]:6969", Some("[2001:db8::1]")),
            ("[::1]", Some("[::1]")),
            ("", None),
            (":80", None),
            ("a:b", None),
            ("a:80:80", None),
            ("2001:db8::1", None),
            ("[2001:db8::1", None),
            ("[::1]x", None),
            ("[<b>]:80", None),
            ("a/b", None),
            ("<script>alert(1)</script>", None),
            ("a\"onload=\"x", None),
            ("a b", None),
        ] {
            let header = format!("host: {value}\r\n");
            assert_eq!(
                with(&header, |request| request.host().map(String::from)).as_deref(),
                expected
            );
        }
        let long = format!("Host: {}\r\n", "a".repeat(254));
        assert_eq!(with(&long, |request| request.host().map(String::from)), None);
        let two = "Host: a\r\nHost: b\r\n";
        assert_eq!(with(two, |request| request.host().map(String::from)), None);
        assert!(["localhost", "127.0.0.9", "[::1]"].into_iter().all(is_loopback_host));
        assert!(
            !["localhost.example", "192.0.2.1", "[2001:db8::1]"].into_iter().any(is_loopback_host)
        );
    }

    #[test]
    fn json_must_be_all_that_is_asked_for() {
        assert!(with("Accept: application/json\r\n", |request| request.wants_json()));
        assert!(!with("Accept: text/html, application/json\r\n", |request| request.wants_json()));
        assert!(!with("", |request| request.wants_json()));
    }
}
