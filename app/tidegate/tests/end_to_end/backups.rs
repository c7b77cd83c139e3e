//! Archives of the state directory, and their way to another machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::api::{Caller, TOKEN, start_in};
use crate::clients::{Udp, http_announce};
use crate::process::{Directory, Tracker, run, run_with_input, stderr, stdout, tidegate};

struct Machine {
    directory: Directory,
    more: String,
}

impl Machine {
    fn new(more: &str) -> Self {
        let directory = Directory::new();
        // Other users reach the state directory in it.
        fs::set_permissions(directory.path(""), Permissions::from_mode(0o755)).unwrap();
        Self { directory, more: more.to_owned() }
    }

    fn state(&self) -> PathBuf {
        self.directory.path("state")
    }

    fn config(&self) -> String {
        format!("[state]\ndir = {:?}\n{}", self.state(), self.more)
    }

    fn start(&self) -> Tracker {
        start_in(Directory::new(), &self.config()).0
    }

    fn run(&self, line: &str, file: &Path) -> Output {
        let config = self.directory.write("tidegate.toml", &self.config());
        let mut words: Vec<&str> = line.split(' ').collect();
        words.extend([file.to_str().unwrap(), "--config", config.to_str().unwrap()]);
        run(&words)
    }
}

/// Creates a row of every table that users fill.
fn fill(tracker: &Tracker) -> Caller {
    let api = Caller::of(tracker);
    api.expect(201, "POST /keys", Some(&json!({ "name": "bob" })));
    api.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.0/24", "reason": "test" })));
    api.expect(201, "POST /tokens", Some(&json!({ "name": "reader", "scopes": ["stats:read"] })));
    api.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": 1234 })));
    api.expect(204, &format!("PUT /lists/deny/{}", "dd".repeat(20)), None);
    http_announce(tracker.http4(), 0xaa, 1001);
    api
}

/// Returns all rows, as the API shows them.
fn rows(api: &Caller) -> Vec<Value> {
    let rows = ["keys", "bans", "lists/deny", "tokens", "webhooks"]
        .map(|table| api.expect(200, &format!("GET /{table}"), None));
    let config = api.expect(200, "GET /config", None);
    let settings = config["settings"].as_array().unwrap().iter();
    let changed = settings.filter(|it| it["name"] == "tracker.interval_s").cloned();
    rows.into_iter().chain(changed).collect()
}

fn assert_success(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output)
}

#[test]
fn a_backup_of_a_running_tracker_serves_another_user_on_another_machine() {
    let from = Machine::new("");
    let tracker = from.start();
    let api = fill(&tracker);
    tracker.wait_until("in the journal", |it| {
        it.metric("tidegate_journal_bytes_total{kind=\"changes\"}") > 0.0
    });
    let before = rows(&api);
    let archive = from.directory.path("archive.tar");
    let said = assert_success(&from.run("backup --swarms", &archive));
    assert!(said.contains("keys: 1, bans: 1") && said.contains("; secret, swarms"), "{said}");
    assert_eq!(fs::metadata(&archive).unwrap().mode() & 0o777, 0o600);
    let refused = from.run("backup", &archive);
    assert!(stderr(&refused).contains("cannot create"), "{}", stderr(&refused));
    // A tracker has the state directory open.
    let refused = from.run("restore", &archive);
    assert!(stderr(&refused).contains("is locked by another process"), "{}", stderr(&refused));
    drop(tracker);
    // A tracker that root starts can serve as another user.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = if is_root { "[process]\nuser = \"daemon\"\n" } else { "" };
    let to = Machine::new(user);
    let said = assert_success(&to.run("restore", &archive));
    assert!(said.starts_with("restored ") && said.contains("keys: 1, bans: 1"), "{said}");
    let owners = ["", "tidegate.db", "secret", "swarms"]
        .map(|name| fs::metadata(to.state().join(name)).unwrap().uid());
    assert!(owners.iter().all(|owner| *owner == owners[0] && (*owner != 0) == is_root));
    let tracker = to.start();
    assert_eq!(rows(&Caller::of(&tracker)), before, "{}", tracker.log());
    assert_eq!(Udp::connect(tracker.udp4()).scrape(0xaa), [0, 0, 1]);
    let secrets = [&from, &to].map(|machine| fs::read(machine.state().join("secret")).unwrap());
    assert_eq!(secrets[0], secrets[1]);
}

#[test]
fn backups_go_through_pipes_and_the_api() {
    let from = Machine::new("");
    let tracker = from.start();
    let api = fill(&tracker);
    let before = rows(&api);
    let config = from.directory.write("tidegate.toml", &from.config());
    let config = config.to_str().unwrap();
    let piped = run(&["backup", "--no-secrets", "-", "--config", config]);
    assert!(stderr(&piped).contains("keys: 1, bans: 1"), "{}", stderr(&piped));
    let headers = format!("Authorization: Bearer {TOKEN}\r\n");
    let download = |target: &str| {
        let request = format!("GET /api/v1{target}");
        harness::http::request(tracker.admin_address(), &request, &headers, b"").unwrap()
    };
    let whole = download("/backup?swarms=true");
    assert_eq!(whole.header("content-type"), Some("application/x-tar"));
    let bodies = [piped.stdout, download("/backup?secrets=false").body, whole.body];
    api.limited(&["config:write", "tokens:read"]).expect(403, "GET /backup", None);
    drop(tracker);
    for (number, bytes) in bodies.iter().enumerate() {
        let to = Machine::new("");
        let config = to.directory.write("tidegate.toml", &to.config());
        let restore = tidegate(&["restore", "-", "--config", config.to_str().unwrap()]);
        assert_success(&run_with_input(restore, bytes));
        assert_eq!(to.state().join("secret").exists(), number == 2);
        let tracker = to.start();
        assert_eq!(rows(&Caller::of(&tracker)), before, "{}", tracker.log());
    }
}
