//! A worker that serves UDP, a client, and datagrams put together byte by byte.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use front::Clock;
use front::udp::{UdpFront, UdpListener};
use net::{Engine, UdpOptions, UdpWorker, bind_udp, run_udp};
use tracker::counters::{Counters, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicyId, Networks, Tracker};
use types::Refusal;

use super::{PATIENCE, manual_tick, tracker};

pub(crate) const HASH: [u8; 20] = [0xab; 20];
pub(crate) const CONNECT: u32 = 0;
pub(crate) const ANNOUNCE: u32 = 1;
pub(crate) const SCRAPE: u32 = 2;
pub(crate) const ERROR: u32 = 3;

/// Returns the handler of one socket, whose counts go to `registry`. Its clock stands still.
pub(crate) fn front(tracker: &Arc<Tracker>, registry: &MetricsRegistry) -> UdpFront {
    front_behind(tracker, registry, None)
}

/// The same for datagrams that these proxies wrap.
pub(crate) fn front_behind(
    tracker: &Arc<Tracker>,
    registry: &MetricsRegistry,
    proxies: Option<Networks>,
) -> UdpFront {
    front_with(tracker, registry, proxies, manual_tick())
}

fn front_with(
    tracker: &Arc<Tracker>,
    registry: &MetricsRegistry,
    proxies: Option<Networks>,
    tick: &'static AtomicU32,
) -> UdpFront {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let metrics = registry.register(Listener {
        protocol: Protocol::Udp,
        address,
        listener_policy: ListenerPolicyId(0),
    });
    let listener = UdpListener { metrics, listener_policy: ListenerPolicyId(0), proxies };
    UdpFront::new(Arc::clone(tracker), vec![listener], Clock::manual(tick), 7)
}

/// Returns the counts of all workers, which publish them when they end.
pub(crate) fn total(registry: &MetricsRegistry) -> Counters {
    let mut sum = Counters::default();
    registry.read().iter().for_each(|(_, counters)| sum.add(counters));
    sum
}

/// A worker that serves one address until it is stopped. Its clock stands still unless the test
/// advances it.
pub(crate) struct UdpServer {
    pub(crate) address: SocketAddr,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) registry: Arc<MetricsRegistry>,
    tick: &'static AtomicU32,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl UdpServer {
    pub(crate) fn start(listen: &str) -> Self {
        Self::with(listen, None)
    }

    pub(crate) fn with(listen: &str, proxies: Option<Networks>) -> Self {
        let options = UdpOptions { engine: Engine::Auto, ..UdpOptions::default() };
        let sockets = bind_udp(listen.parse().unwrap(), 1, &options).unwrap();
        let address = sockets[0].local_addr();
        let (tracker, registry) = (tracker(false), Arc::new(MetricsRegistry::default()));
        let tick = manual_tick();
        let mut handler = front_with(&tracker, &registry, proxies, tick);
        let stop = Arc::new(AtomicBool::new(false));
        let worker = std::thread::spawn({
            let stop = Arc::clone(&stop);
            let worker = UdpWorker::new(sockets, Engine::Auto);
            move || run_udp(worker, &mut handler, &stop).unwrap()
        });
        Self { address, tracker, registry, tick, stop, worker: Some(worker) }
    }

    /// Advances its clock.
    pub(crate) fn advance(&self, seconds: u32) {
        self.tick.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Stops the worker and returns its counts.
    pub(crate) fn finish(mut self) -> Counters {
        self.end();
        total(&self.registry)
    }

    pub(crate) fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            worker.join().unwrap();
        }
    }
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A peer with a socket of its own.
pub(crate) struct UdpClient {
    pub(crate) socket: UdpSocket,
    pub(crate) port: u16,
}

impl UdpClient {
    /// Sends from `host` to `server`, or to the loopback address of a wildcard listener.
    pub(crate) fn new(host: &str, server: &UdpServer) -> Self {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = if server.address.is_ipv4() { "127.0.0.1" } else { "::1" };
        socket.connect((to, server.address.port())).unwrap();
        let port = socket.local_addr().unwrap().port();
        Self { socket, port }
    }

    pub(crate) fn request(&self, packet: &[u8]) -> Vec<u8> {
        self.socket.send(packet).unwrap();
        self.receive()
    }

    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        let len = self.socket.recv(&mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }

    pub(crate) fn connect(&self) -> u64 {
        let reply = self.request(&connect(77));
        assert_eq!((reply.len(), u32_at(&reply, 0), u32_at(&reply, 4)), (16, CONNECT, 77));
        u64::from_be_bytes(reply[8..16].try_into().unwrap())
    }

    /// Returns whether `packet` is ignored: the first reply is that to a later packet.
    /// A worker answers a socket's datagrams in order, so that no timeout is needed.
    pub(crate) fn is_ignored(&self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap();
        let marker = 0xfeed_f00d;
        let is_marker = |reply: &[u8]| (u32_at(reply, 0), u32_at(reply, 4)) == (CONNECT, marker);
        let is_ignored = is_marker(&self.request(&connect(marker)));
        assert!(is_ignored || is_marker(&self.receive()));
        is_ignored
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn head(id: u64, action: u32, transaction: u32) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend(action.to_be_bytes());
    packet.extend(transaction.to_be_bytes());
    packet
}

pub(crate) fn connect(transaction: u32) -> Vec<u8> {
    head(0x417_2710_1980, CONNECT, transaction)
}

pub(crate) fn scrape(id: u64, hashes: &[[u8; 20]]) -> Vec<u8> {
    let mut packet = head(id, SCRAPE, 8);
    packet.extend(hashes.as_flattened());
    packet
}

/// The fields of an announce that tests vary.
#[derive(Clone, Copy)]
pub(crate) struct AnnounceFields {
    pub(crate) hash: [u8; 20],
    pub(crate) left: u64,
    pub(crate) event: u32,
    pub(crate) want: i32,
    pub(crate) port: u16,
}

pub(crate) const LEECHER: AnnounceFields =
    AnnounceFields { hash: HASH, left: 1, event: 2, want: -1, port: 6881 };

pub(crate) fn announce(id: u64, say: AnnounceFields) -> Vec<u8> {
    let mut packet = head(id, ANNOUNCE, 9);
    packet.extend(say.hash);
    packet.extend([b'p'; 20]);
    packet.extend(0u64.to_be_bytes());
    packet.extend(say.left.to_be_bytes());
    packet.extend(0u64.to_be_bytes());
    packet.extend(say.event.to_be_bytes());
    // IP address and key, which the tracker must ignore.
    packet.extend([203, 0, 113, 9, 1, 2, 3, 4]);
    packet.extend(say.want.to_be_bytes());
    packet.extend(say.port.to_be_bytes());
    assert_eq!(packet.len(), 98);
    packet
}

/// Returns leechers, seeders and the peers' bytes of a reply to an announce.
pub(crate) fn parse_announce(reply: &[u8]) -> (u32, u32, &[u8]) {
    assert_eq!((u32_at(reply, 0), u32_at(reply, 4)), (ANNOUNCE, 9), "{}", error_text(reply));
    assert_eq!(u32_at(reply, 8), 1800);
    (u32_at(reply, 12), u32_at(reply, 16), &reply[20..])
}

/// The message of an error reply.
pub(crate) fn error_text(reply: &[u8]) -> String {
    String::from_utf8_lossy(&reply[8..]).into_owned()
}

pub(crate) fn is_error(reply: &[u8], refusal: Refusal) -> bool {
    u32_at(reply, 0) == ERROR && error_text(reply) == refusal.text()
}
