//! Who the client is when a proxy speaks for it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use wire::http::Request;

/// The networks whose `X-Forwarded-For` is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

/// A text that is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseProxyError(String);

impl Proxies {
    /// Reads addresses (`192.0.2.1`) and networks (`192.0.2.0/24`, `2001:db8::/32`).
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseProxyError> {
        texts.into_iter().map(network).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&ip))
    }

    /// The client's address: that of the TCP peer, unless the peer is a trusted proxy. Then the
    /// right-most entry of `X-Forwarded-For` that is not a trusted proxy itself: everything to the
    /// left of it may have been made up by the client. An entry that is no address ends the search
    /// at the hop that wrote it.
    pub(crate) fn client(&self, peer: IpAddr, request: &Request<'_>) -> IpAddr {
        let mut hop = peer.to_canonical();
        if self.0.is_empty() || !self.contains(hop) {
            return hop;
        }
        for entry in request.forwarded_for() {
            let Some(ip) = address(entry) else { return hop };
            hop = ip;
            if !self.contains(hop) {
                return hop;
            }
        }
        hop
    }
}

fn network(text: &str) -> Result<IpNet, ParseProxyError> {
    let parsed = IpNet::from_str(text).or_else(|_| IpAddr::from_str(text).map(IpNet::from));
    parsed.map_err(|_| ParseProxyError(text.to_owned()))
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`, quoted or not.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches('"');
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if text.matches(':').count() == 1 => text.split_once(':')?.0,
        None => text,
    };
    bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

impl fmt::Display for ParseProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is neither an address nor a network such as 192.0.2.0/24", self.0)
    }
}

impl std::error::Error for ParseProxyError {}

#[cfg(test)]
mod tests {
    use wire::http::{Head, read_head};

    use super::*;

    fn client(peer: &str, headers: &str) -> String {
        let proxies = Proxies::parse(["10.0.0.0/8", "192.0.2.7", "fd00::/8"]).unwrap();
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
        let Head::Whole(request) = read_head(text.as_bytes()) else { panic!("{text}") };
        proxies.client(peer.parse().unwrap(), &request).to_string()
    }

    #[test]
    fn strangers_are_not_believed() {
        assert_eq!(client("1.2.3.4", "X-Forwarded-For: 5.6.7.8\r\n"), "1.2.3.4");
        assert_eq!(client("::ffff:1.2.3.4", ""), "1.2.3.4");
    }

    #[test]
    fn right_most_untrusted_hop() {
        let header = "X-Forwarded-For: 9.9.9.9, 5.6.7.8, 10.1.1.1\r\n";
        assert_eq!(client("10.0.0.1", header), "5.6.7.8");
        assert_eq!(client("::ffff:10.0.0.1", header), "5.6.7.8");
        let split = "X-Forwarded-For: 5.6.7.8\r\nX-Forwarded-For: 192.0.2.7\r\n";
        assert_eq!(client("fd00::1", split), "5.6.7.8");
        assert_eq!(client("10.0.0.1", "X-Forwarded-For: 10.0.0.2\r\n"), "10.0.0.2");
        assert_eq!(client("10.0.0.1", ""), "10.0.0.1");
    }

    #[test]
    fn odd_entries() {
        let of = |entry: &str| client("10.0.0.1", &format!("X-Forwarded-For: {entry}\r\n"));
        assert_eq!(of("5.6.7.8:4711"), "5.6.7.8");
        assert_eq!(of("[2001:db8::1]:80"), "2001:db8::1");
        assert_eq!(of("2001:db8::1"), "2001:db8::1");
        assert_eq!(of("::ffff:5.6.7.8"), "5.6.7.8");
        assert_eq!(of("9.9.9.9, unknown"), "10.0.0.1");
        assert_eq!(of("9.9.9.9, , 10.0.0.9"), "10.0.0.9");
    }

    #[test]
    fn bad_networks_are_named() {
        let error = Proxies::parse(["10.0.0.0/8", "10.0.0/33"]).unwrap_err();
        assert!(error.to_string().starts_with("`10.0.0/33` is neither"));
    }
}
