//! The whole way of a datagram, over real sockets where that can show something, and through the
//! sim engine where many are needed. Packets are put together here byte by byte, so that the codec
//! does not prove itself.

mod logging;
mod proxied;
mod too_many;

use super::*;
use net::{Engine, UdpOptions, bind_udp, run_udp, sim};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracker::access::{AccessLists, HashList, Mode};
use tracker::counters::{Clients, Listener, MetricsRegistry, Protocol};
use tracker::{BanRules, KeyId, KeyRules, ListenerPolicy, Options, Policy, Secrets, StoreOptions};
use types::{Tick, UserKey};

const HASH: [u8; 20] = [0xab; 20];
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const ERROR: u32 = 3;

fn tracker() -> Arc<Tracker> {
    let policy = Policy { numwant_max: 1000, ..Policy::default() };
    let store = StoreOptions {
        shards: 4,
        hash_key: [3; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids: false,
        memory_budget: None,
    };
    Arc::new(Tracker::new(
        &Options { policy, store },
        &Secrets { connection_ids: [5; 16], offers: [6; 16], limits: [7; 16] },
    ))
}

/// A handler for one socket, and where its figures go.
fn front(tracker: &Arc<Tracker>, registry: &MetricsRegistry) -> UdpFront {
    front_behind(tracker, registry, None)
}

/// The same behind proxies, if there are any.
fn front_behind(
    tracker: &Arc<Tracker>,
    registry: &MetricsRegistry,
    proxies: Option<Networks>,
) -> UdpFront {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let metrics = registry.register(Listener {
        protocol: Protocol::Udp,
        address,
        listener_policy: ListenerPolicyId(0),
    });
    let listener = UdpListener { metrics, listener_policy: ListenerPolicyId(0), proxies };
    UdpFront::new(Arc::clone(tracker), vec![listener], Clock::start(), 7)
}

/// What all workers have counted, published by their end.
fn total(registry: &MetricsRegistry) -> Counters {
    let mut sum = Counters::default();
    registry.read().iter().for_each(|(_, counters)| sum.add(counters));
    sum
}

/// A worker that serves one address until it is stopped.
struct Server {
    address: SocketAddr,
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Server {
    fn start(listen: &str) -> Self {
        Self::with(listen, None)
    }

    fn with(listen: &str, proxies: Option<Networks>) -> Self {
        let options = UdpOptions { engine: Engine::Auto, ..UdpOptions::default() };
        let sockets = bind_udp(listen.parse().unwrap(), 1, &options).unwrap();
        let address = sockets[0].local_addr();
        let (tracker, registry) = (tracker(), Arc::new(MetricsRegistry::default()));
        let mut handler = front_behind(&tracker, &registry, proxies);
        let stop = Arc::new(AtomicBool::new(false));
        let worker = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || run_udp(sockets, Engine::Auto, &mut handler, &stop).unwrap()
        });
        Self { address, tracker, registry, stop, worker: Some(worker) }
    }

    /// Ends the worker, and gives what it counted.
    fn finish(mut self) -> Counters {
        self.end();
        total(&self.registry)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
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

/// A peer with a socket of its own.
struct Client {
    socket: UdpSocket,
    port: u16,
}

impl Client {
    /// Speaks from `host` to `server`, or to the loopback address if that listens everywhere.
    fn new(host: &str, server: &Server) -> Self {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let to = if server.address.is_ipv4() { "127.0.0.1" } else { "::1" };
        socket.connect((to, server.address.port())).unwrap();
        let port = socket.local_addr().unwrap().port();
        Self { socket, port }
    }

    fn ask(&self, packet: &[u8]) -> Vec<u8> {
        self.socket.send(packet).unwrap();
        self.hear()
    }

    fn hear(&self) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        let len = self.socket.recv(&mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }

    fn connect(&self) -> u64 {
        let reply = self.ask(&connect(77));
        assert_eq!((reply.len(), u32_at(&reply, 0), u32_at(&reply, 4)), (16, CONNECT, 77));
        u64::from_be_bytes(reply[8..16].try_into().unwrap())
    }

    /// Whether `packet` is met with silence: what comes back first is the answer to a later one.
    /// One worker answers one socket's datagrams in order, so nothing needs to be waited for.
    fn is_silence(&self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap();
        let marker = 0xfeed_f00d;
        let reply = self.ask(&connect(marker));
        (u32_at(&reply, 0), u32_at(&reply, 4)) == (CONNECT, marker)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn head(id: u64, action: u32, transaction: u32) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend(action.to_be_bytes());
    packet.extend(transaction.to_be_bytes());
    packet
}

fn connect(transaction: u32) -> Vec<u8> {
    head(0x417_2710_1980, CONNECT, transaction)
}

fn scrape(id: u64, hashes: &[[u8; 20]]) -> Vec<u8> {
    let mut packet = head(id, SCRAPE, 8);
    packet.extend(hashes.as_flattened());
    packet
}

/// The fields of an announce that tests vary.
#[derive(Clone, Copy)]
struct Say {
    hash: [u8; 20],
    left: u64,
    event: u32,
    want: i32,
    port: u16,
}

const LEECHER: Say = Say { hash: HASH, left: 1, event: 2, want: -1, port: 6881 };

fn announce(id: u64, say: Say) -> Vec<u8> {
    let mut packet = head(id, ANNOUNCE, 9);
    packet.extend(say.hash);
    packet.extend([b'p'; 20]);
    packet.extend(0u64.to_be_bytes());
    packet.extend(say.left.to_be_bytes());
    packet.extend(0u64.to_be_bytes());
    packet.extend(say.event.to_be_bytes());
    // An address and a key that nobody should look at.
    packet.extend([203, 0, 113, 9, 1, 2, 3, 4]);
    packet.extend(say.want.to_be_bytes());
    packet.extend(say.port.to_be_bytes());
    assert_eq!(packet.len(), 98);
    packet
}

/// Leechers, seeders and the bytes of the peers in an answer to an announce.
fn answer(reply: &[u8]) -> (u32, u32, &[u8]) {
    assert_eq!((u32_at(reply, 0), u32_at(reply, 4)), (ANNOUNCE, 9), "{}", text(reply));
    assert_eq!(u32_at(reply, 8), 1800);
    (u32_at(reply, 12), u32_at(reply, 16), &reply[20..])
}

/// What an error says.
fn text(reply: &[u8]) -> String {
    String::from_utf8_lossy(&reply[8..]).into_owned()
}

fn is_error(reply: &[u8], refusal: Refusal) -> bool {
    u32_at(reply, 0) == ERROR && text(reply) == refusal.text()
}

/// Lets `count` peers of `family` announce themselves to `tracker`.
fn populate(tracker: &Arc<Tracker>, family: Family, count: u16) {
    let mut front = front(tracker, &MetricsRegistry::default());
    for number in 0..count {
        let [high, low] = number.to_be_bytes();
        let ip: IpAddr = match family {
            Family::V4 => [10, 1, high, low].into(),
            Family::V6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, number].into(),
        };
        let id = tracker.view(Tick(0)).issue_connection_id(ip);
        let packet = announce(id, Say { want: 0, ..LEECHER });
        let replies = sim::exchange(&mut front, 0, &[(SocketAddr::new(ip, 5), &packet)]);
        assert_eq!(replies[0].1.len(), 20);
    }
}

//= bep15#announce-reply-family
//= type=test
#[test]
fn peers_find_each_other_over_both_families() {
    for (listen, stride) in [("127.0.0.1:0", 6), ("[::1]:0", 18)] {
        let server = Server::start(listen);
        let host = server.address.ip().to_string();
        let (first, second) = (Client::new(&host, &server), Client::new(&host, &server));
        let (id, other) = (first.connect(), second.connect());
        assert_eq!(id, other, "bound to the address, not to the port");

        let seeder = Say { left: 0, port: first.port, ..LEECHER };
        let reply = first.ask(&announce(id, seeder));
        assert_eq!(answer(&reply), (0, 1, &[][..]), "alone, and not told about itself");

        let leecher = Say { port: second.port, ..LEECHER };
        let reply = second.ask(&announce(id, leecher));
        let (leechers, seeders, peers) = answer(&reply);
        assert_eq!((leechers, seeders, peers.len()), (1, 1, stride));
        let (ip, port) = peers.split_at(stride - 2);
        assert_eq!(port, first.port.to_be_bytes());
        match server.address.ip() {
            IpAddr::V4(own) => assert_eq!(ip, own.octets()),
            IpAddr::V6(own) => assert_eq!(ip, own.octets()),
        }

        let done = Say { left: 0, event: 1, ..leecher };
        assert_eq!(answer(&second.ask(&announce(id, done))).1, 2);
        let reply = first.ask(&scrape(id, &[HASH, [0; 20], HASH]));
        let figures: Vec<u32> = (0..reply.len() / 4).map(|at| u32_at(&reply, 4 * at)).collect();
        assert_eq!(figures, [SCRAPE, 8, 2, 1, 0, 0, 0, 0, 2, 1, 0]);

        let stopped = Say { event: 3, ..seeder };
        assert_eq!(answer(&first.ask(&announce(id, stopped))), (0, 1, &[][..]));
        let counters = server.finish();
        let family = usize::from(stride == 18);
        assert_eq!(counters.requests[family], [2, 4, 1, 0, 0]);
        assert_eq!(counters.responses[family], [2, 4, 1, 0, 0]);
        assert_eq!(counters.requests[1 - family], [0; 5]);
        assert_eq!(counters.bytes_in, 2 * 16 + 4 * 98 + 76);
        assert_eq!(counters.bytes_out, 2 * 16 + 4 * 20 + stride as u64 + 44);
        assert_eq!(counters.peers_sent, 1);
    }
}

#[test]
fn port_zero_and_unknown_actions_are_refused() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    let reply = client.ask(&announce(id, Say { port: 0, ..LEECHER }));
    assert!(is_error(&reply, Refusal::PortZero));
    assert_eq!(u32_at(&reply, 4), 9);
    assert!(is_error(&client.ask(&head(id, 9, 8)), Refusal::UnknownAction));
    assert!(is_error(&client.ask(&head(id, ERROR, 8)), Refusal::UnknownAction));
    assert!(client.is_silence(&head(id ^ 1, 9, 8)));
    let counters = server.finish();
    assert_eq!(counters.refusals[Refusal::PortZero.index()], 1);
    assert_eq!(counters.refusals[Refusal::UnknownAction.index()], 2);
    assert_eq!(counters.responses[0][RequestKind::Other.index()], 3);
}

//= bep15#announce-event
//= type=test
#[test]
fn an_unknown_event_is_none() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    for event in [0, 4, u32::MAX] {
        let reply = client.ask(&announce(id, Say { event, ..LEECHER }));
        assert_eq!(answer(&reply), (1, 0, &[][..]));
    }
}

