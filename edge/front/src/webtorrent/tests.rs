//! WebTorrent through real sockets, by clients that speak bytes.

mod ending;
mod hostile;
mod private;
mod signalling;
mod too_many;
mod upgrading;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::{TcpOptions, bind_tcp};
use tokio::sync::watch;
use tracker::counters::{Counters, DropReason, Listener, MetricsRegistry, Protocol};
use tracker::{
    ListenerPolicy, ListenerPolicyId, Options, Policy, RequestKind, Secrets, StoreOptions, Tracker,
};
use types::{Event, InfoHash, OfferId, PeerId, Refusal, SwarmCounts, Tick};
use wire::webtorrent::client::{TrackerMessage, WebScrapeEntry};
use wire::webtorrent::{Announce, Answer, Offer, client};
use wire::ws::{self, CloseCode, Reader};

use super::*;
use crate::Clock;
use crate::http::{HttpListener, HttpOptions, HttpWorker, serve};

/// Longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const HASH: InfoHash = InfoHash([b'h'; 20]);
const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
const KEY: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

/// Workers with one tracker, each with a listener of its own.
struct Server {
    addresses: Vec<SocketAddr>,
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
}

impl Server {
    fn start(web: WebOptions) -> Self {
        Self::with(1, HttpOptions { web: Some(web), ..HttpOptions::default() })
    }

    fn with(workers: usize, options: HttpOptions) -> Self {
        let tracker = tracker();
        let registry = Arc::new(MetricsRegistry::default());
        let (stop, stopped) = watch::channel(false);
        let (mut addresses, mut threads) = (Vec::new(), Vec::new());
        for link in WorkerLink::for_workers(workers) {
            let listen = ([127, 0, 0, 1], 0).into();
            let socket = bind_tcp(listen, 1, &TcpOptions::default()).unwrap().remove(0);
            let address = socket.local_addr().unwrap();
            let [http, web] = [Protocol::Http, Protocol::Ws].map(|protocol| {
                registry.register(Listener {
                    protocol,
                    address,
                    listener_policy: ListenerPolicyId(0),
                })
            });
            let worker = HttpWorker {
                tracker: Arc::clone(&tracker),
                listeners: vec![HttpListener {
                    socket,
                    tls: None,
                    options: options.clone(),
                    http,
                    web,
                }],
                clock: Clock::start(),
                seed: 1,
                link,
            };
            let stopped = stopped.clone();
            threads.push(std::thread::spawn(move || serve(worker, stopped).unwrap()));
            addresses.push(address);
        }
        Self { addresses, tracker, registry, stop, workers: threads }
    }

    /// A connection to the first worker that is no WebSocket yet.
    fn connect(&self) -> Client {
        Client::connect(self.addresses[0])
    }

    /// A WebSocket to the first worker.
    fn client(&self) -> Client {
        self.client_of(0)
    }

    fn client_of(&self, worker: usize) -> Client {
        let mut client = Client::connect(self.addresses[worker]);
        client.upgrade("/");
        client
    }

    /// The torrent's figures.
    fn counts(&self) -> SwarmCounts {
        let mut counts = [SwarmCounts::default()];
        let (view, from) = (self.tracker.view(Tick(0)), [127, 0, 0, 1].into());
        let grant = view.authorize(ListenerPolicyId(0), from, RequestKind::Scrape, None);
        view.scrape(grant.unwrap(), &[HASH], &mut counts).unwrap();
        counts[0]
    }

