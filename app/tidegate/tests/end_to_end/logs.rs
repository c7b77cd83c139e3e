//! The log.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::api::{Caller, TOKEN, start};
use crate::clients::{Udp, announce_query, http, http_announce, try_http, upgrade};
use crate::process::{Directory, Tracker, config, tidegate};

/// Returns how many lines of the log contain `text`.
fn lines(tracker: &Tracker, text: &str) -> usize {
    tracker.log().lines().filter(|line| line.contains(text)).count()
}

const NOT_BITTORRENT: &str = "/nothing here";

#[test]
fn changes_log_levels_per_area_while_serving() {
    let (tracker, api) = start("[log]\nlevel = \"info,front=debug\"\n");
    let level = || api.expect(200, "GET /log/level", None)["level"].clone();
    assert_eq!(level(), "info,front=debug");
    let refused = "DEBUG front: request refused client=\"127.0.0.1\"";
    let refuse = || drop(http(tracker.http4(), "/announce?info_hash=short"));
    refuse();
    tracker.wait_until(refused, |it| lines(it, refused) == 1);
    assert_eq!(lines(&tracker, "DEBUG api: "), 0);
    let set = |text: &str| api.ask("PUT /log/level", Some(&json!({ "level": text })));
    assert_eq!(set("info,api=debug"), (200, json!({ "level": "info,api=debug" })));
    refuse();
    api.expect(200, "GET /stats", None);
    let asked = "DEBUG api: API request client=\"127.0.0.1\" method=\"GET\" \
                 route=\"/api/v1/stats\" status=200 token=0";
    tracker.wait_until(asked, |it| lines(it, asked) == 1);
    assert_eq!(lines(&tracker, refused), 1);
    let tail = api.expect(200, "GET /log", None);
    let tail = tail["lines"].as_array().unwrap();
    assert!(tail.iter().any(|line| line["area"] == "front" && line["level"] == "DEBUG"));
    // An invalid level is refused, and changes nothing.
    let (status, problem) = set("info,frnot=debug");
    assert!(status == 400 && problem["detail"].to_string().contains("area (serve"), "{problem}");
    assert_eq!(level(), "info,api=debug");
    // A reload applies the level of the file.
    tracker.configure("requests_per_s = 0\n[log]\nlevel = \"warn,audit=info\"\n");
    let reloaded = api.expect(200, "POST /config/reload", None);
    assert_eq!(reloaded["changed"], json!(["log.level"]));
    assert_eq!(level(), "warn,audit=info");
    let changed = api.expect(200, "PATCH /config", Some(&json!({ "log.level": "front=trace" })));
    assert_eq!((&changed["changed"], level()), (&json!(["log.level"]), "info,front=trace".into()));
    api.expect(409, "PATCH /config", Some(&json!({ "log.level": "front" })));
}

#[test]
fn limits_repeated_log_lines_and_counts_the_rest() {
    let more = "[log]\nlevel = \"front=debug\"\nformat = \"json\"\nrate_limit_lines = 5\nrate_limit_s = 1\n";
    let (mut tracker, api) = start(more);
    for _ in 0..300 {
        let _ = try_http(tracker.http4(), NOT_BITTORRENT);
    }
    let omitted = |tracker: &Tracker| -> u64 {
        let all = tracker.log();
        let all = all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter_map(|line| line["fields"]["omitted"].as_u64()).sum()
    };
    // The last lines are summarized although no further line comes.
    let dropped = "\"message\":\"request dropped\"";
    tracker.wait_until("all told or counted", |it| lines(it, dropped) as u64 + omitted(it) == 300);
    assert!(omitted(&tracker) > 0);
    assert_eq!(tracker.metric("tidegate_log_lines_suppressed_total") as u64, omitted(&tracker));
    assert!(lines(&tracker, "similar lines in") > 0);
    let all = tracker.log();
    let line = all.lines().find(|line| line.contains(dropped)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["level"], &line["area"]), (&json!("DEBUG"), &json!("front")));
    // Changes by the API are never left out.
    for number in 0..20 {
        api.expect(201, "POST /keys", Some(&json!({ "name": number.to_string() })));
    }
    tracker.wait_until("all changes", |it| lines(it, "created key") == 20);
    // A reload changes the limit, and the pending summary is written when the tracker stops.
    let more = more.replace("rate_limit_s = 1", "rate_limit_s = 3600");
    tracker.configure(&format!("requests_per_s = 0\n{more}"));
    api.expect(200, "POST /config/reload", None);
    let before = omitted(&tracker);
    for _ in 0..300 {
        let _ = try_http(tracker.http4(), NOT_BITTORRENT);
    }
    tracker.wait_until("counted", |it| {
        it.metric("tidegate_log_lines_suppressed_total") as u64 >= before + 290
    });
    tracker.stop();
    tracker.wait_for_end();
    tracker.wait_until("told at the end", |it| omitted(it) >= before + 290);
}

