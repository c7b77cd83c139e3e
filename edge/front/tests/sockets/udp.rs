//! Datagrams through the sim engine: what many datagrams or a look inside are needed for. Requests and replies over
//! real sockets, by every engine, are tested with the binary (app/tidegate/tests/end_to_end/udp).

use std::net::{IpAddr, SocketAddr};

use client::codec::udp::{Reply, decode_reply};
use net::sim;
use tracker::counters::DropReason;
use tracker::{BanRules, Limits, Random, Rate};
use types::{Announce, InfoHash, NumWant, Refusal, Tick, limits};

use crate::testing::udp::*;

/// An announce that asks for as many peers as there are.
const GREEDY: Announce = Announce { want: NumWant::Peers(u16::MAX), ..LEECHER };

const PROXY: &str = "10.9.9.9";

/// The 38-byte header for a client that has reached its proxy at an address, put together by hand.
fn header(client: &str, reached: &str) -> Vec<u8> {
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

/// The tracker must not amplify: an attacker who forges a victim's address cannot make it send the victim, or
/// the proxy that wraps its datagrams, more bytes than the attacker has sent.
#[test]
fn unverified_bytes_out_never_exceed_bytes_in() {
    let mut server = UdpServer::behind(&[PROXY]);
    server.populate(200);
    let mut random = Random::new(11);
    let mut answered = [0; 2];
    for round in 0u32..20_000 {
        let host = random.below(256);
        let client = match random.below(2) {
            0 => format!("192.0.2.{host}"),
            _ => format!("2001:db8:1::{host:x}"),
        };
        let id = random.next();
        let mut packet = match round % 4 {
            0 => connect(round),
            1 => announce(id, &GREEDY),
            2 => scrape(id, &[HASH; 74]),
            _ => (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
        };
        let is_wrapped = random.below(2) == 1;
        if is_wrapped {
            packet.splice(0..0, header(&client, PROXY));
        }
        if random.below(3) == 0 {
            packet.truncate(random.below(packet.len() as u32 + 1) as usize);
        }
        let out = server.request(if is_wrapped { PROXY } else { &client }, &packet).len();
        assert!(out <= packet.len(), "{packet:?}");
        let connect_len = if is_wrapped { 38 + 16 } else { 16 };
        assert!([0, connect_len].contains(&out), "only connects are answered");
        answered[usize::from(is_wrapped)] += usize::from(out > 0);
    }
    assert!(answered.iter().all(|answered| *answered > 1000), "connects are answered");
}

#[test]
fn unverified_offences_ban_nobody() {
    let mut server = UdpServer::start();
    let client = "192.0.2.1";
    let id = server.id_of(client);
    // The address may be that of a victim.
    let rules = BanRules { malformed_per_min: 1, wrong_keys_per_min: 1, time_s: 60 };
    server.tracker.bans().set_rules(rules);
    let forged = announce(id ^ 1, &LEECHER);
    (0..9).for_each(|_| assert_eq!(server.request(client, &forged), b""));
    assert!(server.tracker.bans().is_empty());
    server.tracker.bans().put(&[(client.parse().unwrap(), None)]);
    // Bans hold from the next sweep on.
    server.tracker.sweep(Tick(0), 1);
    assert_eq!(server.request(client, &announce(id, &LEECHER)), b"");
    assert_eq!(server.counters().drops[DropReason::Banned.index()], 1);
}

/// Announces of a batch are answered after its other requests; each still gets its own reply.
#[test]
fn keeps_answers_with_their_requests_in_mixed_batches() {
    let mut server = UdpServer::start();
    let mut packets = Vec::new();
    for number in 0u32..500 {
        let [.., high, low] = number.to_be_bytes();
        let from = SocketAddr::from(([10, 0, high, low], 1000 + number as u16));
        let id = server.id_of(&from.ip().to_string());
        let port = if number % 10 == 3 { 0 } else { 6881 };
        let mut packet = match number % 5 {
            0 => connect(0),
            1 => scrape(id, &[HASH]),
            2 => announce(id ^ 1, &LEECHER),
            _ => announce(id, &Announce { port, info_hash: InfoHash([low; 20]), ..LEECHER }),
        };
        packet[12..16].copy_from_slice(&number.to_be_bytes());
        packets.push((from, packet));
    }
    let datagrams: Vec<_> = packets.iter().map(|(from, packet)| (*from, &packet[..])).collect();
    let replies = sim::exchange(&mut server.handler, 0, &datagrams);
    assert_eq!(replies.len(), 400, "all but the forged are answered");
    for (to, reply) in &replies {
        let (number, reply) = decode_reply(reply).unwrap();
        assert_eq!(to.port(), 1000 + number as u16);
        let is_expected = match number % 10 {
            0 | 5 => matches!(reply, Reply::Connect { .. }),
            1 | 6 => matches!(reply, Reply::Scrape(_)),
            3 => matches!(reply, Reply::Error(_)),
            _ => matches!(reply, Reply::Announce { .. }),
        };
        assert!(is_expected, "{number}: {reply:?}");
    }
    let counters = server.counters();
    assert_eq!(counters.responses[0], [100, 150, 100, 0, 50]);
    // Only announces that were served count for the shares of clients.
    let (clients, others) = (counters.clients.counts(), counters.clients.others());
    assert!(clients[0].0 == *b"pppppppp" && (64..=150).contains(&clients[0].1), "{clients:?}");
    assert_eq!((clients.len(), others), (1, 0));
    assert_eq!(counters.drops[DropReason::BadConnectionId.index()], 100);
}

/// Forged connects and packets with bad connection ids must not use up the quota that the owner of the forged
/// address has with its own connection id.
#[test]
fn charges_unverified_packets_to_no_client() {
    let mut server = UdpServer::start();
    let rate = Rate { per_s: 1, burst: 3 };
    let limits = Limits { connects: rate, announces: rate, scrapes: rate, ..Limits::default() };
    server.tracker.limiter().replace(limits);
    let victim = "192.0.2.1";
    let id = server.id_of(victim);
    for number in 0..1000 {
        let is_answered = !server.request(victim, &connect(1)).is_empty();
        assert_eq!(is_answered, number < rate.burst);
        assert_eq!(server.request(victim, &announce(id ^ 1, &LEECHER)), b"");
        assert_eq!(server.request(victim, &scrape(id ^ 1, &[HASH])), b"");
    }
    for own in [announce(id, &LEECHER), scrape(id, &[HASH])] {
        assert_eq!(server.request(victim, &own).len(), 20);
    }
    assert_eq!(server.request("192.0.2.2", &connect(1)).len(), 16);
    let drops = server.counters().drops;
    assert_eq!(drops[DropReason::ConnectRate.index()], u64::from(1000 - rate.burst));
    assert_eq!(drops[DropReason::RequestRate.index()], 0);
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
