//! Peers that announce to one node are known to all others.

use super::{Cluster, wait_for_counts};
use crate::api::Caller;
use crate::clients::{Udp, announce_target, has, http, http_announce};
use crate::process::{Directory, Tracker};

/// The ports of the peers that an announce returns.
fn ports(reply: &[u8], peer_len: usize) -> Vec<u16> {
    let peers = reply[20..].chunks(peer_len);
    let mut ports: Vec<_> =
        peers.map(|it| u16::from_be_bytes([it[peer_len - 2], it[peer_len - 1]])).collect();
    ports.sort_unstable();
    ports
}

/// Announces a seeder over HTTP that has just completed its download.
fn complete(node: &Tracker, torrent: u8, port: u16) {
    let seeder = announce_target(torrent, port).replace("left=1", "left=0");
    http(node.http4(), &(seeder + "&event=completed"));
}

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
        let found = ports(&udp.announce(0xaa, port), 6);
        assert!(found.starts_with(&[1001, 1002]), "{found:?}");
        let found = ports(&Udp::connect(node.udp6()).announce(0xaa, port), 18);
        assert!(found.starts_with(&[1003, 1004]), "{found:?}");
        let reply = http(node.http4(), &announce_target(0xaa, port)).1;
        assert!(has(&reply, [127, 0, 0, 1, 0x03, 0xe9]), "{reply:?}");
    }
}

#[test]
fn roles_and_downloads_are_equal_and_counted_once() {
    let cluster = Cluster::start(1);
    let [a, b, c] = [1, 2, 3].map(|number| cluster.node_with_state(number));
    // Downloads of torrents on a list are durable from the first one.
    Caller::of(&a).expect(204, &format!("PUT /lists/allow/{}", "aa".repeat(20)), None);
    for port in [1001, 1002] {
        http_announce(a.http4(), 0xaa, port);
    }
    wait_for_counts(&[&a, &b, &c], 0xaa, [0, 0, 2]);
    for node in [&a, &b, &c] {
        node.wait_until("the list", |it| {
            Caller::of(it).ask("GET /lists/allow", None).1["total"] == 1
        });
    }
    complete(&a, 0xaa, 1001);
    complete(&b, 0xaa, 1002);
    wait_for_counts(&[&a, &b, &c], 0xaa, [2, 2, 0]);
    // A peer announces again elsewhere, as a seeder; and more comes behind it in the log.
    complete(&c, 0xaa, 1001);
    for node in [&a, &b, &c] {
        http_announce(node.http4(), 0xbb, 1000 + node.pid() as u16 % 1000);
    }
    wait_for_counts(&[&a, &b, &c], 0xbb, [0, 0, 3]);
    wait_for_counts(&[&a, &b, &c], 0xaa, [2, 2, 0]);
}

/// The old process writes its last counts after the new one has read the records.
#[test]
fn downloads_that_an_upgrade_writes_last_are_reported() {
    let cluster = Cluster::start(1);
    let node = cluster.node_with_state(1);
    Caller::of(&node).expect(204, &format!("PUT /lists/allow/{}", "aa".repeat(20)), None);
    for port in [1001, 1002, 1003] {
        http_announce(node.http4(), 0xaa, port);
        complete(&node, 0xaa, port);
    }
    node.upgrade();
    wait_for_counts(&[&node], 0xaa, [3, 3, 0]);
    complete(&node, 0xaa, 1004);
    wait_for_counts(&[&node], 0xaa, [4, 4, 0]);
}

#[test]
fn connection_ids_are_good_at_all_nodes() {
    let cluster = Cluster::start(1);
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    for (one, other) in [(&a, &b), (&b, &a)] {
        for [of_one, of_other] in [[one.udp4(), other.udp4()], [one.udp6(), other.udp6()]] {
            let mut udp = Udp::unconnected(1, of_other);
            udp.id = Udp::connect(of_one).id;
            udp.announce(0xaa, 1001);
        }
    }
    // That of a tracker of another cluster is not, nor that of a tracker alone.
    let others = [cluster.stranger(3, ""), Tracker::start(Directory::new(), "")];
    for (other, dropped) in others.iter().zip([1.0, 2.0]) {
        let mut udp = Udp::unconnected(1, b.udp4());
        udp.id = Udp::connect(other.udp4()).id;
        udp.send_announce(0xaa, 1002).unwrap();
        let reason = [("reason", "bad_connection_id")];
        b.wait_until("drop", |it| it.sum("tidegate_drops_total", &reason) == dropped);
    }
}
