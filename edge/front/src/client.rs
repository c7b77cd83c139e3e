//! The client of a connection or datagram: the other end, or, if that is a trusted proxy, the client
//! that the proxy names.
//!
//! The header closest to the transport is read first. On a connection that is the PROXY header, then,
//! if the address that it names is a trusted proxy as well, the forwarded header of the HTTP request.
//! In a datagram it is the Simple Proxy header.

use std::net::IpAddr;

use tracker::{Credentials, ListenerPolicyId, Networks, View};
use types::{Scope, UserKey};
use wire::http::{ForwardedHeader, RequestHead};
use wire::proxy::{self, ParsedProxyHeader};
use wire::url::{query_key, query_token};

use crate::connection_error::{ConnectionError, ConnectionResult};

/// The other end of a TCP connection, as far as its first bytes have identified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteClient {
    /// The closest address that is known: the client's, or that of a proxy whose requests name it.
    pub(crate) ip: IpAddr,
    /// True if the client connected to an address that is not public.
    pub(crate) via_local_address: bool,
    state: ProxyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyState {
    /// A PROXY header must come before anything else.
    ExpectsProxyHeader,
    /// The client itself, or a proxy whose requests name the client if it is trusted.
    Direct,
    /// A proxy whose PROXY header names no client. Its requests are its own (health checks), so their
    /// forwarded headers are not trusted.
    ProxyLocal,
}

impl RemoteClient {
    /// Returns the client that connected from `peer` to a listener where connections from `proxies` begin with
    /// a PROXY header; `None` if no header is expected at the listener. `local` returns the address
    /// that was connected to; it is called only for peers that are not public.
    pub(crate) fn new(
        peer: IpAddr,
        local: impl FnOnce() -> Option<IpAddr>,
        proxies: Option<&Networks>,
    ) -> Self {
        let ip = peer.to_canonical();
        //= proxy#trusted-only
        let is_trusted = proxies.is_some_and(|proxies| proxies.contains(ip));
        let state = if is_trusted { ProxyState::ExpectsProxyHeader } else { ProxyState::Direct };
        Self { ip, via_local_address: is_via_local_address(ip, local), state }
    }

    /// Returns true if a PROXY header must come first, and has not come yet.
    #[inline]
    pub(crate) fn expects_proxy_header(&self) -> bool {
        self.state == ProxyState::ExpectsProxyHeader
    }

    /// Parses `input`, all first bytes that have come, before TLS and HTTP see them. Returns the length of the
    /// header, behind which the client's own input follows, or `None` if only a part of it has come. Call it
    /// only while a header is expected.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectionError::BadProxyHeader`] if the input is not a PROXY header: the connection must be
    /// closed.
    //= proxy#no-guessing
    pub(crate) fn read_proxy_header(&mut self, input: &[u8]) -> ConnectionResult<Option<usize>> {
        let header = match proxy::read(input) {
            ParsedProxyHeader::Complete(header) => header,
            ParsedProxyHeader::Partial => return Ok(None),
            ParsedProxyHeader::Invalid => return Err(ConnectionError::BadProxyHeader),
        };
        self.state = ProxyState::ProxyLocal;
        if let Some(route) = header.route {
            self.ip = route.client.ip();
            self.via_local_address = Scope::of(route.server.ip()) != Scope::Public;
            self.state = ProxyState::Direct;
        }
        Ok(Some(header.len))
    }

    /// Returns the address of the client that sent `request`. If the other end is a trusted proxy, that is the
    /// right-most hop of its forwarded header that is not a trusted proxy: the client may have made up
    /// everything to the left of it. A hop without an address ends the search at the proxy that wrote
    /// it.
    //= rfc7239#trust
    #[inline]
    pub(crate) fn client_ip(
        &self,
        request: &RequestHead<'_>,
        proxies: &Networks,
        header: ForwardedHeader,
    ) -> IpAddr {
        let mut known = self.ip;
        if self.state != ProxyState::Direct || !proxies.contains(known) {
            return known;
        }
        for hop in request.forwarded_addresses(header) {
            let Some(ip) = hop else { return known };
            known = ip;
            if !proxies.contains(known) {
                return known;
            }
        }
        known
    }
}

/// The client of a WebSocket, as HTTP hands it over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WsClient {
    /// The client's address: behind a trusted proxy, the one that the proxy names.
    pub(crate) ip: IpAddr,
    /// The passkey of the request for the WebSocket, if it had one. Each message is authorized by it.
    pub(crate) user: Option<Box<UserKey>>,
    /// The token of that request, if the listener asks for one. Each announce is authorized by it.
    pub(crate) token: Option<Box<[u8]>>,
    /// True if it is a web browser: the page that it shows chooses what it sends.
    pub(crate) is_browser: bool,
}

impl WsClient {
    pub(crate) fn credentials(&self) -> Credentials<'_> {
        Credentials { key: self.key(), token: self.token.as_deref() }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.user.as_deref().map(UserKey::as_bytes)
    }
}

