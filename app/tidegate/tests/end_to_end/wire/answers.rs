//! Every engine answers with the frames of `mmsg`, byte by byte. What may differ: the connection id, the order
//! of peers, and of the IP header id, fragmentation flags, lifetime and flow label.

use harness::network::{NetworkOptions, ROUTER_MAC, SPARE_MAC};

use super::*;
use crate::clients::Udp;
use crate::site::{Engine, Site, in_network};
use crate::udp::{Announce, LEECHER, UNKNOWN, announce, announce_at, connect, head, scrape};

const VLAN: u16 = 7;
const ROUTER: Link = Link { mac: ROUTER_MAC, vlan: None };
const TAGGED: Link = Link { mac: SPARE_MAC, vlan: Some(VLAN) };

/// Torrents have as many peers as their number says. The last have more than any reply.
const PEERS: [u8; 18] = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 66, 67, 68, 74, 78, 79, 80, 250];
const LIMITS: &str =
    "[tracker]\nnumwant_max = 300\n[limits]\npeers_per_address = 0\npeers_per_network = 0\n";

/// Description of a request, and the frame that answered it.
type Exchange = (String, Frame);

/// Peers from other addresses join the torrents.
fn populate(tracker: &Tracker) {
    for to in [tracker.udp4(), tracker.udp6()] {
        let client = Udp::connect(to);
        for peers in PEERS {
            let ports: Vec<u16> = (1..=peers.into()).collect();
            client.join([peers; 20], &ports);
        }
    }
}

/// Asks for all kinds of replies over both families.
fn play(site: &Site, link: Link, vlans: &str) -> Vec<Exchange> {
    // Otherwise the kernel would leave the checksums of its packets to the driver.
    site.network.tracker.run_command("ethtool", &["-K", "eth0", "tx", "off"]).unwrap();
    let tracker = start(LIMITS, &[("TIDEGATE_XDP__VLANS", vlans)]);
    populate(&tracker);
    let mut socket = site.network.packet_socket().unwrap();
    let mut exchanges = Vec::new();
    for is_v6 in [false, true] {
        let mut client = Client::connect(&mut socket, link, is_v6);
        let id = client.id;
        let mut ask = |what: String, packet: Vec<u8>| {
            let reply = client.exchange(&packet);
            exchanges.push((format!("{what}, IPv6: {is_v6}"), reply));
        };
        ask("connect".into(), connect(0x0102_0304));
        for peers in PEERS {
            let say = Announce { hash: [peers; 20], left: 0, want: 300, ..LEECHER };
            ask(format!("announce, {peers} peers"), announce(id, say));
        }
        ask("announce with a URL".into(), announce_at(id, &["/announce?x=y"]));
        for hashes in [1, 2, 71].into_iter().chain((!is_v6).then_some(72)) {
            ask(format!("scrape of {hashes}"), scrape(id, &vec![[5; 20]; hashes]));
        }
        ask("announce with a key".into(), announce_at(id, &["/announce/user-key-012345678"]));
        ask("port 0".into(), announce(id, Announce { port: 0, ..LEECHER }));
        ask("unknown action".into(), head(id, UNKNOWN, 3));
        ask("truncated".into(), announce(id, LEECHER)[..97].to_vec());
        ask("scrape of nothing".into(), scrape(id, &[]));
        for ignored in [announce(id ^ 1, LEECHER), connect(1)[..15].to_vec(), vec![]] {
            assert!(client.is_ignored(&client.frame(&ignored)), "{}", ignored.escape_ascii());
        }
    }
    check_frames(site.engine.get(), &tracker);
    exchanges
}

