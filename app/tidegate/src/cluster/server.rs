//! NATS servers of a cluster: how operators name them, and how nodes reach them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use hyper::Uri;

const PORT: u16 = 4222;
/// Servers reach each other at the port for nodes plus this.
const ROUTES_AFTER: u16 = 2000;
const PORT_MAX: u16 = u16::MAX - ROUTES_AFTER;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// A host name, or an IP address; those of IPv6 in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a host, e.g. `t1.example.org`, with a port up to {PORT_MAX} if it is not {PORT}, found `{text}`"
            )
        };
        let is_address = text.parse::<Ipv6Addr>().is_ok();
        let text_of_uri = if is_address { format!("[{text}]") } else { text.to_owned() };
        let uri: Uri = text_of_uri.parse().map_err(|_| expected())?;
        let is_bare = uri.scheme().is_none() && uri.path_and_query().is_none();
        let authority = uri.authority().filter(|it| is_bare && !it.as_str().contains('@'));
        let authority = authority.ok_or_else(expected)?;
        let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match rest.strip_prefix(':') {
            Some(digits) => digits.parse().map_err(|_| expected())?,
            None => PORT,
        };
        let host = authority.host().to_ascii_lowercase();
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !host.is_empty() && host.bytes().all(is_of_name);
        if !(is_name || host.starts_with('[')) || !(1..=PORT_MAX).contains(&port) {
            return Err(expected());
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl Server {
    pub(super) fn of_url(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let server: Self = rest.parse()?;
        let is_fine = match scheme {
            "tls" => true,
            "nats" => server.is_loopback(),
            _ => false,
        };
        if is_fine {
            return Ok(server);
        }
        Err(format!("expected tls://, or nats:// for a server on this machine, found `{url}`"))
    }

    /// Returns how nodes connect to it: with TLS, unless it is on their own machine.
    pub(super) fn url(&self) -> String {
        let scheme = if self.is_loopback() { "nats" } else { "tls" };
        format!("{scheme}://{self}")
    }

    pub(super) fn routes_port(&self) -> u16 {
        self.port + ROUTES_AFTER
    }

    /// Returns its host as a certificate names it: without brackets.
    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn is_loopback(&self) -> bool {
        let is_address = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        self.host == "localhost" || is_address(self.bare_host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_become_urls() {
        for (text, url, routes) in [
            ("t1.example.org", "tls://t1.example.org:4222", 6222),
            ("T1.Example.org:4333", "tls://t1.example.org:4333", 6333),
            ("192.0.2.1", "tls://192.0.2.1:4222", 6222),
            ("2001:db8::1", "tls://[2001:db8::1]:4222", 6222),
            ("[2001:db8::1]:4333", "tls://[2001:db8::1]:4333", 6333),
            ("127.0.0.1", "nats://127.0.0.1:4222", 6222),
            ("localhost:5000", "nats://localhost:5000", 7000),
            ("::1", "nats://[::1]:4222", 6222),
        ] {
            let server: Server = text.parse().unwrap();
            assert_eq!((server.url().as_str(), server.routes_port()), (url, routes));
            assert_eq!(Server::of_url(url), Ok(server));
        }
        for bad in ["", "a b", "tls://a", "user@a", "a/b", "a:0", "a:65000", "a:x", "a,b", ":4222"]
        {
            let why = bad.parse::<Server>().unwrap_err();
            assert!(why.starts_with("expected a host"), "{bad}: {why}");
        }
    }

    #[test]
    fn connections_to_other_machines_are_encrypted() {
        for bad in [
            "nats://192.0.2.1:4222",
            "nats://127.0.0.1.example.org",
            "tls://user:secret@nats.example",
            "nats.example:4222",
            "https://nats.example",
            "tls://nats.example/path",
            "tls://",
            "",
        ] {
            assert!(Server::of_url(bad).is_err(), "{bad}");
        }
    }
}
