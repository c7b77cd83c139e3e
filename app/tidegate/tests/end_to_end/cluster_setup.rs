//! `tidegate cluster init`, `invite` and `set`, and what `config check` says of a cluster: with real NATS servers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use harness::nats::{Client, Operator, UserRights};
use serde_json::Value;

use crate::api::Caller;
use crate::cluster::{Cluster, Folder, wait_until_joined};
use crate::config_command::refusals;
use crate::process::{Directory, config, run, stderr, stdout};

/// Runs a command that must fail. Returns what it says.
fn fail(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", stdout(&output));
    stderr(&output)
}

/// Returns what `config check` says of a node with this join file, and whether the configuration is valid.
fn check(join: &Path) -> (String, bool) {
    let directory = Directory::new();
    let text = format!(
        "[udp]\nlisten = []\n[http]\nlisten = []\n[admin]\nlisten = []\n[cluster]\njoin = {join:?}\n"
    );
    let file = directory.write("node.toml", &text);
    let output = run(&["config", "check", "--config", file.to_str().unwrap()]);
    (stderr(&output), output.status.success())
}

/// Returns what the check of a join file must find.
fn check_problem(join: &Path) -> String {
    let (said, is_valid) = check(join);
    assert!(!is_valid, "{said}");
    said
}

#[test]
fn init_makes_private_files_and_overwrites_nothing() {
    let directory = Directory::new();
    let folder = directory.path("c");
    let folder = folder.to_str().unwrap();
    let servers = "t1.example.org,t2.example.org:4333,192.0.2.3";
    let init = ["cluster", "init", "--name", "c", "--servers", servers, "--dir", folder];
    let output = run(&init);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("server-3") && said.contains("tidegate cluster invite 1"), "{said}");
    let mode = |name: &str| {
        fs::metadata(Path::new(folder).join(name)).unwrap().permissions().mode() & 0o777
    };
    let files = ["nats-server.conf", "ca.pem", "server.pem", "server-key.pem"];
    for server in 1..=3 {
        assert_eq!(mode(&format!("server-{server}")), 0o700);
        files.iter().for_each(|name| assert_eq!(mode(&format!("server-{server}/{name}")), 0o600));
    }
    assert_eq!((mode(""), mode("cluster.toml")), (0o700, 0o600));
    let before = fs::read(directory.path("c/cluster.toml")).unwrap();
    let said = fail(&init);
    assert!(said.contains("cannot make the folder") && said.contains("--dir"), "{said}");
    assert_eq!(fs::read(directory.path("c/cluster.toml")).unwrap(), before);
    for (name, servers, why) in [
        ("My cluster", "t1", "--name: expected at most 32 characters"),
        (
            "c",
            "t1,127.0.0.1",
            "--servers: expected servers on this machine, to try it out, or on others",
        ),
        ("c", "t1,t1", "--servers: two servers have a port in common"),
        ("c", "127.0.0.1:4222,127.0.0.1:6222", "--servers: two servers have a port in common"),
        ("c", "tls://t1", "--servers: expected a host"),
    ] {
        let other = directory.path("other");
        let other = other.to_str().unwrap();
        let said = fail(&["cluster", "init", "--name", name, "--servers", servers, "--dir", other]);
        assert!(said.contains(why) && !Path::new(other).exists(), "{said}");
    }
}

#[test]
fn a_repeated_invitation_is_the_same_user() {
    let cluster = Folder::without_server();
    let read = |join: &Path| fs::read_to_string(join).unwrap();
    let seed =
        |text: &str| text.lines().find(|line| line.starts_with("seed =")).unwrap().to_owned();
    let first = read(&cluster.invite(4));
    let mode = fs::metadata(cluster.invite(4)).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, seed(&read(&cluster.invite(4)))), (0o600, seed(&first)));
    cluster.operator.run("invite 4 --zone fra").unwrap();
    // The zone stays, too.
    assert!(read(&cluster.invite(4)).contains("zone = \"fra\""));
    assert_ne!(seed(&read(&cluster.invite(5))), seed(&first));
    // A file of the operator's choice is new.
    let out = cluster.directory.path("out");
    let command = format!("invite 4 --out {}", out.display());
    cluster.operator.run(&command).unwrap();
    assert_eq!(seed(&read(&out)), seed(&first));
    assert!(cluster.operator.run(&command).unwrap_err().to_string().contains("cannot write"));
    assert!(cluster.operator.run("invite 256").is_err());
}

