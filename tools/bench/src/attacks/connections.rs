//! Floods of TLS handshakes and of pipelined requests from an address of its own, over a network of namespaces (needs
//! root).

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ::load::http::HttpOptions;
use ::load::ws::{AnnounceTiming, WsOptions};
use ::load::{Report, TrackerUrl, Workload};
use anyhow::{Context, Result, anyhow, ensure};
use client::{Session, SessionConfig, Url, tls};
use harness::network::{self, Entered, Network, NetworkOptions};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use super::honest::{self, BUILD_UP, Honest};
use super::{Outcome, RECEIVES, SENDS, Target};
use crate::figures::{count, mib};
use crate::lab::{Api, Certificate, Place, Protocol, RunningTracker};

const PORT: u16 = 6969;
/// Inside the tracker's namespace.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6970);
/// Announces per second of honest clients.
const HONEST_PER_S: f64 = 80.0;

/// Open connections, by case.
type Counts = [(&'static str, usize); 2];

const RSA: Counts = [("handshakes, RSA 2048, 200", 200), ("handshakes, RSA 2048, 4,000", 4000)];
const ECDSA: Counts = [("handshakes, P-256, 200", 200), ("handshakes, P-256, 4,000", 4000)];
/// Open connections, and the cases of honest clients over HTTP and WebTorrent.
const PIPELINING: [(usize, [&str; 2]); 3] = [
    (1, ["pipelining, 1: HTTP", "pipelining, 1: WebTorrent"]),
    (8, ["pipelining, 8: HTTP", "pipelining, 8: WebTorrent"]),
    (50, ["pipelining, 50: HTTP", "pipelining, 50: WebTorrent"]),
];
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const REQUESTS_AT_ONCE: usize = 2000;
/// Reads of a connection before the next one's turn.
const READS: u32 = 4;
/// Between looks at connections of which none has moved.
const IDLE: Duration = Duration::from_micros(200);

/// Connections of one address that send the same bytes again and again.
struct Flood {
    source: IpAddr,
    tracker: SocketAddr,
    connections: usize,
    bytes: Vec<u8>,
    /// Sends the bytes once over a connection, and replaces it when an answer comes. Otherwise all answers are read.
    renews: bool,
    sent: AtomicU64,
    received: AtomicU64,
}

/// A connection, and how much of the bytes it has sent.
struct Sender {
    stream: TcpStream,
    at: usize,
}

/// Handshakes with one ClientHello, at trackers with two kinds of certificates.
pub(super) fn attack_handshakes(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (algorithm, counts) in
        [(&rcgen::PKCS_RSA_SHA256, RSA), (&rcgen::PKCS_ECDSA_P256_SHA256, ECDSA)]
    {
        let Certificate { chain, key, .. } = Certificate::of(algorithm, &target.lab.folder)?;
        let certificates = format!("[{{ chain = {chain:?}, key = {key:?} }}]");
        let settings = [("TIDEGATE_TLS__CERTIFICATES", &*certificates)];
        let site = Site::open(target, Protocol::Https, &settings)?;
        let honest = [site.http("https")?];
        let hello = client_hello()?;
        let before = honest::alone(&honest)?;
        for (case, connections) in counts {
            let flood = Flood::new(&site, connections, hello.clone(), true);
            let during = honest::beside(&honest, target.during, |is_over| flood.run(is_over))?;
            outcomes.push(flood.outcome(case, (&before[0], &during[0]), target.during));
        }
    }
    Ok(outcomes)
}

/// Connections that pipeline requests, beside HTTP and WebTorrent.
pub(super) fn attack_pipelining(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (connections, cases) in PIPELINING {
        let site = Site::open(target, Protocol::Udp, &[])?;
        let honest = [site.http("http")?, site.web()?];
        let before = honest::alone(&honest)?;
        let flood = Flood::new(&site, connections, REQUEST.repeat(REQUESTS_AT_ONCE), false);
        let during = honest::beside(&honest, target.during, |is_over| flood.run(is_over))?;
        for (case, (before, during)) in cases.into_iter().zip(before.iter().zip(&during)) {
            outcomes.push(flood.outcome(case, (before, during), target.during));
        }
    }
    Ok(outcomes)
}

/// Returns the first message of a client.
fn client_hello() -> Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let url = Url::parse(&format!("https://{address}/")).map_err(|error| anyhow!("{error:?}"))?;
    let config = SessionConfig::new(HELLO_TIME, tls::config(&tls::Trust::NoVerification)?.into());
    thread::scope(|scope| {
        scope.spawn(|| Session::open(&url, address, &config).map(drop));
        let (mut stream, _) = listener.accept()?;
        let mut hello = vec![0; 5];
        stream.read_exact(&mut hello)?;
        let len = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        hello.resize(5 + len, 0);
        stream.read_exact(&mut hello[5..]).context("half a ClientHello")?;
        Ok(hello)
    })
}

/// Longest wait of a client for an answer to its hello, which does not come.
const HELLO_TIME: Duration = Duration::from_millis(500);

impl Flood {
    fn new(site: &Site, connections: usize, bytes: Vec<u8>, renews: bool) -> Self {
        let (source, tracker) = (network::client(3).into(), site.address());
        let [sent, received] = [0, 0].map(AtomicU64::new);
        Self { source, tracker, connections, bytes, renews, sent, received }
    }

    /// Floods until it is over.
    fn run(&self, is_over: &AtomicBool) -> Result<()> {
        let mut all: Vec<Option<Sender>> = (0..self.connections).map(|_| None).collect();
        let mut buffer = vec![0; 256 * 1024];
        while !is_over.load(Ordering::Relaxed) {
            let mut has_moved = false;
            for place in &mut all {
                if place.is_none() {
                    *place = self.open();
                }
                let Some(sender) = place else { continue };
                match self.step(sender, &mut buffer) {
                    Ok(moved) => has_moved |= moved,
                    Err(_) => *place = None,
                }
            }
            if !has_moved {
                thread::sleep(IDLE);
            }
        }
        Ok(())
    }

    fn open(&self) -> Option<Sender> {
        let stream = dial(self.source, self.tracker).ok()?;
        Some(Sender { stream, at: 0 })
    }

    /// Sends and reads what is possible. Returns whether anything was; fails if the connection is to be replaced.
    fn step(&self, sender: &mut Sender, buffer: &mut [u8]) -> std::io::Result<bool> {
        let mut has_moved = false;
        if let Some(len) = unless_blocked(sender.stream.write(&self.bytes[sender.at..]))? {
            self.sent.fetch_add(len as u64, Ordering::Relaxed);
            sender.at += len;
            has_moved = len > 0;
        }
        if sender.at == self.bytes.len() && !self.renews {
            sender.at = 0;
        }
        for _ in 0..READS {
            // Unread bytes make the kernel reset the connection, which then occupies no port.
            let len = if self.renews { 1 } else { buffer.len() };
            let Some(len) = unless_blocked(sender.stream.read(&mut buffer[..len]))? else { break };
            self.received.fetch_add(len as u64, Ordering::Relaxed);
            if len == 0 || self.renews {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Returns the outcome for an honest client with these times before a flood, and during one that was measured for
    /// `time`.
    fn outcome(
        &self,
        case: &'static str,
        (before, during): (&Report, &Report),
        time: Duration,
    ) -> Outcome {
        let (case, mut figures, mut text) = honest::outcome(case, before, during);
        let seconds = (time + BUILD_UP).as_secs_f64();
        let [sent, received] = [&self.sent, &self.received]
            .map(|bytes| bytes.load(Ordering::Relaxed) as f64 / seconds);
        figures.set(SENDS, sent);
        if self.renews {
            text += &format!("; {} hellos/s", count(sent / self.bytes.len() as f64));
        } else {
            figures.set(RECEIVES, received);
            text += &format!("; {} sent and {} received a second", mib(sent), mib(received));
        }
        (case, figures, text)
    }
}

/// Returns `None` if nothing can be done now.
fn unless_blocked(done: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// A network with a running tracker. The thread that opened it is at the clients' host.
struct Site {
    // Left before the network goes.
    _inside: Entered,
    tracker: RunningTracker,
    _network: Network,
}

impl Site {
    /// Starts the tracker with its defaults and these settings.
    fn open(target: &Target<'_>, protocol: Protocol, settings: &[(&str, &str)]) -> Result<Self> {
        let obstacle = Network::obstacle();
        ensure!(obstacle.is_none(), "no network namespaces {}", obstacle.unwrap_or_default());
        let network = Network::new(NetworkOptions::default())?;
        let inside = network.clients.enter()?;
        let namespace = Some(&network.tracker);
        let address = SocketAddr::from((network::tracker(1), PORT));
        let place = Place { namespace, address, processors: &target.split.tracker };
        let tracker = target.start_in(place, protocol, ADMIN, settings)?;
        // It answers once the tracker is ready.
        network.tracker.run(|| Api::open(ADMIN))?;
        Ok(Self { _inside: inside, tracker, _network: network })
    }

    fn address(&self) -> SocketAddr {
        self.tracker.address
    }

    /// Returns clients that open a connection for each announce.
    fn http(&self, scheme: &str) -> Result<Honest> {
        let url = TrackerUrl::http(&format!("{scheme}://{}/announce", self.address()))?;
        let rate = Some(HONEST_PER_S);
        Ok(Honest::Http(HttpOptions { connections: 8, close: true, rate, ..HttpOptions::of(url) }))
    }

    /// Returns a client that announces over one WebSocket.
    fn web(&self) -> Result<Honest> {
        let usual = WsOptions::busy(TrackerUrl::web(&format!("ws://{}/", self.address()))?);
        Ok(Honest::Ws(WsOptions {
            workload: Workload { torrents: 1, peers: 1, ..usual.workload },
            timing: AnnounceTiming::Paced(HONEST_PER_S),
            offers: 0,
            ..usual
        }))
    }
}

/// Begins a connection from an address, without blocking.
fn dial(source: IpAddr, tracker: SocketAddr) -> Result<TcpStream> {
    let family = if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket =
        socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    // The port is chosen by connect: a choice before that could not consider where it leads to.
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(tracker)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}
