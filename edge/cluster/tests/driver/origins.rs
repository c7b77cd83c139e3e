//! Messages in the name of another node, from a user without the right to publish there, are dropped and counted.

use harness::nats::{Client, Nats};
use serde_json::{Value, json};
use tidegate_cluster::nats::StreamChanges;

use crate::bad_input::{GOOD, block};
use crate::node::{NAME, TestNode, change_stream, make_stream};
use crate::servers;

/// Publishes a block of node 9 to the log, in its name, as the driver does.
fn store(client: &mut Client, id: &str) {
    let headers = format!("{GOOD}Nats-Msg-Id: {id}\r\n");
    client.publish(&format!("tg.{NAME}.d.9"), &headers, &block(9, 0, &[])).unwrap();
    client.flush().unwrap();
}

/// Changes settings of the log, as an operator could by mistake.
fn update<const N: usize>(nats: &Nats, changes: [(&str, Value); N]) {
    let mut client = nats.client(0).unwrap();
    let stream = format!("TG_{NAME}_D");
    let info = client.jetstream(&format!("STREAM.INFO.{stream}"), "").unwrap();
    let mut config = info["config"].clone();
    for (key, value) in changes {
        config[key] = value;
    }
    client.jetstream(&format!("STREAM.UPDATE.{stream}"), &config.to_string()).unwrap();
}

/// Waits until the node names this setting.
fn wait_for_doubt(a: &TestNode, text: &str) {
    a.wait(text, |a| a.overview().failure.is_some_and(|it| it.contains(text)));
}

#[test]
fn what_a_stream_publishes_again_is_dropped() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let target = format!("tg.{NAME}.l.8");
    let republish = json!({ "src": format!("tg.{NAME}.d.9"), "dest": target });
    update(&nats, [("republish", republish)]);
    wait_for_doubt(&a, "republish");
    let mut client = nats.client(0).unwrap();
    client.subscribe(&target).unwrap();
    let before = a.dropped("origin");
    client.publish(&format!("tg.{NAME}.d.9"), GOOD, &block(8, 0, &[])).unwrap();
    let message = client.next_message().unwrap();
    assert!(String::from_utf8_lossy(&message.headers).contains("Nats-Stream"));
    // By the log, since node 9 has no block of node 8; and live.
    a.wait("both", |a| a.dropped("origin") == before + 2);
    // The operator's command undoes it.
    make_stream(&nats, 1);
    a.wait("no failure", |a| a.overview().failure.is_none());
}

#[test]
fn settings_that_harm_are_named_and_undone() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let transform = json!({ "src": format!("tg.{NAME}.d.1"), "dest": format!("tg.{NAME}.d.3") });
    let changes = [
        ("subject_transform", transform),
        ("sources", json!([{ "name": "OTHER" }])),
        ("max_msgs", json!(1)),
        ("allow_rollup_hdrs", json!(true)),
        ("max_msgs_per_subject", json!(1)),
    ];
    let keys = changes.clone().map(|(key, _)| key);
    update(&nats, changes);
    for key in keys {
        wait_for_doubt(&a, key);
    }
    make_stream(&nats, 1);
    a.wait("no failure", |a| a.overview().failure.is_none());
}

/// Two nodes made the stream larger and smaller in turns once.
#[test]
fn nodes_look_for_what_they_need_and_change_nothing() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let config = || {
        let mut client = nats.client(0).unwrap();
        let info = client.jetstream(&format!("STREAM.INFO.TG_{NAME}_D"), "").unwrap();
        ["max_bytes", "max_age"].map(|key| info["config"][key].as_u64().unwrap())
    };
    let smaller = StreamChanges { bytes: Some(32 << 20), ..StreamChanges::default() };
    let refused = change_stream(&nats, smaller, false).unwrap_err();
    assert!(refused.to_string().contains("--shrink"), "{refused}");
    assert_eq!(config()[0], 64 << 20);
    let shorter = StreamChanges { lifetime_s: Some(600), ..smaller };
    change_stream(&nats, shorter, true).unwrap();
    let expected = [32 << 20, 900_000_000_000];
    assert_eq!(config(), expected);
    // Its size is the operator's choice; its age is too short for peers of this node.
    wait_for_doubt(&a, "run `tidegate cluster set lifetime 2700`");
    assert!(!a.overview().failure.unwrap().contains("max_bytes"));
    assert_eq!(config(), expected);
    let longer = StreamChanges { lifetime_s: Some(2700), ..StreamChanges::default() };
    change_stream(&nats, longer, false).unwrap();
    a.wait("no failure", |a| a.overview().failure.is_none());
}

/// JetStream delivers what a consumer asks for to any subject, whatever the rights of the consumer's user are.
#[test]
fn what_a_consumer_delivers_elsewhere_is_dropped() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let mut client = nats.client(0).unwrap();
    let stream = format!("TG_{NAME}_D");
    store(&mut client, "one");
    a.wait("the log", |a| a.overview().node.position.sequence == 1);
    let before = a.dropped("origin");
    // Pushed to where heartbeats and live blocks of another node come.
    for (number, kind) in (1..).zip(["h", "l"]) {
        let config = json!({
            "name": kind, "deliver_subject": format!("tg.{NAME}.{kind}.9"), "ack_policy": "none",
            "deliver_policy": "all",
        });
        let body = json!({ "stream_name": stream, "config": config }).to_string();
        // Wildcards alone do not make a server push.
        client.subscribe(&format!("tg.{NAME}.{kind}.9")).unwrap();
        client.jetstream(&format!("CONSUMER.CREATE.{stream}.{kind}"), &body).unwrap();
        a.wait(kind, |a| a.dropped("origin") == before + number);
        client.jetstream(&format!("CONSUMER.DELETE.{stream}.{kind}"), "").unwrap();
    }
    // Pulled, with an answer to there, and into the stream itself: the old block would be a new one of node 9.
    let config = json!({ "name": "pull", "ack_policy": "none", "deliver_policy": "all" });
    let body = json!({ "stream_name": stream, "config": config }).to_string();
    client.jetstream(&format!("CONSUMER.CREATE.{stream}.pull"), &body).unwrap();
    store(&mut client, "two");
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.pull");
    for kind in ["l", "d"] {
        client.publish(&format!("{next} tg.{NAME}.{kind}.8"), "", b"1").unwrap();
    }
    a.wait("the answer", |a| a.dropped("origin") >= before + 3);
    store(&mut client, "three");
    let info = client.jetstream(&format!("STREAM.INFO.{stream}"), r#"{"subjects_filter":">"}"#);
    let state = &info.unwrap()["state"];
    assert_eq!(state["subjects"], json!({ format!("tg.{NAME}.d.9"): 3 }), "{state}");
}
