//! `[[listener]]` tables with settings of their own.

use std::net::SocketAddr;

use harness::http::Connection;

use crate::clients::{Udp, has, http, http_announce, open_websocket, u32_at};
use crate::process::{Directory, Tracker, is_listening, run, stderr, stdout};
use crate::site;

const DENIED: &str = "on the tracker's deny list";
const NOT_ALLOWED: &str = "not on the tracker's allow list";

/// Returns a `[[listener]]` table at the tracker's address `number`, port 0. Tables are distinguished by their
/// addresses, so each needs another.
fn table(protocol: &str, number: u8, more: &str) -> String {
    let ip = site::tracker(number);
    format!("[[listener]]\nprotocol = \"{protocol}\"\nlisten = [\"{ip}:0\"]\n{more}\n")
}

fn http_at(tracker: &Tracker, number: u8) -> SocketAddr {
    tracker.listener("http", site::tracker(number))
}

fn udp_at(tracker: &Tracker, number: u8) -> SocketAddr {
    tracker.listener("udp", site::tracker(number))
}

fn line(torrent: u8) -> String {
    format!("{torrent:02x}").repeat(20) + "\n"
}

fn counted(tracker: &Tracker, name: &str, (protocol, address): (&str, SocketAddr), of: &str) {
    let series = format!("tidegate_{name}{{listener=\"{address}\",protocol=\"{protocol}\",{of}}}");
    tracker.wait_until(&series, |it| it.metric(&series) == 1.0);
}

#[test]
fn applies_lists_per_listener_and_reloads_them() {
    let directory = Directory::new();
    let deny = directory.write("deny.txt", &line(0xdd)).display().to_string();
    let allow = directory.write("allow.txt", &line(0xaa)).display().to_string();
    let (open, own, late) = (2, 3, 4);
    let late_ip = site::tracker(late);
    let sections = format!("[access]\nmode = \"deny\"\ndeny = \"{deny}\"\n");
    let allowed = format!("access.mode = \"allow\"\naccess.allow = \"{allow}\"");
    let tables = sections.clone()
        + &table("http", open, "access.mode = \"open\"\naccess.deny = \"\"")
        + &table("http", own, &allowed)
        + &table("udp", own, &allowed);
    let tracker = Tracker::start(directory, &tables);
    let (open_at, own_at) = (http_at(&tracker, open), http_at(&tracker, own));
    let own_udp = udp_at(&tracker, own);
    let answers = |torrent| {
        let http = [tracker.http4(), tracker.http6(), open_at, own_at];
        let http = http.map(|address| http_announce(address, torrent, 1001));
        let udp = [tracker.udp4(), own_udp].map(|to| Udp::connect(to).announce(torrent, 1001));
        let mut text = String::new();
        for answer in http.iter().chain(&udp) {
            text.push(if has(answer, DENIED) {
                'd'
            } else if has(answer, NOT_ALLOWED) {
                'n'
            } else {
                'y'
            });
        }
        text
    };
    assert_eq!([answers(0xdd), answers(0xaa), answers(0xbb)], ["ddyddd", "yyyyyy", "yyynyn"]);
    let entries = |listener: &str, list: &str| {
        tracker.metric(&format!("tidegate_access_list_entries{{{listener}list=\"{list}\"}}"))
    };
    let labels = |protocol| {
        let address = if protocol == "udp" { own_udp } else { own_at };
        format!("listener=\"{address}\",protocol=\"{protocol}\",")
    };
    assert_eq!([entries("", "deny"), entries("", "allow")], [1.0, 0.0]);
    assert_eq!([entries(&labels("udp"), "allow"), entries(&labels("http"), "allow")], [1.0, 1.0]);
    counted(&tracker, "refusals_total", ("udp", tracker.udp4()), "reason=\"denied\"");

    // The files of tables are followed as well.
    tracker.directory.write("allow.txt", &(line(0xaa) + &line(0xbb)));
    tracker.wait_until("followed", |_| entries(&labels("udp"), "allow") == 2.0);
    assert_eq!(answers(0xbb), "yyyyyy");
    tracker.wait_for_log("lists=\"2 allowed, 1 denied");

    // A reload changes a table's settings, but neither adds nor removes listeners.
    let tables = sections
        + &table("http", own, "")
        + &table("udp", own, "access.mode = \"open\"\naccess.deny = \"\"")
        + &table("http", late, "");
    tracker.reload_with(&tables);
    assert_eq!(answers(0xdd), "ddyddy", "the one that is gone from the file serves on");
    assert!(!tracker.admin("/metrics").1.contains(&format!("{late_ip}:")));
    let change = |number| format!("[[listener]] http {}:0", site::tracker(number));
    let changes = [late, open].map(change).join(", ");
    tracker.wait_for_log(&format!("some changes need a restart changes=\"{changes}"));
    // An upgrade does both.
    tracker.upgrade();
    assert!(has(&http_announce(http_at(&tracker, late), 0xdd, 1001), DENIED));
    assert!(!is_listening(open_at));
    assert_eq!(u32_at(&Udp::connect(udp_at(&tracker, own)).announce(0xdd, 1001), 0), 1);
}

#[test]
fn applies_limits_and_protocols_per_listener() {
    let (small, strict) = (2, 3);
    let tables = table("http", small, "http.connections_max = 2\nhttp.websocket = false")
        + &table("http", strict, "tracker.private_addresses = \"deny\"");
    let variables = [("TIDEGATE_HTTP__WORKERS", "1")];
    let tracker = Tracker::start_with(Directory::new(), &tables, &variables);
    let (small, strict) = (http_at(&tracker, small), http_at(&tracker, strict));
    // Returns a connection, and the status of the response unless it is closed.
    let hold = |to: SocketAddr| {
        let mut connection = Connection::open(to).unwrap();
        let _ = connection.send("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let status = connection.receive().ok().map(|response| response.status);
        (connection, status)
    };
    // Without WebSockets, it is a request for the public page.
    let (_first, status) = open_websocket(small, "/");
    assert_eq!(status, 200);
    let (web, status) = open_websocket(tracker.http4(), "/");
    assert_eq!(status, 101);
    let (_second, status) = hold(small);
    assert_eq!(status, Some(404));
    assert_eq!(hold(small).1, None, "two are held already");
    let others: Vec<_> = (0..5).map(|_| hold(tracker.http4())).collect();
    assert!(others.iter().all(|(_, status)| status.is_some()));
    counted(&tracker, "drops_total", ("http", small), "reason=\"connection_limit\"");
    drop(web);

    let private = http_announce(strict, 0xaa, 1001);
    assert!(has(&private, "other peers cannot reach your address"), "{}", private.escape_ascii());
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1001), "8:complete"));
    assert_eq!(http(strict, "/none").0, 404);
    counted(&tracker, "refusals_total", ("http", strict), "reason=\"address_not_public\"");
}

#[test]
fn shows_and_checks_listener_tables() {
    let directory = Directory::new();
    let sections = "[udp]\nlisten = []\n[http]\nlisten = []\n[admin]\nlisten = []\n";
    let table = table("http", 1, "access.mode = \"deny\"\naccess.deny = \"/no/such\"");
    let file = directory.write("tidegate.toml", &(sections.to_owned() + &table));
    let file = file.to_str().unwrap();
    let shown = stdout(&run(&["config", "show", "--config", file]));
    assert!(shown.contains(&format!("access.mode = \"deny\"  # {file}:10\n")), "{shown}");
    let message = stderr(&run(&["config", "check", "--config", file]));
    assert!(message.contains("/no/such"), "{message}");
}
