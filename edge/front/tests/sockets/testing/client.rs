//! A client for HTTP, over TCP or TLS, that panics where tests would unwrap.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use harness::http::{Connection, Response};

/// A stream with an end of its own in each direction.
pub(crate) trait Stream: Read + Write + Send {
    /// Ends what this side sends, and stays open for what the server sends.
    fn end_output(&mut self);
}

impl Stream for TcpStream {
    fn end_output(&mut self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// A connection over TCP or TLS, for tests that do the same with both.
pub(crate) type AnyClient = Client<Box<dyn Stream>>;

/// A connection, and what has been received over it.
pub(crate) struct Client<S = TcpStream>(pub(crate) Connection<S>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self(Connection::open(address).unwrap())
    }
}

impl<S: Stream + 'static> Client<S> {
    /// The same without the type of its stream.
    pub(crate) fn boxed(self) -> AnyClient {
        Client(Connection { stream: Box::new(self.0.stream), received: self.0.received })
    }
}

impl<S: Read + Write> Client<S> {
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

    /// Sends a request and returns the response.
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
        assert!(!self.receive_more() && self.0.received.is_empty(), "{:?}", self.0.received);
    }

    /// The same where the server may as well reset the connection.
    pub(crate) fn expect_end_or_reset(mut self) {
        match self.0.receive_more() {
            Ok(is_more) => assert!(!is_more && self.0.received.is_empty()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// Receives some bytes; returns false at an orderly end.
    pub(crate) fn receive_more(&mut self) -> bool {
        self.0.receive_more().unwrap()
    }
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
