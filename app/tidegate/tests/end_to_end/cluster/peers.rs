//! Peers that announce to one node are known to all others.

use super::{Cluster, wait_for_counts};
use crate::api::Caller;
use crate::clients::{Udp, announce_target, has, http, http_announce, http_complete, peer_ports};

#[test]
fn peers_are_seen_at_all_nodes() {
    let cluster = Cluster::start(1);
    let nodes = [1, 2, 3].map(|number| cluster.node(number));
    let [a, b, c] = nodes.each_ref();
    Udp::connect(a.udp4()).announce(0xaa, 1001);
    http_announce(b.http4(), 0xaa, 1002);
    Udp::connect(c.udp6()).announce(0xaa, 1003);
    http_announce(a.http6(), 0xaa, 1004);
    wait_for_counts(&[a, b, c], 0xaa, [0, 0, 4]);
    for (node, port) in [(a, 2001), (b, 2002), (c, 2003)] {
        let udp = Udp::connect(node.udp4());
        let found = peer_ports(&udp.announce(0xaa, port), 6);
        assert!(found.starts_with(&[1001, 1002]), "{found:?}");
        let found = peer_ports(&Udp::connect(node.udp6()).announce(0xaa, port), 18);
        assert!(found.starts_with(&[1003, 1004]), "{found:?}");
        let reply = http(node.http4(), &announce_target(0xaa, port)).1;
        assert!(has(&reply, [127, 0, 0, 1, 0x03, 0xe9]), "{reply:?}");
    }
}

/// The old process writes its last counts after the new one has read the records.
#[test]
fn downloads_that_an_upgrade_writes_last_are_reported() {
    let cluster = Cluster::start(1);
    let node = cluster.node_with_state(1);
    Caller::of(&node).expect(204, &format!("PUT /lists/allow/{}", "aa".repeat(20)), None);
    for port in [1001, 1002, 1003] {
        http_announce(node.http4(), 0xaa, port);
        http_complete(node.http4(), 0xaa, port);
    }
    node.upgrade();
    wait_for_counts(&[&node], 0xaa, [3, 3, 0]);
    http_complete(node.http4(), 0xaa, 1004);
    wait_for_counts(&[&node], 0xaa, [4, 4, 0]);
}
