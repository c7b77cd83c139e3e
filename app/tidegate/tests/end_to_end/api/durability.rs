//! Durability: what survives the end of the process.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rusqlite::Connection;
use serde_json::json;

use super::{Caller, UNBOUND, hash, start_in};
use crate::clients::{Udp, announce_target, has, http, http_announce, http_complete};
use crate::process::{Directory, Signal, config, tidegate};

/// For each kill of a tracker that records changes, how many it acknowledges before.
const KILLS: [usize; 5] = [1, 7, 20, 40, 80];

fn in_folder(state: &Path) -> String {
    format!("{UNBOUND}[state]\ndir = {state:?}\nflush_s = 1\n[access]\nmode = \"deny\"\n")
}

#[test]
fn loses_nothing_acknowledged_to_a_kill() {
    let state = Directory::new();
    let folder = state.path("state");
    let mut acknowledged = BTreeSet::new();
    for (round, least) in KILLS.into_iter().enumerate() {
        let (tracker, api) = start_in(Directory::new(), &in_folder(&folder));
        let kept = keys(&api);
        assert!(acknowledged.is_subset(&kept), "lost by kill {round}: {acknowledged:?} {kept:?}");
        let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
        let made = thread::scope(|scope| {
            let write = |lane: u64| {
                let (api, is_over, count) = (&api, &is_over, &count);
                move || {
                    let mut made = Vec::new();
                    for number in 0.. {
                        let key = format!("key-{round:04}-{lane}-{number:08}");
                        let body = json!({ "key": key }).to_string();
                        let body = Some(("application/json", body.as_str()));
                        match api.try_send("POST /keys", "", body) {
                            Ok((201, ..)) => {
                                made.push(key);
                                count.fetch_add(1, Ordering::Relaxed);
                            }
                            _ if is_over.load(Ordering::Relaxed) => return made,
                            other => panic!("{other:?}"),
                        }
                    }
                    made
                }
            };
            let lanes = [scope.spawn(write(0)), scope.spawn(write(1))];
            tracker.wait_until("keys", |_| count.load(Ordering::Relaxed) >= least);
            is_over.store(true, Ordering::Relaxed);
            tracker.signal(Signal::SIGKILL);
            lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect::<Vec<_>>()
        });
        acknowledged.extend(made);
    }
    let (_tracker, api) = start_in(Directory::new(), &in_folder(&folder));
    assert!(acknowledged.is_subset(&keys(&api)));
}

fn keys(api: &Caller) -> BTreeSet<String> {
    let (mut keys, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = api.expect(200, &format!("GET /keys?limit=1000{cursor}"), None);
        let texts = page["keys"].as_array().unwrap().iter();
        keys.extend(texts.map(|key| key["key"].as_str().unwrap().to_owned()));
        let Some(next) = page.get("next") else { return keys };
        cursor = format!("&cursor={next}");
    }
}

#[test]
fn keeps_entries_bans_tokens_and_downloads_over_restarts() {
    let state = Directory::new();
    // Downloads survive with the torrent, too, where swarms have a journal.
    let more = in_folder(&state.path("state")).replace("flush_s", "swarms = false\nflush_s");
    let (tracker, api) = start_in(Directory::new(), &more);
    api.expect(204, &format!("PUT /lists/deny/{}", hash(0xdd)), None);
    api.expect(204, &format!("PUT /torrents/{}/freeze", hash(0xcc)), None);
    api.expect(201, "POST /bans", Some(&json!({ "network": "192.0.2.0/24" })));
    let many = |networks: &[&str]| json!({ "networks": networks, "reason": "list" });
    let put = api.expect(200, "POST /bans/bulk", Some(&many(&["198.51.100.7", "2001:db8::/32"])));
    assert_eq!((&put["requested"], &put["total"]), (&json!(2), &json!(3)));
    // These bans spread over more of the file than can be rolled back without spare room.
    for part in 0..5 {
        let network = |at| format!("2001:db8:{:x}:{part:x}::/64", (at * 7919) % 65_536);
        let networks: Vec<String> = (0..1000).map(network).collect();
        api.expect(200, "POST /bans/bulk", Some(&json!({ "networks": networks })));
    }
    for bad in [many(&[]), many(&["203.0.113.0/24", "nowhere"]), many(&["::1"; 1001])] {
        api.expect(400, "POST /bans/bulk", Some(&bad));
    }
    let token = api.expect(201, "POST /tokens", Some(&json!({ "name": "n", "scopes": ["*"] })));
    let secret = token["secret"].as_str().unwrap();
    // A completed download of a listed torrent, and one of a torrent that one client may have invented.
    api.expect(204, &format!("PUT /lists/allow/{}", hash(0xab)), None);
    for torrent in [0xac, 0xab] {
        http_announce(tracker.http4(), torrent, 1);
        http_complete(tracker.http4(), torrent, 1);
    }
    assert_eq!(Udp::connect(tracker.udp4()).scrape(0xac)[1], 1, "counted while it exists");
    tracker.wait_until("a flush", |it| it.metric("tidegate_records_counts_written_total") >= 1.0);
    drop(tracker);
    let (tracker, api) = start_in(Directory::new(), &more);
    let other = Caller { token: secret.into(), ..api };
    assert!(has(&http_announce(tracker.http4(), 0xdd, 1), "deny list"));
    assert!(has(&http_announce(tracker.http4(), 0xcc, 1), "frozen"));
    assert_eq!(other.expect(200, "GET /bans", None)["bans"][0]["network"], "192.0.2.0/24");
    assert_eq!(Udp::connect(tracker.udp4()).scrape(0xab)[1], 1, "downloads are counted on");
    assert_eq!(Udp::connect(tracker.udp4()).scrape(0xac)[1], 0, "of listed torrents");
    // The new process of an upgrade has them as well.
    tracker.upgrade();
    assert!(has(&http_announce(tracker.http4(), 0xdd, 1), "deny list"));
    other.expect(204, &format!("DELETE /lists/deny/{}", hash(0xdd)), None);
    assert!(has(&http_announce(tracker.http4(), 0xdd, 1), "8:complete"));
    // The sandbox has to leave the state directory writable.
    tracker.wait_for_log("writable: ");
}