#[test]
fn writes_no_secret_to_the_log() {
    let (tracker, api) = start(
        "webhook_ports = [\"9\"]\nwebhook_private = [\"127.0.0.1\"]\n[log]\nlevel = \"trace\"\nrate_limit_lines = 0\n[access]\nprivate = true\n",
    );
    let made = |request: &str, body: Value, name: &str| {
        let answer = api.expect(201, request, Some(&body));
        answer[name].as_str().unwrap().to_owned()
    };
    let key = made("POST /keys", json!({ "name": "bob" }), "key");
    let chosen = made("POST /keys", json!({ "key": "chosen-by-somebody-else" }), "key");
    let token = made("POST /tokens", json!({ "name": "t", "scopes": ["*"] }), "secret");
    let hook = json!({ "url": "http://127.0.0.1:9/a-secret-path?a-secret-query", "events": ["warning", "ban"] });
    let secret = made("POST /webhooks", hook, "secret");
    let (unknown, wrong) = ("an-unknown-user-key", "tg_99999999999999999999999999999999");
    for key in [key.as_str(), &chosen, unknown] {
        let query = announce_query(0xaa, 1);
        for target in
            [format!("/announce/{key}?{query}"), format!("/announce?passkey={key}&{query}")]
        {
            http(tracker.http4(), &target);
            let url = target.replace(&query, "");
            Udp::connect(tracker.udp4()).announce_at(0xaa, 1, url.trim_end_matches(['?', '&']));
        }
        http(tracker.http4(), &format!("/scrape/{key}?info_hash=short"));
        let _ = try_http(tracker.http4(), &format!("/announce/{key}?\u{e9}\n"));
        upgrade(tracker.http4(), &format!("/{key}"));
        // In places where a key does not belong, as by mistake.
        api.ask(&format!("GET /keys/{key}"), None);
        api.ask("POST /keys", Some(&json!({ "key": key })));
        api.ask("PATCH /config", Some(&json!({ "access.keys": key })));
        api.ask(&format!("GET /torrents?cursor={key}"), None);
    }
    for caller in [wrong, token.as_str()] {
        let caller = Caller { token: caller.into(), ..api.clone() };
        caller.ask("GET /stats", None);
        caller.ask("DELETE /keys/1", None);
    }
    api.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.1" })));
    api.expect(200, "POST /config/reload", None);
    http_announce(tracker.http4(), 0xaa, 1);
    // It is written down as much as there ever is.
    let message = "DEBUG api: API request client=\"127.0.0.1\" method=\"DELETE\" \
                route=\"/api/v1/keys/{id}\"";
    tracker.wait_until(message, |it| lines(it, message) == 1);
    assert!(lines(&tracker, "DEBUG front: ") >= 10, "{}", tracker.log());
    let tail = api.expect(200, "GET /log", None).to_string();
    let [path, query] = ["a-secret-path", "a-secret-query"];
    for hidden in [&key, &chosen, &token, &secret, unknown, wrong, TOKEN, path, query] {
        assert!(!tracker.log().contains(hidden), "{hidden} in\n{}", tracker.log());
        assert!(!tail.contains(hidden), "{hidden} in {tail}");
    }
}

/// `journalctl -p warning` shows only lines that begin with their priority.
#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let directory = Directory::new();
    let file = directory.write("tidegate.toml", &config(0, 0, ""));
    let (ours, journal) = UnixStream::pair().unwrap();
    let journal = File::from(OwnedFd::from(journal));
    let place = journal.metadata().unwrap();
    let mut command = tidegate(&["serve", "--memory", "--config", file.to_str().unwrap()]);
    command.env("JOURNAL_STREAM", format!("{}:{}", place.dev(), place.ino()));
    let mut child = command.stdout(Stdio::null()).stderr(journal).spawn().unwrap();
    drop(command);
    let first =
        BufReader::new(ours).lines().map_while(Result::ok).find(|line| line.contains(" INFO "));
    child.kill().unwrap();
    child.wait().unwrap();
    let first = first.unwrap();
    assert!(first.starts_with("<6>2"), "{first}");
}
