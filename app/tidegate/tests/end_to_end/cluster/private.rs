//! Users' keys at several nodes: each transfer is counted once, and quotas hold everywhere.

use serde_json::{Value, json};

use super::{Cluster, wait_until_joined};
use crate::api::Caller;
use crate::clients::{has, http, http_announce, own_query};
use crate::process::Tracker;

const MORE: &str = "[state]\nflush_s = 1\n[access]\nprivate = true\n";
/// The torrents that [`Site::exchange`] announces.
const MARKERS: u8 = 100;

/// Nodes of a private tracker, and a key.
struct Site {
    nodes: [Tracker; 2],
    apis: [Caller; 2],
    key: Value,
    markers: u8,
    /// Keeps the servers.
    _cluster: Cluster,
}

impl Site {
    fn start() -> Self {
        let cluster = Cluster::start(1);
        let nodes = [1, 2].map(|number| {
            let node = cluster.node_with(number, MORE);
            let api = Caller::of(&node);
            (node, api)
        });
        let [(a, api_a), (b, api_b)] = nodes;
        wait_until_joined(&[&a, &b]);
        let key = api_a.expect(201, "POST /keys", Some(&json!({})));
        let get = format!("GET /keys/{}", key["id"]);
        b.wait_until("the key", |_| api_b.ask(&get, None).0 == 200);
        Self { nodes: [a, b], apis: [api_a, api_b], key, markers: MARKERS, _cluster: cluster }
    }

    /// Announces a peer at a node. Returns whether it is served.
    fn announce(&self, node: usize, torrent: u8, port: u16, rest: &str) -> bool {
        let key = self.key["key"].as_str().unwrap();
        let query = own_query(torrent, port, &format!("left=9&{rest}"));
        let (status, body) = http(self.nodes[node].http4(), &format!("/{key}/announce?{query}"));
        assert_eq!(status, 200);
        has(&body, "8:complete")
    }

    /// Waits until the other node knows what was announced at `node`: a session that came later is there.
    fn exchange(&mut self, node: usize) {
        let other = &self.nodes[1 - node];
        let before = sessions(other);
        self.markers += 1;
        assert!(self.announce(node, self.markers, 7, "event=started"));
        other.wait_until("sessions", |it| sessions(it) > before);
    }

    fn totals(&self, node: usize) -> [u64; 2] {
        let key = self.apis[node].expect(200, &format!("GET /keys/{}", self.key["id"]), None);
        ["uploaded", "downloaded"].map(|name| key["totals"][name].as_u64().unwrap())
    }
}

fn sessions(node: &Tracker) -> f64 {
    node.metric("tidegate_key_sessions")
}

#[test]
fn a_client_that_changes_nodes_is_counted_to_the_byte() {
    let mut site = Site::start();
    assert!(site.announce(0, 1, 1001, "uploaded=0&downloaded=0&event=started"));
    site.exchange(0);
    let mut bytes = [0_u64; 2];
    for step in 0..8 {
        let node = [1, 0, 0, 1, 1, 0, 1, 0][step];
        bytes = [bytes[0] + 1_000_003 * (step as u64 + 1), bytes[1] + 777];
        let [uploaded, downloaded] = bytes;
        let report = format!("uploaded={uploaded}&downloaded={downloaded}");
        assert!(site.announce(node, 1, 1001, &report));
        site.exchange(node);
    }
    let before = site.nodes.each_ref().map(sessions);
    let [uploaded, downloaded] = [bytes[0] + 5, bytes[1]];
    let last = format!("uploaded={uploaded}&downloaded={downloaded}&event=stopped");
    assert!(site.announce(1, 1, 1001, &last));
    for (node, before) in before.into_iter().enumerate() {
        let expected = [uploaded, downloaded];
        site.nodes[node].wait_until("totals", |_| site.totals(node) == expected);
        // Totals come by the records, and the end of its session by the log.
        site.nodes[node].wait_until("the end of its session", |it| sessions(it) < before);
    }
    // Traffic that was counted is not counted again.
    site.exchange(0);
    site.exchange(1);
    assert_eq!([site.totals(0), site.totals(1)], [[uploaded, downloaded]; 2]);
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
