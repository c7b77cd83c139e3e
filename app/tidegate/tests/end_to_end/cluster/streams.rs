//! Streams and consumers that do what the cluster did not ask for.

use harness::nats::Client;
use serde_json::json;

use super::{Cluster, NAME, SWARMS, view, wait_for_counts, wait_until_joined, wait_until_stored};
use crate::clients::http_announce;
use crate::process::Tracker;

/// Returns how many messages a node dropped because another one cannot have sent them.
fn strange(node: &Tracker) -> f64 {
    node.sum("tidegate_cluster_drops_total", &[("reason", "origin")])
}

/// Returns how many messages of node 1 the stream has, and how many of others.
fn stored(client: &mut Client) -> [u64; 2] {
    let info = client.jetstream(&format!("STREAM.INFO.{SWARMS}"), r#"{"subjects_filter":">"}"#);
    let state = &info.unwrap()["state"];
    let own = state["subjects"][format!("tg.{NAME}.d.1")].as_u64().unwrap();
    [own, state["messages"].as_u64().unwrap() - own]
}

#[test]
fn settings_that_harm_are_named_and_undone() {
    let (cluster, [a, b]) = Cluster::with_two_nodes();
    let mut client = cluster.nats.client(0).unwrap();
    let info = client.jetstream(&format!("STREAM.INFO.{SWARMS}"), "").unwrap();
    let mut config = info["config"].clone();
    let changes = [
        ("republish", json!({ "src": format!("tg.{NAME}.d.1"), "dest": format!("tg.{NAME}.l.8") })),
        (
            "subject_transform",
            json!({ "src": format!("tg.{NAME}.d.7"), "dest": format!("tg.{NAME}.d.3") }),
        ),
        ("sources", json!([{ "name": "OTHER" }])),
        ("max_msgs", json!(1000)),
        ("allow_rollup_hdrs", json!(true)),
        ("max_msgs_per_subject", json!(1000)),
    ];
    for (key, value) in &changes {
        config[key] = value.clone();
    }
    client.jetstream(&format!("STREAM.UPDATE.{SWARMS}"), &config.to_string()).unwrap();
    for (key, _) in &changes {
        a.wait_until(key, |it| {
            let problems = view(it)["problems"].clone();
            let mut streams =
                problems.as_array().unwrap().iter().filter(|it| it["kind"] == "stream");
            streams.any(|problem| problem.to_string().contains(key))
        });
    }
    // The stream publishes it again as a live message of node 8, which is dropped.
    let before = strange(&b);
    http_announce(a.http4(), 0xaa, 1001);
    b.wait_until("drops", |it| strange(it) > before);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    cluster.operator.run("set").unwrap();
    a.wait_until("no problem", |it| view(it)["problems"] == json!([]));
}

/// JetStream delivers what a consumer asks for to any subject, whatever the rights of the consumer's user are.
#[test]
fn what_a_consumer_delivers_elsewhere_is_dropped() {
    let (cluster, [a, b]) = Cluster::with_two_nodes();
    let mut client = cluster.nats.client(0).unwrap();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&b], 0xaa, [0, 0, 1]);
    wait_until_stored(&a);
    // Pushed to where heartbeats and live blocks of another node come.
    for kind in ["h", "l"] {
        let config = json!({
            "name": kind, "deliver_subject": format!("tg.{NAME}.{kind}.9"), "ack_policy": "none",
            "deliver_policy": "all",
        });
        let body = json!({ "stream_name": SWARMS, "config": config }).to_string();
        let before = strange(&b);
        // Wildcards alone do not make a server push.
        client.subscribe(&format!("tg.{NAME}.{kind}.9")).unwrap();
        client.jetstream(&format!("CONSUMER.CREATE.{SWARMS}.{kind}"), &body).unwrap();
        b.wait_until(kind, |it| strange(it) > before);
        client.jetstream(&format!("CONSUMER.DELETE.{SWARMS}.{kind}"), "").unwrap();
    }
    // Pulled, with an answer to there, and into the stream itself: the old block would be a new one.
    let config = json!({ "name": "pull", "ack_policy": "none", "deliver_policy": "all" });
    let body = json!({ "stream_name": SWARMS, "config": config }).to_string();
    client.jetstream(&format!("CONSUMER.CREATE.{SWARMS}.pull"), &body).unwrap();
    let (before, [own, others]) = (strange(&b), stored(&mut client));
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{SWARMS}.pull");
    for kind in ["l", "d"] {
        client.publish(&format!("{next} tg.{NAME}.{kind}.8"), "", b"1").unwrap();
    }
    b.wait_until("the answer", |it| strange(it) > before);
    http_announce(a.http4(), 0xaa, 1002);
    wait_for_counts(&[&b], 0xaa, [0, 0, 2]);
    wait_until_stored(&a);
    assert_eq!(stored(&mut client), [own + 1, others]);
}

/// A paused consumer stands for one at a server that lacks what the others have: it is there, says so each two seconds,
/// and delivers nothing.
#[test]
fn a_consumer_that_delivers_nothing_is_made_anew() {
    let (cluster, [a, b]) = Cluster::with_two_nodes();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&b], 0xaa, [0, 0, 1]);
    let mut client = cluster.nats.client(0).unwrap();
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
