//! The handler of datagrams behind the sim engine, and datagrams put together byte by byte.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use front::Clock;
use front::udp::{UdpFront, UdpListener};
use net::sim;
use tracker::counters::{Counters, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicyId, Networks, Tracker};
use types::{Refusal, Tick};

use super::{manual_tick, tracker};

pub(crate) const HASH: [u8; 20] = [0xab; 20];
pub(crate) const CONNECT: u32 = 0;
pub(crate) const ANNOUNCE: u32 = 1;
pub(crate) const SCRAPE: u32 = 2;
pub(crate) const ERROR: u32 = 3;

/// A worker with one listener, whose datagrams come from tests instead of sockets. Its clock stands still.
pub(crate) struct UdpServer {
    pub(crate) tracker: Arc<Tracker>,
    registry: MetricsRegistry,
    handler: UdpFront,
}

impl UdpServer {
    pub(crate) fn start() -> Self {
        Self::of(&tracker(false))
    }

    /// A worker of this tracker.
    pub(crate) fn of(tracker: &Arc<Tracker>) -> Self {
        Self::with(tracker, None)
    }

    /// A server that takes wrapped datagrams from these proxies.
    pub(crate) fn behind(proxies: &[&str]) -> Self {
        let proxies = Networks::parse(proxies.iter().copied()).unwrap();
        Self::with(&tracker(false), Some(proxies))
    }

    fn with(tracker: &Arc<Tracker>, proxies: Option<Networks>) -> Self {
        let registry = MetricsRegistry::default();
        let listener_policy = ListenerPolicyId(0);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let metrics =
            registry.register(Listener { protocol: Protocol::Udp, address, listener_policy });
        let listeners = vec![UdpListener { metrics, listener_policy, proxies }];
        let clock = Clock::manual(manual_tick());
        let handler = UdpFront::new(Arc::clone(tracker), listeners, clock, 7);
        Self { tracker: Arc::clone(tracker), registry, handler }
    }

    /// Returns the connection id of a client.
    pub(crate) fn id_of(&self, client: &str) -> u64 {
        self.tracker.view(Tick(0)).issue_connection_id(client.parse().unwrap())
    }

    /// Returns the reply to a datagram that comes from an address. It is empty if there is none.
    pub(crate) fn request(&mut self, from: &str, packet: &[u8]) -> Vec<u8> {
        self.request_within(usize::MAX, from, packet)
    }

    /// The same with an engine that has `room` bytes for each reply.
    pub(crate) fn request_within(&mut self, room: usize, from: &str, packet: &[u8]) -> Vec<u8> {
        let from = SocketAddr::new(from.parse().unwrap(), 5);
        let room = room.min(net::REPLY_MAX);
        let replies = sim::exchange_within(room, &mut self.handler, 0, &[(from, packet)]);
        assert!(replies.iter().all(|(to, _)| *to == from));
        replies.into_iter().next().map(|(_, reply)| reply).unwrap_or_default()
    }

    /// Passes datagrams in full batches, and returns the replies with their destinations.
    pub(crate) fn exchange(
        &mut self,
        datagrams: &[(SocketAddr, &[u8])],
    ) -> Vec<(SocketAddr, Vec<u8>)> {
        sim::exchange(&mut self.handler, 0, datagrams)
    }

    /// Announces `count` leechers of each family.
    pub(crate) fn populate(&mut self, count: u16) {
        let announce_none = |id| announce(id, AnnounceFields { want: 0, ..LEECHER });
        for number in 0..count {
            let [high, low] = number.to_be_bytes();
            let v4 = IpAddr::from([10, 1, high, low]).to_string();
            for ip in [v4, format!("2001:db8::{number:x}")] {
                let packet = announce_none(self.id_of(&ip));
                assert_eq!(self.request(&ip, &packet).len(), 20);
            }
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.registry.read().iter().for_each(|(_, counters)| sum.add(counters));
        sum
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
    pub(crate) want: i32,
    pub(crate) port: u16,
}

pub(crate) const LEECHER: AnnounceFields =
    AnnounceFields { hash: HASH, left: 1, want: -1, port: 6881 };

/// The announce of a peer that starts.
pub(crate) fn announce(id: u64, say: AnnounceFields) -> Vec<u8> {
    let mut packet = head(id, ANNOUNCE, 9);
    packet.extend(say.hash);
    packet.extend([b'p'; 20]);
    // Downloaded, left and uploaded bytes, then the event.
    packet.extend([0, say.left, 0].map(u64::to_be_bytes).as_flattened());
    packet.extend(2_u32.to_be_bytes());
    // IP address and key, which the tracker must ignore.
    packet.extend([203, 0, 113, 9, 1, 2, 3, 4]);
    packet.extend(say.want.to_be_bytes());
    packet.extend(say.port.to_be_bytes());
    assert_eq!(packet.len(), 98);
    packet
}

/// Returns leechers, seeders and the peers' bytes of a reply to an announce.
pub(crate) fn parse_announce(reply: &[u8]) -> (u32, u32, &[u8]) {
    let head = [u32_at(reply, 0), u32_at(reply, 4), u32_at(reply, 8)];
    assert_eq!(head, [ANNOUNCE, 9, 1800], "{}", reply.escape_ascii());
    (u32_at(reply, 12), u32_at(reply, 16), &reply[20..])
}

pub(crate) fn is_error(reply: &[u8], refusal: Refusal) -> bool {
    u32_at(reply, 0) == ERROR && reply[8..] == *refusal.text().as_bytes()
}