/// The file is edited after the change through the API, so that both together make no valid configuration.
#[test]
fn refuses_to_start_more_open_than_the_api_has_set() {
    let state = Directory::new();
    let in_state = in_folder(&state.path("state"));
    let (tracker, api) = start_in(Directory::new(), &in_state);
    let private = json!({ "access.private": true, "tracker.interval_s": 77 });
    api.expect(200, "PATCH /config", Some(&private));
    drop(tracker);
    let open =
        "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.1:0\"]\naccess.private = false\n";
    let settings = state.write("t.toml", &config(0, 0, &format!("{in_state}{open}")));
    let output = tidegate(&["--config"]).arg(&settings).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in [
        "access.private = true was set through the API and cannot be applied",
        " is private and [[listener]] http at 127.0.0.1:0 (",
        "t.toml:",
        "`tidegate admin config unset access.private`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // With the previous file it is private again, and the change can be taken back.
    let (tracker, api) = start_in(Directory::new(), &in_state);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "this tracker is private"));
    api.expect(200, "PATCH /config", Some(&json!({ "access.private": null })));
    drop(tracker);
    let (tracker, _) = start_in(Directory::new(), &format!("{in_state}{open}"));
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "intervali77e"));
}

#[test]
fn ignores_only_the_changed_setting_that_is_invalid() {
    let state = Directory::new();
    let folder = state.path("state");
    let (tracker, api) = start_in(Directory::new(), &in_folder(&folder));
    api.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": 77 })));
    drop(tracker);
    // As if recorded by a version that accepts it.
    let records = Connection::open(folder.join("tidegate.db")).unwrap();
    let invalid = r#"INSERT INTO settings VALUES ('limits.exempt', '["10.0.0.0/33"]')"#;
    records.execute_batch(invalid).unwrap();
    drop(records);
    let (tracker, _) = start_in(Directory::new(), &in_folder(&folder));
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "intervali77e"));
    tracker.wait_for_log("set through the API: api: limits.exempt: `10.0.0.0/33` is neither");
}

/// Changes wait for a lock on the records when the upgrade begins. Acknowledged ones hold in the new process.
#[test]
fn waits_for_records_before_an_upgrade() {
    let state = Directory::new();
    let folder = state.path("state");
    let more = format!("{}private = true\n", in_folder(&folder));
    let (tracker, api) = start_in(Directory::new(), &more);
    let lock = Connection::open(folder.join("tidegate.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let made = thread::scope(|scope| {
        let makers = [(); 8].map(|()| scope.spawn(|| api.ask("POST /keys", Some(&json!({})))));
        tracker.wait_until("a queue", |it| {
            it.metric("tidegate_records_changes_pending") >= 8.0
                || makers.iter().any(|maker| maker.is_finished())
        });
        let upgrading = scope.spawn(|| tracker.upgrade());
        tracker.wait_for_log("upgrade: ");
        lock.execute_batch("COMMIT").unwrap();
        upgrading.join().unwrap();
        makers.map(|maker| maker.join().unwrap())
    });
    for (status, key) in made {
        // On a busy machine the lock may be held for longer than changes wait for it.
        assert!(status == 201 || status == 503, "{status} {key}");
        if status == 201 {
            let key = key["key"].as_str().unwrap();
            let target = format!("/{key}{}", announce_target(0xaa, 1));
            assert!(has(&http(tracker.http4(), &target).1, "8:complete"), "{key}");
        }
    }
    // Changes are accepted again.
    Caller::of(&tracker).expect(201, "POST /keys", Some(&json!({})));
}