    /// Waits until the torrent has so many WebTorrent peers.
    fn await_peers(&self, peers: u32) {
        let deadline = Instant::now() + PATIENCE;
        while self.totals() != peers.into() {
            assert!(Instant::now() < deadline, "{:?}", self.tracker.totals());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// WebTorrent peers that there are.
    fn totals(&self) -> u64 {
        let totals = self.tracker.totals().web;
        totals.leechers + totals.seeders
    }

    /// Ends it, and gives what its WebSockets counted.
    fn end(mut self) -> Counters {
        self.stop_all();
        self.counters(Protocol::Ws)
    }

    fn counters(&self, protocol: Protocol) -> Counters {
        let mut sum = Counters::default();
        let all = self.registry.read();
        let own = all.iter().filter(|(listener, _)| listener.protocol == protocol);
        own.for_each(|(_, counters)| sum.add(counters));
        sum
    }

    fn stop_all(&mut self) {
        self.stop.send_replace(true);
        self.workers.drain(..).for_each(|worker| worker.join().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_all();
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

/// What a client hears.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Announced {
        complete: u64,
        incomplete: u64,
        interval_s: u64,
    },
    Offer {
        from: PeerId,
        id: OfferId,
        json: String,
    },
    Answer {
        from: PeerId,
        id: OfferId,
        json: String,
    },
    Scraped(Vec<WebScrapeEntry>),
    Failure(String),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// The stream's end, in whatever way.
    End,
}

struct Client {
    stream: TcpStream,
    reader: Reader,
    heard: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, reader: Reader::for_server_frames(), heard: Vec::new() }
    }

    fn upgrade(&mut self, target: &str) {
        let mut request = Vec::new();
        ws::client::request(&mut request, "tracker.test", target, KEY);
        self.say(&request);
        self.expect_upgrade();
    }

    fn expect_upgrade(&mut self) {
        loop {
            match ws::client::read_handshake_reply(&self.heard, KEY) {
                ws::client::HandshakeReply::Partial => assert!(self.read_more(), "the end"),
                ws::client::HandshakeReply::Accepted { consumed } => {
                    self.heard.drain(..consumed);
                    return;
                }
                other => panic!("{other:?}: {}", String::from_utf8_lossy(&self.heard)),
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn text(&mut self, text: &str) {
        let mut frame = Vec::new();
        ws::client::text(&mut frame, MASK, text);
        self.say(&frame);
    }

    fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut text = Vec::new();
        write(&mut text);
        self.text(&String::from_utf8(text).unwrap());
    }

    fn announce(&mut self, announce: &Announce<'_>) {
        self.send(|out| client::announce(out, announce));
    }

    /// Announces as a leecher without offers, and hears the answer.
    fn join(&mut self, peer: u8) -> Heard {
        self.announce(&leecher(peer));
        self.hear()
    }

    fn answer(&mut self, from: u8, to: u8, offer_id: OfferId) {
        let answer = Answer {
            info_hash: HASH,
            peer_id: peer_id(from),
            to_peer_id: peer_id(to),
            offer_id,
            json: r#"{"type":"answer", "sdp":"\u00e4"}"#,
        };
        self.send(|out| client::answer(out, &answer));
    }

    /// The next message or control frame.
    fn hear(&mut self) -> Heard {
        loop {
            let ws::ReadEvent { consumed, event } = self.reader.read(&mut self.heard, usize::MAX);
            let heard = match event {
                ws::Event::Partial { .. } => None,
                ws::Event::Text(text) => Some(heard(&text)),
                ws::Event::Ping(payload) => Some(Heard::Ping(payload.into())),
                ws::Event::Pong(payload) => Some(Heard::Pong(payload.into())),
                ws::Event::Close(code) => Some(Heard::Close(code.map(|code| code.0))),
                other => panic!("{other:?}"),
            };
            self.heard.drain(..consumed);
            if let Some(heard) = heard {
                return heard;
            }
            if !self.read_more() {
                return Heard::End;
            }
        }
    }

    /// Sees to it that nothing is on its way: the next thing heard is the answer to this ping.
    fn hears_nothing(&mut self) {
        let mut frame = Vec::new();
        ws::client::ping(&mut frame, MASK, b"anything?");
        self.say(&frame);
        assert_eq!(self.hear(), Heard::Pong(b"anything?".into()));
    }

    fn hear_close(&mut self, code: u16) {
        assert_eq!(self.hear(), Heard::Close(Some(code)));
        let mut frame = Vec::new();
        ws::client::close(&mut frame, MASK, CloseCode(code), "");
        // The server may have closed already.
        let _ = self.stream.write_all(&frame);
        assert_eq!(self.hear(), Heard::End);
    }

    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(len) => {
                self.heard.extend_from_slice(&buffer[..len]);
                len > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// All that comes until the end.
    fn read_all(mut self) -> String {
        while self.read_more() {}
        String::from_utf8_lossy(&self.heard).into_owned()
    }
}

fn heard(text: &str) -> Heard {
    match client::read(text).expect(text) {
        TrackerMessage::AnnounceReply { info_hash, complete, incomplete, interval_s } => {
            assert_eq!(info_hash, HASH);
            Heard::Announced { complete, incomplete, interval_s: interval_s.unwrap_or_default() }
        }
        TrackerMessage::Offer { info_hash, peer_id, offer } => {
            assert_eq!(info_hash, HASH);
            Heard::Offer { from: peer_id, id: offer.id, json: offer.json.into() }
        }
        TrackerMessage::Answer { info_hash, peer_id, offer_id, json } => {
            assert_eq!(info_hash, HASH);
            Heard::Answer { from: peer_id, id: offer_id, json: json.into() }
        }
        TrackerMessage::ScrapeReply(files) => Heard::Scraped(files),
        TrackerMessage::Failure { reason, .. } => Heard::Failure(reason.into()),
    }
}

fn announced(complete: u64, incomplete: u64) -> Heard {
    Heard::Announced { complete, incomplete, interval_s: 120 }
}

fn peer_id(peer: u8) -> PeerId {
    PeerId([peer; 20])
}

fn leecher(peer: u8) -> Announce<'static> {
    Announce { event: Event::Started, left: Some(7), ..Announce::new(HASH, peer_id(peer)) }
}

/// An offer as text, with what must come through as it is.
const OFFER: &str = r#"{"type":"offer",  "sdp":"v=0\r\n\u00E4ä\/","unknown":[1e3,null]}"#;

fn offer_id(number: u8) -> OfferId {
    OfferId([number; 20])
}

/// An announce with so many offers, whose ids begin with 1.
fn offering(peer: u8, offers: u8) -> Announce<'static> {
    let offers = (1..=offers).map(|number| Offer { id: offer_id(number), json: OFFER });
    Announce { offers: offers.collect(), ..leecher(peer) }
}
