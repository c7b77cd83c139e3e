//! HTTPS and wss through real sockets, with rustls' own client.

mod handshakes;
mod https;
mod proxied;
mod wss;

use std::io::{ErrorKind, Read, Write};
use std::mem::take;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::tls::{Certificate, CertificateFiles, Certificates, TlsConfig};
use net::{TcpOptions, bind_tcp};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tokio::sync::watch;
use tracker::counters::{Counters, DropReason, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicyId, Networks, Options, Policy, Secrets, StoreOptions, Tracker};

use crate::Clock;
use crate::http::{HttpListener, HttpOptions, HttpWorker, serve};
use crate::webtorrent::WorkerLink;

/// Longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

/// Whom the clients trust.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let der = params.self_signed(&key).unwrap().der().clone();
    Authority { issuer: Issuer::new(params, key), der }
});

/// A certificate for a host, by way of files, as in life.
fn certificate(host: &str) -> Certificate {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![host.into()]).unwrap();
    let chain = params.signed_by(&key, &AUTHORITY.issuer).unwrap().pem();
    let file = std::env::temp_dir().join(format!("{}-{host}-{:p}.pem", std::process::id(), &key));
    std::fs::write(&file, chain + &key.serialize_pem()).unwrap();
    let files = CertificateFiles { chain: file.clone(), key: file.clone() };
    let certificate = Certificate::read(&files).unwrap();
    std::fs::remove_file(file).unwrap();
    certificate
}

fn client_config(versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(AUTHORITY.der.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_protocol_versions(versions).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth().into()
}

/// One worker with a listener that speaks TLS, and one that does not.
struct Server {
    address: SocketAddr,
    plain: SocketAddr,
    certificates: Arc<Certificates>,
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    stop: watch::Sender<bool>,
    worker: Option<JoinHandle<()>>,
    client_config: Arc<ClientConfig>,
}

impl Server {
    fn start() -> Self {
        Self::with(HttpOptions::default())
    }

    fn with(options: HttpOptions) -> Self {
        let certificates = Arc::new(Certificates::default());
        certificates.replace(vec![certificate("tracker.test")]);
        let (registry, tracker) = (Arc::new(MetricsRegistry::default()), tracker());
        let listener = |tls: Option<TlsConfig>| {
            let listen = ([127, 0, 0, 1], 0).into();
            let socket = bind_tcp(listen, 1, &TcpOptions::default()).unwrap().remove(0);
            let address = socket.local_addr().unwrap();
            let protocols = match tls {
                Some(_) => [Protocol::Https, Protocol::Wss],
                None => [Protocol::Http, Protocol::Ws],
            };
            let [http, web] = protocols.map(|protocol| {
                registry.register(Listener {
                    protocol,
                    address,
                    listener_policy: ListenerPolicyId(0),
                })
            });
            (address, HttpListener { socket, tls, options: options.clone(), http, web })
        };
        let (address, tls) = listener(Some(TlsConfig::new(&certificates)));
        let (plain, bare) = listener(None);
        let worker = HttpWorker {
            tracker: Arc::clone(&tracker),
            listeners: vec![tls, bare],
            clock: Clock::start(),
            seed: 7,
            link: WorkerLink::for_workers(1).remove(0),
        };
        let (stop, stopped) = watch::channel(false);
        let worker = std::thread::spawn(move || serve(worker, stopped).unwrap());
        let client_config = client_config(&VERSIONS);
        Self {
            address,
            plain,
            certificates,
            tracker,
            registry,
            stop,
            worker: Some(worker),
            client_config,
        }
    }

    /// A TCP connection to the port that speaks TLS.
    fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    fn client(&self) -> Client {
        self.client_of("tracker.test", Arc::clone(&self.client_config))
    }

    fn client_of(&self, host: &'static str, config: Arc<ClientConfig>) -> Client {
        let tls = ClientConnection::new(config, host.try_into().unwrap()).unwrap();
        Client { tls: StreamOwned::new(tls, self.connect()), heard: Vec::new() }
    }

    fn counters(&self, protocol: Protocol) -> Counters {
        let all = self.registry.read();
        all.into_iter().find(|(listener, _)| listener.protocol == protocol).unwrap().1
    }

    /// Ends it, and gives what it counted.
    fn finish(mut self, protocol: Protocol) -> Counters {
        self.end();
        self.counters(protocol)
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(worker) = self.worker.take() {
            worker.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn tracker() -> Arc<Tracker> {
    let policy = Policy::default();
    let store = StoreOptions {
        shards: 2,
        hash_key: [3; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids: false,
        memory_budget: None,
    };
    let keys = Secrets { connection_ids: [5; 16], offers: [6; 16], limits: [7; 16] };
    Arc::new(Tracker::new(&Options { policy, store }, &keys))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A client with TLS, and what it has heard.
struct Client {
    tls: StreamOwned<ClientConnection, TcpStream>,
    heard: Vec<u8>,
}

impl Client {
    fn say(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.tls.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// The next response: status line and body.
    fn hear(&mut self) -> (String, Vec<u8>) {
        let end = self.hear_until(|heard| find(heard, b"\r\n\r\n")) + 4;
        let head = String::from_utf8(self.heard.drain(..end).collect()).unwrap();
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let len: usize = len.parse().unwrap();
        self.hear_until(|heard| (heard.len() >= len).then_some(len));
        (head.lines().next().unwrap().into(), self.heard.drain(..len).collect())
    }

    fn ask(&mut self, bytes: impl AsRef<[u8]>) -> (String, Vec<u8>) {
        self.say(bytes).hear()
    }

    /// Waits for the server to say that nothing more comes, and fails if anything else does: rustls
    /// takes a connection that just ends for an error.
    fn hear_end(mut self) {
        assert!(!self.read_more() && self.heard.is_empty(), "{:?}", self.heard);
    }

    fn hear_until<T>(&mut self, is_there: impl Fn(&[u8]) -> Option<T>) -> T {
        loop {
            if let Some(found) = is_there(&self.heard) {
                return found;
            }
            assert!(self.read_more(), "the end behind {:?}", self.heard);
        }
    }

    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let len = self.tls.read(&mut buffer).unwrap();
        self.heard.extend_from_slice(&buffer[..len]);
        len > 0
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A request of a leecher at `port`.
fn announce(port: u16, headers: &str) -> String {
    format!(
        "GET /announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-{port:012}&port={port}&left=1 \
         HTTP/1.1\r\nHost: tracker.test\r\n{headers}\r\n"
    )
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
