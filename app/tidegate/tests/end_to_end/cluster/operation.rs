//! Operations on a cluster that serves: remove nodes, change the secret, drain, restore, and replace servers.

use std::fs;
use std::process::Stdio;

use harness::nats::{Client, Operator};
use harness::{PATIENCE, wait_for};
use serde_json::json;

use super::{Cluster, is_connected, start, view, wait_for_counts, wait_until_joined};
use crate::api::{Caller, TOKEN};
use crate::clients::{Udp, http_announce};
use crate::process::{Tracker, stderr, stdout, tidegate};

impl Cluster {
    /// Runs a command of the operator that uses the API of a node. Returns what it prints.
    fn operate(&self, command: &str, node: &Tracker) -> String {
        self.operator.run_by_api(command, node.admin_address(), TOKEN).unwrap()
    }
}

#[test]
fn a_removed_node_is_disconnected_and_ignored_until_it_is_invited_again() {
    let mut cluster = Cluster::start(1);
    let [a, b, c] = [1, 2, 3].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b, &c]);
    let old = Operator::user_of(&cluster.operator.folder().join("node-3.join")).unwrap();
    let said = cluster.operate("remove 3", &a);
    assert!(said.contains("removed node 3: the NATS servers n1 have disconnected it"), "{said}");
    c.wait_until("the end of its connection", |it| !is_connected(it));
    c.wait_for_log("this node was removed, or its join file is damaged");
    for node in [&a, &b] {
        node.wait_until("no problem", |it| {
            let cluster = view(it);
            let nodes = cluster["nodes"].as_array().unwrap();
            let is_ignored = nodes.iter().any(|it| it["node"] == 3 && it["ignored"] == true);
            is_ignored && cluster["problems"] == json!([])
        });
    }
    // It serves its own clients, and those of others do not see them.
    http_announce(c.http4(), 0xaa, 1001);
    http_announce(a.http4(), 0xaa, 1002);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    // Servers know it after a restart, and a repetition changes nothing.
    cluster.nats.stop(0).unwrap();
    cluster.nats.restart(0).unwrap();
    cluster.nats.wait_until_ready().unwrap();
    wait_until_joined(&[&a, &b]);
    assert!(Client::connect(cluster.nats.address(0), &old).is_err());
    cluster.operate("remove 3", &a);
    drop(c);
    let said = cluster.operator.run("invite 3").unwrap();
    assert!(said.contains("the others ignore it until `tidegate cluster heed 3`"), "{said}");
    let c = start(&cluster.operator.folder().join("node-3.join"), "warm_wait_s = 0\n");
    c.wait_until("a connection", is_connected);
    Caller::of(&b).expect(204, "POST /cluster/nodes/3/heed", None);
    wait_until_joined(&[&a, &b, &c]);
    let unknown = cluster.operator.run_by_api("remove 9", a.admin_address(), TOKEN).unwrap_err();
    assert!(unknown.to_string().contains("node 9 was not invited"), "{unknown}");
}

#[test]
fn the_secret_changes_while_nodes_serve() {
    let cluster = Cluster::start(1);
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b]);
    let client = Udp::connect(a.udp4());
    client.announce(0xaa, 1001);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 1]);
    // Invited before the change, and started after it.
    let late = cluster.invite(4);
    let said = cluster.operate("rotate-secret", &a);
    assert!(said.contains("the secret has the number 2 now"), "{said}");
    let number = |node: &Tracker| view(node)["secret_number"].as_u64().unwrap();
    b.wait_until("the new secret", |it| number(it) == 2);
    assert_eq!(number(&a), 2);
    // Connection ids of the old secret are good at both nodes, and those of the new one.
    for (node, id, port) in [
        (&a, client.id, 1002),
        (&b, client.id, 1003),
        (&a, Udp::connect(b.udp4()).id, 1004),
        (&b, Udp::connect(a.udp4()).id, 1005),
    ] {
        let mut moved = Udp::unconnected(1, node.udp4());
        moved.id = id;
        moved.announce(0xaa, port);
    }
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 5]);
    // A node with the new secret in its file, and one with the old secret, know what came before, and the new secret.
    let [c, d] = [cluster.node(3), start(&late, "")];
    wait_until_joined(&[&a, &b, &c, &d]);
    for node in [&c, &d] {
        wait_for_counts(&[node], 0xaa, [0, 0, 5]);
        assert_eq!(number(node), 2, "{}", node.log());
    }
    // It is no setting.
    let settings = Caller::of(&b).expect(200, "GET /config", None).to_string();
    assert!(!settings.contains("secrets of the cluster"), "{settings}");
    assert!(cluster.operate("rotate-secret", &d).contains("the number 3 now"));
    a.wait_until("the third secret", |it| number(it) == 3);
    assert!(view(&a)["traffic"]["drops"].get("secret").is_none(), "{}", view(&a));
}

