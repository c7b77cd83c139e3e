//! Access lists: every protocol applies them, and changes of their files are followed.

use serde_json::{Value, json};

use crate::api::{Caller, start_in};
use crate::clients::{Udp, has, http, http_announce, open_websocket, u32_at, ws_announce};
use crate::process::{Directory, Tracker};

const FAILURES: &str = "tidegate_reload_failures_total";
const REASON: &[u8] = b"this torrent is on the tracker's deny list";

fn line(torrent: u8) -> String {
    format!("{torrent:02x}").repeat(20) + "\n"
}

/// A tracker whose deny list holds 0xdd.
fn start() -> Tracker {
    let directory = Directory::new();
    let deny = directory.write("deny.txt", &format!("# not here\n{}", line(0xdd)));
    let more = format!("[access]\nmode = \"deny\"\ndeny = \"{}\"\n", deny.display());
    Tracker::start(directory, &more)
}

/// Returns whether UDP and HTTP over both families refuse the torrent. Panics unless they agree.
fn is_denied(tracker: &Tracker, torrent: u8) -> bool {
    let mut answers = Vec::new();
    for (udp, http) in [(tracker.udp4(), tracker.http4()), (tracker.udp6(), tracker.http6())] {
        let reply = Udp::connect(udp).announce(torrent, 1001);
        answers.push(u32_at(&reply, 0) == 3 && reply[8..].starts_with(REASON));
        let body = http_announce(http, torrent, 1001);
        answers.push(has(&body, REASON) && has(&body, "8:retry in5:never"));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    answers[0]
}

/// Health names the reason by which nearly all requests are refused, with its remedy, and what a failed reload found.
#[test]
fn health_names_what_refuses_everybody_and_why_a_reload_failed() {
    let directory = Directory::new();
    let deny = directory.write("deny.txt", &line(0xee));
    let (tracker, api) = start_in(directory, &format!("[access]\ndeny = {deny:?}\n"));
    let items = || api.expect(200, "GET /status", None)["health"].to_string();
    for _ in 0..60 {
        http_announce(tracker.http4(), 0xee, 1001);
    }
    tracker.wait_until("the warning", |_| items().contains("refused for the same reason: denied"));
    assert!(items().contains("Remove the torrent from the deny list"), "{}", items());
    tracker.configure("[access]\nmode = 7\n");
    tracker.reload();
    let remedy = "`tidegate config check --config ";
    tracker.wait_until("the failure", |_| items().contains(remedy));
    assert!(items().contains("access.mode"), "{}", items());
}

/// The API says who is refused, by which list, and what list files hold.
#[test]
fn tells_how_announces_of_a_torrent_end() {
    let directory = Directory::new();
    let deny = directory.write("deny.txt", &format!("# not here\n{}", line(0xee)));
    let table = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:0\"]\naccess.mode = \"allow\"\n\
                 access.private = true\n";
    let state = directory.path("state");
    let more = format!(
        "[access]\ndeny = {deny:?}\nprivate_and_open = true\n[state]\ndir = {state:?}\n{table}"
    );
    let (tracker, api) = start_in(directory, &more);
    let access = |torrent: u8| {
        let path = format!("GET /torrents/{}/access", line(torrent).trim());
        api.expect(200, &path, None)["access"].as_array().unwrap().clone()
    };
    // Served by the open listeners, and not on the list of the other.
    let ways = access(0xaa);
    assert_eq!(ways.len(), 2, "{ways:?}");
    let closed = ways.iter().find(|way| way["state"] == "not_allowed").unwrap();
    // HTTP, and WebSocket on the same port.
    assert_eq!(closed["needs"], "key");
    assert_eq!(closed["listeners"].as_array().unwrap().len(), 2, "{closed}");
    let open = ways.iter().find(|way| way["state"] == "served").unwrap();
    assert!(open["listeners"].to_string().contains(&tracker.http4().to_string()), "{open}");
    // Its announce URL takes the detail of one that has peers, too.
    assert!(!is_denied(&tracker, 0xaa));
    let detail = api.expect(200, &format!("GET /torrents/{}", line(0xaa).trim()), None);
    assert_eq!(detail["access"].as_array().unwrap(), &ways);
    // A file, with the line; then the API.
    let states = |ways: &[Value]| -> Vec<Value> {
        ways.iter().map(|way| json!([way["state"], way["list"], way["line"]])).collect()
    };
    let file = json!(["denied", deny, 2]);
    assert_eq!(states(&access(0xee)), [file.clone(), file]);
    api.expect(204, &format!("PUT /lists/deny/{}", line(0xaa).trim()), None);
    let live = json!(["denied", "api", null]);
    assert_eq!(states(&access(0xaa)), [live.clone(), live]);
    api.expect(204, &format!("DELETE /lists/deny/{}", line(0xaa).trim()), None);
    api.expect(204, &format!("PUT /torrents/{}/freeze", line(0xaa).trim()), None);
    assert!(states(&access(0xaa)).contains(&json!(["frozen", null, null])));

    // Entries of files count, and are found.
    api.expect(204, &format!("PUT /lists/deny/{}", line(0xab).trim()), None);
    let page = api.expect(200, "GET /lists/deny", None);
    let all = json!([line(0xab).trim(), line(0xee).trim()]);
    assert_eq!((&page["entries"], &page["total"]), (&all, &json!(2)));
    assert_eq!(page["files"], json!([{ "info_hash": line(0xee).trim(), "file": deny }]));
    let found = api.expect(200, "GET /lists/deny?q=ee&limit=1", None);
    assert_eq!((&found["entries"][0], &found["total"]), (&all[1], &json!(1)));
    let (_, _, text) = api.try_send("GET /lists/deny", "Accept: text/plain\r\n", None).unwrap();
    assert_eq!(text, format!("{}{} # {}\n", line(0xab), line(0xee).trim(), deny.display()));
}

#[test]
fn refusals_become_quiet_by_a_reload() {
    let tracker = start();
    assert!(is_denied(&tracker, 0xdd));
    let deny = tracker.directory.path("deny.txt");
    let lists = format!("[access]\ndeny = \"{}\"\n", deny.display());
    tracker.reload_with(&format!("{lists}quiet = [\"denied=7200\"]\n"));
    let answered = http_announce(tracker.http4(), 0xdd, 1001);
    let expected = "8:intervali7200e12:min intervali7200e5:peers0:15:warning message";
    assert!(has(&answered, expected), "{}", answered.escape_ascii());
    assert_eq!(tracker.metric("tidegate_torrents"), 0.0);
}

#[test]
fn reports_a_bad_line_and_keeps_the_old_list() {
    let tracker = start();
    let bad = line(0xee) + "# fine\n" + "abcdef\n";
    let path = tracker.directory.write("deny.txt", &bad);
    tracker.wait_until("noticed", |it| it.metric(FAILURES) == 1.0);
    let place = path.display().to_string();
    let is_named =
        |text: String| text.lines().any(|line| line.contains(&place) && line.contains("line 3"));
    tracker.wait_until("the line is named", |it| is_named(it.log()));
    assert!(is_denied(&tracker, 0xdd) && !is_denied(&tracker, 0xee));
    // SIGHUP fails in the same way.
    tracker.reload();
    tracker.wait_until("tried", |it| it.metric(FAILURES) == 2.0);
    assert!(is_denied(&tracker, 0xdd) && !is_denied(&tracker, 0xee));
    assert_eq!(tracker.metric("tidegate_reloads_total"), 0.0);
    // A removed file keeps the list; a good file replaces it.
    std::fs::remove_file(&path).unwrap();
    tracker.reload();
    tracker.wait_until("tried without a file", |it| it.metric(FAILURES) == 3.0);
    assert!(is_denied(&tracker, 0xdd));
    tracker.directory.write("deny.txt", &line(0xee));
    tracker.wait_until("followed", |it| it.metric("tidegate_reloads_total") == 1.0);
    assert!(is_denied(&tracker, 0xee) && !is_denied(&tracker, 0xdd));
}

/// Returns whether announces of the torrent are refused with this text, by all protocols.
fn is_refused(tracker: &Tracker, torrent: u8, reason: &str) -> bool {
    let reply = Udp::connect(tracker.udp4()).announce(torrent, 1001);
    let over_udp = u32_at(&reply, 0) == 3 && &reply[8..] == reason.as_bytes();
    let over_http = has(&http_announce(tracker.http4(), torrent, 1001), reason);
    let (mut socket, status) = open_websocket(tracker.http4(), "/announce");
    assert_eq!(status, 101);
    let over_ws = has(&ws_announce(&mut socket, torrent, "started"), reason);
    assert_eq!([over_udp, over_http], [over_ws; 2]);
    over_udp
}

/// Reasons need no site and no list, and are kept over restarts and upgrades.
#[test]
fn torrents_are_refused_with_reasons_of_their_own() {
    let state = Directory::new();
    let more = format!("requests_per_s = 0\n[state]\ndir = {:?}\n", state.path("state"));
    let (tracker, api) = start_in(Directory::new(), &more);
    let hash = |torrent| line(torrent).trim().to_owned();
    let access = format!("/torrents/{}/access", hash(0xaa));
    assert!(!is_refused(&tracker, 0xaa, "Replaced"));
    let reason = "Replaced by torrent 17: see the site";
    api.expect(204, &format!("PUT {access}"), Some(&json!({ "reason": reason })));
    assert!(is_refused(&tracker, 0xaa, reason) && !is_refused(&tracker, 0xbb, reason));
    let (_, scraped) = http(tracker.http4(), &format!("/scrape?info_hash={}", "%aa".repeat(20)));
    assert!(has(&scraped, reason), "{}", scraped.escape_ascii());
    let way = &api.expect(200, &format!("GET {access}"), None)["access"][0];
    assert_eq!((&way["state"], &way["reason"]), (&json!("refused"), &json!(reason)));
    let many = json!({ "torrents": [
        { "info_hash": hash(0xbb), "reason": "Dupe" }, { "info_hash": hash(0xcc), "reason": "Trump" },
    ] });
    assert_eq!(api.expect(200, "POST /reasons", Some(&many))["total"], 3);
    let page = api.expect(200, "GET /reasons?limit=2", None);
    assert_eq!(
        (&page["torrents"][1]["reason"], &page["next"]),
        (&json!("Dupe"), &json!(hash(0xbb)))
    );
    refuses_bad_reasons(&api, &access);
    drop(tracker);
    let (tracker, api) = start_in(Directory::new(), &more);
    assert!(is_refused(&tracker, 0xaa, reason) && is_refused(&tracker, 0xcc, "Trump"));
    tracker.upgrade();
    assert!(is_refused(&tracker, 0xbb, "Dupe"));
    let api = Caller { address: tracker.admin_address(), ..api };
    api.expect(204, &format!("DELETE {access}"), None);
    api.expect(404, &format!("DELETE {access}"), None);
    let two = json!([hash(0xbb), hash(0xdd)]);
    assert_eq!(api.expect(200, "DELETE /reasons", Some(&two)), json!({ "changed": 1, "total": 1 }));
    assert!(!is_refused(&tracker, 0xaa, reason) && !is_refused(&tracker, 0xbb, "Dupe"));
    assert!(is_refused(&tracker, 0xcc, "Trump"));
}

fn refuses_bad_reasons(api: &Caller, access: &str) {
    for bad in ["", "say \"no\"", "é", &"x".repeat(201)] {
        let problem = api.expect(400, &format!("PUT {access}"), Some(&json!({ "reason": bad })));
        assert!(problem["detail"].as_str().unwrap().starts_with("reason: expected"), "{problem}");
    }
    let bad = json!({ "torrents": [{ "info_hash": "xy", "reason": "Dupe" }] });
    let problem = api.expect(400, "POST /reasons", Some(&bad));
    assert!(
        problem["detail"].as_str().unwrap().starts_with("torrents[0].info_hash: "),
        "{problem}"
    );
    api.expect(400, "POST /reasons", Some(&json!({ "torrents": [] })));
}
