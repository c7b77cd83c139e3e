//! Responses that clients over UDP receive (BEP 15, BEP 41), by each engine and over both families.
//!
//! The tests find out without a timeout whether a datagram is ignored: the reply to a later one comes first. The later
//! one has a valid connection id, because an engine may answer connects earlier than datagrams that came before them.

mod limits;
mod options;
mod requests;

use std::net::SocketAddr;

use types::Refusal;

use crate::clients::{Udp, u32_at};
use crate::process::{Directory, Tracker, start};
use crate::site;

pub(crate) const HASH: [u8; 20] = [0xab; 20];
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const ERROR: u32 = 3;
/// An action that does not exist, whose requests are answered with an error.
const UNKNOWN: u32 = 9;
/// The transaction ids of announces and scrapes, and of what comes behind a datagram that is ignored.
pub(crate) const TRANSACTION: u32 = 0x5eed;
const MARKER: u32 = 0xfeed_f00d;

/// The fields of an announce that tests vary.
#[derive(Clone, Copy)]
pub(crate) struct Announce {
    pub(crate) hash: [u8; 20],
    pub(crate) left: u64,
    pub(crate) event: u32,
    pub(crate) want: i32,
    pub(crate) port: u16,
}

pub(crate) const LEECHER: Announce =
    Announce { hash: HASH, left: 1, event: 2, want: -1, port: 6881 };

fn head(id: u64, action: u32, transaction: u32) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([action, transaction].map(u32::to_be_bytes).as_flattened());
    packet
}

pub(crate) fn connect(transaction: u32) -> Vec<u8> {
    head(0x417_2710_1980, CONNECT, transaction)
}

pub(crate) fn scrape(id: u64, hashes: &[[u8; 20]]) -> Vec<u8> {
    [head(id, SCRAPE, TRANSACTION), hashes.as_flattened().to_vec()].concat()
}

pub(crate) fn announce(id: u64, say: Announce) -> Vec<u8> {
    let mut packet = head(id, ANNOUNCE, TRANSACTION);
    packet.extend(say.hash);
    packet.extend(b"-XX0001-000000000000");
    packet.extend([0, say.left, 0].map(u64::to_be_bytes).as_flattened());
    packet.extend(say.event.to_be_bytes());
    // IP address and key, which the tracker must ignore.
    packet.extend([203, 0, 113, 9, 1, 2, 3, 4]);
    packet.extend(say.want.to_be_bytes());
    packet.extend(say.port.to_be_bytes());
    assert_eq!(packet.len(), 98);
    packet
}

/// Returns a Simple Proxy header for a client at 192.0.2.`host`.
fn proxy_header(host: u8) -> Vec<u8> {
    let mut header = vec![0x56, 0xec];
    for ip in [[192, 0, 2, host], [192, 0, 2, 200]] {
        header.extend([0; 10]);
        header.extend([0xff, 0xff]);
        header.extend(ip);
    }
    header.extend([0x12, 0x34, 0x1b, 0x39]);
    header
}

/// Returns leechers, seeders and the peers' bytes of a reply to an announce.
fn parse_announce(reply: &[u8]) -> (u32, u32, &[u8]) {
    let head = [u32_at(reply, 0), u32_at(reply, 4), u32_at(reply, 8)];
    assert_eq!(head, [ANNOUNCE, TRANSACTION, 1800], "{}", reply.escape_ascii());
    (u32_at(reply, 12), u32_at(reply, 16), &reply[20..])
}

fn is_error(reply: &[u8], refusal: Refusal) -> bool {
    u32_at(reply, 0) == ERROR && reply[8..] == *refusal.text().as_bytes()
}

impl Udp {
    /// Returns whether `packet` is ignored.
    fn is_ignored(&self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap();
        let marker = head(self.id, UNKNOWN, MARKER);
        let is_ignored = u32_at(&self.request(&marker), 4) == MARKER;
        assert!(is_ignored || u32_at(&self.receive().unwrap(), 4) == MARKER);
        is_ignored
    }

    /// Announces leechers of a torrent, many at once, that want no peers.
    pub(crate) fn join(&self, hash: [u8; 20], ports: &[u16]) {
        // The buffer of a socket has room for the datagrams of one chunk.
        for ports in ports.chunks(40) {
            for port in ports {
                let say = Announce { hash, want: 0, port: *port, ..LEECHER };
                self.socket.send(&announce(self.id, say)).unwrap();
            }
            for _ in ports {
                parse_announce(&self.receive().unwrap());
            }
        }
    }

    pub(crate) fn say(&self, say: Announce) -> Vec<u8> {
        self.request(&announce(self.id, say))
    }
}

/// The UDP listeners' addresses.
fn both(tracker: &Tracker) -> [SocketAddr; 2] {
    [tracker.udp4(), tracker.udp6()]
}

/// Waits until the listener has counted `count` drops for this reason.
fn wait_for_drops(tracker: &Tracker, listener: SocketAddr, reason: &str, count: u32) {
    let listener = listener.to_string();
    let labels = [("listener", listener.as_str()), ("protocol", "udp"), ("reason", reason)];
    let drops = |it: &Tracker| it.sum("tidegate_drops_total", &labels);
    tracker.wait_until(reason, |it| drops(it) >= count.into());
    assert_eq!(drops(tracker), f64::from(count), "{reason} at {listener}");
}

/// The largest reply of this tracker: no frame of an AF_XDP socket is fragmented on its way over IPv6.
fn reply_max(to: SocketAddr) -> usize {
    if to.is_ipv6() && site::current_engine().is_some_and(site::Engine::is_xdp) {
        return 1232;
    }
    if to.is_ipv4() { 1472 } else { 1452 }
}
