//! Tracker URLs.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;
use std::{fmt, io, thread};

use crate::{FailureKind, TrackerError};

/// A tracker's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The protocol.
    pub scheme: Scheme,
    /// The host without port and without the brackets of an IPv6 address, for TLS and name
    /// resolution.
    pub name: String,
    /// The port, explicit or the scheme's default.
    pub port: u16,
    /// Host and port as written, for the `Host` header.
    pub host: String,
    /// Path and query; at least `/`.
    pub target: String,
}

types::labelled! {
    /// The scheme of a tracker URL.
    pub enum Scheme {
        /// UDP (BEP 15).
        Udp = "udp",
        /// HTTP (BEP 3).
        Http = "http",
        /// HTTP over TLS.
        Https = "https",
        /// WebTorrent over a WebSocket.
        Ws = "ws",
        /// WebTorrent over a WebSocket with TLS.
        Wss = "wss",
    }
}

/// Why a text is not a tracker URL: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(String);

impl Url {
    /// Parses `SCHEME://HOST[:PORT][/PATH][?QUERY]`. `udp` has no default port.
    ///
    /// # Errors
    ///
    /// Returns a sentence with the text for anything else: other schemes, user names, port 0, or characters that a
    /// URL must encode.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let bad = |what: &str| UrlError(format!("{text}: {what}"));
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| bad("not a URL: expected SCHEME://HOST"))?;
        let scheme = Scheme::parse(scheme)
            .ok_or_else(|| bad("unknown scheme: expected udp, http, https, ws or wss"))?;
        // Spaces and control characters could break the request line; URLs percent-encode them.
        if let Some(odd) = rest.chars().find(|odd| !odd.is_ascii_graphic()) {
            return Err(bad(&format!(
                "invalid character {odd:?}: percent-encode it, or write the host as xn--…"
            )));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(end);
        if host.contains('@') {
            return Err(bad("user name and password are not supported"));
        }
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.into() } else { format!("/{target}") };
        let (name, port) = name_and_port(host).ok_or_else(|| bad("invalid host or port"))?;
        let port = port.or_else(|| scheme.port()).ok_or_else(|| bad("udp:// needs a port"))?;
        if port == 0 {
            return Err(bad("port 0 is not allowed"));
        }
        Ok(Self { scheme, name: name.into(), port, host: host.into(), target })
    }

    /// Returns the address if the host is an IP address rather than a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        Some((self.name.parse::<IpAddr>().ok()?, self.port).into())
    }

    /// Resolves the host. Returns at least one address, in the order in which to try them.
    ///
    /// # Errors
    ///
    /// Returns [`FailureKind::Unreachable`] if the name has no address, or if there is no response within `timeout`.
    pub fn addresses(&self, timeout: Duration) -> Result<Vec<SocketAddr>, TrackerError> {
        if let Some(address) = self.literal() {
            return Ok(vec![address]);
        }
        let (name, port) = (self.name.clone(), self.port);
        let (found, answer) = mpsc::channel();
        // The system's resolver has no timeout, so it runs in a thread that can be abandoned.
        let ask = move || {
            let addresses = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            // The receiver is gone if the timeout has passed.
            let _ = found.send(addresses);
        };
        let asking = thread::Builder::new().spawn(ask);
        let answer: Result<io::Result<Vec<SocketAddr>>, _> = match asking {
            Ok(_) => answer.recv_timeout(timeout),
            Err(error) => Ok(Err(error)),
        };
        let unreachable = |why: &dyn fmt::Display| {
            TrackerError::new(
                FailureKind::Unreachable,
                format!("cannot resolve {}: {why}", self.name),
            )
        };
        match answer {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(unreachable(&"no addresses found")),
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(_) => Err(unreachable(&format_args!("no response within {timeout:?}"))),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.label(), self.host, self.target)
    }
}

impl Scheme {
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.label().eq_ignore_ascii_case(text))
    }

    /// Returns whether the protocol runs over TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Wss)
    }

    fn port(self) -> Option<u16> {
        match self {
            Self::Udp => None,
            Self::Http | Self::Ws => Some(80),
            Self::Https | Self::Wss => Some(443),
        }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

fn name_and_port(host: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match host.rsplit_once(':') {
        // A colon inside brackets belongs to an IPv6 address.
        Some((name, port)) if !port.ends_with(']') => (name, Some(port.parse().ok()?)),
        _ => (host, None),
    };
    let name = match name.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').filter(|it| it.contains(':'))?,
        None if name.contains(':') => return None,
        None => name,
    };
    (!name.is_empty()).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_urls() {
        for (text, scheme, name, port, target) in [
            ("udp://t.example:6969", Scheme::Udp, "t.example", 6969, "/"),
            ("http://127.0.0.1:3000", Scheme::Http, "127.0.0.1", 3000, "/"),
            ("https://127.0.0.1/", Scheme::Https, "127.0.0.1", 443, "/"),
            ("ws://[::1]:8000/announce?key=1#x", Scheme::Ws, "::1", 8000, "/announce?key=1"),
            ("WSS://[::1]?a", Scheme::Wss, "::1", 443, "/?a"),
            ("ws://h#f", Scheme::Ws, "h", 80, "/"),
        ] {
            let url = Url::parse(text).unwrap();
            let found = (url.scheme, url.name.as_str(), url.port, url.target.as_str());
            assert_eq!(found, (scheme, name, port, target), "{text}");
        }
        let url = Url::parse("ws://127.0.0.1:3000?a").unwrap();
        assert_eq!(url.to_string(), "ws://127.0.0.1:3000/?a");
        let url = Url::parse("https://[::1]/announce").unwrap();
        assert_eq!(
            (url.to_string().as_str(), url.host.as_str()),
            ("https://[::1]/announce", "[::1]")
        );
    }

    #[test]
    fn names_what_is_wrong_with_a_url() {
        for (bad, why) in [
            ("127.0.0.1:1", "not a URL"),
            ("ftp://x", "unknown scheme"),
            ("ws://", "invalid host"),
            ("ws://:80", "invalid host"),
            ("ws://x:y", "invalid host or port"),
            ("ws://x:65536", "invalid host or port"),
            ("ws://x:0", "port 0"),
            ("ws://::1", "invalid host"),
            ("ws://[::1", "invalid host"),
            ("ws://[x]", "invalid host"),
            ("udp://x", "udp:// needs a port"),
            ("http://me:pass@x", "password"),
            ("http://x/ HTTP/1.1", "invalid character ' '"),
            ("http://x/\r\nHost: y", "invalid character '\\r'"),
            ("http://grün", "invalid character 'ü'"),
        ] {
            let error = Url::parse(bad).unwrap_err().to_string();
            assert!(error.starts_with(bad) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn literal_addresses_need_no_resolver() {
        let addresses = |text| Url::parse(text).unwrap().addresses(Duration::ZERO);
        assert_eq!(addresses("udp://[::1]:7"), Ok(vec!["[::1]:7".parse().unwrap()]));
        assert_eq!(addresses("ws://127.0.0.1"), Ok(vec!["127.0.0.1:80".parse().unwrap()]));
    }
}