#[test]
fn a_secret_that_the_folder_did_not_make_is_refused() {
    let cluster = Cluster::start(1);
    let a = cluster.node(1);
    let caller = Caller::of(&a);
    let step = |number: u32, secret: &str, issue: bool| json!({ "number": number, "secret": secret.repeat(32), "issue": issue });
    for (bad, status) in [
        (step(1, "5e", false), 409),
        (step(0, "5e", true), 409),
        (step(2, "5", false), 409),
        (json!({ "number": 2, "secret": "x" }), 400),
    ] {
        caller.expect(status, "PUT /cluster/secret", Some(&bad));
    }
    // Another copy of the folder has changed the secret.
    caller.expect(204, "PUT /cluster/secret", Some(&step(2, "5e", true)));
    a.wait_until("the other secret", |it| view(it)["secret_number"] == 2);
    let refused = cluster.operator.run_by_api("rotate-secret", a.admin_address(), TOKEN);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("use the operator's folder that made it"), "{refused}");
    // The folder has what it had: join files that are made now have the first secret.
    let join = fs::read_to_string(cluster.invite(2)).unwrap();
    assert!(join.contains("secret_number = 1"), "{join}");
}

#[test]
fn a_node_is_drained_before_it_stops() {
    let (_cluster, [mut a, b]) = Cluster::with_two_nodes();
    http_announce(a.http4(), 0xaa, 1001);
    assert_eq!(a.admin("/health/ready").0, 200);
    let url = format!("http://{}", a.admin_address());
    let mut drain = tidegate(&["cluster", "drain", "--for", "60", "--url", &url]);
    drain.env("TIDEGATE_ADMIN_TOKEN", TOKEN).stdout(Stdio::piped()).stderr(Stdio::piped());
    let draining = drain.spawn().unwrap();
    a.wait_until("the end of readiness", |it| it.admin("/health/ready").0 == 503);
    // Those who do not heed that are served.
    http_announce(a.http4(), 0xaa, 1002);
    assert_eq!(a.admin("/health/live").0, 200);
    let output = draining.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.contains("node 1 is not ready any more") && said.ends_with("node 1 has stopped\n"),
        "{said}"
    );
    assert_eq!(a.wait_for_end().code(), Some(0), "{}", a.log());
    // It has said good-bye, and its clients' peers stay.
    b.wait_until("one node", |it| view(it)["nodes"][0]["state"] == "left");
    assert_eq!(view(&b)["problems"], json!([]));
    wait_for_counts(&[&b], 0xaa, [0, 0, 2]);
}

/// Waits until the stream has as many current copies as it should.
fn wait_for_copies(node: &Tracker, copies: u64) {
    node.wait_until("copies of the stream", |it| {
        let stream = view(it)["streams"][0].clone();
        stream["replicas"] == copies && stream["replicas_current"] == copies
    });
}

#[test]
fn a_lost_nats_machine_is_replaced_by_one_with_its_folder() {
    let mut cluster = Cluster::start(3);
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b]);
    let removed = Operator::user_of(&cluster.invite(3)).unwrap();
    cluster.operate("remove 3", &a);
    http_announce(a.http4(), 0xaa, 1001);
    a.wait_until("stored", |it| it.metric("tidegate_cluster_unstored_blocks") == 0.0);
    // The machine, with all that it had.
    cluster.nats.kill(2);
    fs::remove_dir_all(cluster.nats.folder().join("n3")).unwrap();
    http_announce(b.http4(), 0xaa, 1002);
    // A new one, with the folder server-3 as `init` made it.
    cluster.nats.restart(2).unwrap();
    cluster.nats.wait_until_ready().unwrap();
    wait_for_copies(&a, 3);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 2]);
    // It learns from the others which users are removed.
    let server = cluster.nats.address(2);
    let is_refused = || Ok(Client::connect(server, &removed).is_err());
    wait_for(PATIENCE, "the removed user to be refused", is_refused).unwrap();
}

#[test]
fn replicas_are_raised_while_nodes_serve() {
    let mut cluster = Cluster::start(3);
    cluster.operator.run("set replicas 1 --shrink").unwrap();
    let [a, b] = [1, 2].map(|number| cluster.node(number));
    wait_until_joined(&[&a, &b]);
    wait_for_copies(&a, 1);
    http_announce(a.http4(), 0xaa, 1001);
    let said = cluster.operator.run("set replicas 3").unwrap();
    assert!(said.contains("replicas  3\n"), "{said}");
    wait_for_copies(&a, 3);
    let stream = cluster.superuser().jetstream(&format!("STREAM.INFO.{}", super::SWARMS), "");
    let leader = stream.unwrap()["cluster"]["leader"].clone();
    let leader = (0..3).find(|server| leader == format!("n{}", server + 1)).unwrap();
    cluster.nats.kill(leader);
    http_announce(b.http4(), 0xaa, 1002);
    wait_for_counts(&[&a, &b], 0xaa, [0, 0, 2]);
    b.wait_until("stored", |it| it.metric("tidegate_cluster_unstored_blocks") == 0.0);
    let c = cluster.node(3);
    assert_eq!(Udp::connect(c.udp4()).scrape(0xaa), [0, 0, 2], "{}", c.log());
}
