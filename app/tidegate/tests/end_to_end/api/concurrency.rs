//! Concurrency: many changes under load, and contradicting requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use harness::http::Connection;
use serde_json::{Value, json};

use super::{Caller, TOKEN, hash, start_in};
use crate::clients::{announce_query, has, http, http_announce};
use crate::process::{Directory, Tracker};

/// Keys that each of the [`MAKERS`] creates.
const KEYS: usize = 125;
const MAKERS: usize = 8;
/// One in this many keys is not revoked.
const KEPT: usize = 5;

/// A connection for several requests.
struct Line(Connection);

impl Line {
    fn open(address: SocketAddr) -> Self {
        Self(Connection::open(address).unwrap())
    }

    fn ask(&mut self, request: &str, body: &str) -> (u16, Vec<u8>) {
        let headers = format!(
            "Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        );
        let response = self.0.ask(request, &headers, body.as_bytes()).unwrap();
        (response.status, response.body)
    }

    /// Returns the body of the response to an announce with that key.
    fn announce(&mut self, key: &str, torrent: u8) -> Vec<u8> {
        let query = announce_query(torrent, 1);
        let request = format!("GET /announce/{key}?{query}");
        let response = self.0.ask(&request, "Host: localhost\r\n", b"").unwrap();
        assert_eq!(response.status, 200);
        response.body
    }
}

/// Creates keys, uses them and revokes most. Returns the keys kept and those revoked.
fn make_keys(admin: SocketAddr, tracker: SocketAddr) -> (Vec<String>, Vec<String>) {
    let (mut api, mut announces) = (Line::open(admin), Line::open(tracker));
    let (mut kept, mut revoked) = (Vec::new(), Vec::new());
    for number in 0..KEYS {
        let (status, made) = api.ask("POST /api/v1/keys", "{}");
        assert_eq!(status, 201);
        let made: Value = serde_json::from_slice(&made).unwrap();
        let key = made["key"].as_str().unwrap().to_owned();
        // A key works once its creation is acknowledged, and no more once its removal is.
        assert!(has(&announces.announce(&key, number as u8), "8:complete"));
        if number % KEPT == 0 {
            kept.push(key);
            continue;
        }
        let (status, _) = api.ask(&format!("DELETE /api/v1/keys/{}", made["id"]), "");
        assert_eq!(status, 204);
        assert!(has(&announces.announce(&key, number as u8), "14:failure reason"));
        revoked.push(key);
    }
    (kept, revoked)
}

#[test]
fn creates_and_revokes_a_thousand_keys_under_load() {
    let state = Directory::new();
    let more = format!(
        "requests_per_s = 0\n[state]\ndir = {:?}\nflush_s = 1\n[access]\nprivate = true\n",
        state.path("state")
    );
    let (tracker, api) = start_in(Directory::new(), &more);
    let steady = api.expect(201, "POST /keys", Some(&json!({ "key": "always-there-it-is" })));
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let made = thread::scope(|scope| {
        for port in 0..2u8 {
            let (is_over, answered, address) = (&is_over, &answered, tracker.http4());
            scope.spawn(move || {
                let mut line = Line::open(address);
                while !is_over.load(Ordering::Relaxed) {
                    let answer = line.announce("always-there-it-is", port);
                    assert!(has(&answer, "8:complete"), "{}", String::from_utf8_lossy(&answer));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (admin, address) = (tracker.admin_address(), tracker.http4());
        let makers = [(); MAKERS].map(|()| scope.spawn(move || make_keys(admin, address)));
        let made = makers.map(|maker| maker.join());
        is_over.store(true, Ordering::Relaxed);
        made.map(Result::unwrap)
    });
    assert!(answered.load(Ordering::Relaxed) > 100);
    let kept: Vec<&String> = made.iter().flat_map(|(kept, _)| kept).collect();
    let revoked: Vec<&String> = made.iter().flat_map(|(_, revoked)| revoked).collect();
    assert_eq!((kept.len(), kept.len() + revoked.len()), (KEYS * MAKERS / KEPT, KEYS * MAKERS));
    let check = |tracker: &Tracker| {
        assert_eq!(tracker.metric("tidegate_user_keys"), kept.len() as f64 + 1.0);
        let mut line = Line::open(tracker.http4());
        for key in &kept {
            assert!(has(&line.announce(key, 1), "8:complete"), "{key}");
        }
        for key in &revoked {
            assert!(has(&line.announce(key, 1), "14:failure reason"), "{key}");
        }
    };
    check(&tracker);
    let recorded = |api: &Caller| super::durability::keys(api);
    let mut expected: BTreeSet<String> = kept.iter().map(|key| (*key).clone()).collect();
    expected.insert(steady["key"].as_str().unwrap().into());
    assert_eq!(recorded(&api), expected);
    drop(tracker);
    let (tracker, api) = start_in(Directory::new(), &more);
    check(&tracker);
    assert_eq!(recorded(&api), expected);
}

#[test]
fn agrees_with_its_records_after_contradicting_requests() {
    let state = Directory::new();
    let more = format!(
        "requests_per_s = 0\n[state]\ndir = {:?}\n[access]\nmode = \"deny\"\n",
        state.path("state")
    );
    let (tracker, api) = start_in(Directory::new(), &more);
    let (entry, key) =
        (format!("/lists/deny/{}", hash(0xaa)), json!({ "key": "the-contested-key" }));
    // The state in force must agree with the API's responses.
    let interval = |tracker: &Tracker| {
        let answer = http_announce(tracker.http4(), 0xbb, 1);
        [600, 700, 800, 900].into_iter().find(|s| has(&answer, format!("8:intervali{s}e")))
    };
    let seen = |tracker: &Tracker, api: &Caller| {
        let is_denied = has(&http_announce(tracker.http4(), 0xaa, 1), "deny list");
        let listed = api.expect(200, "GET /lists/deny", None)["entries"].clone();
        assert_eq!(is_denied, listed == json!([hash(0xaa)]), "{listed}");
        let frozen = has(&http_announce(tracker.http4(), 0xcc, 1), "frozen");
        let torrent = api.ask(&format!("GET /torrents/{}", hash(0xcc)), None).1;
        let settings = api.expect(200, "GET /config", None);
        let mut all = settings["settings"].as_array().unwrap().iter();
        let set = all.find(|it| it["name"] == "tracker.interval_s").unwrap()["value"].clone();
        assert_eq!(json!(interval(tracker).unwrap()), set);
        let keys = api.expect(200, "GET /keys", None);
        assert_eq!(keys["total"].as_f64().unwrap(), tracker.metric("tidegate_user_keys"));
        let bans = api.expect(200, "GET /bans", None)["bans"].clone();
        (is_denied, frozen, torrent["frozen"].clone(), set, keys, bans)
    };
    let wishes = |lane: usize| {
        let (api, entry, key) = (&api, &entry, &key);
        move || {
            for round in 0..20 {
                let put = (lane + round).is_multiple_of(2);
                let good = [200, 201, 204, 404, 409];
                let ask = |request: &str, body: Option<&Value>| {
                    let (status, answer) = api.ask(request, body);
                    assert!(good.contains(&status), "{request}: {status} {answer}");
                    answer
                };
                let verb = if put { "PUT" } else { "DELETE" };
                ask(&format!("{verb} {entry}"), None);
                ask(&format!("{verb} /torrents/{}/freeze", hash(0xcc)), None);
                ask("PATCH /config", Some(&json!({ "tracker.interval_s": 600 + 100 * lane })));
                let ban = json!({ "network": "192.0.2.7", "reason": lane.to_string() });
                match put {
                    true => ask("POST /bans", Some(&ban)),
                    false => ask("DELETE /bans/192.0.2.7", None),
                };
                let made = ask("POST /keys", Some(key));
                if let Some(id) = made["id"].as_u64() {
                    ask(&format!("PATCH /keys/{id}"), Some(&json!({ "name": lane.to_string() })));
                    ask(&format!("DELETE /keys/{id}"), None);
                }
            }
        }
    };
    thread::scope(|scope| {
        let lanes = [0, 1, 2, 3].map(|lane| scope.spawn(wishes(lane)));
        lanes.into_iter().for_each(|lane| lane.join().unwrap());
    });
    api.expect(201, "POST /keys", Some(&key));
    let before = seen(&tracker, &api);
    assert_eq!(before.4["total"], 1);
    drop(tracker);
    // The same after a restart.
    let (tracker, api) = start_in(Directory::new(), &more);
    http(tracker.http4(), "/health");
    assert_eq!(seen(&tracker, &api), before);
}