//= bep15#packet-minimum
//= type=test
#[test]
fn every_truncation_is_silence_or_a_verified_clients_error() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    let whole = announce(id, LEECHER);
    for len in 0..whole.len() {
        let cut = &whole[..len];
        if len < 16 {
            assert!(client.is_silence(cut), "{len}");
        } else {
            assert!(is_error(&client.ask(cut), Refusal::Truncated), "{len}");
            assert!(client.is_silence(&announce(id ^ 1, LEECHER)[..len]), "{len}");
        }
    }
    let whole = scrape(id, &[HASH]);
    for len in 16..whole.len() {
        let refusal = if len == 16 { Refusal::FullScrape } else { Refusal::Truncated };
        assert!(is_error(&client.ask(&whole[..len]), refusal), "{len}");
        assert!(client.is_silence(&scrape(id ^ 1, &[HASH])[..len]), "{len}");
    }
    for len in 0..16 {
        assert!(client.is_silence(&connect(1)[..len]), "{len}");
    }
    let counters = server.finish();
    assert_eq!(counters.drops[DropReason::TooShort.index()], 32);
    assert_eq!(counters.drops[DropReason::BadConnectionId.index()], 82 + 20);
}

//= bep15#connection-id-verified
//= type=test
#[test]
fn an_id_is_worth_nothing_from_another_address() {
    for (listen, other) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "")] {
        let server = Server::start(listen);
        let own = if other.is_empty() { "::1" } else { "127.0.0.1" };
        let client = Client::new(own, &server);
        let id = client.connect();
        let neighbour = Client::new(own, &server);
        answer(&neighbour.ask(&announce(id, LEECHER)));
        // v6 loopback has one address only: there the id of another is forged by hand.
        let (thief, stolen) = if other.is_empty() {
            let elsewhere = "2001:db8::1".parse().unwrap();
            (Client::new(own, &server), server.tracker.view(Tick(0)).issue_connection_id(elsewhere))
        } else {
            (Client::new(other, &server), id)
        };
        assert!(thief.is_silence(&announce(stolen, LEECHER)));
        assert!(thief.is_silence(&scrape(stolen, &[HASH])));
        assert!(thief.is_silence(&announce(stolen, Say { port: 0, ..LEECHER })));
        for guess in [0, 1, u64::MAX, id.swap_bytes(), 0x417_2710_1980] {
            assert!(client.is_silence(&announce(guess, LEECHER)), "{guess:x}");
        }
        assert_eq!(server.finish().drops[DropReason::BadConnectionId.index()], 8);
    }
}

