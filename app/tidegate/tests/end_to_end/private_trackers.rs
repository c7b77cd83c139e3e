//! Private trackers and bans: every protocol applies them, and changes of files and configuration are
//! followed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use harness::http::Connection;
use serde_json::json;

use crate::api::{Caller, start_in};
use crate::clients::{
    Udp, announce_query, has, http, http_announce, open_websocket, try_http, u32_at, upgrade,
    ws_announce,
};
use crate::process::{Directory, Tracker};
use crate::site;

const ANNA: &str = "anna-0123456789ab";
const BERT: &str = "bert_0123456789ABCDEF0123456789ABCDEF";
const MISSING: &str = "this tracker is private: the announce URL must contain your key";
const UNKNOWN: &str = "unknown key in the announce URL";
const SERVED: &str = "10:incompletei";

/// A private tracker that knows Anna's key.
fn start(more: &str) -> Tracker {
    let (directory, more) = private(more);
    Tracker::start(directory, &more)
}

/// A directory with a file of keys, and the configuration of a private tracker that reads it.
fn private(more: &str) -> (Directory, String) {
    let directory = Directory::new();
    let keys = directory.write("keys.txt", &format!("# ours\n{ANNA} Anna\n"));
    let more = format!("[access]\nprivate = true\nkeys = \"{}\"\n{more}", keys.display());
    (directory, more)
}

/// Announces over HTTP with `target`, in which `{}` stands for the query, and returns the body.
fn announce(address: SocketAddr, target: &str) -> Vec<u8> {
    let target = target.replace("{}", &announce_query(0xaa, 1001));
    let (status, body) = http(address, &target);
    assert_eq!(status, 200, "{target}");
    body
}

