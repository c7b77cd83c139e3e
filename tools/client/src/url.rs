//! Where a tracker is.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;
use std::{fmt, io, thread};

use crate::{Fault, Kind};

/// A tracker's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// The host without its port, and without the brackets of an IPv6 address: for TLS.
    pub name: String,
    /// The port, given or by default.
    pub port: u16,
    /// The host as it was written: for the `Host` header.
    pub host: String,
    /// Path and query, `/` at least.
    pub target: String,
}

/// What stands before the `://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// BEP 15.
    Udp,
    /// BEP 3.
    Http,
    /// BEP 3 over TLS.
    Https,
    /// WebTorrent.
    Ws,
    /// WebTorrent over TLS.
    Wss,
}

/// Why a text is no URL of a tracker: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(String);

impl Url {
    /// Reads `SCHEME://HOST[:PORT][/PATH][?QUERY]`. Only `udp` has no port of its own.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let bad = |what: &str| BadUrl(format!("{text}: {what}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("no URL"))?;
        let scheme = Scheme::parse(scheme)
            .ok_or_else(|| bad("its scheme is none of a tracker's: udp, http, https, ws, wss"))?;
        // Anything else could end the request line, and a URL has it in percent signs anyway.
        if let Some(odd) = rest.chars().find(|odd| !odd.is_ascii_graphic()) {
            return Err(bad(&format!("a URL has no {odd:?} in it: it is written as %XX, or xn--")));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(end);
        if host.contains('@') {
            return Err(bad("a name and a password are nothing that trackers know"));
        }
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.into() } else { format!("/{target}") };
        let (name, port) = name_and_port(host).ok_or_else(|| bad("no host, or no port"))?;
        let port = port.or_else(|| scheme.port()).ok_or_else(|| bad("udp:// needs a port"))?;
        if port == 0 {
            return Err(bad("nobody listens on port 0"));
        }
        Ok(Self { scheme, name: name.into(), port, host: host.into(), target })
    }

    /// Its address, if the host is one rather than a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        Some((self.name.parse::<IpAddr>().ok()?, self.port).into())
    }

    /// Asks the system for the host's addresses, in the order in which they should be tried: at least
    /// one.
    pub fn addresses(&self, patience: Duration) -> Result<Vec<SocketAddr>, Fault> {
        if let Some(address) = self.literal() {
            return Ok(vec![address]);
        }
        let (name, port) = (self.name.clone(), self.port);
        let (found, answer) = mpsc::channel();
        // The system takes as long as it likes, so it is asked by a thread that can be left alone.
        let ask = move || {
            let addresses = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            // Nobody may be waiting any more.
            let _ = found.send(addresses);
        };
        let asking = thread::Builder::new().spawn(ask);
        let answer: Result<io::Result<Vec<SocketAddr>>, _> = match asking {
            Ok(_) => answer.recv_timeout(patience),
            Err(error) => Ok(Err(error)),
        };
        let unreachable = |why: &dyn fmt::Display| {
            Fault::new(Kind::Unreachable, format!("cannot resolve {}: {why}", self.name))
        };
        match answer {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(unreachable(&"it has no address")),
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(_) => Err(unreachable(&format_args!("no answer for {patience:?}"))),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.word(), self.host, self.target)
    }
}

impl Scheme {
    const ALL: [Self; 5] = [Self::Udp, Self::Http, Self::Https, Self::Ws, Self::Wss];

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.word().eq_ignore_ascii_case(text))
    }

    /// As it stands in a URL.
    pub fn word(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether it is spoken over TLS.
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

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

/// A host's name, and the port behind it if there is one.
fn name_and_port(host: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match host.rsplit_once(':') {
        // A colon within brackets is part of an IPv6 address.
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
    fn urls_are_taken_apart() {
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
    fn what_is_no_tracker_s_url_is_told() {
        for (bad, why) in [
            ("127.0.0.1:1", "no URL"),
            ("ftp://x", "its scheme is none"),
            ("ws://", "no host"),
            ("ws://:80", "no host"),
            ("ws://x:y", "no port"),
            ("ws://x:65536", "no port"),
            ("ws://x:0", "port 0"),
            ("ws://::1", "no host"),
            ("ws://[::1", "no host"),
            ("ws://[x]", "no host"),
            ("udp://x", "udp:// needs a port"),
            ("http://me:pass@x", "a password"),
            ("http://x/ HTTP/1.1", "no ' ' in it"),
            ("http://x/\r\nHost: y", "no '\\r' in it"),
            ("http://grün", "no 'ü' in it"),
        ] {
            let error = Url::parse(bad).unwrap_err().to_string();
            assert!(error.starts_with(bad) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn addresses_need_not_be_asked_for() {
        let addresses = |text| Url::parse(text).unwrap().addresses(Duration::ZERO);
        assert_eq!(addresses("udp://[::1]:7"), Ok(vec!["[::1]:7".parse().unwrap()]));
        assert_eq!(addresses("ws://127.0.0.1"), Ok(vec!["127.0.0.1:80".parse().unwrap()]));
    }

    #[test]
    fn a_name_that_leads_nowhere_is_unreachable() {
        // RFC 6761: it never resolves.
        let url = Url::parse("udp://tracker.invalid:1").unwrap();
        let fault = url.addresses(Duration::from_secs(60)).unwrap_err();
        assert_eq!(fault.kind, Kind::Unreachable);
        assert!(fault.text.starts_with("cannot resolve tracker.invalid: "), "{fault}");
    }
}
