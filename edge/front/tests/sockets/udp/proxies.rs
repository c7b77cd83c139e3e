//! Datagrams wrapped in Simple Proxy headers, and their replies.

use std::net::IpAddr;

use super::*;

pub(super) const PROXY: &str = "10.9.9.9";

/// The 38-byte header for a client that has reached its proxy at an address, put together by hand.
pub(super) fn header(client: &str, reached: &str) -> Vec<u8> {
    let mut bytes = vec![0x56, 0xec];
    for ip in [client, reached] {
        match ip.parse().unwrap() {
            IpAddr::V4(ip) => bytes.extend(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
    }
    bytes.extend([0x12, 0x34, 0x1b, 0x39]);
    bytes
}

impl UdpServer {
    /// Sends a packet from `proxy` with a header. Returns the reply without its header, which must be the same.
    fn request_behind(&mut self, proxy: &str, header: &[u8], packet: &[u8]) -> Vec<u8> {
        let reply = self.request(proxy, &[header, packet].concat());
        assert_eq!(reply[..38], *header);
        reply[38..].to_vec()
    }
}

/// The client's family, not the proxy's, decides which peers it gets.
//= spp#reply
//= type=test
#[test]
fn fits_wrapped_replies_into_one_datagram() {
    for (proxy, room) in [
        (PROXY, limits::UDP_PAYLOAD_V4_MAX - 38),
        ("2001:db8:9::9", limits::UDP_PAYLOAD_V6_MAX - 38),
    ] {
        let mut server = UdpServer::behind(&[proxy]);
        server.populate(300);
        let mut sent = 0;
        for (client, stride) in [("192.0.2.1", 6), ("2001:db8:1::1", 18)] {
            let id = server.id_of(client);
            let header = header(client, proxy);
            let reply = server.request_behind(proxy, &header, &announce(id, &GREEDY));
            assert_eq!(reply.len(), 20 + (room - 20) / stride * stride);
            sent += (room - 20) / stride;
            let reply = server.request_behind(proxy, &header, &scrape(id, &[HASH; 122]));
            assert_eq!(reply.len(), 8 + (room - 8) / 12 * 12);
        }
        let counters = server.counters();
        assert_eq!(counters.peers_sent, sent as u64);
        // Besides the announces of those that are sent.
        assert_eq!(counters.requests, [[0, 301, 1, 0, 0]; 2]);
        assert_eq!(counters.responses, counters.requests);
    }
}

#[test]
fn accepts_private_clients_that_reached_a_private_address() {
    let mut server = UdpServer::behind(&[PROXY]);
    for (client, reached, is_refused) in [
        ("10.0.0.1", "8.8.8.8", true),
        ("fd00::1", "2606:4700::1", true),
        ("10.0.0.1", "10.0.0.2", false),
        ("9.9.9.9", "8.8.8.8", false),
    ] {
        let packet = announce(server.id_of(client), &LEECHER);
        let reply = server.request_behind(PROXY, &header(client, reached), &packet);
        let refused = Reply::Error(Refusal::AddressNotPublic.text().as_bytes());
        let reply = decode_reply(&reply).unwrap().1;
        assert_eq!(reply == refused, is_refused, "{client} {reached}");
    }
    assert_eq!(server.counters().refusals[Refusal::AddressNotPublic.index()], 2);
}