/// Returns whether all protocols over both families serve `key`. Panics unless they agree.
fn is_served(tracker: &Tracker, key: &str) -> bool {
    let mut answers = Vec::new();
    for (udp, address) in [(tracker.udp4(), tracker.http4()), (tracker.udp6(), tracker.http6())] {
        let udp = Udp::connect(udp);
        for url in [
            format!("/announce/{key}"),
            format!("/{key}/announce"),
            format!("/announce?passkey={key}"),
        ] {
            let reply = udp.announce_at(0xaa, 1001, &url);
            answers.push(u32_at(&reply, 0) == 1);
            assert!(answers[answers.len() - 1] || has(&reply, UNKNOWN), "{}", reply.escape_ascii());
        }
        for target in [
            format!("/announce/{key}?{{}}"),
            format!("/{key}/announce?{{}}"),
            format!("/announce?passkey={key}&{{}}"),
            format!("/announce?key={key}&{{}}&key=1A2B3C4D"),
        ] {
            let body = announce(address, &target);
            answers.push(has(&body, SERVED));
            assert!(answers[answers.len() - 1] || has(&body, UNKNOWN), "{}", body.escape_ascii());
        }
        let scrape = format!("/scrape/{key}?info_hash={}", "%aa".repeat(20));
        answers.push(has(&http(address, &scrape).1, "5:files"));
        for target in [format!("/{key}"), format!("/announce/{key}"), format!("/?passkey={key}")] {
            let status = upgrade(address, &target);
            answers.push(status == 101);
            assert!([101, 403].contains(&status), "{target}: {status}");
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{key}: {answers:?}");
    answers[0]
}

#[test]
fn refuses_requests_without_a_key() {
    let tracker = start("");
    for (udp, address) in [(tracker.udp4(), tracker.http4()), (tracker.udp6(), tracker.http6())] {
        let udp = Udp::connect(udp);
        for reply in [udp.announce(0xaa, 1001), udp.announce_at(0xaa, 1001, "/announce?x=y")] {
            assert!(u32_at(&reply, 0) == 3 && has(&reply, MISSING), "{}", reply.escape_ascii());
        }
        // Scrapes over UDP carry no URL.
        assert!(has(&udp.try_scrape(0xaa), "a scrape over UDP cannot carry your key"));
        let body = announce(address, "/announce?{}&key=1A2B3C4D");
        assert!(has(&body, MISSING) && has(&body, "8:retry in5:never"), "{}", body.escape_ascii());
        let (_, body) = http(address, &format!("/scrape?info_hash={}", "%aa".repeat(20)));
        assert!(has(&body, MISSING), "{}", body.escape_ascii());
        assert_eq!(upgrade(address, "/"), 403);
    }
    // At both listeners of each protocol.
    for (protocol, reason, count) in [
        ("udp", "key_missing", 4.0),
        ("http", "key_missing", 6.0),
        ("udp", "scrape_without_key", 2.0),
    ] {
        let labels = [("protocol", protocol), ("reason", reason)];
        tracker.wait_until(reason, |it| it.sum("tidegate_refusals_total", &labels) == count);
    }
}

//= bep41#url-data-use
//= type=test
#[test]
fn applies_and_follows_the_file_of_keys() {
    let tracker = start("");
    assert!(is_served(&tracker, ANNA) && !is_served(&tracker, BERT));
    tracker.directory.write("keys.txt", &format!("{BERT}\n"));
    tracker.wait_until("followed", |it| it.metric("tidegate_reloads_total") == 1.0);
    assert!(!is_served(&tracker, ANNA) && is_served(&tracker, BERT));
    // A file with a mistake changes nothing, and the log never contains keys.
    tracker.directory.write("keys.txt", &format!("{ANNA}\n{BERT}!\n"));
    tracker.wait_until("noticed", |it| it.metric("tidegate_reload_failures_total") == 1.0);
    assert!(!is_served(&tracker, ANNA) && is_served(&tracker, BERT));
    let log = tracker.log();
    assert!(log.contains("keys.txt:2: character 38 is not one of"), "{log}");
    assert!(log.contains("lists=\"0 allowed, 0 denied, 1 keys\""), "{log}");
    assert!(![ANNA, BERT].iter().any(|key| log.contains(key)), "{log}");
}

/// A WebSocket stops its own peers only, whatever their peer id.
#[test]
fn a_stop_by_another_websocket_leaves_the_peer() {
    let tracker = start("");
    tracker.directory.write("keys.txt", &format!("{ANNA}\n{BERT}\n"));
    tracker.wait_until("followed", |it| it.metric("tidegate_reloads_total") == 1.0);
    let [mut anna, mut bert] =
        [ANNA, BERT].map(|key| open_websocket(tracker.http4(), &format!("/{key}")).0);
    assert!(has(&ws_announce(&mut anna, 0xaa, "started"), "\"incomplete\":1"));
    assert!(has(&ws_announce(&mut bert, 0xaa, "stopped"), "\"incomplete\":1"));
    assert!(has(&ws_announce(&mut anna, 0xaa, "stopped"), "\"incomplete\":0"));
}

/// 200 announces in one go, each with as much as 100 Gbit/s make in a second.
#[test]
fn a_key_is_credited_what_a_line_can_transfer_however_often_it_reports() {
    const SECOND: u64 = 12_500_000_000;
    let (directory, more) = private("[state]\nflush_s = 1\n");
    let (tracker, api) = start_in(directory, &more);
    let key = api.expect(201, "POST /keys", Some(&json!({ "key": BERT })));
    let uploaded = || {
        let key = api.expect(200, &format!("GET /keys/{}", key["id"]), None);
        (key["totals"]["announces"].as_u64().unwrap(), key["totals"]["uploaded"].as_u64().unwrap())
    };
    let report = |bytes: u64| {
        let query = announce_query(0xaa, 1001);
        format!("GET /announce/{BERT}?{query}&uploaded={bytes} HTTP/1.1\r\nHost: x\r\n\r\n")
    };
    let start = Instant::now();
    let mut connection = Connection::open(tracker.http4()).unwrap();
    let all: String = (0..200).map(|number| report(number * SECOND)).collect();
    connection.send(all).unwrap();
    (0..200).for_each(|_| assert!(connection.receive().unwrap().has(SERVED)));
    let most = (start.elapsed().as_secs() + 2) * SECOND;
    tracker.wait_until("totals", |_| uploaded().0 == 200);
    let credited = uploaded().1;
    assert!(credited > 0 && credited <= most, "{credited} of {most}");
    let excessive = "tidegate_key_excessive_reports_total";
    tracker.wait_until(excessive, |it| it.metric(excessive) > 100.0);
    // Without a bound, from the next announce on.
    api.expect(200, "PATCH /config", Some(&json!({ "access.key_mbit_per_s": 0 })));
    connection.send(report(999 * SECOND)).unwrap();
    assert!(connection.receive().unwrap().has(SERVED));
    tracker.wait_until("the rest", |_| uploaded() == (201, credited + 800 * SECOND));
}

#[test]
fn refuses_a_reload_that_mixes_private_and_open_listeners() {
    let table = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.2:0\"]\n";
    let tracker = start(table);
    let other = tracker.listener("http", [127, 0, 0, 2]);
    let both_private = || {
        let both = [tracker.http4(), other].map(|at| has(&http_announce(at, 0xaa, 1), MISSING));
        both == [true; 2]
    };
    assert!(both_private());
    let keys = tracker.directory.path("keys.txt");
    let private = format!("[access]\nprivate = true\nkeys = {keys:?}\n");
    let failures = |count| {
        tracker.wait_until("refused", |it| it.metric("tidegate_reload_failures_total") == count);
    };
    tracker.configure(&format!("{private}{table}access.private = false\n"));
    tracker.reload();
    failures(1.0);
    tracker.wait_for_log("access.private_and_open = true");
    // Open together, and private together.
    tracker.reload_with(&format!(
        "[access]\nkeys = {keys:?}\n[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.2:0\"]\n"
    ));
    assert!(!both_private());
    tracker.reload_with(&private);
    assert!(both_private());
    // Valid by itself, but the private listener serves until the next restart.
    let own = format!("{private}{table}access.private = true\n");
    tracker.reload_with(&own);
    tracker.configure("");
    tracker.reload();
    failures(2.0);
    tracker.wait_for_log("(with the listeners that serve until the next restart)");
    assert!(both_private());
    // The API cannot do what the file may not.
    let (directory, more) = self::private(&format!("{table}access.private = true\n"));
    let (tracker, api) = start_in(directory, &more);
    let open = serde_json::json!({ "access.private": false });
    let (status, body) = api.ask("PATCH /config", Some(&open));
    assert!(status == 409 && body.to_string().contains("private_and_open"), "{status} {body}");
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), MISSING));
}

