//! Frames between a tracker and its clients: where replies go in the link layer, and what is not the business of an
//! engine reaches the kernel. What the program writes is compared with a model in edge/xdp.

mod frame;
mod gateway;
mod passing;

use std::net::{IpAddr, SocketAddr};

use harness::network::{self, PacketSocket};

use crate::process::{Directory, PATIENCE, Tracker};
use crate::site;
use frame::{Frame, Link};

/// The tracker's port, so that frames of several trackers can be compared.
const PORT: u16 = 6969;
/// The port of the client that a packet socket plays.
const CLIENT_PORT: u16 = 4000;

/// Starts a tracker whose listeners have [`PORT`].
fn start(more: &str, variables: &[(&str, &str)]) -> Tracker {
    let (v4, v6) = (site::tracker(1), site::tracker_v6());
    let listen = format!("{v4}:{PORT},[{v6}]:{PORT}");
    let listen = ["TIDEGATE_UDP__LISTEN", "TIDEGATE_HTTP__LISTEN"].map(|name| (name, &*listen));
    Tracker::start_with(Directory::new(), more, &[&listen, variables].concat())
}

/// A client that writes and reads frames.
struct Client<'a> {
    socket: &'a mut PacketSocket,
    link: Link,
    from: SocketAddr,
    to: SocketAddr,
    id: u64,
}

impl<'a> Client<'a> {
    /// One that has connected to a tracker of [`start`], over IPv6 or IPv4.
    fn connect(socket: &'a mut PacketSocket, link: Link, is_v6: bool) -> Self {
        let (from, to): (IpAddr, IpAddr) = if is_v6 {
            (network::played_v6().into(), network::tracker_v6(1).into())
        } else {
            (network::played().into(), network::tracker(1).into())
        };
        let (from, to) = (SocketAddr::new(from, CLIENT_PORT), SocketAddr::new(to, PORT));
        let mut client = Self { socket, link, from, to, id: 0 };
        let reply = client.exchange(&crate::udp::connect(1));
        client.id = u64::from_be_bytes(reply.payload()[8..16].try_into().unwrap());
        client
    }

    /// A datagram from this client in a frame.
    fn frame(&self, payload: &[u8]) -> Frame {
        Frame::datagram(self.link, self.from, self.to, payload)
    }

    /// Sends a datagram and returns the reply.
    fn exchange(&mut self, payload: &[u8]) -> Frame {
        self.exchange_frame(&self.frame(payload))
    }

    /// The same with any frame whose reply is a datagram.
    fn exchange_frame(&mut self, request: &Frame) -> Frame {
        self.socket.send(&request.0).unwrap();
        self.receive()
    }

    /// Returns the next datagram to this client.
    fn receive(&mut self) -> Frame {
        let (from, to) = (self.to, self.from);
        let is_ours = |frame: &[u8]| Frame(frame.to_vec()).is_datagram(from, to);
        Frame(self.socket.receive(PATIENCE, is_ours).unwrap().expect("no reply"))
    }

    /// Returns whether a frame is ignored: whether a later request is answered first.
    fn is_ignored(&mut self, frame: &Frame) -> bool {
        self.socket.send(&frame.0).unwrap();
        let marker = crate::udp::head(self.id, crate::udp::UNKNOWN, crate::udp::MARKER);
        let is_marker = |reply: &Frame| reply.payload()[4..8] == crate::udp::MARKER.to_be_bytes();
        let is_ignored = is_marker(&self.exchange(&marker));
        assert!(is_ignored || is_marker(&self.receive()));
        is_ignored
    }
}
