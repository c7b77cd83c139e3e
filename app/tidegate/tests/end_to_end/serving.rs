//! Serving: one swarm for all protocols, metrics, reloads and stopping.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use crate::api::Caller;
use crate::clients::{Udp, has, http, http_announce, u32_at};
use crate::process::{Directory, PATIENCE, Signal, Tracker, start, tidegate_of_users};
use crate::site;

crate::site::on_engines! {
    shares_one_swarm_between_protocols_and_families,
    counts_requests_by_listener_and_family,
}

#[test]
fn shares_one_swarm_between_protocols_and_families() {
    let tracker = start("");
    let reply = Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    assert_eq!((u32_at(&reply, 8), reply.len()), (1800, 20));
    // HTTP returns the UDP peer, and peers of both families.
    let body = http_announce(tracker.http4(), 0xaa, 1002);
    let own = site::client(1).octets();
    let peers = [b"5:peers6:".as_slice(), &own, b"\x03\xe9e"].concat();
    assert!(has(&body, peers), "{}", body.escape_ascii());
    let body = http_announce(tracker.http6(), 0xaa, 1003);
    assert!(has(&body, "10:incompletei3e") && has(&body, "5:peers12:"), "{}", body.escape_ascii());
    // UDP returns peers of its own family only.
    let v6 = Udp::connect(tracker.udp6());
    let reply = v6.announce(0xaa, 1004);
    assert_eq!((u32_at(&reply, 12), reply.len()), (4, 20 + 18));
    assert_eq!(reply[36..], 1003_u16.to_be_bytes());
    let reply = Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    assert_eq!(reply[20..], [&own[..], &[3, 234]].concat());
    assert_eq!(v6.scrape(0xaa), [0, 0, 4]);
    let (status, body) = http(tracker.http4(), &format!("/scrape?info_hash={}", "%aa".repeat(20)));
    assert_eq!(status, 200);
    assert!(has(&body, "10:incompletei4e"), "{}", body.escape_ascii());
}

#[test]
fn counts_requests_by_listener_and_family() {
    let tracker = start("");
    let udp = Udp::connect(tracker.udp6());
    udp.announce(0xaa, 1001);
    udp.announce(0xbb, 1001);
    udp.scrape(0xaa);
    http_announce(tracker.http4(), 0xaa, 1002);
    http(tracker.http4(), "/nothing");
    // Not tracker traffic: dropped.
    UdpSocket::bind((site::client(1), 0)).unwrap().send_to(b"hello", tracker.udp4()).unwrap();
    let series = |name: &str, address: String, protocol: &str, family: &str, kind: &str| {
        format!(
            "tidegate_{name}{{listener=\"{address}\",protocol=\"{protocol}\",\
             family=\"{family}\",kind=\"{kind}\"}}"
        )
    };
    for name in ["requests_total", "responses_total"] {
        let udp = |kind| series(name, tracker.udp6().to_string(), "udp", "v6", kind);
        let http = |kind| series(name, tracker.http4().to_string(), "http", "v4", kind);
        for (series, value) in [
            (udp("connect"), 1.0),
            (udp("announce"), 2.0),
            (udp("scrape"), 1.0),
            (http("announce"), 1.0),
            (http("other"), 1.0),
            (http("scrape"), 0.0),
        ] {
            // Workers publish their counts periodically.
            tracker.wait_until(&series, |it| it.metric(&series) == value);
        }
    }
    let drop = [("listener", &*tracker.udp4().to_string()), ("reason", "too_short")];
    tracker.wait_until("the drop", |it| it.sum("tidegate_drops_total", &drop) == 1.0);
    assert_eq!(tracker.metric("tidegate_torrents"), 2.0);
    assert_eq!(tracker.metric("tidegate_peers{family=\"v4\",role=\"leecher\"}"), 1.0);
    assert_eq!(tracker.metric("tidegate_peers{family=\"v6\",role=\"leecher\"}"), 2.0);
}

#[test]
fn says_where_the_dashboard_is_and_what_a_restart_loses() {
    let tracker = start("");
    let dashboard = format!("  dashboard     http://{}/\n", tracker.admin_address());
    let lost = "  records are in memory only: ";
    assert!(tracker.output().contains(&dashboard), "{}", tracker.output());
    assert!(tracker.output().contains(lost), "{}", tracker.output());
    // A default configuration bounds the memory.
    let memory = tracker.output().lines().find_map(|line| {
        let rest = line.strip_prefix("  torrents and peers may use ")?;
        rest.strip_suffix(" MiB of memory (limits.memory_mib)")?.parse().ok()
    });
    assert!(memory.is_some_and(|mib: u64| mib > 0), "{}", tracker.output());
    let state = Directory::new();
    let durable = start(&format!("[state]\ndir = {:?}\n", state.path("state")));
    assert!(!durable.output().contains(lost), "{}", durable.output());
    let place = format!("  state         {}\n", state.path("state").display());
    assert!(durable.output().contains(&place), "{}", durable.output());
}

