//! Concurrency: contradicting requests.

use std::thread;

use serde_json::{Value, json};

use super::{Caller, hash, start_in};
use crate::clients::{has, http, http_announce};
use crate::process::{Directory, Tracker};

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
            for round in 0..8 {
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
