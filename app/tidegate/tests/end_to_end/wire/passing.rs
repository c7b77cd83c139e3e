//! Packets that an engine leaves to the kernel: those that only the kernel can judge, and all that are not for the
//! tracker.

use std::net::UdpSocket;
use std::rc::Rc;

use harness::network::{NetworkOptions, ROUTER_MAC, SPARE_MAC, TRACKER_MAC};

use super::frame::{ICMP, ICMPV6, OUTER_TAG, TAG, ip_packet, octets, seal};
use super::*;
use crate::clients::{Udp, has, http_announce};
use crate::site::{Engine, Site, in_network};
use crate::udp::{LEECHER, announce, scrape};

crate::site::on_engines! {
    answers_packets_with_options,
    ignores_frames_with_other_tags,
    answers_neighbours_and_pings,
    serves_http_on_the_same_port,
    leaves_other_ports_alone,
}

const ROUTER: Link = Link { mac: ROUTER_MAC, vlan: None };
const ARP: u16 = 0x0806;

fn site() -> Rc<Site> {
    site::current().expect("only run on networks")
}

/// IP options and extension headers. Fragments: `udp::requests::answers_scrapes_of_any_length`.
fn answers_packets_with_options() {
    let (site, _tracker) = (site(), start("", &[]));
    let mut socket = site.network.packet_socket().unwrap();
    // No-operation; options for the destination.
    for (is_v6, kind) in [(false, 1), (true, 60)] {
        let mut client = Client::connect(&mut socket, ROUTER, is_v6);
        for payload in [crate::udp::connect(1), announce(client.id, LEECHER)] {
            let ends = [client.from, client.to];
            let reply = client.exchange_frame(&Frame::with_option(ROUTER, ends, kind, &payload));
            assert_eq!(reply.payload()[..8], payload[8..16]);
            assert_eq!(reply.payload()[..4], client.exchange(&payload).payload()[..4]);
        }
    }
}

fn ignores_frames_with_other_tags() {
    let (site, _tracker) = (site(), start("", &[]));
    let mut socket = site.network.packet_socket().unwrap();
    for is_v6 in [false, true] {
        let mut client = Client::connect(&mut socket, ROUTER, is_v6);
        let plain = client.frame(&crate::udp::connect(1));
        let mut tagged = |tags: &[[u16; 2]]| {
            let tags: Vec<u8> =
                tags.as_flattened().iter().flat_map(|it| it.to_be_bytes()).collect();
            client.is_ignored(&Frame([&plain.0[..12], &tags, &plain.0[12..]].concat()))
        };
        assert!(tagged(&[[TAG, 9]]) && tagged(&[[OUTER_TAG, 9]]));
        assert!(tagged(&[[OUTER_TAG, 9], [TAG, 9]]) && tagged(&[[TAG, 9], [TAG, 9]]));
    }
}

fn answers_neighbours_and_pings() {
    let (site, _tracker) = (site(), start("", &[]));
    let mut socket = site.network.packet_socket().unwrap();
    let (router, host) = ([203, 0, 113, 1], network::tracker(1).octets());
    let mut request = [[0xff; 6], ROUTER_MAC].concat();
    // Ethernet, IPv4, the lengths of their addresses, and a request.
    request.extend([ARP, 1, 0x0800, 0x0604, 1].map(u16::to_be_bytes).as_flattened());
    request.extend([&ROUTER_MAC[..], &router, &[0; 6], &host, &[0; 18]].concat());
    let expected = [&[0, 2][..], &TRACKER_MAC, &host, &ROUTER_MAC, &router].concat();
    socket.send(&request).unwrap();
    let is_reply = |frame: &[u8]| frame[12..14] == ARP.to_be_bytes() && has(frame, &expected);
    assert!(socket.receive(PATIENCE, is_reply).unwrap().is_some());

    let (from, to): (IpAddr, IpAddr) = (network::played_v6().into(), network::tracker_v6(1).into());
    let solicitation =
        [&[135, 0, 0, 0, 0, 0, 0, 0][..], &octets(to), &[1, 1], &ROUTER_MAC].concat();
    let solicitation = seal(from, to, ICMPV6, solicitation, 2);
    let mut packet = ip_packet(from, to, ICMPV6, &solicitation);
    // Solicitations are accepted from this link only, which the hop limit proves.
    packet[7] = 255;
    socket.send(&Frame::packet(ROUTER, from, &packet).0).unwrap();
    let target = octets(to);
    let is_reply = |frame: &[u8]| frame.get(54) == Some(&136) && frame[62..78] == target;
    assert!(socket.receive(PATIENCE, is_reply).unwrap().is_some());

    for (from, to, protocol, kinds) in [
        (network::played().into(), network::tracker(1).into(), ICMP, [8, 0]),
        (from, to, ICMPV6, [128, 129]),
    ] {
        let echo = [&[kinds[0], 0, 0, 0, 0, 1, 0, 2][..], b"anyone there?"].concat();
        let echo = if protocol == ICMP {
            let sum = frame::checksum(&[&echo]).to_be_bytes();
            [&echo[..2], &sum, &echo[4..]].concat()
        } else {
            seal(from, to, ICMPV6, echo, 2)
        };
        socket.send(&Frame::packet(ROUTER, from, &ip_packet(from, to, protocol, &echo)).0).unwrap();
        let expected = [&[0, 1, 0, 2][..], b"anyone there?"].concat();
        let is_reply = |frame: &[u8]| {
            let start = if protocol == ICMP { 34 } else { 54 };
            frame.get(start) == Some(&kinds[1]) && frame[start + 4..].starts_with(&expected)
        };
        assert!(socket.receive(PATIENCE, is_reply).unwrap().is_some());
    }
}

