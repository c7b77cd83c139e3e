//! The management API over its socket.

mod concurrency;
mod configuration;
mod durability;
mod hostile;
mod start_tokens;
mod webhooks;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use harness::wait_until;
use serde_json::{Value, json};

use crate::clients::{Udp, has, http, http_announce, try_http};
use crate::process::{Directory, PATIENCE, Tracker};

/// The token that tests give a tracker, so that they need not read it from its output.
pub(crate) const TOKEN: &str = "tg_0123456789abcdefghijABCDEFGHIJ01";

/// Lifts the rate limit: tests send more requests than the default allows.
const UNBOUND: &str = "requests_per_s = 0\n";

/// A client of the API.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Caller {
    /// A client with full access.
    pub(crate) fn of(tracker: &Tracker) -> Self {
        Self { address: tracker.admin_address(), token: TOKEN.into() }
    }

    /// Returns status and body of the response. `request` is method and path.
    pub(crate) fn ask(&self, request: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(|body| ("application/json", body.to_string()));
        let (status, text) =
            self.send(request, body.as_ref().map(|(kind, text)| (*kind, text.as_str())));
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    fn send(&self, request: &str, body: Option<(&str, &str)>) -> (u16, String) {
        let (status, _, body) = self.try_send(request, "", body).unwrap();
        (status, body)
    }

    /// Returns status, head in lower case, and body. Each line of `more` is another header.
    pub(crate) fn try_send(
        &self,
        request: &str,
        more: &str,
        body: Option<(&str, &str)>,
    ) -> std::io::Result<(u16, String, String)> {
        let request = request.replacen(' ', " /api/v1", 1);
        let mut headers = more.to_owned();
        if !self.token.is_empty() {
            headers += &format!("Authorization: Bearer {}\r\n", self.token);
        }
        if let Some((kind, _)) = body {
            headers += &format!("Content-Type: {kind}\r\n");
        }
        let body = body.map(|(_, text)| text).unwrap_or_default();
        let response = harness::http::request(self.address, &request, &headers, body.as_bytes())?;
        let head = response.headers.join("\r\n").to_lowercase();
        Ok((response.status, head, response.text()))
    }

    /// Returns the body of the response. Panics unless it has this status.
    pub(crate) fn expect(&self, status: u16, request: &str, body: Option<&Value>) -> Value {
        let (found, answer) = self.ask(request, body);
        assert_eq!(found, status, "{request}: {answer}");
        answer
    }
}

pub(crate) fn start(more: &str) -> (Tracker, Caller) {
    start_in(Directory::new(), &format!("{UNBOUND}{more}"))
}