#[test]
fn ids_are_good_at_every_worker_of_the_tracker() {
    let (tracker, registry) = (tracker(), MetricsRegistry::default());
    let mut workers = [front(&tracker, &registry), front(&tracker, &registry)];
    let from = SocketAddr::from(([10, 0, 0, 1], 5));
    let replies = sim::exchange(&mut workers[0], 0, &[(from, &connect(1))]);
    let id = u64::from_be_bytes(replies[0].1[8..16].try_into().unwrap());
    let replies = sim::exchange(&mut workers[1], 0, &[(from, &announce(id, LEECHER))]);
    answer(&replies[0].1);
}

/// Nobody can have more sent to a victim than he sends himself.
#[test]
fn unverified_bytes_out_never_exceed_bytes_in() {
    let (tracker, registry) = (tracker(), MetricsRegistry::default());
    populate(&tracker, Family::V4, 200);
    populate(&tracker, Family::V6, 200);
    let mut front = front(&tracker, &registry);
    let mut random = Random::new(11);
    let mut answered = [0; 2];
    for round in 0u32..20_000 {
        let (v6, host) = (random.below(2) as usize, random.below(256) as u8);
        let from = match v6 {
            0 => SocketAddr::from(([192, 0, 2, host], 5)),
            _ => SocketAddr::from(([0x2001, 0xdb8, 1, 0, 0, 0, 0, host.into()], 5)),
        };
        let id = random.next();
        let mut packet = match round % 5 {
            0 => connect(round),
            1 => announce(id, Say { want: i32::MAX, ..LEECHER }),
            2 => scrape(id, &[HASH; 74]),
            3 => head(id, random.below(5), round),
            _ => (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
        };
        if random.below(3) == 0 {
            packet.truncate(random.below(packet.len() as u32 + 1) as usize);
        }
        let replies = sim::exchange(&mut front, 0, &[(from, &packet)]);
        let out: usize = replies.iter().map(|(_, reply)| reply.len()).sum();
        assert!(out <= packet.len(), "{packet:?}");
        answered[v6] += u64::from(out > 0);
    }
    assert!(answered.iter().all(|answered| *answered > 1000), "connects are answered");
    let counters = total(&registry);
    assert_eq!(counters.bytes_out, 16 * answered.iter().sum::<u64>());
    assert_eq!(counters.responses, answered.map(|answered| [answered, 0, 0, 0, 0]));
}

/// Replies fit one datagram that no link has to split, whatever is asked.
#[test]
fn as_many_peers_as_one_datagram_holds() {
    for (listen, family, len, len_max) in [
        ("127.0.0.1:0", Family::V4, 20 + 6 * usize::from(limits::PEERS_UDP_V4_MAX), 1472),
        ("[::1]:0", Family::V6, 20 + 18 * usize::from(limits::PEERS_UDP_V6_MAX), 1452),
    ] {
        let server = Server::start(listen);
        populate(&server.tracker, family, 300);
        let client = Client::new(&server.address.ip().to_string(), &server);
        let id = client.connect();
        for want in [300, i32::MAX] {
            let reply = client.ask(&announce(id, Say { want, ..LEECHER }));
            assert_eq!(reply.len(), len);
            assert!(reply.len() <= len_max);
            let (leechers, seeders, peers) = answer(&reply);
            assert_eq!((leechers, seeders), (301, 0));
            let stride = if family == Family::V4 { 6 } else { 18 };
            let mut seen: Vec<&[u8]> = peers.chunks(stride).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), peers.len() / stride, "no peer twice");
        }
        let few = client.ask(&announce(id, Say { want: 3, ..LEECHER }));
        assert_eq!(answer(&few).2.len(), if family == Family::V4 { 18 } else { 54 });
        assert_eq!(client.ask(&announce(id, Say { want: 0, ..LEECHER })).len(), 20);
    }
}

