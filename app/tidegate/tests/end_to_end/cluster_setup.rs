//! `tidegate cluster secret`, `tidegate cluster nats-config`, `tidegate cluster streams`, and what `config check` says of a cluster: with
//! real NATS servers.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::nats::{self, Client, Nats};
use serde_json::Value;

use crate::api::{Caller, TOKEN};
use crate::cluster::wait_until_joined;
use crate::process::{Directory, Tracker, run, stderr, stdout, tidegate};

/// Starts a NATS server with this configuration, or returns `None` where there is none.
fn nats(configuration: &str) -> Option<Nats> {
    if let Some(obstacle) = nats::obstacle() {
        eprintln!("skipped {obstacle}");
        return None;
    }
    Some(Nats::start_with(1, configuration).unwrap())
}

/// Runs a command that must succeed. Returns what it prints.
fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Writes the configuration of a node. `more` are further lines of `[cluster]`.
fn node(directory: &Directory, node: u8, url: &str, more: &str) -> String {
    let secret = directory.path("secret");
    if !secret.exists() {
        succeed(&["cluster", "secret", "--out", secret.to_str().unwrap()]);
    }
    let text = format!(
        "[udp]\nlisten = []\n[http]\nlisten = []\n[admin]\nlisten = []\n[cluster]\nname = \"c\"\nnode = \
         {node}\nservers = [\"{url}\"]\nsecret = [\"{}\"]\nreplicas = 1\nstream_mib = 64\n{more}\n",
        secret.display()
    );
    directory.write(&format!("node-{node}.toml"), &text).to_str().unwrap().to_owned()
}

/// Returns what `config check` says, and whether the configuration is valid.
fn check(file: &str) -> (String, bool) {
    let output = tidegate(&["config", "check", "--config", file]).output().unwrap();
    (stderr(&output), output.status.success())
}

#[test]
fn secrets_are_new_and_private() {
    let directory = Directory::new();
    let [one, two] = [(); 2].map(|()| succeed(&["cluster", "secret"]));
    assert!(one != two && one.trim().len() == 64, "{one}{two}");
    let path = directory.path("secret");
    let arguments = ["cluster", "secret", "--out", path.to_str().unwrap()];
    assert_eq!(succeed(&arguments), "");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&path).unwrap().trim().len(), 64);
    // A secret in use is not replaced.
    assert!(!run(&arguments).status.success());
}

/// Returns what `tidegate cluster nats-config` prints of users, whose keys it makes in `directory`.
fn users(directory: &Directory, nodes: &str) -> String {
    let keys = directory.path("");
    let keys = keys.to_str().unwrap();
    let layout = ["--name", "c", "--nodes", nodes, "--servers", "1", "--keys", keys];
    let printed = succeed(&[&["cluster", "nats-config"], &layout[..]].concat());
    printed[printed.find("authorization {").unwrap()..].to_owned()
}

/// Returns the line of `[cluster]` with the key of a user.
fn key(directory: &Directory, user: &str) -> String {
    format!("nkey = {:?}", directory.path(&format!("{user}.nk")))
}

/// Makes the streams by the configuration `file`, as the operator if there is a key.
fn make_streams(directory: &Directory, file: &str) -> (String, bool) {
    let nkey = directory.path("operator.nk");
    let mut arguments = vec!["cluster", "streams", "--config", file];
    if nkey.exists() {
        arguments.extend(["--nkey", nkey.to_str().unwrap()]);
    }
    let output = run(&arguments);
    (stdout(&output) + &stderr(&output), output.status.success())
}

#[test]
fn users_of_the_printed_configuration_speak_only_as_themselves() {
    let directory = Directory::new();
    let Some(server) = nats(&users(&directory, "2")) else { return };
    let url = server.urls("nats").remove(0);
    let file = |number: u8, user: &str| node(&directory, number, &url, &key(&directory, user));
    let (said, is_valid) = check(&file(1, "node-1"));
    assert!(!is_valid && said.contains("the stream TG_c_D does not exist: run"), "{said}");
    // A node may not make the streams, and the operator does it once.
    let output = run(&["cluster", "streams", "--config", &file(1, "node-1")]);
    assert!(!output.status.success(), "{}", stdout(&output));
    let (said, is_done) = make_streams(&directory, &file(1, "node-1"));
    assert!(is_done && said == "made the stream TG_c_D\n", "{said}");
    let (said, is_done) = make_streams(&directory, &file(1, "node-1"));
    assert!(is_done && said.contains("the stream TG_c_D is as it should be"), "{said}");
    for number in [1, 2] {
        let (said, is_valid) = check(&file(number, &format!("node-{number}")));
        assert!(is_valid && !said.contains("warning: "), "{said}");
        assert!(said.contains("no node of the cluster runs"), "{said}");
    }
    // Node 1 with the key of node 2.
    let (said, is_valid) = check(&file(1, "node-2"));
    assert!(!is_valid && said.contains("this node may not publish in its own name"), "{said}");
    // Without a key.
    let (said, is_valid) = check(&node(&directory, 1, &url, ""));
    assert!(!is_valid && said.contains("check cluster.nkey"), "{said}");
    assert!(said.contains("cluster.nkey and cluster.certificate are empty"), "{said}");
}

