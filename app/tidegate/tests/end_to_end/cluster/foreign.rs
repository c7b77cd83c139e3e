//! Nodes and messages that do not belong to the cluster.

use std::time::{SystemTime, UNIX_EPOCH};

use harness::nats::Message;
use replication::block::{self, Header, Kind};

use super::{Cluster, NAME, alive, wait_for_counts};
use crate::clients::http_announce;
use crate::process::Tracker;

fn drops(node: &Tracker, reason: &str) -> f64 {
    node.sum("tidegate_cluster_drops_total", &[("reason", reason)])
}

/// The lines of a message's headers, without its id: the log stores each id once.
fn headers(message: &Message) -> String {
    let text = String::from_utf8(message.headers.clone()).unwrap();
    let lines = text.strip_prefix("NATS/1.0\r\n").unwrap().strip_suffix("\r\n").unwrap();
    lines.split_inclusive("\r\n").filter(|line| !line.starts_with("Nats-Msg-Id")).collect()
}

/// Returns a block of node 9 of a kind that only a later version knows.
fn later_block() -> Vec<u8> {
    let cut_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let kind = Kind(200);
    let header = Header { kind, has_ids: false, node: 9, boot: cut_ms << 8, number: 1, cut_ms };
    let mut bytes = Vec::new();
    block::write(&header, &[1, 2, 3], &mut bytes);
    bytes
}

#[test]
fn foreign_messages_are_counted_and_dropped() {
    let (cluster, [a, b]) = Cluster::with_two_nodes();
    let mut client = cluster.nats.client(0).unwrap();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    client.subscribe(&format!("tg.{NAME}.d.1")).unwrap();
    http_announce(a.http4(), 0xaa, 1002);
    let block = client.next_message().unwrap();
    let good = headers(&block);
    let bad = good.replace(|digit: char| digit.is_ascii_digit(), "f");
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 2]);
    let reasons = ["foreign", "secret", "origin", "damaged", "kind"];
    let before = reasons.map(|reason| drops(&b, reason));
    let later = later_block();
    for kind in ["l", "d", "h", "r", "w.2", "q.2"] {
        let subject = |node: &str| format!("tg.{NAME}.{kind}.{node}");
        let len = block.payload.len();
        let huge = vec![0xff; 1_000_000];
        for (subject, headers, payload) in [
            (subject("1"), "", &block.payload[..]),
            (subject("1"), "Tidegate:\r\n", b""),
            (subject("1"), &bad, &block.payload),
            (subject("3"), &good, &block.payload),
            (subject("0"), &good, &block.payload),
            (subject("256"), &good, &block.payload),
            (subject("x"), &good, &block.payload),
            (subject("1"), &good, &block.payload[..len - 1]),
            (subject("1"), &good, &huge),
            (subject("1"), &good, b"{"),
            (subject("1"), &good, b""),
            (subject("9"), &good, &later),
            // Again, as it was.
            (subject("1"), &good, &block.payload),
        ] {
            client.publish(&subject, headers, payload).unwrap();
        }
    }
    client.flush().unwrap();
    for (reason, before) in reasons.into_iter().zip(before) {
        b.wait_until(reason, |it| drops(it, reason) > before);
    }
    http_announce(a.http4(), 0xaa, 1003);
    http_announce(b.http4(), 0xaa, 1004);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 4]);
    for node in [&a, &b] {
        assert_eq!(alive(node), 2.0);
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
    // A node that starts reads what is in the log of it.
    let c = cluster.node(3);
    wait_for_counts(&[&c], 0xaa, [0, 0, 4]);
}
