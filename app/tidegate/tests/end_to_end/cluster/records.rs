//! Changes made through the API of one node hold at all nodes.

use harness::wait_until;
use serde_json::{Value, json};

use super::{Cluster, wait_for_counts, wait_until_joined};
use crate::api::{Caller, TOKEN, hash};
use crate::clients::http_announce;
use crate::process::{Tracker, stderr, stdout, tidegate};

/// Waits until a GET returns a body like this.
fn wait_for(caller: &Caller, path: &str, is_so: impl Fn(&Value) -> bool) {
    wait_until(path, || {
        let (status, body) = caller.ask(&format!("GET {path}"), None);
        status == 200 && is_so(&body)
    });
}

#[test]
fn changes_at_one_node_hold_at_all() {
    let cluster = Cluster::start(1);
    let nodes = [1, 2, 3].map(|number| cluster.node(number));
    wait_until_joined(&nodes.each_ref());
    let [a, b, c] = nodes.each_ref().map(Caller::of);
    a.expect(204, &format!("PUT /lists/deny/{}", hash(0xaa)), None);
    b.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.0/24", "reason": "test" })));
    let key = c.expect(201, "POST /keys", Some(&json!({ "name": "one" })));
    let id = key["id"].as_u64().unwrap();
    assert_eq!(id % 256, 3, "{key}");
    b.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": 901 })));
    c.expect(204, &format!("PUT /torrents/{}/freeze", hash(0xbb)), None);
    let refused = format!("/torrents/{}/access", hash(0xcc));
    c.expect(204, &format!("PUT {refused}"), Some(&json!({ "reason": "Dupe" })));
    let token = json!({ "name": "reader", "scopes": ["lists:read"] });
    let token = a.expect(201, "POST /tokens", Some(&token));
    for caller in [&a, &b, &c] {
        wait_for(caller, "/lists/deny", |it| it["entries"][0] == hash(0xaa));
        wait_for(caller, "/bans", |it| it["bans"][0]["network"] == "192.0.2.0/24");
        wait_for(caller, &refused, |it| it["access"][0]["reason"] == "Dupe");
        wait_for(caller, &format!("/keys/{id}"), |it| it["name"] == "one");
        wait_for(caller, "/config", |it| {
            let settings = it["settings"].as_array().unwrap();
            settings.iter().any(|it| it["name"] == "tracker.interval_s" && it["value"] == 901)
        });
        let secret = token["secret"].as_str().unwrap().to_owned();
        wait_for(&Caller { token: secret, ..caller.clone() }, "/lists/deny", |_| true);
    }
    // Removed elsewhere than it was made.
    b.expect(204, &format!("DELETE /lists/deny/{}", hash(0xaa)), None);
    c.expect(204, "DELETE /bans/192.0.2.0/24", None);
    a.expect(200, &format!("PATCH /keys/{id}"), Some(&json!({ "name": "two" })));
    b.expect(204, &format!("DELETE /tokens/{}", token["id"]), None);
    a.expect(204, &format!("DELETE {refused}"), None);
    for caller in [&a, &b, &c] {
        wait_for(caller, "/lists/deny", |it| it["total"] == 0);
        wait_for(caller, "/bans", |it| it["total"] == 0);
        wait_for(caller, &refused, |it| it["access"][0]["state"] == "served");
        wait_for(caller, &format!("/keys/{id}"), |it| it["name"] == "two");
        // The token of the environment stays.
        wait_for(caller, "/tokens", |it| it["tokens"].as_array().unwrap().len() == 1);
    }
}

#[test]
fn a_torrent_that_is_removed_is_gone_at_all_nodes() {
    let (_cluster, [a, b]) = Cluster::with_two_nodes();
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    Caller::of(&b).expect(204, &format!("DELETE /torrents/{}", hash(0xaa)), None);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 0]);
}

#[test]
fn a_node_that_joins_gets_all_records_and_brings_its_own() {
    let cluster = Cluster::start(1);
    let a = cluster.node(1);
    let caller = Caller::of(&a);
    let all: Vec<_> = (0..30_000_u32).map(|number| format!("{number:040x}")).collect();
    caller.expect(200, "POST /lists/allow", Some(&json!(all)));
    caller.expect(201, "POST /keys", Some(&json!({ "name": "of a" })));
    let b = cluster.node(2);
    let other = Caller::of(&b);
    // It has them before it serves.
    assert_eq!(other.expect(200, "GET /lists/allow", None)["total"], 30_000);
    assert_eq!(other.expect(200, "GET /keys", None)["keys"][0]["name"], "of a");
    wait_until_joined(&[&a, &b]);
    other.expect(204, &format!("DELETE /lists/allow/{}", all[7]), None);
    wait_for(&caller, "/lists/allow", |it| it["total"] == 29_999);
}

/// Runs `tidegate cluster verify` at a node. Returns its output, and true if all records are equal.
fn verify(node: &Tracker) -> (String, bool) {
    let url = format!("http://{}", node.admin_address());
    let mut command = tidegate(&["cluster", "verify", "--url", &url]);
    let output = command.env("TIDEGATE_ADMIN_TOKEN", TOKEN).output().unwrap();
    (stdout(&output) + &stderr(&output), output.status.success())
}

fn assert_equal(node: &Tracker) {
    let (text, are_equal) = verify(node);
    assert!(are_equal && text.ends_with("equal\n"), "{text}");
}

fn ban(caller: &Caller, network: &str) {
    caller.expect(201, "POST /bans", Some(&json!({ "network": network, "reason": "test" })));
}

#[test]
fn verify_says_what_differs() {
    let (_cluster, [a, b]) = Cluster::with_two_nodes();
    let [one, two] = [&a, &b].map(Caller::of);
    ban(&one, "192.0.2.0/24");
    assert_equal(&a);
    assert_equal(&b);
    // Node 1 drops what node 2 sends, and node 2 sees it.
    one.expect(204, "POST /cluster/nodes/2/ignore", None);
    wait_for(&one, "/cluster", |it| it["nodes"].to_string().contains("\"ignored\":true"));
    ban(&two, "198.51.100.0/24");
    let (text, are_equal) = verify(&b);
    assert!(!are_equal && text.contains("node 1: differs: bans\nnot equal\n"), "{text}");
    let (text, are_equal) = verify(&a);
    assert!(!are_equal && text.contains("node 2: not compared: it is ignored"), "{text}");
    one.expect(204, "POST /cluster/nodes/2/heed", None);
    wait_for(&one, "/bans", |it| it["total"] == 2);
    assert_equal(&a);
}
