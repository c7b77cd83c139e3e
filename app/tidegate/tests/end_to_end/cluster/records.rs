//! What the API of one node changes holds at all nodes.

use harness::wait_until;
use serde_json::{Value, json};

use super::{Cluster, wait_for_counts, wait_until_joined};
use crate::api::Caller;
use crate::clients::http_announce;

/// Waits until a GET returns a body like this.
fn wait_for(caller: &Caller, path: &str, is_so: impl Fn(&Value) -> bool) {
    wait_until(path, || {
        let (status, body) = caller.ask(&format!("GET {path}"), None);
        status == 200 && is_so(&body)
    });
}

fn hash(byte: u8) -> String {
    format!("{byte:02x}").repeat(20)
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
    let token = json!({ "name": "reader", "scopes": ["lists:read"] });
    let token = a.expect(201, "POST /tokens", Some(&token));
    for caller in [&a, &b, &c] {
        wait_for(caller, "/lists/deny", |it| it["entries"][0] == hash(0xaa));
        wait_for(caller, "/bans", |it| it["bans"][0]["network"] == "192.0.2.0/24");
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
    for caller in [&a, &b, &c] {
        wait_for(caller, "/lists/deny", |it| it["total"] == 0);
        wait_for(caller, "/bans", |it| it["total"] == 0);
        wait_for(caller, &format!("/keys/{id}"), |it| it["name"] == "two");
        // The token of the environment stays.
        wait_for(caller, "/tokens", |it| it["tokens"].as_array().unwrap().len() == 1);
    }
}

#[test]
fn a_torrent_that_is_removed_is_gone_at_all_nodes() {
    let cluster = Cluster::start(1);
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b]);
    http_announce(a.http4(), 0xaa, 1001);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    Caller::of(&b).expect(204, &format!("DELETE /torrents/{}", hash(0xaa)), None);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 0]);
}

#[test]
fn changes_are_made_while_nats_is_away_and_come_later() {
    let mut cluster = Cluster::start(1);
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b]);
    let [a, b] = [&a, &b].map(Caller::of);
    a.expect(204, &format!("PUT /lists/deny/{}", hash(1)), None);
    wait_for(&b, "/lists/deny", |it| it["total"] == 1);
    cluster.nats.kill(0);
    // Concurrent changes of the same entry, and others.
    a.expect(204, &format!("DELETE /lists/deny/{}", hash(1)), None);
    a.expect(204, &format!("PUT /lists/deny/{}", hash(2)), None);
    b.expect(204, &format!("PUT /lists/deny/{}", hash(3)), None);
    cluster.nats.restart(0).unwrap();
    for caller in [&a, &b] {
        wait_for(caller, "/lists/deny", |it| it["entries"] == json!([hash(2), hash(3)]));
    }
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
    wait_until_joined(&[&a, &b]);
    let other = Caller::of(&b);
    wait_for(&other, "/lists/allow", |it| it["total"] == 30_000);
    wait_for(&other, "/keys", |it| it["keys"][0]["name"] == "of a");
    other.expect(204, &format!("DELETE /lists/allow/{}", all[7]), None);
    wait_for(&caller, "/lists/allow", |it| it["total"] == 29_999);
}