//= bep15#scrape-count
//= type=test
#[test]
fn scrapes_are_cut_to_one_datagram_and_oversize_ones_dropped() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    for (asked, given) in [(1, 1), (74, 74), (122, 122), (125, 122)] {
        assert_eq!(client.ask(&scrape(id, &vec![HASH; asked])).len(), 8 + 12 * given);
    }
    let oversize = scrape(id, &[HASH; 140]);
    assert!(oversize.len() > limits::UDP_REQUEST_MAX);
    assert!(client.is_silence(&oversize));
    assert_eq!(server.finish().drops[DropReason::TooLong.index()], 1);

    // Over v6 the datagram is smaller: 120 answers, and not a byte more than fits.
    let server = Server::start("[::1]:0");
    let client = Client::new("::1", &server);
    let reply = client.ask(&scrape(client.connect(), &[HASH; 122]));
    assert_eq!(reply.len(), 8 + 12 * 120);
    assert!(reply.len() <= limits::UDP_PAYLOAD_V6_MAX);
}

#[test]
fn options_behind_an_announce_do_not_matter_to_it() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    let long = [&[2, 255][..], &[b'x'; 255]].concat().repeat(4);
    let sound: [&[u8]; 5] =
        [b"\x02\x09/announce", b"\x01\x01\x00 what follows the end", b"\x7f\x02ab", &[0], &long];
    let broken: [&[u8]; 3] = [b"\x02", b"\x02\x09/ann", b"\x7f\xff"];
    for tail in sound.iter().chain(&broken) {
        let packet = [&announce(id, LEECHER)[..], tail].concat();
        assert_eq!(answer(&client.ask(&packet)), (1, 0, &[][..]), "{tail:?}");
    }
    let counters = server.finish();
    assert_eq!(counters.drops[DropReason::MalformedOptions.index()], broken.len() as u64);
}

