//! `xdp.reply_mac`: behind a balancer that lets servers answer directly, replies go elsewhere than requests came
//! from.

use super::*;
use crate::clients::Udp;

/// Sends requests from a balancer and returns where the replies went: those of connects, and of announces.
fn destinations(engine: Engine, reply_mac: &str) -> Vec<[[u8; 6]; 2]> {
    let mut destinations = Vec::new();
    in_network(NetworkOptions::default(), |site| {
        site.engine.set(engine);
        let variables = [("TIDEGATE_XDP__REPLY_MAC", reply_mac)];
        let tracker = Tracker::start_with(Directory::new(), "", &variables);
        if reply_mac == "gateway" {
            // The kernel learns of the gateway when it needs it first. Until then the sockets answer.
            Udp::connect(tracker.udp4());
            Udp::connect(tracker.udp6());
            tracker
                .wait_for_log("replies over IPv4 leave eth0 for the gateway at 02:00:00:00:02:01");
            tracker
                .wait_for_log("replies over IPv6 leave eth0 for the gateway at 02:00:00:00:02:01");
        }
        let mut socket = site.network.packet_socket().unwrap();
        let balancer = Link { mac: SPARE_MAC, vlan: None };
        for to in [tracker.udp4(), tracker.udp6()] {
            let mut client = Client::connect(&mut socket, balancer, to);
            let packets = [udp::connect(2), udp::announce(client.id, LEECHER)];
            let macs = packets.map(|it| client.exchange(&it).destination().try_into().unwrap());
            destinations.push(macs);
        }
        let frames = [("result", "connect")];
        let answered = |it: &Tracker| it.sum("tidegate_xdp_frames_total", &frames) >= 4.0;
        tracker.wait_until("the program has answered", answered);
    });
    destinations
}

#[test]
fn replies_leave_for_the_gateway() {
    for engine in [Engine::Shield, Engine::XdpDriver] {
        let found = destinations(engine, "gateway");
        assert!(found.iter().all(|macs| *macs == [ROUTER_MAC; 2]), "{engine:?}: {found:x?}");
    }
}

#[test]
fn replies_leave_for_a_fixed_address() {
    let other = [2, 0, 0, 0, 2, 0x77];
    let found = destinations(Engine::XdpDriver, "02:00:00:00:02:77");
    assert!(found.iter().all(|macs| *macs == [other; 2]), "{found:x?}");
    // Sockets of the kernel know nothing of it.
    let found = destinations(Engine::Shield, "02:00:00:00:02:77");
    assert!(found.iter().all(|macs| *macs == [other, ROUTER_MAC]), "{found:x?}");
}
