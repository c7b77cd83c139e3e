//! Clients whose requests are written by hand.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use harness::http::{Connection, UPGRADE};

use crate::process::PATIENCE;
use crate::site;
use crate::udp::{self, Announce, LEECHER};

pub(crate) use harness::http::contains as has;

/// A torrent whose info hash is one byte twenty times.
pub(crate) type Torrent = u8;

/// Status and body of the response to a GET.
pub(crate) fn http(address: SocketAddr, target: &str) -> (u16, Vec<u8>) {
    try_http(address, target).unwrap()
}

/// The same, or an error if the connection is refused or breaks.
pub(crate) fn try_http(address: SocketAddr, target: &str) -> io::Result<(u16, Vec<u8>)> {
    let response = harness::http::get(address, target)?;
    Ok((response.status, response.body))
}

/// Announces a leecher at `port` over HTTP and returns the body of the response.
pub(crate) fn http_announce(address: SocketAddr, torrent: Torrent, port: u16) -> Vec<u8> {
    let (status, body) = http(address, &announce_target(torrent, port));
    assert_eq!(status, 200);
    body
}

/// Announces over HTTP that the client at `port` has completed its download.
pub(crate) fn http_complete(address: SocketAddr, torrent: Torrent, port: u16) {
    let seeder = announce_target(torrent, port).replace("left=1", "left=0");
    http(address, &(seeder + "&event=completed"));
}

/// Returns the target of an announce by a leecher at `port`.
pub(crate) fn announce_target(torrent: Torrent, port: u16) -> String {
    format!("/announce?{}", announce_query(torrent, port))
}

/// The same without the path.
pub(crate) fn announce_query(torrent: Torrent, port: u16) -> String {
    let hash = format!("%{torrent:02x}").repeat(20);
    format!("info_hash={hash}&peer_id=-XX0001-000000000000&port={port}&left=1&compact=1")
}

/// Returns the query of an announce by a client at `port`, whose peer id is its own, with `rest`.
pub(crate) fn own_query(torrent: Torrent, port: u16, rest: &str) -> String {
    let hash = format!("%{torrent:02x}").repeat(20);
    format!("info_hash={hash}&peer_id=-XX0001-{port:012}&port={port}&compact=1&{rest}")
}

/// Requests a WebSocket and returns the status of the response.
pub(crate) fn upgrade(address: SocketAddr, target: &str) -> u16 {
    open_websocket(address, target).1
}

/// The same, and returns the connection, too.
pub(crate) fn open_websocket(address: SocketAddr, target: &str) -> (Connection, u16) {
    let mut connection = Connection::open(address).unwrap();
    let headers = format!("Host: x\r\n{UPGRADE}");
    let response = connection.ask(&format!("GET {target}"), &headers, b"").unwrap();
    (connection, response.status)
}

/// Announces a leecher over WebSocket with `event`, and returns the response.
pub(crate) fn ws_announce(socket: &mut Connection, torrent: Torrent, event: &str) -> Vec<u8> {
    let hash = format!("\\u00{torrent:02x}").repeat(20);
    let message = format!(
        "{{\"action\":\"announce\",\"info_hash\":\"{hash}\",\"peer_id\":\"-XX0001-000000000000\",\
         \"offers\":[],\"left\":1,\"event\":\"{event}\"}}"
    );
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(message.bytes());
    socket.send(frame).unwrap();
    while !has(&socket.received, "}") {
        assert!(socket.receive_more().unwrap());
    }
    std::mem::take(&mut socket.received)
}

/// A UDP client with a connection id.
pub(crate) struct Udp {
    pub(crate) socket: UdpSocket,
    pub(crate) id: u64,
}

impl Udp {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_as(1, address)
    }

    /// The same as one of the [`site`]'s clients.
    pub(crate) fn connect_as(client: u8, address: SocketAddr) -> Self {
        Self::unconnected(client, address).connected()
    }

    /// Takes a connection id.
    pub(crate) fn connected(mut self) -> Self {
        let reply = self.ask(&udp::connect(udp::TRANSACTION));
        assert_eq!(reply[..4], [0; 4]);
        self.id = u64::from_be_bytes(reply[8..16].try_into().unwrap());
        self
    }

    /// A client that has no connection id yet.
    pub(crate) fn unconnected(client: u8, address: SocketAddr) -> Self {
        Self::at(site::client_of(client, address), address)
    }

    /// The same at an address of this machine.
    pub(crate) fn at(ip: IpAddr, address: SocketAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(address).unwrap();
        Self { socket, id: 0 }
    }

    /// Announces a leecher at `port` and returns the reply.
    pub(crate) fn announce(&self, torrent: Torrent, port: u16) -> Vec<u8> {
        self.try_announce(torrent, port).unwrap()
    }

    /// The same, or an error if no reply comes.
    pub(crate) fn try_announce(&self, torrent: Torrent, port: u16) -> io::Result<Vec<u8>> {
        self.send_announce(torrent, port)?;
        self.hear()
    }

    /// The same with the path and query of a tracker URL (BEP 41).
    pub(crate) fn announce_at(&self, torrent: Torrent, port: u16, url: &str) -> Vec<u8> {
        self.announce_event_at(torrent, port, 0, url)
    }

    /// The same with an event: 3 = stopped.
    pub(crate) fn announce_event_at(
        &self,
        torrent: Torrent,
        port: u16,
        event: u32,
        url: &str,
    ) -> Vec<u8> {
        let mut packet = self.announce_packet(torrent, port, event);
        for piece in url.as_bytes().chunks(255) {
            packet.extend([2, piece.len() as u8]);
            packet.extend(piece);
        }
        self.ask(&packet)
    }

    /// Announces and does not wait for the reply.
    pub(crate) fn send_announce(&self, torrent: Torrent, port: u16) -> io::Result<()> {
        self.socket.send(&self.announce_packet(torrent, port, 0)).map(drop)
    }

    fn announce_packet(&self, torrent: Torrent, port: u16, event: u32) -> Vec<u8> {
        udp::announce(self.id, Announce { hash: [torrent; 20], event, port, ..LEECHER })
    }

    pub(crate) fn try_scrape(&self, torrent: Torrent) -> Vec<u8> {
        self.ask(&udp::scrape(self.id, &[[torrent; 20]]))
    }

    /// Scrapes and returns seeders, downloads and leechers.
    pub(crate) fn scrape(&self, torrent: Torrent) -> [u32; 3] {
        let reply = self.try_scrape(torrent);
        assert_eq!(reply.len(), 20);
        [8, 12, 16].map(|at| u32_at(&reply, at))
    }

    fn ask(&self, packet: &[u8]) -> Vec<u8> {
        self.socket.send(packet).unwrap();
        self.hear().unwrap()
    }

    /// Sends a whole packet and returns the reply.
    pub(crate) fn request(&self, packet: &[u8]) -> Vec<u8> {
        self.socket.send(packet).unwrap();
        self.receive().unwrap()
    }

    /// Returns the next reply, to whatever request.
    pub(crate) fn receive(&self) -> io::Result<Vec<u8>> {
        let mut reply = vec![0; 2048];
        let len = self.socket.recv(&mut reply)?;
        reply.truncate(len);
        Ok(reply)
    }

    fn hear(&self) -> io::Result<Vec<u8>> {
        let reply = self.receive()?;
        assert_eq!(u32_at(&reply, 4), udp::TRANSACTION);
        Ok(reply)
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}
