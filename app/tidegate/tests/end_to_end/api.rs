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

use serde_json::{Value, json};

use crate::clients::{has, http_announce};
use crate::process::{Directory, PATIENCE, Tracker};

/// The token that tests give a tracker, so that they need not read it from its output.
pub(crate) const TOKEN: &str = "tg_0123456789abcdefghijABCDEFGHIJ01";

/// Lifts the rate limit: tests send more requests than the default allows.
const UNBOUND: &str = "requests_per_s = 0\n";

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

    /// Creates a token with these scopes. Returns a client with it.
    pub(crate) fn limited(&self, scopes: &[&str]) -> Self {
        let token = json!({ "name": "limited", "scopes": scopes });
        let token = self.expect(201, "POST /tokens", Some(&token));
        Self { address: self.address, token: token["secret"].as_str().unwrap().into() }
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
    let writer = api.limited(&["keys:write"]);
    let both = api.limited(&["keys:read", "keys:write"]);
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
    let shown = both.expect(200, &format!("GET {one}"), None);
    assert_eq!(shown["announce_urls"], key["announce_urls"]);
    assert_eq!(both.expect(200, "GET /keys", None)["keys"][0].get("announce_urls"), None);
    let own = writer.expect(201, "POST /keys", Some(&json!({})));
    assert!(own["key"].is_string() && own["announce_urls"].is_array(), "{own}");
    // A key that exists is not shown to those that guess it.
    let (status, text) = writer.ask("POST /keys", Some(&json!({ "key": secret })));
    assert!(status == 409 && text.get("name").is_none(), "{text}");
    writer.expect(204, &format!("DELETE {one}"), None);
}

#[test]
fn changed_settings_hold_at_once_and_outlast_a_reload() {
    let (tracker, api) = start("");
    let interval = |expected: &str| has(&http_announce(tracker.http4(), 0xaa, 1), expected);
    let changed = api.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": 77 })));
    assert_eq!(changed["changed"], json!(["tracker.interval_s"]));
    assert!(interval("intervali77e"));
    let bad = json!({ "tracker.interval_s": 5, "udp.workers": 7, "no.such": 1 });
    let problem = api.expect(409, "PATCH /config", Some(&bad));
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("udp.workers: cannot be set through the API") && detail.contains("no.such"),
        "{detail}"
    );
    // A reload of the file does not change it back. Restarts: see `durability`.
    api.expect(200, "POST /config/reload", None);
    assert!(interval("intervali77e"));
    api.expect(200, "PATCH /config", Some(&json!({ "tracker.interval_s": null })));
    assert!(interval("intervali1800e"));
}

pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
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

    pub(crate) fn next(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}
