//! `tidegate cluster secret`, `tidegate cluster nats-config`, and what `config check` says of a cluster: with
//! real NATS servers.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::nats::{self, Nats};

use crate::process::{Directory, run, stderr, stdout, tidegate};

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
         {node}\nservers = [\"{url}\"]\nsecret = [\"{}\"]\nreplicas = 1\n{more}\n",
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

#[test]
fn users_of_the_printed_configuration_speak_only_as_themselves() {
    let directory = Directory::new();
    let keys = directory.path("");
    let keys = keys.to_str().unwrap();
    let printed = succeed(&[
        "cluster",
        "nats-config",
        "--name",
        "c",
        "--nodes",
        "2",
        "--servers",
        "1",
        "--keys",
        keys,
    ]);
    let users = printed.find("authorization {").unwrap();
    let Some(server) = nats(&printed[users..]) else { return };
    let url = server.urls("nats").remove(0);
    let key = |node: u8| format!("nkey = \"{keys}/node-{node}.nk\"");
    for number in [1, 2] {
        let (said, is_valid) = check(&node(&directory, number, &url, &key(number)));
        assert!(is_valid, "{said}");
        assert!(!said.contains("warning: "), "{said}");
        assert!(said.contains("the stream TG_c_D does not exist yet"), "{said}");
        assert!(said.contains("no node of the cluster runs"), "{said}");
    }
    // Node 1 with the key of node 2.
    let (said, is_valid) = check(&node(&directory, 1, &url, &key(2)));
    assert!(!is_valid && said.contains("this node may not publish in its own name"), "{said}");
    // Without a key.
    let (said, is_valid) = check(&node(&directory, 1, &url, ""));
    assert!(!is_valid && said.contains("check cluster.nkey"), "{said}");
    assert!(said.contains("cluster.nkey and cluster.certificate are empty"), "{said}");
}

#[test]
fn the_check_names_what_is_wrong_and_the_remedy() {
    let directory = Directory::new();
    let Some(server) = nats("") else { return };
    let url = server.urls("nats").remove(0);
    let (said, is_valid) = check(&node(&directory, 1, &url, ""));
    assert!(is_valid && said.contains("the NATS servers have no users"), "{said}");
    let fixed = "manage_streams = false";
    let (said, is_valid) = check(&node(&directory, 1, &url, fixed));
    assert!(!is_valid, "{said}");
    assert!(said.contains("the stream TG_c_D does not exist: create it, or set"), "{said}");
    let mut client = server.client(0).unwrap();
    for (stream, subjects) in [("TG_c_D", "tg.c.d.*"), ("TG_c_R", "tg.c.r.*")] {
        let body = format!(r#"{{"name":"{stream}","subjects":["{subjects}"],"storage":"memory"}}"#);
        client.jetstream(&format!("STREAM.CREATE.{stream}"), &body).unwrap();
    }
    let (said, is_valid) = check(&node(&directory, 1, &url, fixed));
    assert!(is_valid && said.contains("storage Memory instead of File"), "{said}");
    // Another tracker has the number, and another secret.
    client.publish("tg.c.h.5", "Tidegate: 00000000\r\n", b"{}").unwrap();
    // No server at all.
    let nothing = format!("nats://{}", harness::unused_address());
    let (said, is_valid) = check(&node(&directory, 1, &nothing, ""));
    assert!(!is_valid && said.contains("cannot connect to nats://"), "{said}");
    assert!(said.contains("check that it runs"), "{said}");
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
