//! Changes at one node come to the others.

use crate::node::{NAME, Says, TestNode};
use crate::servers;

#[test]
fn a_peer_announced_at_one_node_is_seen_at_another() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    a.announce(1, 1, Says::Leecher);
    b.wait("the peer", |b| b.peers() == 1);
    b.announce(1, 2, Says::Seeder);
    a.wait("the other peer", |a| a.peers() == 2);
    a.announce(1, 1, Says::Stopped);
    b.wait("the end of the first", |b| b.peers() == 1);
    a.wait("the log, own messages included", |a| {
        a.overview().node.traffic.applied_log_messages >= 3
    });
    a.wait("acknowledgements", |a| a.overview().node.unstored_blocks == 0);
    assert_eq!((a.peers(), b.peers()), (1, 1));
}

#[test]
fn a_peer_is_seen_while_nothing_can_be_stored() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    let mut client = nats.client(0).unwrap();
    client.jetstream(&format!("STREAM.DELETE.TG_{NAME}_D"), "").unwrap();
    a.announce(1, 1, Says::Leecher);
    b.wait("the peer", |b| b.peers() == 1);
    b.wait("the count", |b| b.overview().node.traffic.applied_live_messages == 1);
    assert_eq!(a.overview().node.traffic.stored_blocks, 0);
}

#[test]
fn a_node_that_starts_later_reads_the_log() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    for peer in 0..2000 {
        a.announce(peer as u8 % 50, peer, Says::Leecher);
    }
    a.wait("acknowledgements", |a| {
        let node = a.overview().node;
        node.traffic.stored_blocks > 0 && node.unstored_blocks == 0
    });
    let b = TestNode::start(2, &nats).wait_until_warm();
    b.wait("all peers", |b| b.peers() == 2000);
    assert_eq!(a.peers(), 2000);
}

#[test]
fn what_is_cut_last_is_published_before_the_end() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    a.announce(1, 1, Says::Seeder);
    a.end();
    b.wait("the peer", |b| b.peers() == 1);
    b.wait("the goodbye", |b| {
        let nodes = b.overview().node.nodes;
        nodes.iter().any(|it| it.says.node == 1 && it.state == tidegate_cluster::NodeState::Left)
    });
}
