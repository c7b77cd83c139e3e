//! Frames between a tracker and its clients: where replies go in the link layer, with which tag, and how long they may
//! be. What the program writes, and which frames it leaves to the kernel, is compared with a model in edge/xdp.

mod frame;
mod gateway;

use std::net::{IpAddr, SocketAddr};

use harness::network::{self, NetworkOptions, PacketSocket, ROUTER_MAC, SPARE_MAC};

use crate::process::{Directory, PATIENCE, Tracker};
use crate::site::{Engine, in_network};
use crate::udp::{self, LEECHER};
use frame::{Frame, Link};

/// The port of the client that a packet socket plays.
const CLIENT_PORT: u16 = 4000;

/// A client that writes and reads frames.
struct Client<'a> {
    socket: &'a mut PacketSocket,
    link: Link,
    from: SocketAddr,
    to: SocketAddr,
    id: u64,
}

impl<'a> Client<'a> {
    /// One that has connected to a listener of the tracker.
    fn connect(socket: &'a mut PacketSocket, link: Link, to: SocketAddr) -> Self {
        let ip: IpAddr =
            if to.is_ipv6() { network::played_v6().into() } else { network::played().into() };
        let from = SocketAddr::new(ip, CLIENT_PORT);
        let mut client = Self { socket, link, from, to, id: 0 };
        let reply = client.exchange(&udp::connect(1));
        client.id = u64::from_be_bytes(reply.payload()[8..16].try_into().unwrap());
        client
    }

    fn exchange(&mut self, payload: &[u8]) -> Frame {
        let (from, to) = (self.from, self.to);
        self.socket.send(&Frame::datagram(self.link, from, to, payload).0).unwrap();
        let is_reply = |frame: &[u8]| Frame(frame.to_vec()).is_datagram(to, from);
        Frame(self.socket.receive(PATIENCE, is_reply).unwrap().expect("no reply"))
    }
}

#[test]
fn tagged_frames_are_answered_with_their_tag() {
    let options = NetworkOptions { tags: true, ..NetworkOptions::default() };
    in_network(options, |site| {
        site.engine.set(Engine::XdpDriver);
        let vlans = [("TIDEGATE_XDP__VLANS", "7")];
        let tracker = Tracker::start_with(Directory::new(), "", &vlans);
        let mut socket = site.network.packet_socket().unwrap();
        let link = Link { mac: SPARE_MAC, vlan: Some(7) };
        for to in [tracker.udp4(), tracker.udp6()] {
            let mut client = Client::connect(&mut socket, link, to);
            let reply = client.exchange(&udp::announce(client.id, LEECHER));
            assert_eq!((reply.destination(), reply.vlan()), (&SPARE_MAC[..], Some(7)));
        }
    });
}

/// Requests that need more than 1500 bytes, from a link that has room for them.
#[test]
fn large_packets_are_answered() {
    for engine in [Engine::Mmsg, Engine::XdpGeneric] {
        in_network(NetworkOptions { mtu: 9000, ..NetworkOptions::default() }, |site| {
            site.engine.set(engine);
            let tracker = Tracker::start(Directory::new(), "");
            let mut socket = site.network.packet_socket().unwrap();
            let link = Link { mac: ROUTER_MAC, vlan: None };
            for (to, most) in [(tracker.udp4(), 122), (tracker.udp6(), 120)] {
                let mut client = Client::connect(&mut socket, link, to);
                for hashes in [72, 73, 74, 100, 122] {
                    let reply = client.exchange(&udp::scrape(client.id, &vec![[1; 20]; hashes]));
                    assert_eq!(reply.payload().len(), 8 + 12 * hashes.min(most), "{engine:?}");
                }
            }
        });
    }
}