//= bep41#url-data-use
//= type=test
#[test]
fn a_key_in_the_url_reaches_the_tracker() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let packet = announce(client.connect(), LEECHER);
    for options in [&b"\x02\x0d/announce/KEY"[..], b"\x02\x0a/announce/\x01\x02\x03KEY"] {
        let reply = client.ask(&[&packet[..], options].concat());
        assert_eq!(u32_at(&reply, 0), ERROR);
        assert_eq!(&reply[8..], Refusal::KeyUnexpected.text().as_bytes());
    }
    server.finish();
}

//= bep41#url-data-use
//= type=test
//= bep41#url-data-concatenated
//= type=test
#[test]
fn a_private_door_serves_who_has_a_key() {
    let server = Server::start("127.0.0.1:0");
    server
        .tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { private: true, ..ListenerPolicy::default() }]);
    let (text, rules) = ("user-key-012345678", KeyRules::default());
    server.tracker.passkeys().put(KeyId(1), UserKey::parse(text).unwrap(), rules);
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    let packet = announce(id, LEECHER);
    let options = |pieces: &[&str]| {
        let option = |piece: &&str| [&[2, piece.len() as u8], piece.as_bytes()].concat();
        [&packet[..], &pieces.iter().flat_map(option).collect::<Vec<_>>()].concat()
    };
    let whole =
        ["/announce/", "/announce?key=", "/announce?x=1&passkey="].map(|url| url.to_owned() + text);
    for url in &whole {
        answer(&client.ask(&options(&[url])));
    }
    answer(&client.ask(&options(&["/", text, "/announce"])));
    assert!(is_error(&client.ask(&packet), Refusal::KeyMissing));
    assert!(is_error(&client.ask(&options(&["/announce"])), Refusal::KeyMissing));
    assert!(is_error(&client.ask(&options(&["/announce/", text, "9"])), Refusal::KeyUnknown));
    assert!(is_error(&client.ask(&scrape(id, &[HASH])), Refusal::KeyMissing));
    let rules = KeyRules { expires: Some(Tick(0)), ..rules };
    server.tracker.passkeys().put(KeyId(1), UserKey::parse(text).unwrap(), rules);
    assert!(is_error(&client.ask(&options(&[&whole[0]])), Refusal::KeyExpired));
    server.finish();
}

#[test]
fn strangers_are_not_among_the_clients_that_are_sampled() {
    let server = Server::start("127.0.0.1:0");
    server
        .tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { private: true, ..ListenerPolicy::default() }]);
    let key = UserKey::parse("user-key-012345678").unwrap();
    server.tracker.passkeys().put(KeyId(1), key, KeyRules::default());
    let client = Client::new("127.0.0.1", &server);
    let packet = announce(client.connect(), LEECHER);
    for (url, action) in [
        (b"\x02\x1c/announce/user-key-012345679", ERROR),
        (b"\x02\x1c/announce/user-key-012345678", ANNOUNCE),
    ] {
        for _ in 0..Clients::ONE_OF {
            assert_eq!(u32_at(&client.ask(&[&packet[..], url].concat()), 0), action);
        }
    }
    assert_eq!(server.finish().clients.counts(), (&[(*b"pppppppp", 1)][..], 0));
}

