//! Access lists: every protocol applies them, and changes of their files are followed.

use serde_json::{Value, json};

use crate::api::start_in;
use crate::clients::{Udp, has, http_announce, u32_at};
use crate::process::{Directory, Tracker};

crate::site::on_engines! { applies_and_follows_the_deny_list }

const FAILURES: &str = "tidegate_reload_failures_total";
const REASON: &[u8] = b"this torrent is on the tracker's deny list";

const STATE: &str = "[state]\ndir = \"STATE_DIR\"\n";

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

#[test]
fn applies_and_follows_the_deny_list() {
    let tracker = start();
    assert!(is_denied(&tracker, 0xdd) && !is_denied(&tracker, 0xee));
    assert_eq!(tracker.metric("tidegate_access_list_entries{list=\"deny\"}"), 1.0);
    // Replacing the file is enough.
    tracker.directory.write("deny.txt", &(line(0xee) + &line(0xef)));
    let entries = "tidegate_access_list_entries{list=\"deny\"}";
    tracker.wait_until("followed", |it| it.metric(entries) == 2.0);
    assert!(is_denied(&tracker, 0xee) && !is_denied(&tracker, 0xdd));
    assert_eq!(tracker.metric(FAILURES), 0.0);
    let message = "lists=\"0 allowed, 2 denied";
    tracker.wait_for_log(message);
}

/// `access.mode` is "open" by default. An entry of the API holds nevertheless, and so does one of a file.
#[test]
fn deny_lists_hold_in_every_mode() {
    let directory = Directory::new();
    let deny = directory.write("deny.txt", &line(0xee));
    let (tracker, api) = start_in(directory, &format!("[access]\ndeny = {deny:?}\n"));
    assert!(is_denied(&tracker, 0xee) && !is_denied(&tracker, 0xdd));
    api.expect(204, &format!("PUT /lists/deny/{}", line(0xdd).trim()), None);
    assert!(is_denied(&tracker, 0xdd));
    api.expect(204, &format!("DELETE /lists/deny/{}", line(0xdd).trim()), None);
    assert!(!is_denied(&tracker, 0xdd));
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
    let more = format!("[access]\ndeny = {deny:?}\nprivate_and_open = true\n{STATE}{table}");
    let more = more.replace("STATE_DIR", &directory.path("state").display().to_string());
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
    let (_, _, text) = api.try_send("GET /lists/deny?format=text", "", None).unwrap();
    assert_eq!(text, format!("{}{} # {}\n", line(0xab), line(0xee).trim(), deny.display()));
}

#[test]
fn rereads_lists_and_mode_on_sighup() {
    let tracker = start();
    let allow = tracker.directory.write("allow.txt", &line(0xaa));
    tracker.configure(&format!("[access]\nmode = \"allow\"\nallow = \"{}\"\n", allow.display()));
    tracker.reload();
    let entries = "tidegate_access_list_entries{list=\"allow\"}";
    tracker.wait_until("reloaded", |it| it.metric(entries) == 1.0);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1001), "10:incompletei1e"));
    let refused = http_announce(tracker.http4(), 0xdd, 1001);
    assert!(has(&refused, "not on the tracker's allow list"), "{}", refused.escape_ascii());
    // It is announced for the first time, and may be listed soon.
    assert!(has(&refused, "8:retry ini1e"), "{}", refused.escape_ascii());
    // From now on the other file is followed.
    tracker.directory.write("allow.txt", &(line(0xaa) + &line(0xdd)));
    tracker.wait_until("followed", |it| it.metric(entries) == 2.0);
    assert!(has(&http_announce(tracker.http4(), 0xdd, 1001), "10:incompletei1e"));
}

#[test]
fn refusals_become_quiet_by_a_reload() {
    let tracker = start();
    assert!(is_denied(&tracker, 0xdd));
    let deny = tracker.directory.path("deny.txt");
    let lists = format!("[access]\ndeny = \"{}\"\n", deny.display());
    tracker.configure(&format!("{lists}quiet = [\"denied=7200\"]\n"));
    tracker.reload();
    tracker.wait_until("reloaded", |it| it.metric("tidegate_reloads_total") == 1.0);
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