/// Start, announce, Ctrl-C, start: the peer and the token are there, without a configuration of state.
#[test]
fn keeps_peers_and_token_by_default() {
    let home = Directory::new();
    let serve = |arguments: &[&str]| {
        let mut command = tidegate_of_users(&[&["serve"], arguments].concat());
        command.env("XDG_STATE_HOME", home.path("state")).env("TIDEGATE_UNSTABLE_KEYS", "0");
        // The harness has trackers keep nothing that do not say it.
        command.env("TIDEGATE_STATE__DIR", "auto");
        Tracker::start_by(command, Directory::new(), "")
    };
    let place = home.path("state/tidegate");
    let token = || fs::read_to_string(place.join("first-token")).unwrap_or_default();
    let mut tracker = serve(&[]);
    let says = format!("  state         {}\n", place.display());
    assert!(tracker.output().contains(&says), "{}", tracker.output());
    http_announce(tracker.http4(), 0xaa, 1001);
    let first = token();
    assert!(first.starts_with("tg_"), "{first}");
    tracker.signal(Signal::SIGINT);
    assert!(tracker.wait_for_end().success());

    let mut tracker = serve(&[]);
    let second = http_announce(tracker.http4(), 0xaa, 1002);
    assert!(has(&second, "10:incompletei2e"), "{}", second.escape_ascii());
    assert_eq!(token(), first);
    let api = Caller { address: tracker.admin_address(), token: first.trim().into() };
    let known = api.expect(200, "GET /torrents", None);
    assert!(known.to_string().contains(&"aa".repeat(20)), "{known}");
    tracker.signal(Signal::SIGINT);
    assert!(tracker.wait_for_end().success());

    // Nothing of that is read or written with --memory; --state names another place.
    let tracker = serve(&["--memory"]);
    assert!(tracker.output().contains("  records are in memory only: "), "{}", tracker.output());
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1003), "10:incompletei1e"));
    drop(tracker);
    let other = home.path("other");
    let tracker = serve(&["--state", other.to_str().unwrap()]);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1004), "10:incompletei1e"));
    assert!(other.join("tidegate.db").is_file());
}

#[test]
fn warns_if_it_serves_as_root() {
    let tracker = start("");
    let is_root = tracker.status("Uid").starts_with("0\t");
    assert_eq!(tracker.log().contains("serving as root: name a user in process.user"), is_root);
}

#[test]
fn serves_health_metrics_and_dashboard() {
    let tracker = start("");
    assert_eq!(tracker.admin("/health/ready"), (200, "ready\n".into()));
    assert_eq!(tracker.admin("/health/live"), (200, "live\n".into()));
    assert_eq!(tracker.admin("/metrics").0, 200);
    let (status, page) = tracker.admin("/");
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{page}");
    for target in ["/announce", "/health", "/metrics/x"] {
        assert_eq!(tracker.admin(target).0, 404, "{target}");
    }
    // The HTTP listener does not serve admin pages.
    assert_eq!(http(tracker.http4(), "/metrics").0, 404);
}

#[test]
fn keeps_the_old_configuration_if_the_new_one_is_bad() {
    let tracker = start("[tracker]\ninterval_s = 1200\n");
    tracker.configure("[tracker]\ninterval_s = 1500\nintervall_min_s = 9\n");
    tracker.reload();
    tracker.wait_until("tried", |it| it.metric("tidegate_reload_failures_total") == 1.0);
    let message = "tidegate.toml:12: unknown key";
    tracker.wait_for_log(message);
    let reply = Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    assert_eq!(u32_at(&reply, 8), 1200);
    // Settings that need a restart are named, and the others are applied.
    tracker.reload_with("[tracker]\ninterval_s = 1600\n[limits]\nmemory_mib = 64\n");
    let message = "some changes need a restart changes=\"limits.memory_mib\"";
    tracker.wait_for_log(message);
    assert_eq!(u32_at(&Udp::connect(tracker.udp4()).announce(0xaa, 1001), 8), 1600);
}

#[test]
fn stops_on_sigterm_and_sigint() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut tracker = start("");
        // An idle connection, which is closed.
        let mut idle = TcpStream::connect(tracker.http4()).unwrap();
        idle.set_read_timeout(Some(PATIENCE)).unwrap();
        idle.write_all(b"GET /scrape HTTP/1.1\r\n\r\n").unwrap();
        assert!(idle.read(&mut [0; 512]).unwrap() > 12);
        tracker.signal(signal);
        assert_eq!(idle.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
    }
}