/// Node 1 is an attacker with its own rights; nodes 2 and 3 are trackers.
#[test]
fn a_node_cannot_speak_as_another_also_when_it_is_ignored() {
    let directory = Directory::new();
    let users = users(&directory, "3");
    // The harness has no nkeys. The rights stay.
    let (before, rest) = users.split_once("nkey: ").unwrap();
    let rest = rest.split_once('\n').unwrap().1;
    let Some(server) = nats(&format!("{before}user: one, password: one\n{rest}")) else { return };
    let url = server.urls("nats").remove(0);
    let file = node(&directory, 2, &url, &key(&directory, "node-2"));
    assert!(make_streams(&directory, &file).1);
    let nodes = [2, 3].map(|number: u8| {
        let text = fs::read_to_string(&file).unwrap();
        let section =
            text.split_once("[cluster]").unwrap().1.replace("node-2", &format!("node-{number}"));
        let section =
            format!("[cluster]{}", section.replace("node = 2", &format!("node = {number}")));
        Tracker::start_with(Directory::new(), &section, &[("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)])
    });
    wait_until_joined(&nodes.each_ref());
    let [two, three] = &nodes;
    let connect = || Client::connect(server.address(0), Some(["one", "one"])).unwrap();
    let mut ear = connect();
    ear.subscribe("tg.c.h.*").unwrap();
    let heartbeat = loop {
        let message = ear.next_message().unwrap();
        if message.subject == "tg.c.h.3" {
            break message;
        }
    };
    let headers = String::from_utf8(heartbeat.headers).unwrap();
    let headers = headers.trim_start_matches("NATS/1.0\r\n").trim_end().to_owned() + "\r\n";
    let mut leaving: Value = serde_json::from_slice(&heartbeat.payload).unwrap();
    leaving["is_leaving"] = true.into();
    let leaving = leaving.to_string();
    Caller::of(two).expect(204, "POST /cluster/nodes/1/ignore", None);
    // What the servers refuse.
    for (call, body) in [
        ("UPDATE", r#"{"name":"TG_c_D","republish":{"src":"tg.c.d.1","dest":"tg.c.h.3"}}"#),
        ("UPDATE", r#"{"name":"TG_c_D","subject_transform":{"src":"tg.c.d.1","dest":"tg.c.d.3"}}"#),
        ("UPDATE", r#"{"name":"TG_c_D","subjects":["tg.c.d.*"],"max_msgs":1}"#),
        ("DELETE", ""),
        ("PURGE", ""),
    ] {
        assert_refused(connect(), &format!("$JS.API.STREAM.{call}.TG_c_D"), "", body);
    }
    for subject in ["tg.c.h.3", "tg.c.d.3", "tg.c.r.3", "tg.c.l.3", "tg.c.w.2.3", "tg.c.q.2.3"] {
        assert_refused(connect(), subject, &headers, &leaving);
    }
    // What they do not: the server delivers a stored message to any subject, and nodes send answers to any.
    let origin = || two.sum("tidegate_cluster_drops_total", &[("reason", "origin")]);
    let before = origin();
    let mut client = connect();
    client.publish("tg.c.d.1", &headers, leaving.as_bytes()).unwrap();
    let consumer = r#"{"stream_name":"TG_c_D","config":{"name":"x","filter_subject":"tg.c.d.1","ack_policy":"none","deliver_policy":"all"}}"#;
    client.publish("$JS.API.CONSUMER.CREATE.TG_c_D.x", "", consumer.as_bytes()).unwrap();
    client.flush().unwrap();
    two.wait_until("a delivery is dropped", |_| {
        // The consumer is made after the request for it was received: until then, this reaches nothing.
        client.publish("$JS.API.CONSUMER.MSG.NEXT.TG_c_D.x tg.c.h.3", "", b"1").unwrap();
        origin() > before
    });
    let before = origin();
    client.publish("tg.c.q.2.1 tg.c.h.2", &headers, b"").unwrap();
    two.wait_until("a question is dropped", |_| origin() > before);
    for node in [two, three] {
        assert_eq!(node.metric("tidegate_cluster_nodes{state=\"alive\"}"), 2.0, "{}", node.log());
        assert!(!node.log().contains("has left"), "{}", node.log());
    }
    // Nothing is wrong with the rights of nodes.
    let cluster = Caller::of(two).expect(200, "GET /cluster", None);
    assert!(!cluster["problems"].to_string().contains("rights"), "{cluster}");
}

/// Grants node 1 more of a right, `publish` or `subscribe`. Checks that the check and the running node name these doors,
/// and not what is in `shut`.
fn check_open(right: &str, more: &str, expected: &[&str], shut: &str) {
    let directory = Directory::new();
    let (before, after) =
        (format!("{right}: {{ allow: ["), format!("{right}: {{ allow: [ {more},"));
    let Some(server) = nats(&users(&directory, "1").replacen(&before, &after, 1)) else { return };
    let url = server.urls("nats").remove(0);
    let file = node(&directory, 1, &url, &key(&directory, "node-1"));
    assert!(make_streams(&directory, &file).1);
    let (said, is_valid) = check(&file);
    assert!(!is_valid && !said.contains(shut), "{said}");
    let text = fs::read_to_string(&file).unwrap();
    let section = format!("[cluster]{}", text.split_once("[cluster]").unwrap().1);
    let variables = [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)];
    let tracker = Tracker::start_with(Directory::new(), &section, &variables);
    let problems =
        || Caller::of(&tracker).expect(200, "GET /cluster", None)["problems"].to_string();
    tracker.wait_until("a problem", |_| problems().contains("\"rights\""));
    let remedy = "give its user only the rights that `tidegate cluster nats-config` prints";
    for door in expected.iter().chain([&remedy]) {
        assert!(said.contains(door) && problems().contains(door), "{door}: {said}{}", problems());
    }
    // Trying changes nothing.
    assert!(make_streams(&directory, &file).0.contains("the stream TG_c_D is as it should be"));
}

#[test]
fn rights_that_are_too_wide_are_named() {
    // As nodes had them that were set up by an earlier version.
    let updates = ["$JS.API.STREAM.CREATE.TG_c_D", "$JS.API.STREAM.UPDATE.TG_c_D"];
    let quoted = updates.map(|call| format!("{call:?}")).join(", ");
    check_open("publish", &quoted, &updates, "publish in the name of others");
    let all = [
        "publish in the name of others",
        "tg.c.d.2",
        "tg.c.l.2",
        "tg.c.r.2",
        "tg.c.h.2",
        "tg.c.w.0.2",
        "tg.c.q.0.2",
        "STREAM.DELETE.TG_c_D",
        "STREAM.PURGE.TG_c_D",
        "DIRECT.GET.TG_c_D",
    ];
    check_open("publish", "\">\"", &all, "subscribe to what is not for it");
    let read =
        ["subscribe to what is not for it", "tg.c.i.2.>", "tg.c.w.2.*", "tg.c.d.*", "$JS.API.>"];
    check_open("subscribe", "\">\"", &read, "publish in the name of others");
}

#[test]
fn the_check_names_what_is_wrong_and_the_remedy() {
    let directory = Directory::new();
    let Some(server) = nats("") else { return };
    let url = server.urls("nats").remove(0);
    let file = node(&directory, 1, &url, "");
    let (said, is_valid) = check(&file);
    assert!(!is_valid && said.contains("the NATS servers have no users"), "{said}");
    assert!(
        said.contains("the stream TG_c_D does not exist: run `tidegate cluster streams`"),
        "{said}"
    );
    let mut client = server.client(0).unwrap();
    let body = r#"{"name":"TG_c_D","subjects":["tg.c.d.*"],"storage":"file","max_msgs":1}"#;
    client.jetstream("STREAM.CREATE.TG_c_D", body).unwrap();
    let (said, is_valid) = check(&file);
    assert!(is_valid && said.contains("max_msgs 1, which must not be set"), "{said}");
    // It has no limit of bytes, and would have one.
    let (said, is_done) = make_streams(&directory, &file);
    assert!(!is_done && said.contains("repeat the command with --shrink"), "{said}");
    let said = succeed(&["cluster", "streams", "--config", &file, "--shrink"]);
    assert!(
        said.contains("changed: the stream TG_c_D has") && said.contains("max_msgs 1"),
        "{said}"
    );
    let (said, is_valid) = check(&file);
    assert!(is_valid && !said.contains("must not be set"), "{said}");
    // Another tracker has the number, and another secret.
    client.publish("tg.c.h.5", "Tidegate: 00000000\r\n", b"{}").unwrap();
    // No server at all.
    let nothing = format!("nats://{}", harness::unused_address());
    let file = node(&directory, 1, &nothing, "");
    let (said, is_valid) = check(&file);
    assert!(!is_valid && said.contains("cannot connect to nats://"), "{said}");
    assert!(said.contains("check that it runs"), "{said}");
    let (said, is_done) = make_streams(&directory, &file);
    assert!(!is_done && said.contains("cannot connect to NATS"), "{said}");
}

#[test]
fn files_that_others_can_read_are_refused() {
    let directory = Directory::new();
    let file = node(&directory, 1, "nats://127.0.0.1:1", "");
    let secret = directory.path("secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    for arguments in [&["config", "check", "--config", &file][..], &["--config", &file]] {
        let output = run(arguments);
        assert!(!output.status.success());
        let said = stderr(&output);
        assert!(
            said.contains("other users can read or change it (mode 644): chmod 600 it"),
            "{said}"
        );
    }
}

/// Publishes a message that the server must refuse.
fn assert_refused(mut client: Client, subject: &str, headers: &str, body: &str) {
    client.publish(subject, headers, body.as_bytes()).unwrap();
    let refusal = client.flush().unwrap_err().to_string();
    assert!(refusal.contains("Permissions Violation"), "{subject}: {refusal}");
}