#[test]
fn an_operators_folder_that_is_none_is_named() {
    let cluster = Folder::without_server();
    let file = cluster.operator.folder().join("cluster.toml");
    let good = fs::read_to_string(&file).unwrap();
    let said = || cluster.operator.run("invite 1").unwrap_err().to_string();
    for (text, why) in [
        (
            good.replace("operator_version = 1", "operator_version = 2"),
            "a later version of tidegate",
        ),
        (good.replace("account_seed", "seed"), "the file is damaged: restore it from a backup"),
        (good.replacen("SA", "SB", 1), "a seed is damaged"),
        (String::new(), "expected the file of an operator"),
    ] {
        fs::write(&file, &text).unwrap();
        assert!(said().contains(why), "{why}: {}", said());
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "it is left as it is");
    }
    fs::write(&file, &good).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(said().contains("other users can read or change it"), "{}", said());
    fs::remove_file(&file).unwrap();
    assert!(said().contains("name the folder that `tidegate cluster init` made by --dir"));
}

#[test]
fn users_of_join_files_speak_only_as_themselves() {
    let cluster = Cluster::start(1);
    let mut client = cluster.superuser();
    client.jetstream("STREAM.DELETE.TG_test_D", "").unwrap();
    let said = check_problem(&cluster.invite(1));
    assert!(
        said.contains("the stream TG_test_D does not exist: run `tidegate cluster set`"),
        "{said}"
    );
    // Only the operator makes the stream, once.
    let said = cluster.operator.run("set").unwrap();
    assert_eq!(said, "made the stream TG_test_D\nreplicas  1\nsize      64MiB\nlifetime  2700\n");
    let said = cluster.operator.run("set").unwrap();
    assert!(said.contains("the stream TG_test_D is as it should be"), "{said}");
    for number in [1, 2] {
        let (said, is_valid) = check(&cluster.invite(number));
        assert!(is_valid && !said.contains("warning: "), "{said}");
        assert!(said.contains("no node of the cluster runs"), "{said}");
    }
    // Node 1 with the user of node 2.
    let join = cluster.invite(1);
    Operator::replace_user(&join, &Operator::user_of(&cluster.invite(2)).unwrap()).unwrap();
    let said = check_problem(&join);
    assert!(said.contains("this node may not publish in its own name"), "{said}");
    // Without a user.
    let join = cluster.invite(1);
    let text = fs::read_to_string(&join).unwrap();
    let is_user = |line: &&str| line.starts_with("jwt =") || line.starts_with("seed =");
    let lines: Vec<&str> = text.lines().filter(|line| !is_user(line)).collect();
    fs::write(&join, lines.join("\n") + "\n").unwrap();
    let said = check_problem(&join);
    assert!(said.contains("make a new one by `tidegate cluster invite`"), "{said}");
}

#[test]
fn users_that_the_servers_do_not_know_are_refused() {
    let cluster = Cluster::start(1);
    let ended = UserRights { publish: &["tg.>"], subscribe: &["tg.>"], ends_in_s: -5 };
    let ended = cluster.operator.user(ended).unwrap();
    let foreign = Folder::without_server().operator.superuser().unwrap();
    let refused = "make a new one by `tidegate cluster invite`";
    for (name, user) in [("ended", ended), ("foreign", foreign)] {
        let join = cluster.invite(1);
        Operator::replace_user(&join, &user).unwrap();
        let said = check_problem(&join);
        assert!(said.contains(refused), "{name}: {said}");
        assert!(Client::connect(cluster.nats.address(0), &user).is_err(), "{name}");
    }
    let join = cluster.invite(1);
    let text = fs::read_to_string(&join).unwrap();
    let (before, token) = text.split_once("jwt = \"eyJ").unwrap();
    fs::write(&join, format!("{before}jwt = \"eyK{token}")).unwrap();
    let said = check_problem(&join);
    assert!(said.contains(refused), "garbled: {said}");
}

