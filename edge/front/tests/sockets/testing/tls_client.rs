//! TLS as rustls' own client speaks it, and certificates for its server.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, LazyLock};

use harness::http::Connection;
use net::tls::{Certificate, CertificateFiles, Certificates};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
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

/// The key of all servers, with a certificate for `tracker.test` that it signs itself.
static KEY: LazyLock<CertifiedKey<KeyPair>> =
    LazyLock::new(|| generate_simple_self_signed(["tracker.test".to_owned()]).unwrap());

/// The certificate of all servers, read from files as in life.
pub(crate) static CERTIFICATES: LazyLock<Arc<Certificates>> = LazyLock::new(|| {
    let directory = harness::Directory::new().unwrap();
    let both = KEY.cert.pem() + &KEY.signing_key.serialize_pem();
    let file = directory.write("both.pem", &both).unwrap();
    let files = CertificateFiles { chain: file.clone(), key: file };
    let certificates = Certificates::default();
    certificates.replace(vec![Certificate::read(&files).unwrap()]);
    Arc::new(certificates)
});

/// The configuration of a client that trusts the certificate of all servers.
pub(crate) fn client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(KEY.cert.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots).with_no_client_auth().into()
}

/// A client of `tracker.test` over a TCP connection that may have carried something already.
pub(crate) fn tls_over(stream: TcpStream, config: Arc<ClientConfig>) -> TlsClient {
    let tls = ClientConnection::new(config, "tracker.test".try_into().unwrap()).unwrap();
    Client(Connection::new(StreamOwned::new(tls, stream)))
}