#[test]
fn shows_urls_with_a_place_for_the_key() {
    let tracker = start("");
    let (udp, http) = (tracker.udp4(), tracker.http4());
    let output = tracker.output();
    for line in [
        format!("  announce URL  udp://{udp}/announce/KEY"),
        format!("  announce URL  http://{http}/announce/KEY"),
        format!("  WebTorrent    ws://{http}/KEY"),
        "  KEY stands for a user's key: `tidegate admin keys create` makes one and prints its URLs"
            .into(),
    ] {
        assert!(output.lines().any(|found| found == line), "{line}\n{output}");
    }
    assert!(!output.lines().any(|line| line.ends_with("/announce")), "{output}");
}

#[test]
fn refuses_client_software_by_peer_id() {
    let tracker = Tracker::start(Directory::new(), "");
    let udp = Udp::connect(tracker.udp4());
    let why = "this tracker does not serve your BitTorrent client";
    let is_refused = || {
        let both = [udp.announce(0xaa, 1), http_announce(tracker.http4(), 0xaa, 1)];
        let [udp, http] = both.map(|answer| has(&answer, why));
        assert_eq!(udp, http);
        udp
    };
    assert!(!is_refused());
    for (rules, expected) in [
        ("clients_deny = [\"-XX0001-\"]", true),
        ("clients_allow = [\"-X\"]", false),
        ("clients_allow = [\"-TR\"]", true),
        ("", false),
    ] {
        tracker.reload_with(&format!("[access]\n{rules}\n"));
        assert_eq!(is_refused(), expected, "{rules}");
    }
}

const BANS: &str = "[state]\nflush_s = 1\n[limits]\nexempt = []\n[bans]\n";

fn is_banned(tracker: &Tracker) -> bool {
    try_http(tracker.http4(), "/none").is_err()
}

/// Checks that the only ban is an automatic one for the configured time, and lifts it.
fn lift_ban(tracker: &Tracker, api: &Caller) {
    let bans = || api.expect(200, "GET /bans", None)["bans"].as_array().unwrap().clone();
    tracker.wait_until("it is recorded", |_| !bans().is_empty());
    let [ban] = &bans()[..] else { panic!("{:?}", bans()) };
    let network = format!("{}/32", site::client(1));
    assert_eq!((&ban["network"], &ban["automatic"]), (&network.as_str().into(), &true.into()));
    let [created, expires] = ["created", "expires"].map(|name| ban[name].as_i64().unwrap());
    // It is recorded a moment after it was made.
    assert!((3500..=3601).contains(&(expires - created)), "{ban}");
    api.expect(204, &format!("DELETE /bans/{network}"), None);
}

#[test]
fn bans_clients_that_guess_keys() {
    let (directory, more) = private(&format!("{BANS}wrong_keys_per_min = 5\n"));
    let (tracker, api) = start_in(directory, &more);
    // A new minute may begin meanwhile, and the count with it.
    for number in 0..12 {
        assert!(number >= 6 || !is_banned(&tracker));
        let _ = try_http(tracker.http4(), &format!("/announce/guess-number-{number:04}"));
    }
    tracker.wait_until("banned", is_banned);
    // The client's IPv6 address is another prefix.
    assert!(has(&announce(tracker.http6(), &format!("/announce/{ANNA}?{{}}")), SERVED));
    lift_ban(&tracker, &api);
    assert!(has(&announce(tracker.http4(), &format!("/announce/{ANNA}?{{}}")), SERVED));
}

#[test]
fn bans_clients_that_send_garbage() {
    let more = format!("{BANS}malformed_per_min = 5\n");
    let (tracker, api) = start_in(Directory::new(), &more);
    let udp = Udp::connect(tracker.udp4());
    for _ in 0..12 {
        let mut stream = TcpStream::connect(tracker.http4()).unwrap();
        let _ = stream.write_all(b"\x00\x01nonsense\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    tracker.wait_until("banned", is_banned);
    // UDP drops without a reply.
    let dropped = [("protocol", "udp"), ("reason", "banned")];
    udp.send_announce(0xaa, 1001).unwrap();
    tracker.wait_until("dropped", |it| it.sum("tidegate_drops_total", &dropped) == 1.0);
    lift_ban(&tracker, &api);
    assert_eq!(u32_at(&udp.announce(0xaa, 1001), 0), 1);
}