fn serves_http_on_the_same_port() {
    let tracker = start("", &[]);
    for (udp, http) in [(tracker.udp4(), tracker.http4()), (tracker.udp6(), tracker.http6())] {
        assert_eq!((udp.port(), http.port()), (PORT, PORT));
        Udp::connect(udp).announce(0xaa, 1001);
        assert!(has(&http_announce(http, 0xaa, 1002), "5:peers"));
    }
}

/// Not even what looks like requests is answered or dropped.
fn leaves_other_ports_alone() {
    let (site, _tracker) = (site(), start("", &[]));
    let others: [IpAddr; 2] = [network::tracker(1).into(), network::tracker_v6(1).into()];
    // The tracker's own port at an address where it does not listen, and other ports.
    let elsewhere: [IpAddr; 2] = [network::tracker(2).into(), network::tracker_v6(2).into()];
    let places = others.map(|ip| (ip, PORT + 1)).into_iter();
    for place in places.chain(elsewhere.map(|ip| (ip, PORT))) {
        let server = site.network.tracker.run(|| UdpSocket::bind(place)).unwrap();
        let client = UdpSocket::bind((site::client_of(1, place.into()), 0)).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let mut bytes = [0; 100];
        for packet in [crate::udp::connect(1), announce(5, LEECHER), b"hello".to_vec(), vec![]] {
            client.send_to(&packet, place).unwrap();
            let (len, from) = server.recv_from(&mut bytes).unwrap();
            assert_eq!(bytes[..len], packet);
            server.send_to(&packet, from).unwrap();
            assert_eq!(client.recv(&mut bytes).unwrap(), packet.len());
        }
    }
}

/// Requests that need more than 1500 bytes, from a link that has room for them.
fn answer_large_packets(engine: Engine) {
    in_network(NetworkOptions { mtu: 9000, ..NetworkOptions::default() }, |site| {
        site.engine.set(engine);
        let _tracker = start("", &[]);
        let mut socket = site.network.packet_socket().unwrap();
        for (is_v6, most) in [(false, 122), (true, 120)] {
            let mut client = Client::connect(&mut socket, ROUTER, is_v6);
            for hashes in [72, 73, 74, 100, 122] {
                let reply = client.exchange(&scrape(client.id, &vec![[1; 20]; hashes]));
                assert_eq!(reply.payload().len(), 8 + 12 * hashes.min(most));
            }
        }
    });
}

#[test]
fn tagged_frames_are_answered_with_their_tag() {
    let options = NetworkOptions { tags: true, ..NetworkOptions::default() };
    in_network(options, |site| {
        site.engine.set(Engine::XdpDriver);
        let _tracker = start("", &[("TIDEGATE_XDP__VLANS", "7")]);
        let mut socket = site.network.packet_socket().unwrap();
        let link = Link { mac: SPARE_MAC, vlan: Some(7) };
        for is_v6 in [false, true] {
            let mut client = Client::connect(&mut socket, link, is_v6);
            let reply = client.exchange(&announce(client.id, LEECHER));
            assert_eq!((reply.macs().0, reply.vlan()), (&SPARE_MAC[..], Some(7)));
        }
    });
}

#[test]
fn mmsg_answers_large_packets() {
    answer_large_packets(Engine::Mmsg);
}

#[test]
fn xdp_answers_large_packets() {
    answer_large_packets(Engine::XdpGeneric);
}
