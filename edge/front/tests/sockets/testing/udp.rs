//! The handler of datagrams behind the sim engine, and requests as clients write them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use client::codec::udp as codec;
use front::Clock;
use front::udp::{UdpFront, UdpListener};
use net::sim;
use tracker::counters::{Counters, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicyId, Networks, Tracker};
use types::{Announce, Event, InfoHash, NumWant, PeerId, Tick};

use super::{manual_tick, tracker, written};

pub(crate) const HASH: InfoHash = InfoHash([0xab; 20]);

/// The announce of a leecher that starts.
pub(crate) const LEECHER: Announce = Announce {
    event: Event::Started,
    left: Some(1),
    ..Announce::new(HASH, PeerId([b'p'; 20]), 6881)
};

/// A worker with one listener, whose datagrams come from tests instead of sockets. Its clock stands still.
pub(crate) struct UdpServer {
    pub(crate) tracker: Arc<Tracker>,
    registry: MetricsRegistry,
    pub(crate) handler: UdpFront,
}

impl UdpServer {
    pub(crate) fn start() -> Self {
        Self::with(&tracker(false), None)
    }

    /// A server that takes wrapped datagrams from these proxies.
    pub(crate) fn behind(proxies: &[&str]) -> Self {
        let proxies = Networks::parse(proxies.iter().copied()).unwrap();
        Self::with(&tracker(false), Some(proxies))
    }

    pub(crate) fn with(tracker: &Arc<Tracker>, proxies: Option<Networks>) -> Self {
        let registry = MetricsRegistry::default();
        let listener_policy = ListenerPolicyId(0);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let metrics =
            registry.register(Listener { protocol: Protocol::Udp, address, listener_policy });
        let listeners = vec![UdpListener { metrics, listener_policy, proxies }];
        let clock = Clock::Manual(manual_tick());
        let handler = UdpFront::new(Arc::clone(tracker), listeners, clock, 7);
        Self { tracker: Arc::clone(tracker), registry, handler }
    }

    /// Returns the connection id of a client.
    pub(crate) fn id_of(&self, client: &str) -> u64 {
        self.tracker.view(Tick(0)).issue_connection_id(client.parse().unwrap())
    }

    /// Returns the reply to a datagram that comes from an address. It is empty if there is none.
    pub(crate) fn request(&mut self, from: &str, packet: &[u8]) -> Vec<u8> {
        let from = SocketAddr::new(from.parse().unwrap(), 5);
        let replies = sim::exchange(&mut self.handler, 0, &[(from, packet)]);
        assert!(replies.iter().all(|(to, _)| *to == from));
        replies.into_iter().next().map(|(_, reply)| reply).unwrap_or_default()
    }

    /// Announces `count` leechers of each family.
    pub(crate) fn populate(&mut self, count: u16) {
        for number in 0..count {
            let [high, low] = number.to_be_bytes();
            let v4 = IpAddr::from([10, 1, high, low]).to_string();
            for ip in [v4, format!("2001:db8::{number:x}")] {
                let alone = Announce { want: NumWant::Peers(0), ..LEECHER };
                let packet = announce(self.id_of(&ip), &alone);
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

pub(crate) fn connect(transaction: u32) -> Vec<u8> {
    written(|out| codec::connect(out, transaction))
}

pub(crate) fn announce(id: u64, announce: &Announce) -> Vec<u8> {
    written(|out| codec::announce(out, id, 9, announce, b""))
}

pub(crate) fn scrape(id: u64, hashes: &[InfoHash]) -> Vec<u8> {
    written(|out| codec::scrape(out, id, 8, hashes))
}