/// Returns the credentials in the URL of a request at a listener: the passkey in its path, `key_in_path`,
/// or, at a private listener, in its query, and the token if the listener asks for tokens. Elsewhere the
/// query is not searched: clients send a `key` of another meaning there.
#[inline]
pub(crate) fn credentials<'a>(
    view: &View<'_>,
    listener_policy: ListenerPolicyId,
    key_in_path: Option<&'a [u8]>,
    query: &'a [u8],
) -> Credentials<'a> {
    let key = match key_in_path {
        None if view.is_private(listener_policy) => query_key(query),
        key => key,
    };
    let token = if view.needs_token(listener_policy) { query_token(query) } else { None };
    Credentials { key, token }
}

/// Returns true if a client that is not public connected to an address that is not public either. Always
/// false for public clients. `local` returns the address that was connected to; it is called only if the
/// answer depends on it.
#[inline]
pub(crate) fn is_via_local_address(ip: IpAddr, local: impl FnOnce() -> Option<IpAddr>) -> bool {
    if Scope::of(ip) == Scope::Public {
        return false;
    }
    // Only this host itself has loopback addresses.
    ip.is_loopback() || local().is_some_and(|local| Scope::of(local) != Scope::Public)
}

#[cfg(test)]
mod tests {
    use wire::http::{ParsedRequest, read_head};

    use super::*;

    fn trusted() -> Networks {
        Networks::parse(["10.0.0.0/8", "192.0.2.7", "fd00::/8"]).unwrap()
    }

    /// Returns the client's address for a request with `headers` from `client`.
    fn client_of(client: &RemoteClient, header: ForwardedHeader, headers: &str) -> String {
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n");
        let ParsedRequest::Complete(request) = read_head(text.as_bytes()) else { panic!("{text}") };
        client.client_ip(&request, &trusted(), header).to_string()
    }

    fn client(peer: &str, headers: &str) -> String {
        let client = RemoteClient::new(peer.parse().unwrap(), || None, None);
        client_of(&client, ForwardedHeader::XForwardedFor, headers)
    }

    /// Returns a connection of a trusted proxy that has sent `input`.
    fn after_input(input: &[u8]) -> RemoteClient {
        let proxies = trusted();
        let mut client = RemoteClient::new([10, 0, 0, 1].into(), || None, Some(&proxies));
        assert!(matches!(client.read_proxy_header(input), Ok(Some(16..))));
        client
    }

    #[test]
    fn takes_the_rightmost_untrusted_hop() {
        let header = "X-Forwarded-For: 9.9.9.9, 5.6.7.8, 10.1.1.1\r\n";
        let split = "X-Forwarded-For: 5.6.7.8\r\nX-Forwarded-For: 192.0.2.7\r\n";
        for (peer, headers, expected) in [
            ("10.0.0.1", header, "5.6.7.8"),
            ("::ffff:10.0.0.1", header, "5.6.7.8"),
            ("fd00::1", split, "5.6.7.8"),
            ("10.0.0.1", "X-Forwarded-For: 10.0.0.2\r\n", "10.0.0.2"),
            ("10.0.0.1", "", "10.0.0.1"),
            // Untrusted addresses.
            ("1.2.3.4", header, "1.2.3.4"),
            ("::ffff:1.2.3.4", "", "1.2.3.4"),
        ] {
            assert_eq!(client(peer, headers), expected, "{peer} {headers}");
        }
    }

    //= rfc7239#trust
    //= type=test
    #[test]
    fn stops_at_a_hop_without_an_address() {
        assert_eq!(client("10.0.0.1", "X-Forwarded-For: 9.9.9.9, unknown\r\n"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "X-Forwarded-For: 9.9.9.9, , 10.0.0.9\r\n"), "10.0.0.9");
        let client = RemoteClient::new([10, 0, 0, 1].into(), || None, None);
        let of = |value: &str| {
            client_of(&client, ForwardedHeader::Forwarded, &format!("Forwarded: {value}\r\n"))
        };
        assert_eq!(of("for=9.9.9.9, for=_hidden, for=10.0.0.9"), "10.0.0.9");
        assert_eq!(of("for=9.9.9.9, for=5.6.7.8;proto=http, for=\"[fd00::2]:1\""), "5.6.7.8");
    }

    #[test]
    fn reads_forwarding_headers_behind_a_proxy_header() {
        let header = "X-Forwarded-For: 9.9.9.9, 5.6.7.8\r\n";
        let of =
            |input: &[u8]| client_of(&after_input(input), ForwardedHeader::XForwardedFor, header);
        // The named client is another trusted proxy.
        assert_eq!(of(b"PROXY TCP4 10.0.0.9 10.0.0.1 4711 443\r\n"), "5.6.7.8");
        // The header names no client, so forwarding headers are ignored.
        assert_eq!(of(b"PROXY UNKNOWN 5.6.7.8\r\n"), "10.0.0.1");
        assert_eq!(of(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"), "10.0.0.1");
    }

    /// Private clients are tested over UDP and HTTP.
    #[test]
    fn looks_up_the_local_address_only_for_private_clients() {
        let unasked = || -> Option<IpAddr> { panic!("the local address was looked up") };
        assert!(!RemoteClient::new([8, 8, 8, 8].into(), unasked, None).via_local_address);
        assert!(RemoteClient::new([127, 0, 0, 1].into(), unasked, None).via_local_address);
        assert!(!RemoteClient::new([10, 1, 1, 1].into(), || None, None).via_local_address);
    }
}
