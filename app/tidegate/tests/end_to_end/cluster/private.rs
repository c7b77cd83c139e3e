//! Users' keys at several nodes: each transfer is counted once, and quotas hold everywhere.

use serde_json::json;

use super::{Cluster, wait_until_joined};
use crate::api::Caller;
use crate::clients::{has, http, http_announce, own_query};
use crate::process::Tracker;

const MORE: &str = "[state]\nflush_s = 1\n[access]\nprivate = true\n";
fn sessions(node: &Tracker) -> f64 {
    node.metric("tidegate_key_sessions")
}

#[test]
fn a_client_that_changes_nodes_is_counted_to_the_byte() {
    let cluster = Cluster::start(1);
    let nodes = [1, 2].map(|number| cluster.node_with(number, MORE));
    wait_until_joined(&nodes.each_ref());
    let apis = nodes.each_ref().map(Caller::of);
    let key = apis[0].expect(201, "POST /keys", Some(&json!({})));
    let get = format!("GET /keys/{}", key["id"]);
    nodes[1].wait_until("the key", |_| apis[1].ask(&get, None).0 == 200);
    let announce = |node: usize, torrent: u8, rest: &str| {
        let query = own_query(torrent, 1001, &format!("left=9&{rest}"));
        let target = format!("/{}/announce?{query}", key["key"].as_str().unwrap());
        let body = http(nodes[node].http4(), &target).1;
        assert!(has(&body, "8:complete"), "{}", body.escape_ascii());
    };
    announce(0, 1, "uploaded=0&downloaded=0&event=started");
    let mut bytes = [0_u64; 2];
    for (torrent, node) in (100..).zip([1, 0, 0, 1, 1, 0, 1, 0]) {
        // A session that came later is at the other node: then it knows those before, too.
        let other = &nodes[node];
        let before = sessions(other);
        announce(1 - node, torrent, "event=started");
        other.wait_until("the session", |it| sessions(it) > before);
        bytes = [bytes[0] + 1_000_003, bytes[1] + 777];
        announce(node, 1, &format!("uploaded={}&downloaded={}", bytes[0], bytes[1]));
    }
    for (node, api) in nodes.iter().zip(&apis) {
        node.wait_until("totals", |_| {
            let totals = api.expect(200, &get, None)["totals"].clone();
            ["uploaded", "downloaded"].map(|name| totals[name].as_u64().unwrap()) == bytes
        });
    }
}

#[test]
fn a_private_node_and_an_open_one_refuse_each_other() {
    let cluster = Cluster::start(1);
    let (open, private) = (cluster.node(1), cluster.node_with(2, MORE));
    for (node, other) in [(&open, 2), (&private, 1)] {
        node.wait_for_log(&format!("node {other} is refused"));
        let api = Caller::of(node);
        node.wait_until("the problem", |_| {
            let problems = &api.expect(200, "GET /cluster", None)["problems"];
            let problem = problems.as_array().unwrap().iter().find(|it| it["kind"] == "access");
            problem.is_some_and(|it| {
                let text = it["text"].as_str().unwrap();
                it["node"] == other && text.contains("Use one cluster for each kind")
            })
        });
    }
    let api = Caller::of(&private);
    let key = api.expect(201, "POST /keys", Some(&json!({})));
    let announce = |port| {
        let key = key["key"].as_str().unwrap();
        let query = own_query(0xaa, port, "left=9");
        http(private.http4(), &format!("/{key}/announce?{query}")).1
    };
    announce(1001);
    assert!(has(&announce(1002), "10:incompletei2e"));
    let dropped = |it: &Tracker| it.metric("tidegate_cluster_drops_total{reason=\"access\"}");
    let before = dropped(&open);
    open.wait_until("more that is dropped", |it| dropped(it) > before + 2.0);
    assert!(has(&http_announce(open.http4(), 0xaa, 1003), "10:incompletei1e"));
    // A node keeps the kind of its listeners until a restart.
    let api = Caller::of(&open);
    let (status, body) = api.ask("PATCH /config", Some(&json!({ "access.private": true })));
    assert!(status == 409 && body.to_string().contains("restart this node"), "{status} {body}");
}
