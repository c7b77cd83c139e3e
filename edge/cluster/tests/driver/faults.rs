//! NATS fails.

use crate::node::{NAME, Says, TestNode, make_stream, options};
use crate::servers;

#[test]
fn a_node_without_nats_serves_what_it_has() {
    let server = format!("nats://{}", harness::unused_address());
    let a = TestNode::start_with(options(1, vec![server]));
    a.announce(1, 1, Says::Leecher);
    // After a limited time it waits no longer.
    let a = a.wait_until_warm();
    let overview = a.overview();
    assert!(overview.server.is_none() && !overview.node.is_connected);
    a.wait("waiting blocks", |a| a.overview().node.unstored_blocks > 0);
    // The end does not wait for NATS.
    a.end();
}

#[test]
fn changes_wait_while_nats_is_away() {
    let Some(mut nats) = servers(1) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    a.announce(1, 1, Says::Leecher);
    b.wait("the first peer", |b| b.peers() == 1);
    nats.kill(0);
    a.wait("the loss", |a| a.overview().server.is_none());
    b.wait("the loss", |b| b.overview().server.is_none());
    a.announce(1, 2, Says::Leecher);
    b.announce(1, 3, Says::Leecher);
    a.announce(1, 1, Says::Stopped);
    nats.restart(0).unwrap();
    a.wait("the peer of b", |a| a.peers() == 2);
    b.wait("the peers of a", |b| b.peers() == 2);
    a.wait("acknowledgements", |a| a.overview().node.unstored_blocks == 0);
    assert_eq!(a.overview().reconnects, 1);
}

#[test]
fn a_stream_that_is_deleted_under_load_is_made_again() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    let mut client = nats.client(0).unwrap();
    for peer in 0..200 {
        a.announce(peer as u8, peer, Says::Leecher);
        if peer == 100 {
            client.jetstream(&format!("STREAM.DELETE.TG_{NAME}_D"), "").unwrap();
            make_stream(&nats, 1);
        }
    }
    b.wait("all peers", |b| b.peers() == 200);
    a.wait("acknowledgements", |a| a.overview().node.unstored_blocks == 0);
    a.announce(1, 1000, Says::Leecher);
    // The new stream has what comes now, and both nodes read it.
    for node in [&a, &b] {
        node.wait("the log", |node| {
            let node = node.overview().node;
            node.unstored_blocks == 0
                && node.log_last > 0
                && node.position.sequence == node.log_last
        });
    }
    let info = client.jetstream(&format!("STREAM.INFO.TG_{NAME}_D"), "").unwrap();
    assert!(info["state"]["messages"].as_u64().unwrap() > 0, "{info}");
}

#[test]
fn a_server_that_hangs_is_left_for_another() {
    let Some(nats) = servers(3) else { return };
    let [a, b] = [1, 2].map(|node| TestNode::start(node, &nats)).map(TestNode::wait_until_warm);
    let server = a.overview().server.unwrap();
    let hanging = (0..3).find(|it| server.starts_with(&format!("n{} ", it + 1))).unwrap();
    nats.pause(hanging).unwrap();
    a.wait("another server", |a| a.overview().server.is_some_and(|it| it != server));
    a.announce(1, 1, Says::Leecher);
    b.wait("the peer", |b| b.peers() == 1);
    nats.resume(hanging).unwrap();
}

/// A paused consumer stands for one at a server that lacks what the others have: it is there, says so each two seconds,
/// and delivers nothing.
#[test]
fn a_consumer_that_delivers_nothing_is_made_anew() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    a.announce(1, 1, Says::Leecher);
    let is_read = |a: &TestNode| {
        let node = a.overview().node;
        node.unstored_blocks == 0 && node.log_last > 0 && node.position.sequence == node.log_last
    };
    a.wait("the log", is_read);
    let before = a.overview().node.position.sequence;
    let mut client = nats.client(0).unwrap();
    let names = client.jetstream(&format!("CONSUMER.NAMES.TG_{NAME}_D"), "").unwrap();
    let consumer = names["consumers"][0].as_str().unwrap().to_owned();
    let until = r#"{"pause_until":"2099-01-01T00:00:00Z"}"#;
    client.jetstream(&format!("CONSUMER.PAUSE.TG_{NAME}_D.{consumer}"), until).unwrap();
    a.announce(1, 2, Says::Leecher);
    a.wait("what was stored since", |a| a.overview().node.position.sequence > before);
}

#[test]
fn a_node_says_why_there_is_no_stream() {
    let Some(nats) = servers(1) else { return };
    let (mut client, stream) = (nats.client(0).unwrap(), format!("TG_{NAME}_D"));
    client.jetstream(&format!("STREAM.DELETE.{stream}"), "").unwrap();
    let a = TestNode::start(1, &nats);
    let missing = format!("the stream {stream} does not exist: run `tidegate cluster set`");
    a.wait("the reason", |a| a.overview().failure.as_ref() == Some(&missing));
    make_stream(&nats, 1);
    a.wait("no failure", |a| a.overview().failure.is_none());
}
