//! Serving: one swarm for all protocols, and what a start says and keeps.

use std::fs;

use crate::api::Caller;
use crate::clients::{Udp, has, http, http_announce, u32_at};
use crate::process::{Directory, Signal, Tracker, start, tidegate_of_users};
use crate::site;

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