pub(crate) fn start_in(directory: Directory, more: &str) -> (Tracker, Caller) {
    let tracker = Tracker::start_with(directory, more, &[("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)]);
    let caller = Caller::of(&tracker);
    (tracker, caller)
}

/// Returns a Unix time that has passed about a second later.
fn in_a_second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1
}

pub(crate) fn hash(byte: u8) -> String {
    format!("{byte:02x}").repeat(20)
}

/// 30 may have meant 30 days: nothing is created that has expired already.
#[test]
fn refuses_expiries_in_the_past() {
    let (_tracker, api) = start("[access]\nprivate = true\n");
    let key = api.expect(201, "POST /keys", Some(&json!({})));
    let change = format!("PATCH /keys/{}", key["id"]);
    for (request, body) in [
        ("POST /keys", json!({ "expires": 30 })),
        (&change, json!({ "expires": 30 })),
        ("POST /tokens", json!({ "name": "t", "scopes": ["*"], "expires": 30 })),
        ("POST /bans", json!({ "network": "192.0.2.1", "expires": 30 })),
        ("POST /bans/bulk", json!({ "networks": ["192.0.2.1"], "expires": 30 })),
    ] {
        let problem = api.expect(409, request, Some(&body));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("in the future") && detail.contains("found 30"), "{detail}");
    }
    assert_eq!(api.expect(200, "GET /bans", None)["total"], 0);
    assert_eq!(api.expect(200, "GET /keys", None)["total"], 1);
}

/// The key is shown to those that make it, and to those that may read keys.
#[test]
fn a_token_that_writes_keys_does_not_read_them() {
    let (_tracker, api) = start("[access]\nprivate = true\n");
    let with = |scopes: &[&str]| {
        let body = json!({ "name": "site", "scopes": scopes });
        let made = api.expect(201, "POST /tokens", Some(&body));
        Caller { token: made["secret"].as_str().unwrap().into(), ..api.clone() }
    };
    let (writer, both) = (with(&["keys:write"]), with(&["keys:read", "keys:write"]));
    let key = api.expect(201, "POST /keys", Some(&json!({ "name": "bob", "torrents": 1 })));
    let secret = key["key"].as_str().unwrap();
    let one = format!("/keys/{}", key["id"]);
    for change in [json!({}), json!({ "name": "rob" }), json!({ "expires": null })] {
        let (status, changed) = writer.ask(&format!("PATCH {one}"), Some(&change));
        assert!(status == 200 && !changed.to_string().contains(secret), "{changed}");
        assert_eq!((changed.get("key"), changed.get("announce_urls")), (None, None));
        let changed = both.expect(200, &format!("PATCH {one}"), Some(&change));
        assert_eq!(
            (&changed["key"], &changed["announce_urls"]),
            (&key["key"], &key["announce_urls"])
        );
    }
    writer.expect(403, &format!("GET {one}"), None);
    let own = writer.expect(201, "POST /keys", Some(&json!({})));
    assert!(own["key"].is_string() && own["announce_urls"].is_array(), "{own}");
    // A key that exists is not shown to those that guess it.
    let (status, text) = writer.ask("POST /keys", Some(&json!({ "key": secret })));
    assert!(status == 409 && text.get("name").is_none(), "{text}");
    writer.expect(204, &format!("DELETE {one}"), None);
}

#[test]
fn creates_changes_and_revokes_keys() {
    let (tracker, api) = start("[access]\nprivate = true\n");
    let refused = http_announce(tracker.http4(), 0xaa, 1);
    assert!(has(&refused, "failure reason"));
    let announce = |key: &str| {
        let target = crate::clients::announce_target(0xaa, 1);
        http(tracker.http4(), &target.replace("/announce", &format!("/announce/{key}"))).1
    };
    let key = api.expect(201, "POST /keys", Some(&json!({ "name": "bob", "torrents": 1 })));
    let text = key["key"].as_str().unwrap();
    let id = &key["id"];
    assert!(has(&announce(text), "8:complete"));
    let (udp, http4) = (tracker.udp4(), tracker.http4());
    for url in [
        format!("udp://{udp}/announce/{text}"),
        format!("http://{http4}/announce/{text}"),
        format!("ws://{http4}/{text}"),
    ] {
        assert!(key["announce_urls"].as_array().unwrap().contains(&url.into()), "{key}");
    }
    assert_eq!(api.expect(200, "GET /keys", None)["keys"][0].get("announce_urls"), None);
    let found = api.expect(200, &format!("GET /keys/{id}"), None);
    assert_eq!(found["announce_urls"], key["announce_urls"]);
    assert_eq!((found["name"].as_str(), &found["torrents"]), (Some("bob"), &json!(1)));
    let changed = json!({ "name": "rob", "expires": in_a_second() });
    let found = api.expect(200, &format!("PATCH /keys/{id}"), Some(&changed));
    assert_eq!((found["name"].as_str(), &found["torrents"]), (Some("rob"), &json!(1)));
    wait_until("it has expired", || has(&announce(text), "expired"));
    api.expect(200, &format!("PATCH /keys/{id}"), Some(&json!({ "expires": null })));
    assert!(has(&announce(text), "8:complete"));
    api.expect(204, &format!("DELETE /keys/{id}"), None);
    assert!(has(&announce(text), "failure reason"));
    api.expect(404, &format!("DELETE /keys/{id}"), None);
    api.expect(404, &format!("GET /keys/{id}"), None);
    tracker.wait_for_log("revoked key");
    assert!(!tracker.log().contains(text), "keys do not belong in logs");
}

#[test]
fn applies_and_lifts_bans_at_once() {
    let (tracker, api) = start("");
    let mut events = Events::listen(&api, "?kinds=ban");
    Udp::connect(tracker.udp4()).announce(0xaa, 1);
    let ban =
        api.expect(201, "POST /bans", Some(&json!({ "network": "127.0.0.9/8", "reason": "x" })));
    assert_eq!(ban["network"], "127.0.0.0/8");
    assert_eq!(events.next()["data"]["network"], "127.0.0.0/8");
    // A banned client need not get a response.
    let asked = try_http(tracker.http4(), &crate::clients::announce_target(0xaa, 1));
    assert!(asked.is_err() || asked.is_ok_and(|(_, body)| has(&body, "banned")));
    api.expect(204, "DELETE /bans/127.0.0.0/8", None);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "8:complete"));
    api.expect(404, "DELETE /bans/127.0.0.0%2F8", None);
    api.expect(400, "POST /bans", Some(&json!({ "network": "everybody" })));
}

