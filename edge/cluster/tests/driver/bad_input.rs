//! Nonsense from others, or messages that pretend to be from a node: the node drops and counts them, and continues.

use harness::nats::Nats;
use tidegate_cluster::nats::NatsOptions;

use crate::node::{NAME, Says, TestNode, options, unix_ms};
use crate::servers;

pub(crate) const GOOD: &str = "Tidegate: a1b2c3d4 open\r\n";

/// Publishes a message as anyone could who has no secret, or has stolen it.
fn publish(nats: &Nats, subject: &str, headers: &str, body: &[u8]) {
    let mut client = nats.client(0).unwrap();
    client.publish(&format!("tg.{NAME}.{subject}"), headers, body).unwrap();
    client.flush().unwrap();
}

/// Returns a block of a node with this kind and body.
pub(crate) fn block(node: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let header = replication::block::Header {
        kind: replication::block::Kind(kind),
        has_ids: false,
        node,
        boot: unix_ms() << 8,
        number: 1,
        cut_ms: unix_ms(),
    };
    let mut bytes = Vec::new();
    replication::block::write(&header, body, &mut bytes);
    bytes
}

#[test]
fn nonsense_is_dropped_and_counted() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let good = block(9, 0, &[]);
    for path in ["l", "d"] {
        for (reason, subject, headers, body) in [
            ("foreign", "9", "", &good[..]),
            ("foreign", "9", "Other: 1\r\n", &good),
            ("secret", "9", "Tidegate: 00000000\r\n", &good),
            ("secret", "9", "Tidegate: x\r\n", &good),
            ("origin", "8", GOOD, &good),
            ("origin", "x", GOOD, &good),
            ("origin", "0", GOOD, &good),
            ("origin", "9", "Tidegate: a1b2c3d4 open\r\nNats-Stream: S\r\n", &good),
            ("damaged", "9", GOOD, b""),
            ("damaged", "9", GOOD, &good[..20]),
            ("damaged", "9", GOOD, b"no block at all"),
            ("kind", "9", GOOD, &block(9, 200, &[1, 2, 3])),
        ] {
            let before = a.dropped(reason);
            publish(&nats, &format!("{path}.{subject}"), headers, body);
            a.wait(&format!("{reason} on {path}"), |a| a.dropped(reason) > before);
        }
    }
    for body in [&b"{"[..], b"[]", b"\xff", &[b'9'; 5000]] {
        let dropped = |a: &TestNode| a.dropped("damaged") + a.dropped("origin");
        let before = dropped(&a);
        publish(&nats, "h.9", GOOD, body);
        a.wait("a bad heartbeat", |a| dropped(a) > before);
    }
    // It still works.
    let b = TestNode::start(2, &nats).wait_until_warm();
    a.announce(1, 1, Says::Leecher);
    b.wait("the peer", |b| b.peers() == 1);
}

#[test]
fn groups_that_do_not_add_up_change_nothing() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    // A group that claims more peers than there are bytes; sessions and letters of nonsense.
    let mut body = vec![7; 20];
    body.extend_from_slice(&[255, 255, 0, 0, 1, 2, 3]);
    for kind in [0, 1, 2, 3] {
        publish(&nats, "l.9", GOOD, &block(9, kind, &body));
        publish(&nats, "d.9", GOOD, &block(9, kind, &body));
    }
    publish(&nats, "w.1.9", GOOD, b"nonsense");
    publish(&nats, "q.1.9", GOOD, b"nonsense");
    a.announce(1, 1, Says::Leecher);
    a.wait("the log", |a| {
        let node = a.overview().node;
        node.log_last >= 5 && node.position.sequence == node.log_last && node.unstored_blocks == 0
    });
    assert_eq!(a.peers(), 1);
}

#[test]
fn a_block_of_the_largest_size_fits() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let before = a.dropped("damaged") + a.dropped("kind");
    publish(&nats, "l.9", GOOD, &block(9, 200, &vec![0; replication::block::BODY_MAX]));
    a.wait("the block", |a| a.dropped("damaged") + a.dropped("kind") > before);
}

#[test]
fn nodes_with_another_secret_do_not_hear_each_other() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let mut other = options(2, nats.urls("nats"));
    other.secret_ids = vec![[9; 4]].into();
    let b = TestNode::start_with(other).wait_until_warm();
    a.announce(1, 1, Says::Leecher);
    b.wait("dropped messages", |b| b.dropped("secret") > 0);
    a.wait("dropped heartbeats", |a| a.dropped("secret") > 0);
    assert_eq!(b.peers(), 0);
    assert!(b.overview().node.nodes.is_empty());
    // With both secrets, as while it changes, they do.
    let mut both = options(3, nats.urls("nats"));
    both.secret_ids = vec![[9; 4], crate::node::SECRET].into();
    let c = TestNode::start_with(both).wait_until_warm();
    c.wait("the peer", |c| c.peers() == 1);
}

#[test]
fn private_nodes_and_open_ones_do_not_hear_each_other() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    a.announce(1, 1, Says::Leecher);
    let private = NatsOptions { access: "private".into(), ..options(2, nats.urls("nats")) };
    let b = TestNode::start_with(private.clone()).wait_until_warm();
    b.announce(2, 2, Says::Leecher);
    // By the log, and by heartbeats; each names the other.
    b.wait("dropped messages", |b| b.dropped("access") > 1 && b.overview().node.refused == [1]);
    a.wait("dropped messages", |a| a.dropped("access") > 1 && a.overview().node.refused == [2]);
    assert_eq!((a.peers(), b.peers()), (1, 1));
    assert!(a.overview().node.nodes.is_empty() && b.overview().node.nodes.is_empty());
    // One of the same kind hears it, and one that accepts all kinds hears both.
    let c = TestNode::start_with(NatsOptions { node: 3, ..private.clone() }).wait_until_warm();
    c.wait("the peer of the private node", |c| c.peers() == 1);
    let any = NatsOptions { node: 4, accepts_any_access: true, ..private };
    let d = TestNode::start_with(any).wait_until_warm();
    d.wait("the peers of both", |d| d.peers() == 2);
}

#[test]
fn of_two_boots_the_younger_is_mute() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    let twin = TestNode::start(1, &nats);
    twin.wait("silence", |twin| twin.status.is_mute());
    twin.announce(1, 1, Says::Leecher);
    a.announce(2, 2, Says::Leecher);
    b.wait("the peer of the older", |b| b.peers() == 1);
    a.end();
    twin.wait("its turn", |twin| !twin.status.is_mute());
    b.wait("the peer of the younger", |b| b.peers() == 2);
}
