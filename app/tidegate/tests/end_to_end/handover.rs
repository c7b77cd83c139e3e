//! Swarms that survive upgrades, and sessions of keys that survive upgrades and restarts.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::api::{Caller, start_in};
use crate::clients::{Udp, has, http, own_query};
use crate::process::{Directory, Signal, Tracker, link_binary};

/// Returns the bytes that the key's peers have uploaded, from `GET /keys/ID`.
fn uploaded(api: &Caller, key: &Value) -> u64 {
    let key = api.expect(200, &format!("GET /keys/{}", key["id"]), None);
    key["totals"]["uploaded"].as_u64().unwrap()
}

/// Announces over HTTP with these parameters, below `path`, and returns the body.
fn announce(address: SocketAddr, path: &str, torrent: u8, port: u16, rest: &str) -> Vec<u8> {
    let target = format!("{path}/announce?numwant=50&{}", own_query(torrent, port, rest));
    let (status, body) = http(address, &target);
    assert_eq!(status, 200, "{target}");
    body
}

/// Torrent 0xaa: two seeders, one of which has downloaded it, and two leechers, of both families.
/// Torrent 0xbb: many leechers.
fn fill(tracker: &Tracker) {
    let (v4, v6) = (tracker.http4(), tracker.http6());
    announce(v4, "", 0xaa, 1, "left=0");
    announce(v6, "", 0xaa, 2, "left=5");
    announce(v6, "", 0xaa, 2, "left=0&event=completed");
    announce(v4, "", 0xaa, 3, "left=5");
    announce(v6, "", 0xaa, 4, "left=5");
    for port in 1000..1200 {
        announce([v4, v6][usize::from(port) % 2], "", 0xbb, port, "left=1");
    }
}

/// Returns true if a body contains the compact peer at this port of the IPv4 or IPv6 loopback address.
fn has_peer(body: &[u8], port: u16, is_v6: bool) -> bool {
    let [high, low] = port.to_be_bytes();
    let v6 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, high, low];
    if is_v6 { has(body, v6) } else { has(body, [127, 0, 0, 1, high, low]) }
}

/// Checks that everything of [`fill`] is there but the peer at port 3, which has stopped.
fn check(tracker: &Tracker) {
    let udp = Udp::connect(tracker.udp6());
    assert_eq!(udp.scrape(0xaa), [2, 1, 1], "{}", tracker.log());
    assert_eq!(udp.scrape(0xbb), [0, 0, 200]);
    let (v4, v6) = (tracker.http4(), tracker.http6());
    let found = [announce(v4, "", 0xaa, 9, "left=5"), announce(v6, "", 0xaa, 9, "left=5")];
    let ports = [1, 2, 3, 4]
        .map(|port| [false, true].map(|v6| has_peer(&found[usize::from(v6)], port, v6)));
    assert_eq!(ports, [[true, false], [false, true], [false, false], [false, true]]);
    for address in [v4, v6] {
        announce(address, "", 0xaa, 9, "left=5&event=stopped");
    }
}

#[test]
fn an_upgrade_keeps_swarms_without_a_state_directory() {
    let tracker = Tracker::start(Directory::new(), "");
    fill(&tracker);
    std::thread::scope(|scope| {
        // A peer stops meanwhile, at whichever process.
        scope.spawn(|| {
            tracker.wait_until("begun", |it| it.log().contains("upgrade: started"));
            announce(tracker.http4(), "", 0xaa, 3, "left=5&event=stopped");
        });
        tracker.upgrade();
    });
    check(&tracker);
    tracker.wait_for_log("received all swarms of the old process bytes=");
    assert!(tracker.metric("tidegate_upgrade_swarms_seconds") > 0.0);
    assert!(tracker.metric("tidegate_upgrade_swarms_bytes") > 200.0 * 8.0);
    // And again.
    tracker.upgrade();
    check(&tracker);
}