#[test]
fn the_banned_meet_silence_and_forged_evidence_counts_only_as_such() {
    let server = Server::start("127.0.0.1:0");
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    let bans = server.tracker.bans();
    bans.set_rules(BanRules { malformed_per_min: 1, wrong_keys_per_min: 1, ..BanRules::default() });
    (0..9).for_each(|_| assert!(client.is_silence(&announce(id ^ 1, LEECHER))));
    assert!(bans.is_empty(), "whoever sent these need not be here");
    bans.set_rules(BanRules { bad_connection_ids_per_min: 1, time_s: 60, ..BanRules::default() });
    (0..4).for_each(|_| assert!(client.is_silence(&announce(id ^ 1, LEECHER))));
    server.tracker.sweep(Tick(0), 1);
    // Each is dropped before the next can be answered.
    for packet in [announce(id, LEECHER), connect(1)] {
        client.socket.send(&packet).unwrap();
    }
    let dropped = || total(&server.registry).drops[DropReason::Banned.index()];
    while dropped() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    bans.remove(&["127.0.0.1".parse().unwrap()]);
    answer(&client.ask(&announce(id, LEECHER)));
    server.finish();
}

/// Announces of a batch are answered after the rest of it; each still gets its own answer.
#[test]
fn mixed_batches_keep_every_answer_with_its_request() {
    let (tracker, registry) = (tracker(), MetricsRegistry::default());
    let mut front = front(&tracker, &registry);
    let packets: Vec<(SocketAddr, Vec<u8>)> = (0u32..500)
        .map(|number| {
            let [.., high, low] = number.to_be_bytes();
            let from = SocketAddr::from(([10, 0, high, low], 1000 + number as u16));
            let id = tracker.view(Tick(0)).issue_connection_id(from.ip());
            let port = if number % 10 == 3 { 0 } else { 6881 };
            let mut packet = match number % 5 {
                0 => connect(0),
                1 => scrape(id, &[HASH]),
                2 => announce(id ^ 1, LEECHER),
                _ => announce(id, Say { port, hash: [low; 20], ..LEECHER }),
            };
            packet[12..16].copy_from_slice(&number.to_be_bytes());
            (from, packet)
        })
        .collect();
    let datagrams: Vec<_> = packets.iter().map(|(from, packet)| (*from, &packet[..])).collect();
    let replies = sim::exchange(&mut front, 0, &datagrams);
    assert_eq!(replies.len(), 400, "all but the forged");
    for (to, reply) in &replies {
        let number = u32_at(reply, 4);
        assert_eq!(to.port(), 1000 + number as u16);
        let action = match number % 10 {
            3 => ERROR,
            other => [CONNECT, SCRAPE, ERROR, ANNOUNCE, ANNOUNCE][other as usize % 5],
        };
        assert_eq!(u32_at(reply, 0), action, "{number}");
    }
    let counters = total(&registry);
    assert_eq!(counters.responses[0], [100, 150, 100, 0, 50]);
    assert_eq!(counters.drops[DropReason::BadConnectionId.index()], 100);
}

#[test]
fn access_lists_gate_announces_and_scrapes_alike() {
    let server = Server::start("127.0.0.1:0");
    let line = InfoHash(HASH).to_string();
    let deny = Arc::new(HashList::parse(line.as_bytes()).unwrap());
    let lists = AccessLists { mode: Mode::Deny, deny, ..Default::default() };
    server
        .tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { lists, ..ListenerPolicy::default() }]);
    let client = Client::new("127.0.0.1", &server);
    let id = client.connect();
    assert!(is_error(&client.ask(&announce(id, LEECHER)), Refusal::Denied));
    assert!(is_error(&client.ask(&scrape(id, &[HASH])), Refusal::Denied));
    answer(&client.ask(&announce(id, Say { hash: [1; 20], ..LEECHER })));
    assert!(client.is_silence(&announce(id ^ 1, LEECHER)), "lists are not told to strangers");
}
