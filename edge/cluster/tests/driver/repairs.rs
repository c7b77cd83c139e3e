//! Rows are the same on all nodes, whatever was lost.

use std::sync::Arc;

use harness::nats::Nats;
use tidegate_cluster::nats::{NatsOptions, Order, Status, fetch_rows};

use crate::bad_input::GOOD;
use crate::node::{NAME, TestNode, options, unix_ms};
use crate::rows::{Map, TestRows};
use crate::servers;

fn pair(nats: &Nats) -> [TestNode; 2] {
    [1, 2].map(|node| TestNode::start(node, nats)).map(TestNode::wait_until_warm)
}

/// Waits until both nodes have these rows and counts, and know it.
fn wait_until_equal(a: &TestNode, b: &TestNode, rows: usize) {
    a.wait("equal rows", |a| a.rows.map().len() == rows && *a.rows.map() == *b.rows.map());
    for node in [a, b] {
        node.wait("equal digests", |node| differing(node).is_empty());
    }
}

/// Returns the kinds of rows that differ from the other node's.
fn differing(node: &TestNode) -> Vec<u8> {
    node.overview().node.nodes.iter().flat_map(|it| it.differs.clone()).collect()
}

#[test]
fn changes_are_merged_as_they_come() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = pair(&nats);
    a.rows.put(1, unix_ms());
    b.rows.put(2, unix_ms());
    a.rows.count(7);
    wait_until_equal(&a, &b, 3);
    let [a, b] = [&a, &b].map(|node| node.overview().rows);
    assert_eq!((a.repairs, b.repairs), (0, 0));
    assert!(a.sent >= 1 && a.received == b.sent && b.received == a.sent, "{a:?} {b:?}");
}

#[test]
fn changes_on_both_sides_of_an_outage_are_fetched() {
    let Some(mut nats) = servers(1) else { return };
    let [a, b] = pair(&nats);
    nats.kill(0);
    for node in [&a, &b] {
        node.wait("the loss", |node| node.overview().server.is_none());
    }
    // Several in a range, and several ranges.
    for id in 0..40 {
        a.rows.put(id, unix_ms());
    }
    for id in 30..60 {
        b.rows.put(id, unix_ms());
    }
    [&a, &b, &b].iter().for_each(|node| node.rows.count(7));
    a.wait("unsent changes", |a| a.overview().rows.unsent > 0);
    nats.restart(0).unwrap();
    wait_until_equal(&a, &b, 62);
    assert_eq!(a.rows.counted(7), 3);
    assert!(a.overview().rows.repairs > 0);
}

#[test]
fn rows_that_came_with_another_secret_are_fetched() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    let strange = NatsOptions { secret_ids: vec![[9; 4]].into(), ..options(2, nats.urls("nats")) };
    let b = TestNode::start_with(strange).wait_until_warm();
    a.rows.put(1, unix_ms());
    b.rows.put(2, unix_ms());
    b.wait("dropped changes", |b| b.dropped("secret") > 0);
    let rows = Arc::clone(&b.rows);
    b.end();
    let map = rows.map().clone();
    let b = TestNode::start_with_rows(options(2, nats.urls("nats")), TestRows::new(2, map));
    wait_until_equal(&a, &b, 2);
}

#[test]
fn a_node_has_the_rows_of_the_others_before_it_serves() {
    let Some(nats) = servers(1) else { return };
    let a = TestNode::start(1, &nats).wait_until_warm();
    for id in 0..100 {
        a.rows.put(id, unix_ms());
    }
    let fetch = |node| {
        let rows = TestRows::new(node, Map::new());
        let (status, _) = Status::new();
        let fetched = fetch_rows(&options(node, nats.urls("nats")), &status, &rows);
        (fetched.map_err(|error| error.to_string()), rows.map().len())
    };
    // Its heartbeats have the digests.
    a.wait("the changes", |a| a.overview().rows.sent > 0);
    assert_eq!(fetch(2), (Ok(Some(1)), 100));
    a.end();
    assert_eq!(fetch(2), (Ok(None), 0));
}

#[test]
fn a_node_that_is_ignored_sees_that_rows_differ() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = pair(&nats);
    a.rows.put(1, unix_ms());
    wait_until_equal(&a, &b, 1);
    a.status.order(Order { node: 2, is_ignored: true });
    b.rows.put(2, unix_ms());
    b.rows.count(3);
    b.wait("the difference", |b| differing(b) == [0, 1]);
    b.wait("a question without an answer", |b| b.overview().rows.failed_repairs > 0);
    assert_eq!(a.rows.map().len(), 1);
    a.status.order(Order { node: 2, is_ignored: false });
    wait_until_equal(&a, &b, 3);
}

#[test]
fn nonsense_changes_no_rows() {
    let Some(nats) = servers(1) else { return };
    let [a, b] = pair(&nats);
    let mut client = nats.client(0).unwrap();
    let subject = |kind: &str| format!("tg.{NAME}.{kind}.9");
    client.publish(&subject("r"), "", &[0; 14]).unwrap();
    client.publish(&subject("r"), GOOD, &vec![1; 300 << 10]).unwrap();
    let answer = format!("tg.{NAME}.i.9.x");
    client.subscribe(&answer).unwrap();
    for question in [&[][..], &[1, 0], &[1, 0, 9, 0], &[0, 200], &[9, 9, 9]] {
        client.publish(&format!("tg.{NAME}.q.1.9 {answer}"), GOOD, question).unwrap();
        let refused = client.next_message().unwrap().payload;
        assert_eq!(refused, if question == [0, 200] { [0, 0, 0] } else { [2, 0, 0] });
    }
    // An answer goes only to the node that asked.
    client.publish(&format!("tg.{NAME}.q.1.9 tg.{NAME}.i.2.x"), GOOD, &[0, 0]).unwrap();
    a.wait("drops", |a| a.dropped("foreign") + a.dropped("damaged") + a.dropped("origin") >= 3);
    a.rows.put(1, unix_ms());
    wait_until_equal(&a, &b, 1);
}
