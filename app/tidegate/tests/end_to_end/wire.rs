//! Where replies go in the link layer, and how long they may be. What the program writes, also into frames with a tag,
//! and which frames it leaves to the kernel, is compared with a model in edge/xdp.

use std::net::IpAddr;

use harness::network::{self, Network};
use serde_json::Value;

use crate::clients::Udp;
use crate::process::{Directory, Tracker};
use crate::site::{Engine, in_network, in_network_of};
use crate::udp;

/// The tracker's address in the link layer.
const TRACKER_MAC: &str = "02:00:00:00:02:02";
/// The address of a balancer, which lets servers answer directly.
const BALANCER_MAC: &str = "02:00:00:00:02:09";
/// Requests in each direction.
const COUNT: u64 = 20;

/// Has the router send to the tracker by the balancer.
fn route(network: &Network) {
    let addresses: [IpAddr; 2] = [network::tracker(1).into(), network::tracker_v6(1).into()];
    for address in addresses {
        let known = format!("neighbour add {address} lladdr {TRACKER_MAC} dev balancer\n");
        network.router.ip(&format!("{known}route add {address} dev balancer\n")).unwrap();
    }
}

/// Requests that need more than 1500 bytes, from a link that has room for them.
#[test]
fn large_packets_are_answered() {
    for engine in [Engine::Mmsg, Engine::XdpGeneric] {
        in_network_of(9000, |site| {
            site.engine.set(engine);
            let tracker = Tracker::start(Directory::new(), "");
            for (to, most) in [(tracker.udp4(), 122), (tracker.udp6(), 120)] {
                let client = Udp::connect(to);
                for hashes in [72, 73, 74, 100, 122] {
                    let reply = client.request(&udp::scrape(client.id, &vec![[1; 20]; hashes]));
                    assert_eq!(reply.len(), 8 + 12 * hashes.min(most), "{engine:?}");
                }
            }
        });
    }
}

/// Returns how many frames the balancer has received.
fn received(network: &Network) -> u64 {
    let words = ["-json", "-statistics", "link", "show", "balancer"];
    let shown: Value =
        serde_json::from_str(&network.router.run_command("ip", &words).unwrap()).unwrap();
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// Replies to requests of a balancer go to it, to the gateway, or to a fixed address, as `xdp.reply_mac` says. Those of
/// the kernel's sockets, which know nothing of the key, always go to the gateway.
#[test]
fn replies_leave_for_the_address_that_is_configured() {
    // True if a balancer sends the requests, and which replies go to it: those of connects, those of scrapes.
    for (engine, reply_mac, is_balanced, expected) in [
        (Engine::Shield, "swap", true, [true, false]),
        (Engine::Shield, "gateway", true, [false, false]),
        (Engine::XdpDriver, "gateway", true, [false, false]),
        (Engine::Shield, BALANCER_MAC, false, [true, false]),
        (Engine::XdpDriver, BALANCER_MAC, false, [true, true]),
    ] {
        in_network(|site| {
            site.engine.set(engine);
            let router = &site.network.router;
            let balancer =
                format!("name balancer address {BALANCER_MAC} type macvlan mode private");
            router
                .ip(&format!("link add link tracker {balancer}\nlink set balancer up\n"))
                .unwrap();
            for interface in ["all", "tracker", "balancer"] {
                router.set(&format!("net/ipv4/conf/{interface}/rp_filter"), "0").unwrap();
            }
            let variables = [("TIDEGATE_XDP__REPLY_MAC", reply_mac)];
            let tracker = Tracker::start_with(Directory::new(), "", &variables);
            if reply_mac == "gateway" {
                // The kernel learns of the gateway when it needs it first. Until then the sockets answer.
                for (to, family) in [(tracker.udp4(), "IPv4"), (tracker.udp6(), "IPv6")] {
                    Udp::connect(to);
                    let gateway = "leave eth0 for the gateway at 02:00:00:00:02:01";
                    tracker.wait_for_log(&format!("replies over {family} {gateway}"));
                }
            }
            if is_balanced {
                route(&site.network);
            }
            for to in [tracker.udp4(), tracker.udp6()] {
                let client = Udp::connect(to);
                let packets = [udp::connect(2), udp::scrape(client.id, &[udp::HASH])];
                let found = packets.map(|packet| {
                    let before = received(&site.network);
                    (0..COUNT).for_each(|_| drop(client.request(&packet)));
                    // Multicasts are received, too.
                    received(&site.network) - before >= COUNT
                });
                assert_eq!(found, expected, "{engine:?} {reply_mac} {to}");
            }
        });
    }
}