/// Checks by the program's counts that the engine is the one that answered.
fn check_frames(engine: Engine, tracker: &Tracker) {
    if engine == Engine::Mmsg {
        return;
    }
    let frames = |it: &Tracker, result| it.sum("tidegate_xdp_frames_total", &[("result", result)]);
    // Two clients connected over each family, and one connected twice.
    for (result, count) in [("connect", 6.0), ("bad_connection_id", 2.0), ("too_short", 4.0)] {
        tracker.wait_until(result, |it| frames(it, result) == count);
    }
    let [steered, passed] = ["steered", "passed"].map(|result| frames(tracker, result));
    assert_eq!((steered > 0.0, passed > 0.0), (engine.is_xdp(), !engine.is_xdp()), "{engine:?}");
}

/// Checks a reply and removes all that may differ.
fn normalized(exchange: &Exchange, link: Link, room: [usize; 2]) -> Vec<u8> {
    let (what, frame) = exchange;
    assert_eq!(frame.macs(), (&link.mac[..], &network::TRACKER_MAC[..]), "{what}");
    assert_eq!(frame.vlan(), link.vlan, "{what}");
    assert!(frame.has_right_checksums(), "{what}: {}", frame.0.escape_ascii());
    let mut packet = frame.ip().to_vec();
    let is_v4 = packet[0] == 0x45;
    let (masked, header): (&[_], _) =
        if is_v4 { (&[4..9, 10..12, 26..28], 20) } else { (&[1..4, 7..8, 46..48], 40) };
    masked.iter().for_each(|range| packet[range.clone()].fill(0));
    let stride = if is_v4 { 6 } else { 18 };
    let payload = &mut packet[header + 8..];
    assert!(payload.len() <= room[usize::from(!is_v4)], "{what}: {} bytes", payload.len());
    match payload[3] {
        0 => payload[8..16].fill(0),
        1 => sort(&mut payload[20..], stride),
        _ => {}
    }
    packet
}

fn sort(peers: &mut [u8], stride: usize) {
    let mut sorted: Vec<&[u8]> = peers.chunks(stride).collect();
    sorted.sort_unstable();
    let sorted = sorted.concat();
    peers.copy_from_slice(&sorted);
}

/// Compares the replies of an engine with those of `mmsg`.
fn compare(engine: Engine, link: Link) {
    let mut expected = Vec::new();
    let mut found = Vec::new();
    in_network(NetworkOptions::default(), |site| expected = play(site, ROUTER, ""));
    let options = NetworkOptions { tags: link.vlan.is_some(), ..NetworkOptions::default() };
    in_network(options, |site| {
        site.engine.set(engine);
        found = play(site, link, &VLAN.to_string());
    });
    assert_eq!(expected.len(), found.len());
    let room = if engine.is_xdp() { [1472, 1232] } else { [1472, 1452] };
    for (old, new) in expected.iter().zip(&found) {
        let what = &old.0;
        let [old, new] = [normalized(old, ROUTER, [1472, 1452]), normalized(new, link, room)];
        // Peers are a sample if not all have room, and fewer have room in frames that are never
        // fragmented.
        let payload = if old[0] == 0x45 { 28 } else { 48 };
        let is_full = |packet: &[u8]| packet[payload + 3] == 1 && packet.len() > payload + 1210;
        if is_full(&old) {
            assert!(is_full(&new), "{what}: {} bytes", new.len());
            let counts = payload..payload + 20;
            assert_eq!(old[counts.clone()], new[counts], "{what}");
        } else {
            assert_eq!(old.escape_ascii().to_string(), new.escape_ascii().to_string(), "{what}");
        }
    }
}

#[test]
fn mmsg_answers_like_itself() {
    compare(Engine::Mmsg, ROUTER);
}

#[test]
fn shield_answers_like_mmsg() {
    compare(Engine::Shield, ROUTER);
}

#[test]
fn xdp_in_the_driver_answers_like_mmsg() {
    compare(Engine::XdpDriver, ROUTER);
}

#[test]
fn xdp_in_the_generic_path_answers_like_mmsg() {
    compare(Engine::XdpGeneric, ROUTER);
}

#[test]
fn tagged_frames_are_answered_with_their_tag() {
    compare(Engine::XdpDriver, TAGGED);
}
