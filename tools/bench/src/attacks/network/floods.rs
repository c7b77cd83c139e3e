//! Floods of TLS handshakes and of pipelined requests, beside honest clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::network;

use super::{BEFORE, BUILD_UP, Honest, Site, Times, beside, compared, dial};
use crate::attacks::{Outcome, RECEIVES, SENDS, Target};
use crate::figures::{count, mib};
use crate::lab::{Certificate, Protocol};

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
        let honest = [site.honest("https", false)?];
        let hello = client_hello(&honest[0])?;
        let [before] = beside(&honest, BEFORE, |_| ())?;
        for (case, connections) in counts {
            let flood = Flood::new(&site, connections, hello.clone(), true);
            let [during] = beside(&honest, target.during, |is_over| flood.run(is_over))?;
            outcomes.push(flood.outcome(case, (&before, &during), target.during));
        }
    }
    Ok(outcomes)
}

/// Connections that pipeline requests, beside HTTP and WebTorrent.
pub(super) fn attack_pipelining(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (connections, cases) in PIPELINING {
        let site = Site::open(target, Protocol::Udp, &[])?;
        let honest = [site.honest("http", false)?, site.honest("ws", true)?];
        let before = beside(&honest, BEFORE, |_| ())?;
        let flood = Flood::new(&site, connections, REQUEST.repeat(REQUESTS_AT_ONCE), false);
        let during = beside(&honest, target.during, |is_over| flood.run(is_over))?;
        for (case, (before, during)) in cases.into_iter().zip(before.iter().zip(&during)) {
            outcomes.push(flood.outcome(case, (before, during), target.during));
        }
    }
    Ok(outcomes)
}

/// Returns the first message of a client.
fn client_hello(honest: &Honest) -> Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = Honest { url: honest.url.clone(), address: listener.local_addr()?, keeps: false };
    thread::scope(|scope| {
        scope.spawn(move || client.open(Duration::from_millis(500)));
        let (mut stream, _) = listener.accept()?;
        let mut hello = vec![0; 5];
        stream.read_exact(&mut hello)?;
        let len = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        hello.resize(5 + len, 0);
        stream.read_exact(&mut hello[5..]).context("half a ClientHello")?;
        Ok(hello)
    })
}

impl Flood {
    fn new(site: &Site, connections: usize, bytes: Vec<u8>, renews: bool) -> Self {
        let (source, tracker) = (network::client(3).into(), site.address());
        let [sent, received] = [0, 0].map(AtomicU64::new);
        Self { source, tracker, connections, bytes, renews, sent, received }
    }

    /// Floods until it is over.
    fn run(&self, is_over: &AtomicBool) {
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
            // What stays unread makes the kernel reset the connection, which occupies no port then.
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
        (before, during): (&Times, &Times),
        time: Duration,
    ) -> Outcome {
        let (case, mut figures, mut text) = compared(case, before, during);
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
