//! TLS as rustls' own client speaks it, and certificates for its server.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use client::tls::Trust;
use harness::http::Connection;
use net::tls::{Certificate, Certificates};
use rcgen::generate_simple_self_signed;
use rustls::{ClientConnection, StreamOwned};
use tracker::counters::Protocol;

use super::{AnyClient, Client, HttpServer, Stream, WebClient};

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn end_output(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap();
    }
}

impl HttpServer {
    /// A client at the listener without TLS and one at that with TLS, with the protocols that these count.
    pub(crate) fn both_clients(&self) -> [(Protocol, AnyClient); 2] {
        [(Protocol::Http, self.client().boxed()), (Protocol::Https, self.tls_client().boxed())]
    }

    /// The same as WebSockets.
    pub(crate) fn both_web_clients(&self) -> [(Protocol, WebClient<Box<dyn Stream>>); 2] {
        let [plain, tls] = self.both_clients().map(|(_, client)| WebClient::open(client, "/"));
        [(Protocol::Ws, plain), (Protocol::Wss, tls)]
    }
}

pub(crate) type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// The certificate of all servers, for `tracker.test`.
pub(crate) static CERTIFICATES: LazyLock<Arc<Certificates>> = LazyLock::new(|| {
    let own = generate_simple_self_signed(["tracker.test".to_owned()]).unwrap();
    let pem = own.cert.pem() + &own.signing_key.serialize_pem();
    let certificates = Certificates::default();
    let certificate = Certificate::from_pem(pem.as_bytes(), Path::new("own.pem")).unwrap();
    certificates.replace(vec![certificate]);
    Arc::new(certificates)
});

/// Returns the client's side of a session.
pub(crate) fn tls_client() -> ClientConnection {
    let config = client::tls::config(&Trust::AnyCertificate).unwrap();
    ClientConnection::new(config.into(), "tracker.test".try_into().unwrap()).unwrap()
}

/// A TLS client over a TCP connection that may have carried something already.
pub(crate) fn tls_over(stream: TcpStream) -> TlsClient {
    Client(Connection::new(StreamOwned::new(tls_client(), stream)))
}
