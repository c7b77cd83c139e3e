//! Where the tracker is.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};

/// A tracker's URL, resolved.
#[derive(Clone, Debug)]
pub struct Url {
    scheme: &'static str,
    /// Whether it is spoken to over TLS.
    pub(crate) is_secure: bool,
    /// The host without its port, for TLS.
    pub(crate) name: String,
    /// For the `Host` header.
    pub(crate) host: String,
    /// Path and query.
    pub(crate) target: String,
    /// Where to connect to.
    pub(crate) address: SocketAddr,
}

impl Url {
    /// Reads `ws://HOST[:PORT][/PATH]`, or `wss://`, and asks the system for the host's address.
    pub fn web(text: &str) -> Result<Self> {
        Self::resolve(text, ["ws", "wss"])
    }

    /// Reads `http://HOST[:PORT][/PATH]`, or `https://`, and asks the system for the host's address.
    pub fn http(text: &str) -> Result<Self> {
        Self::resolve(text, ["http", "https"])
    }

    /// The second scheme is that with TLS.
    fn resolve(text: &str, schemes: [&'static str; 2]) -> Result<Self> {
        let split = text.split_once("://");
        let found = split.and_then(|(said, rest)| {
            let scheme = schemes.into_iter().find(|scheme| *scheme == said)?;
            Some((scheme, rest))
        });
        let Some((scheme, rest)) = found else {
            bail!("{text}: a {}:// URL is due, or {}://", schemes[0], schemes[1]);
        };
        let is_secure = scheme == schemes[1];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, target) = rest.split_at(end);
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.into() } else { format!("/{target}") };
        let port = if is_secure { 443 } else { 80 };
        let (name, port) = name_and_port(host, port).with_context(|| format!("{text}: no host"))?;
        let addresses = (name, port).to_socket_addrs();
        let mut addresses = addresses.with_context(|| format!("cannot resolve {name}"))?;
        let address = addresses.next().with_context(|| format!("{name} has no address"))?;
        let (name, host) = (name.to_owned(), host.to_owned());
        Ok(Self { scheme, is_secure, name, host, target, address })
    }

    /// Whether it leads to this machine or to a private network.
    pub fn is_private(&self) -> bool {
        match self.address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
            }
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.host, self.target)
    }
}

fn name_and_port(host: &str, default: u16) -> Option<(&str, u16)> {
    let (name, port) = match host.rsplit_once(':') {
        // A colon within brackets is part of an IPv6 address.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (host, default),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    (!name.is_empty()).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, address, target) in [
            ("ws://127.0.0.1:3000", "127.0.0.1:3000", "/"),
            ("ws://127.0.0.1/", "127.0.0.1:80", "/"),
            ("ws://[::1]:8000/announce?key=1#x", "[::1]:8000", "/announce?key=1"),
            ("ws://[::1]?a", "[::1]:80", "/?a"),
        ] {
            let url = Url::web(text).unwrap();
            assert_eq!((url.address, url.target.as_str()), (address.parse().unwrap(), target));
        }
        let url = Url::web("ws://127.0.0.1:3000?a").unwrap();
        assert_eq!(url.to_string(), "ws://127.0.0.1:3000/?a");
        for bad in ["127.0.0.1:1", "https://127.0.0.1", "http://x", "ws://", "ws://:80", "ws://x:y"]
        {
            assert!(Url::web(bad).is_err(), "{bad}");
        }
        assert!(!url.is_secure);
        let url = Url::http("https://[::1]/announce").unwrap();
        assert_eq!((url.address, url.name.as_str()), ("[::1]:443".parse().unwrap(), "::1"));
        assert_eq!((url.is_secure, url.to_string().as_str()), (true, "https://[::1]/announce"));
        assert!(Url::web("wss://127.0.0.1:1").unwrap().is_secure);
    }

    #[test]
    fn private_networks_are_told_from_others() {
        let is_private = |host: &str| Url::web(&format!("ws://{host}")).unwrap().is_private();
        for own in ["127.0.0.1", "10.1.2.3", "192.168.1.1", "[::1]", "[fd00::1]", "[fe80::1]"] {
            assert!(is_private(own), "{own}");
        }
        for foreign in ["192.0.2.1", "[2001:db8::1]", "[::ffff:192.0.2.1]"] {
            assert!(!is_private(foreign), "{foreign}");
        }
    }
}