/// Node 1 is an attacker with its own rights; nodes 2 and 3 are trackers.
#[test]
fn a_node_cannot_speak_as_another_also_when_it_is_ignored() {
    let cluster = Cluster::start(1);
    let one = Operator::user_of(&cluster.invite(1)).unwrap();
    let nodes = [2, 3].map(|number| cluster.node(number));
    wait_until_joined(&nodes.each_ref());
    let [two, three] = &nodes;
    let connect = || Client::connect(cluster.nats.address(0), &one).unwrap();
    let mut ear = connect();
    ear.subscribe("tg.test.h.*").unwrap();
    let heartbeat = loop {
        let message = ear.next_message().unwrap();
        if message.subject == "tg.test.h.3" {
            break message;
        }
    };
    let headers = String::from_utf8(heartbeat.headers).unwrap();
    let headers = headers.trim_start_matches("NATS/1.0\r\n").trim_end().to_owned() + "\r\n";
    let mut leaving: Value = serde_json::from_slice(&heartbeat.payload).unwrap();
    leaving["is_leaving"] = true.into();
    let leaving = leaving.to_string();
    Caller::of(two).expect(204, "POST /cluster/nodes/1/ignore", None);
    // The servers refuse these requests.
    for (call, body) in [
        (
            "UPDATE",
            r#"{"name":"TG_test_D","republish":{"src":"tg.test.d.1","dest":"tg.test.h.3"}}"#,
        ),
        (
            "UPDATE",
            r#"{"name":"TG_test_D","subject_transform":{"src":"tg.test.d.1","dest":"tg.test.d.3"}}"#,
        ),
        ("UPDATE", r#"{"name":"TG_test_D","subjects":["tg.test.d.*"],"max_msgs":1}"#),
        ("DELETE", ""),
        ("PURGE", ""),
    ] {
        assert_refused(connect(), &format!("$JS.API.STREAM.{call}.TG_test_D"), "", body);
    }
    for kind in ["h", "d", "r", "l", "w.2", "q.2"] {
        assert_refused(connect(), &format!("tg.test.{kind}.3"), &headers, &leaving);
    }
    // The servers do not refuse these: the server delivers a stored message to any subject, and nodes send answers to
    // any subject.
    let origin = || two.sum("tidegate_cluster_drops_total", &[("reason", "origin")]);
    let before = origin();
    let mut client = connect();
    client.publish("tg.test.d.1", &headers, leaving.as_bytes()).unwrap();
    let consumer = r#"{"stream_name":"TG_test_D","config":{"name":"x","filter_subject":"tg.test.d.1","ack_policy":"none","deliver_policy":"all"}}"#;
    client.publish("$JS.API.CONSUMER.CREATE.TG_test_D.x", "", consumer.as_bytes()).unwrap();
    client.flush().unwrap();
    two.wait_until("a delivery is dropped", |_| {
        // The consumer is made after the request for it was received: until then, this reaches nothing.
        client.publish("$JS.API.CONSUMER.MSG.NEXT.TG_test_D.x tg.test.h.3", "", b"1").unwrap();
        origin() > before
    });
    let before = origin();
    client.publish("tg.test.q.2.1 tg.test.h.2", &headers, b"").unwrap();
    two.wait_until("a question is dropped", |_| origin() > before);
    for node in [two, three] {
        assert_eq!(node.metric("tidegate_cluster_nodes{state=\"alive\"}"), 2.0, "{}", node.log());
        assert!(!node.log().contains("has left"), "{}", node.log());
    }
    // Nothing is wrong with the rights of nodes.
    let cluster = Caller::of(two).expect(200, "GET /cluster", None);
    assert!(!cluster["problems"].to_string().contains("rights"), "{cluster}");
}

#[test]
fn rights_that_are_too_wide_are_named() {
    let cluster = Cluster::start(1);
    let rights = UserRights { publish: &[">"], subscribe: &[">"], ends_in_s: 3600 };
    let join = cluster.invite(1);
    Operator::replace_user(&join, &cluster.operator.user(rights).unwrap()).unwrap();
    let said = check_problem(&join);
    let tracker = crate::cluster::start(&join, "");
    let problems =
        || Caller::of(&tracker).expect(200, "GET /cluster", None)["problems"].to_string();
    tracker.wait_until("a problem", |_| problems().contains("\"rights\""));
    for part in [
        "publish in the name of others",
        "tg.test.d.2",
        "tg.test.w.0.2",
        "STREAM.DELETE.TG_test_D",
        "DIRECT.GET.TG_test_D",
        "subscribe to what is not for it",
        "tg.test.i.2.>",
        "$JS.API.>",
        "with a join file of `tidegate cluster invite`",
    ] {
        assert!(said.contains(part) && problems().contains(part), "{part}: {said}{}", problems());
    }
    // Trying changes nothing.
    let said = cluster.operator.run("set").unwrap();
    assert!(said.contains("the stream TG_test_D is as it should be"), "{said}");
}

#[test]
fn the_check_names_what_is_wrong_and_the_remedy() {
    let cluster = Cluster::start(1);
    let join = cluster.invite(1);
    let mut client = cluster.superuser();
    client.jetstream("STREAM.DELETE.TG_test_D", "").unwrap();
    let body = r#"{"name":"TG_test_D","subjects":["tg.test.d.*"],"storage":"file","max_msgs":1}"#;
    client.jetstream("STREAM.CREATE.TG_test_D", body).unwrap();
    let (said, is_valid) = check(&join);
    assert!(is_valid && said.contains("max_msgs 1, which must not be set"), "{said}");
    // It has no limit of bytes, and would have one.
    let said = cluster.operator.run("set").unwrap_err().to_string();
    assert!(said.contains("repeat the command with --shrink"), "{said}");
    let said = cluster.operator.run("set --shrink").unwrap();
    assert!(
        said.contains("changed: the stream TG_test_D has") && said.contains("max_msgs 1"),
        "{said}"
    );
    let (said, is_valid) = check(&join);
    assert!(is_valid && !said.contains("must not be set"), "{said}");
}

#[test]
fn servers_that_do_not_answer_are_named() {
    let cluster = Folder::without_server();
    let said = check_problem(&cluster.invite(1));
    assert!(
        said.contains("cannot connect to nats://") && said.contains("check that it runs"),
        "{said}"
    );
    let said = cluster.operator.run("set").unwrap_err().to_string();
    assert!(said.contains("cannot connect to the NATS servers"), "{said}");
}

#[test]
fn what_is_no_join_file_is_refused_at_the_start() {
    let cluster = Folder::without_server();
    // The file of the operator.
    let join = cluster.operator.folder().join("cluster.toml");
    let directory = Directory::new();
    let section = format!("[cluster]\njoin = {join:?}\n");
    let file = directory.write("tidegate.toml", &config(0, 0, &section));
    for said in refusals(&file) {
        let why = "expected a join file, which `tidegate cluster invite` makes";
        assert!(said.contains(why), "{said}");
    }
}

/// Publishes a message that the server must refuse.
fn assert_refused(mut client: Client, subject: &str, headers: &str, body: &str) {
    client.publish(subject, headers, body.as_bytes()).unwrap();
    let refusal = client.flush().unwrap_err().to_string();
    assert!(refusal.contains("Permissions Violation"), "{subject}: {refusal}");
}