/// A new process takes the swarms, and crashes or hangs meanwhile.
#[test]
fn the_old_process_serves_on_if_the_new_one_fails_while_it_receives() {
    let (tracker, link) = Tracker::start_by_link(Directory::new());
    fill(&tracker);
    announce(tracker.http4(), "", 0xaa, 3, "left=5&event=stopped");
    let (first, hung) = (tracker.pid(), link.with_extension("hung"));
    let hang = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", hung.display());
    for (attempt, end) in (1..).zip(["kill -SEGV $$", &hang]) {
        // The old process sends once the new one says that it reads.
        let script = format!(
            "#!/bin/bash\nIFS=: read -ra names <<< \"$LISTEN_FDNAMES\"\n\
             for at in ${{!names[@]}}; do [ ${{names[at]}} = swarms ] && fd=$((3 + at)); done\n\
             printf s >&$fd\nhead -c 1 <&$fd > /dev/null\n{end}\n"
        );
        fs::remove_file(&link).unwrap();
        fs::write(&link, script).unwrap();
        fs::set_permissions(&link, fs::Permissions::from_mode(0o755)).unwrap();
        tracker.signal(Signal::SIGUSR2);
        if end == hang {
            tracker.wait_until("hanging", |_| hung.exists());
            // A second signal is not a second upgrade.
            tracker.signal(Signal::SIGUSR2);
            tracker.wait_for_log("SIGUSR2 ignored");
            let process = fs::read_to_string(&hung).unwrap();
            harness::signal(process.trim().parse().unwrap(), Signal::SIGKILL).unwrap();
        }
        let failures = |it: &Tracker| it.log().matches("upgrade failed").count();
        tracker.wait_until("a failed upgrade", |it| failures(it) == attempt);
        assert_eq!(tracker.pid(), first);
    }
    fs::remove_file(&link).unwrap();
    link_binary(&link);
    tracker.upgrade();
    check(&tracker);
}

/// A private tracker with records in `state`.
fn start_private(state: &Directory) -> (Tracker, Caller) {
    let more = "flush_s = 1\n[access]\nprivate = true\n";
    start_in(Directory::new(), &format!("[state]\ndir = {:?}\n{more}", state.path("state")))
}

/// Announces the same peer with a key.
fn announce_with(tracker: &Tracker, key: &Value, torrent: u8, rest: &str) -> bool {
    let path = format!("/{}", key["key"].as_str().unwrap());
    has(&announce(tracker.http4(), &path, torrent, 1, rest), "8:complete")
}

#[test]
fn sessions_of_keys_survive_restarts_and_upgrades() {
    let state = Directory::new();
    let (mut tracker, api) = start_private(&state);
    let key = api.expect(201, "POST /keys", Some(&json!({ "torrents": 1 })));
    assert!(announce_with(&tracker, &key, 0xaa, "left=9&uploaded=0&event=started"));
    for (from, to) in [(1000, 1500), (1600, 1601)] {
        assert!(announce_with(&tracker, &key, 0xaa, &format!("left=9&uploaded={from}")));
        tracker.stop();
        assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
        let api;
        (tracker, api) = start_private(&state);
        assert_eq!(uploaded(&api, &key), from);
        assert!(!announce_with(&tracker, &key, 0xbb, "left=9"));
        assert!(announce_with(&tracker, &key, 0xaa, &format!("left=9&uploaded={to}")));
        tracker.wait_until("counted", |_| uploaded(&api, &key) == to);
    }
    // The same in the new process of an upgrade.
    tracker.upgrade();
    let api = Caller::of(&tracker);
    tracker.wait_for_log(" peers=1 sessions=1\n");
    assert!(!announce_with(&tracker, &key, 0xbb, "left=9"));
    assert!(announce_with(&tracker, &key, 0xaa, "left=9&uploaded=2000"));
    tracker.wait_until("counted", |_| uploaded(&api, &key) == 2000);
    // The secret by which sessions are found again.
    let secret = fs::metadata(state.path("state/secret")).unwrap();
    assert_eq!((secret.len(), secret.permissions().mode() & 0o777), (32, 0o600));
}
