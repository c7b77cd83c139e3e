//! Nodes, servers and streams that fail.

use super::{
    Cluster, SWARMS, is_connected, view, wait_for_counts, wait_until_joined, wait_until_stored,
};
use crate::api::Caller;
use crate::clients::{Udp, announce_target, http, http_announce, http_complete};

#[test]
fn a_node_goes_on_after_an_upgrade() {
    let cluster = Cluster::start(1);
    let (a, b) = (cluster.node_with_state(1), cluster.node(2));
    wait_until_joined(&[&a, &b]);
    Caller::of(&a).expect(204, &format!("PUT /lists/allow/{}", "aa".repeat(20)), None);
    http_announce(a.http4(), 0xaa, 1001);
    // The old process writes its last counts after the new one has read the records.
    http_complete(a.http4(), 0xaa, 1001);
    a.upgrade();
    http_announce(a.http4(), 0xaa, 1002);
    http_announce(b.http4(), 0xaa, 1003);
    wait_for_counts(&[&a, &b], 0xaa, [1, 1, 2]);
    assert_eq!(a.metric("tidegate_cluster_mute"), 0.0);
    wait_until_joined(&[&a, &b]);
}

#[test]
fn nodes_serve_without_nats_and_catch_up() {
    let (mut cluster, [a, b]) = Cluster::with_two_nodes();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    wait_until_stored(&a);
    cluster.nats.kill(0);
    for node in [&a, &b] {
        node.wait_until("no connection", |it| !is_connected(it));
    }
    http(a.http4(), &(announce_target(0xaa, 1001) + "&event=stopped"));
    http_announce(a.http4(), 0xaa, 1002);
    http_announce(b.http4(), 0xaa, 1003);
    // One that starts now and does not wait for NATS serves, too.
    let c = cluster.node_with(3, "warm_wait_s = 0\n");
    http_announce(c.http4(), 0xaa, 1004);
    assert_eq!(Udp::connect(c.udp4()).scrape(0xaa), [0, 0, 1]);
    // The log decides: the node's own block with the first announce may come after the stop, until that is in the log.
    let [_, _, leechers] = Udp::connect(a.udp4()).scrape(0xaa);
    assert!((1..=2).contains(&leechers), "{leechers}");
    cluster.nats.restart(0).unwrap();
    wait_for_counts(&[&a, &b, &c], 0xaa, [0, 0, 3]);
    wait_until_joined(&[&a, &b, &c]);
}

#[test]
fn a_deleted_stream_is_named_and_can_be_made_again() {
    let (cluster, [a, b]) = Cluster::with_two_nodes();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    let mut client = cluster.superuser();
    client.jetstream(&format!("STREAM.DELETE.{SWARMS}"), "").unwrap();
    http_announce(a.http4(), 0xaa, 1002);
    // The other node receives it live.
    wait_for_counts(&[&b], 0xaa, [0, 0, 2]);
    // Nodes have no right to make it.
    a.wait_until("the problem", |it| {
        view(it)["problems"].to_string().contains("does not exist: run `tidegate cluster set`")
    });
    cluster.operator.run("set").unwrap();
    wait_until_stored(&a);
    http_announce(b.http4(), 0xaa, 1003);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 3]);
    // The new stream has the announces made after the deletion.
    wait_until_stored(&b);
    let c = cluster.node(3);
    let [_, _, leechers] = Udp::connect(c.udp4()).scrape(0xaa);
    assert!(leechers >= 2, "{leechers}: {}", c.log());
}

/// A paused consumer stands for one at a server that lacks what the others have: it is there, says so each two seconds,
/// and delivers nothing.
#[test]
fn a_consumer_that_delivers_nothing_is_made_anew() {
    let (cluster, [a, b]) = Cluster::with_two_nodes();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&b], 0xaa, [0, 0, 1]);
    let mut client = cluster.superuser();
    let names = client.jetstream(&format!("CONSUMER.NAMES.{SWARMS}"), "").unwrap();
    for consumer in names["consumers"].as_array().unwrap() {
        let pause = format!("CONSUMER.PAUSE.{SWARMS}.{}", consumer.as_str().unwrap());
        client.jetstream(&pause, r#"{"pause_until":"2099-01-01T00:00:00Z"}"#).unwrap();
    }
    http_announce(a.http4(), 0xaa, 1002);
    wait_for_counts(&[&b], 0xaa, [0, 0, 2]);
}

#[test]
fn a_server_that_hangs_is_left_for_another() {
    let cluster = Cluster::start(3);
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b]);
    let server = view(&a)["connection"]["server"].as_str().unwrap().to_owned();
    let hanging = (0..3).find(|it| server.starts_with(&format!("n{} ", it + 1))).unwrap();
    cluster.nats.pause(hanging).unwrap();
    a.wait_until("another server", |it| {
        view(it)["connection"]["server"].as_str().is_some_and(|it| it != server)
    });
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&b], 0xaa, [0, 0, 1]);
    cluster.nats.resume(hanging).unwrap();
}
