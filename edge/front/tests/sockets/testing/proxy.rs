//! A trusted proxy at 127.0.0.1 that names its clients, so that one host stands for many.

use std::net::SocketAddr;

use front::http::HttpOptions;
use tracker::Networks;

use super::{Client, HttpServer, TlsClient, tls_over};

/// Options of a listener whose clients come through the proxy, named by forwarding headers.
pub(crate) fn behind_proxy() -> HttpOptions {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    HttpOptions { trusted_proxies, ..HttpOptions::default() }
}

/// The same with clients that are named by PROXY headers.
pub(crate) fn behind_proxy_protocol() -> HttpOptions {
    HttpOptions { proxy_protocol: true, ..behind_proxy() }
}

/// Returns the PROXY header of a client.
pub(crate) fn proxy_line(from: &str) -> String {
    let (family, own) =
        if from.contains(':') { ("TCP6", "2001:db8::1") } else { ("TCP4", "192.0.2.200") };
    format!("PROXY {family} {from} {own} 4711 6969\r\n")
}

/// Connects as `from` by a PROXY header, and sends `text`.
pub(crate) fn connect_as(to: SocketAddr, from: &str, text: &str) -> Client {
    let mut client = Client::connect(to);
    client.send(proxy_line(from) + text);
    client
}

/// A request whose response shows that its connection is served.
pub(crate) const PROBE: &str = "GET /none HTTP/1.1\r\n\r\n";

/// Connects as `from`. Returns the connection if it is served.
pub(crate) fn served_as(to: SocketAddr, from: &str) -> Option<Client> {
    let mut client = connect_as(to, from, PROBE);
    client.0.receive().is_ok_and(|response| response.status == 404).then_some(client)
}

/// The same over TLS.
pub(crate) fn served_over_tls_as(to: SocketAddr, from: &str) -> Option<TlsClient> {
    let mut client = tls_over(connect_as(to, from, "").0.stream);
    let is_served = client.0.send(PROBE).is_ok() && client.0.receive().is_ok();
    is_served.then_some(client)
}

impl HttpServer {
    /// Returns true if the client can open another connection, which is closed.
    pub(crate) fn has_free_permit(&self, from: &str) -> bool {
        self.tracker.limiter().has_free_permit(from.parse().unwrap())
    }
}
