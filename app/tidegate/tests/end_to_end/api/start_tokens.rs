//! The tokens that a tracker starts with: from the environment, or the first one.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use harness::wait_until;
use serde_json::json;

use super::{Caller, TOKEN, in_a_second, start_in};
use crate::process::{Directory, Tracker, config, start, stderr, tidegate};

fn in_folder(state: &Path) -> String {
    format!("requests_per_s = 0\n[state]\ndir = {state:?}\n")
}

fn caller(tracker: &Tracker, token: &str) -> Caller {
    Caller { address: tracker.admin_address(), token: token.trim().into() }
}

#[test]
fn writes_the_first_token_to_a_private_file_until_another_takes_over() {
    let state = Directory::new();
    let (folder, file) = (state.path("state"), state.path("state/first-token"));
    let more = in_folder(&folder);
    let tracker = start(&more);
    assert!(!tracker.log().contains("tg_") && !tracker.output().contains("tg_"));
    assert!(tracker.output().contains(file.to_str().unwrap()), "{}", tracker.output());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let first = caller(&tracker, &fs::read_to_string(&file).unwrap());
    first.expect(200, "GET /stats", None);
    let make = |scopes: &[&str], expires: Option<u64>| {
        let body = json!({ "name": "n", "scopes": scopes, "expires": expires });
        let made = first.expect(201, "POST /tokens", Some(&body));
        caller(&tracker, made["secret"].as_str().unwrap())
    };
    // One that cannot do everything does not take over.
    make(&["stats:read"], None).expect(200, "GET /stats", None);
    first.expect(200, "GET /stats", None);
    let other = make(&["*"], Some(4_000_000_000));
    // One that has expired counts for nothing.
    let expiry = in_a_second();
    let expired = make(&["*"], Some(expiry));
    wait_until("it has expired", || in_a_second() > expiry + 1);
    expired.expect(401, "GET /stats", None);
    drop(tracker);
    // The next start says nothing about it any more, and the token is still valid.
    let tracker = start(&more);
    assert!(!tracker.output().contains("first-token"), "{}", tracker.output());
    let [first, other] = [&first, &other].map(|old| caller(&tracker, &old.token));
    first.expect(200, "GET /stats", None);
    other.expect(200, "GET /stats", None);
    first.expect(401, "GET /stats", None);
    tracker.wait_until("the file is removed", |_| !file.exists());
    tracker.wait_for_log("the first one");
    drop(tracker);
    let tracker = start(&more);
    caller(&tracker, &first.token).expect(401, "GET /stats", None);
    let other = caller(&tracker, &other.token);
    let tokens = other.expect(200, "GET /tokens?q=*", None)["tokens"].clone();
    assert!(!file.exists());
    // When there is no valid token with full access any more, the next start creates a first one again.
    other.expect(204, &format!("DELETE /tokens/{}", tokens[0]["id"]), None);
    drop(tracker);
    let tracker = start(&more);
    let again = caller(&tracker, &fs::read_to_string(&file).unwrap());
    assert_ne!(again.token, first.token);
    again.expect(200, "GET /tokens", None);
}

#[test]
fn prints_the_first_token_only_on_a_terminal() {
    let state = Directory::new();
    let folder = state.path("state");
    let settings = state.write("t.toml", &config(0, 0, &in_folder(&folder)));
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut command = tidegate(&["--config"]);
    command.arg(settings).stdout(terminal.slave).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Its end of the terminal is closed here, so that reading ends with the process.
    drop(command);
    let (mut master, mut text) = (fs::File::from(terminal.master), String::new());
    let mut buffer = [0; 4096];
    while !text.contains("\nNext: ") {
        let len = master.read(&mut buffer).unwrap();
        assert!(len > 0, "{text}");
        text += &String::from_utf8_lossy(&buffer[..len]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let after =
        |start| text.split(start).nth(1).and_then(|rest: &str| rest.lines().next()).unwrap();
    let token = after("First API token (full access): ");
    assert!(token.starts_with("tg_") && token.len() == 35, "{text}");
    let link = after("Sign in (shown once): ");
    assert!(link.starts_with("http://127.0.0.1:") && link.ends_with(&format!("/#token={token}")));
    assert!(!folder.join("first-token").exists());
}

#[test]
fn creates_no_token_that_it_cannot_show() {
    let tracker = start("");
    let output = tracker.output();
    assert!(
        output.contains("No API token: set state.dir, or TIDEGATE_BOOTSTRAP_TOKEN"),
        "{output}"
    );
    assert!(!output.contains("tg_ and") && !output.contains("Sign in"), "{output}");
}

/// The client's variable may hold a token with few scopes: a restart must not give it more.
#[test]
fn the_variable_of_clients_gives_no_access() {
    let state = Directory::new();
    let more = in_folder(&state.path("state"));
    let (tracker, api) = start_in(Directory::new(), &more);
    let limited = api.limited(&["stats:read"]).token;
    let limited = limited.as_str();
    drop(tracker);
    let tracker =
        Tracker::start_with(Directory::new(), &more, &[("TIDEGATE_ADMIN_TOKEN", limited)]);
    caller(&tracker, limited).expect(200, "GET /stats", None);
    caller(&tracker, limited).expect(403, "GET /keys", None);
    tracker.wait_for_log("set TIDEGATE_BOOTSTRAP_TOKEN");
    drop(tracker);
    // Nor does the right variable, by mistake.
    let settings = state.write("t.toml", &config(0, 0, &more));
    let mut command = tidegate(&["--config"]);
    command.arg(settings).env("TIDEGATE_BOOTSTRAP_TOKEN", limited);
    let output = command.output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let says = "TIDEGATE_BOOTSTRAP_TOKEN: the bootstrap token is already recorded, as token 1";
    assert!(message.contains(says) && message.contains("stats:read"), "{message}");
    assert!(!message.contains(limited), "{message}");
}

#[test]
fn rejects_an_invalid_token_in_the_environment() {
    let mut command = tidegate(&[]);
    let output = command.env("TIDEGATE_BOOTSTRAP_TOKEN", "hunter2").output().unwrap();
    let message = stderr(&output);
    assert!(
        message.contains("TIDEGATE_BOOTSTRAP_TOKEN: invalid token") && !message.contains("hunter2"),
        "{message}"
    );
    assert!(!message.contains(TOKEN));
}