#[test]
fn applies_list_entries_at_once_singly_and_in_bulk() {
    let state = Directory::new();
    let more = format!("[access]\nmode = \"deny\"\n[state]\ndir = {:?}\n", state.path("state"));
    let (tracker, api) = start(&more);
    api.expect(204, &format!("PUT /lists/deny/{}", hash(0xaa)), None);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "deny list"));
    api.expect(204, &format!("DELETE /lists/deny/{}", hash(0xaa)), None);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "8:complete"));
    api.expect(404, &format!("DELETE /lists/deny/{}", hash(0xaa)), None);
    let lines: String = (0..200).map(|byte| hash(byte) + "\n").collect();
    let (status, answer) = api.send("POST /lists/deny", Some(("text/plain", &lines)));
    assert_eq!(status, 200, "{answer}");
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "deny list"));
    let outcome = api.expect(200, "POST /lists/deny", Some(&json!([hash(0), hash(250)])));
    assert_eq!(outcome, json!({ "requested": 2, "changed": 1, "total": 201 }));
    let page = api.expect(200, "GET /lists/deny?limit=2", None);
    assert_eq!(page["entries"], json!([hash(0), hash(1)]));
    let (_, _, text) = api.try_send("GET /lists/deny", "Accept: text/plain\r\n", None).unwrap();
    assert_eq!(text.lines().filter(|line| line.len() == 40).count(), 201);
    // A malformed line changes nothing.
    let bad = format!("{}\n{}\nnonsense\n", hash(251), hash(252));
    let (status, answer) = api.send("POST /lists/deny", Some(("text/plain", &bad)));
    assert!(status == 400 && answer.contains("line 3"), "{answer}");
    assert_eq!(api.expect(200, "GET /lists/deny", None)["total"], 201);
    let outcome =
        api.expect(200, "DELETE /lists/deny", Some(&json!([hash(0), hash(99), hash(251)])));
    assert_eq!(outcome, json!({ "requested": 3, "changed": 2, "total": 199 }));
}

#[test]
fn shows_freezes_and_removes_torrents_and_peers() {
    let (tracker, api) = start("");
    let mut events = Events::listen(&api, "?kinds=torrent_added,torrent_removed");
    http_announce(tracker.http4(), 0xaa, 1);
    api.expect(204, &format!("DELETE /torrents/{}", hash(0xaa)), None);
    http_announce(tracker.http4(), 0xaa, 1);
    let one = api.expect(200, &format!("GET /torrents/{}", hash(0xaa)), None);
    assert_eq!((&one["leechers"], &one["frozen"]), (&json!(1), &json!(false)));
    let page = api.expect(200, "GET /torrents?sort=leechers&limit=1", None);
    assert_eq!(page["torrents"][0]["info_hash"], hash(0xaa));
    api.expect(204, &format!("PUT /torrents/{}/freeze", hash(0xaa)), None);
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "frozen"));
    api.expect(204, &format!("DELETE /torrents/{}/freeze", hash(0xaa)), None);
    let found = api.expect(200, "GET /peers?address=127.0.0.1", None);
    assert!(found.to_string().contains(&hash(0xaa)), "{found}");
    api.expect(200, "DELETE /peers?address=127.0.0.1", None);
    // The stream may begin a moment after its head: another torrent comes and goes until it is seen.
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| while events.next()["data"]["info_hash"] != hash(0xbb) {});
        while !seen.is_finished() {
            http_announce(tracker.http4(), 0xbb, 1);
            api.ask(&format!("DELETE /torrents/{}", hash(0xbb)), None);
        }
    });
}

