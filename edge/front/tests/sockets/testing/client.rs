//! A client for HTTP, over TCP or TLS, that panics where tests would unwrap. It may speak through a trusted proxy at
//! 127.0.0.1 that names its clients, so that one host stands for many.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use client::tls::Trust;
use harness::http::{Connection, Response};
use rustls::{ClientConnection, StreamOwned};

/// A stream over TCP or TLS.
pub(crate) trait Stream: Read + Write + Send {
    /// Ends what this side sends, and stays open for what the server sends.
    fn end_output(&mut self);
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn end_output(&mut self) {
        self.shutdown(Shutdown::Write).unwrap();
    }

    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn end_output(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap();
    }

    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

/// A connection, and what has been received over it.
pub(crate) struct Client(pub(crate) Connection<Box<dyn Stream>>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self(Connection::new(Box::new(Connection::open(address).unwrap().stream)))
    }

    /// Begins TLS over a TCP connection that may have carried something already. The handshake comes with the first
    /// bytes.
    pub(crate) fn begin_tls(self) -> Self {
        Self(Connection::new(Box::new(StreamOwned::new(tls_session(), self.tcp()))))
    }

    /// Another handle of the TCP connection.
    pub(crate) fn tcp(&self) -> TcpStream {
        self.0.stream.tcp().try_clone().unwrap()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.send(bytes).unwrap();
        self
    }

    /// The next response.
    pub(crate) fn receive(&mut self) -> Response {
        self.0.receive().unwrap()
    }

    /// The next head. What follows is not yet read.
    pub(crate) fn receive_head(&mut self) -> Response {
        self.0.receive_head().unwrap()
    }

    pub(crate) fn request(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request).receive()
    }

    /// All that comes up to the end of the stream, which may be a reset.
    pub(crate) fn receive_rest(&mut self) -> Vec<u8> {
        self.0.receive_rest().unwrap()
    }

    /// Waits for an orderly end, and fails if anything else comes first. Over TLS, the end of the
    /// connection without a close_notify is an error.
    pub(crate) fn expect_end(mut self) {
        let is_more = self.0.receive_more().unwrap();
        assert!(!is_more && self.0.received.is_empty(), "{:?}", self.0.received);
    }

    /// The same where the server may as well reset the connection.
    pub(crate) fn expect_end_or_reset(mut self) {
        match self.0.receive_more() {
            Ok(is_more) => assert!(!is_more && self.0.received.is_empty()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// Returns the client's side of a TLS session.
pub(crate) fn tls_session() -> ClientConnection {
    let config = client::tls::config(&Trust::AnyCertificate).unwrap();
    ClientConnection::new(config.into(), "tracker.test".try_into().unwrap()).unwrap()
}

/// The target of an announce by a leecher at `port` with all that is required, and `more`.
pub(crate) fn announce(port: u16, more: &str) -> String {
    format!(
        "/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-{port:012}&port={port}\
         &uploaded=0&downloaded=0&left=1{more}"
    )
}

/// A request for `target`; each of `headers` ends with `\r\n`.
pub(crate) fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n{headers}\r\n")
}

/// A request whose response shows that its connection is served.
pub(crate) const PROBE: &str = "GET /none HTTP/1.1\r\n\r\n";

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

/// Connects as `from`. Returns the connection if it is served.
pub(crate) fn served_as(to: SocketAddr, from: &str) -> Option<Client> {
    if_served(connect_as(to, from, ""))
}

/// The same over TLS.
pub(crate) fn served_over_tls_as(to: SocketAddr, from: &str) -> Option<Client> {
    if_served(connect_as(to, from, "").begin_tls())
}

fn if_served(mut client: Client) -> Option<Client> {
    let is_served = client.0.send(PROBE).is_ok() && client.0.receive().is_ok();
    is_served.then_some(client)
}

/// Returns the bytes that `write` writes.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}