#[test]
fn keeps_changed_settings_over_restarts() {
    let state = Directory::new();
    let more = format!("{UNBOUND}[state]\ndir = {:?}\n", state.path("state"));
    let (tracker, api) = start_in(Directory::new(), &more);
    let interval =
        |tracker: &Tracker, expected: &str| has(&http_announce(tracker.http4(), 0xaa, 1), expected);
    let changed = api.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": 77 })));
    assert_eq!(changed["changed"], json!(["tracker.interval_s"]));
    assert!(interval(&tracker, "intervali77e"));
    let bad = json!({ "tracker.interval_s": 5, "udp.workers": 7, "no.such": 1 });
    let problem = api.expect(409, "PATCH /config", Some(&bad));
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("udp.workers: cannot be set through the API") && detail.contains("no.such"),
        "{detail}"
    );
    // Neither a reload of the file nor a restart changes it back.
    api.expect(200, "POST /config/reload", None);
    assert!(interval(&tracker, "intervali77e"));
    drop(tracker);
    let (tracker, api) = start_in(Directory::new(), &more);
    assert!(interval(&tracker, "intervali77e"));
    let all = api.expect(200, "GET /config", None);
    let mut all = all["settings"].as_array().unwrap().iter();
    let one = all.find(|it| it["name"] == "tracker.interval_s").unwrap();
    assert_eq!((&one["value"], &one["origin"]), (&json!(77), &json!("api")));
    api.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": null })));
    assert!(interval(&tracker, "intervali1800e"));
    assert_eq!(api.expect(200, "GET /log/level", None)["level"], "info");
    assert_eq!(
        api.expect(200, "PUT /log/level", Some(&json!({ "level": "debug" })))["level"],
        "debug"
    );
    assert_eq!(api.expect(200, "GET /log/level", None)["level"], "debug");
    api.expect(204, "POST /certificates/reload", None);
    assert_eq!(api.expect(200, "GET /certificates", None)["certificates"], json!([]));
}

#[test]
fn reports_the_counts_of_the_tracker() {
    let (tracker, api) = start("");
    http_announce(tracker.http4(), 0xaa, 1);
    http_announce(tracker.http4(), 0xbb, 2);
    let stats = |api: &Caller| api.expect(200, "GET /stats", None);
    tracker.wait_until("counts", |_| stats(&api)["traffic"]["http"]["requests"]["announce"] == 2);
    let stats = stats(&api);
    assert_eq!((&stats["torrents"], &stats["peers"]["v4"]["leechers"]), (&json!(2), &json!(2)));
    assert_eq!((&stats["ready"], &stats["records"]["durable"]), (&json!(true), &json!(false)));
    let listeners = api.expect(200, "GET /listeners", None);
    assert!(listeners["listeners"].as_array().unwrap().len() >= 4, "{listeners}");
    let anonymous = Caller { token: String::new(), ..api.clone() };
    assert_eq!(
        anonymous.expect(200, "GET /health", None),
        json!({ "ready": true, "records": true })
    );
    api.expect(200, "GET /clients", None);
    assert!(tracker.metric("tidegate_api_requests_total") >= 2.0);
}

/// A stream of server-sent events.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    /// Events of the tracker.
    fn listen(api: &Caller, query: &str) -> Self {
        Self::open(api, &format!("/events{query}"))
    }

    pub(crate) fn open(api: &Caller, path: &str) -> Self {
        let mut stream = TcpStream::connect(api.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "GET /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
            api.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut events = Self(BufReader::new(stream));
        assert!(events.line().starts_with("HTTP/1.1 200"));
        while !events.line().trim().is_empty() {}
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the stream has ended");
        line
    }

    /// The data of the next event.
    pub(crate) fn next(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}
