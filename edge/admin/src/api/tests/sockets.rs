//! The API through its sockets, with clocks that the tests set.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use harness::{PATIENCE, wait_until};
use serde_json::json;
use tokio::sync::watch;
use tracker::{Access, ListenerPolicy, ListenerPolicyId, RequestKind};
use types::{Refusal, Tick};

mod search;
mod shares;

use super::super::*;
use super::partition::partition;
use crate::events::EventKind;
use crate::listener::{CONNECTION_LIMITS, ConnectionLimits};
use crate::records::Records;
use crate::tests::connect_from;
use crate::{ClockReading, Command, Live, MetricSources, Service, metrics, serve_within};

const TOKEN: &str = "tg_0123456789abcdefghijABCDEFGHIJ01";
const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The wall clock and the tracker's clock.
#[derive(Default)]
struct Clocks {
    time: AtomicI64,
    tick: AtomicU32,
}

impl Clocks {
    fn clock_reading(&self) -> ClockReading {
        let tick = Tick(self.tick.load(Ordering::SeqCst));
        ClockReading { time: self.time.load(Ordering::SeqCst), tick }
    }

    fn advance(&self, seconds: u32) {
        self.tick.fetch_add(seconds, Ordering::SeqCst);
        self.time.fetch_add(seconds.into(), Ordering::SeqCst);
    }
}

/// A running API with its records and threads; stopped when dropped.
pub(super) struct TestApi {
    clocks: Arc<Clocks>,
    api: Arc<Api>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
    /// The nodes that the application was told to ignore or to heed.
    ignored: Arc<Mutex<Vec<(u8, bool)>>>,
}

impl TestApi {
    pub(super) fn start(idle_timeout: Duration) -> Self {
        Self::start_with(idle_timeout, 60_000)
    }

    fn start_with(idle_timeout: Duration, wrong_tokens_per_min: u32) -> Self {
        let clocks = Arc::new(Clocks::default());
        clocks.time.store(1_000_000, Ordering::SeqCst);
        clocks.tick.store(100, Ordering::SeqCst);
        let (records, mut writer) = Records::open(None).unwrap();
        let (ticks, times) = (clocks.clone(), clocks.clone());
        let clock = Box::new(move || ticks.clock_reading().tick);
        let sources = Arc::new(MetricSources { clock, ..metrics::tests::sources() });
        let ignored = Arc::<Mutex<Vec<(u8, bool)>>>::default();
        let orders = Arc::clone(&ignored);
        let deps = ApiDeps {
            announce_urls: Vec::new(),
            sources: Arc::clone(&sources),
            records: Arc::new(records),
            control: Box::new(move |command| {
                if let Command::NodeIgnored { node, is_ignored } = command {
                    orders.lock().unwrap().push((node, is_ignored));
                }
            }),
            time: Arc::new(move || times.clock_reading().time),
            send_post: Arc::new(|_| Box::pin(async { Ok(204) })),
            first_token: FirstTokenDisplay {
                show: Box::new(|_| Ok(false)),
                remove: Box::new(|| ()),
            },
            is_upgrade_pending: Box::new(|| true),
        };
        let options = ApiOptions {
            bootstrap_token: Some(TOKEN.into()),
            wrong_tokens_per_min,
            webhook_ports: vec![443],
            ..ApiOptions::default()
        };
        let api = Api::new(deps, options, &mut writer).unwrap();
        let api = Arc::new(api);
        let mut live = Live::new(Arc::clone(&api));
        thread::spawn(move || writer.run(&mut live, Duration::from_millis(20)));
        let listener = TcpListener::bind((HOME, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let api_of = Some(Arc::clone(&api));
        let service = Service {
            sources,
            api: api_of,
            hosts: vec!["panel.example.org".into()],
            metrics_token: true,
            tls: None,
            lower_priority: || {},
        };
        let limits = ConnectionLimits { idle_timeout, ..CONNECTION_LIMITS };
        let server = thread::spawn(move || {
            serve_within(limits, vec![listener], &service, stopped).unwrap();
        });
        Self { clocks, api, address, stop, server: Some(server), ignored }
    }

    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    fn send(&self, request: &str, token: &str, body: Option<&Value>) -> TcpStream {
        let (method, path) = request.split_once(' ').unwrap();
        let headers = format!(
            "Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        );
        let body = body.map(Value::to_string).unwrap_or_default();
        self.request(&format!("{method} /api/v1{path}"), &headers, &body)
    }

    /// Sends a request with these headers on a connection of its own.
    fn request(&self, request: &str, headers: &str, body: &str) -> TcpStream {
        self.request_from(HOME, request, headers, body)
    }

    /// The same from this address.
    fn request_from(&self, from: IpAddr, request: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = connect_from(from, self.address);
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).unwrap();
        stream
    }

    pub(super) fn ask_as(&self, token: &str, request: &str, body: Option<&Value>) -> (u16, Value) {
        let answer = read(self.send(request, token, body));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    pub(super) fn expect(&self, status: u16, request: &str, body: Option<&Value>) -> Value {
        let (found, answer) = self.ask_as(TOKEN, request, body);
        assert_eq!(found, status, "{request}: {answer}");
        answer
    }

    fn admit(&self, key: &str) -> Result<(), Refusal> {
        let (tracker, tick) = (self.api.tracker(), self.clocks.clock_reading().tick);
        let (kind, key) = (RequestKind::Announce, Some(key.as_bytes()));
        tracker.view(tick).authorize(ListenerPolicyId(0), HOME, kind, key).map(drop)
    }
}

impl Drop for TestApi {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        // It has panicked only if the test fails anyway.
        let _ = self.server.take().map(JoinHandle::join);
    }
}

/// The machine's clock is set back by days; the tracker's clock is not affected.
#[test]
fn expired_entries_stay_expired_when_the_clock_goes_back() {
    let api_server = TestApi::start(PATIENCE);
    api_server
        .api
        .tracker()
        .replace_listeners(&[ListenerPolicy { access: Access::Private, ..Default::default() }]);
    let create = |request: &str, body: Value, name: &str| {
        api_server.expect(201, request, Some(&body))[name].as_str().unwrap().to_owned()
    };
    let token = json!({ "name": "t", "scopes": ["*"], "expires": 1_001_000 });
    let token = create("POST /tokens", token, "secret");
    let key = create("POST /keys", json!({ "expires": 1_001_000 }), "key");
    create("POST /bans", json!({ "network": "192.0.2.1", "expires": 1_001_000 }), "network");
    let status = |token: &str| api_server.ask_as(token, "GET /keys", None).0;
    let bans = || api_server.expect(200, "GET /bans", None)["bans"].clone();
    let is_banned = || {
        let ip = [192, 0, 2, 1].into();
        api_server.api.tracker().bans().contains(api_server.clocks.clock_reading().tick, ip)
    };
    // Set back while everything is valid: it stays valid for the time that it had left.
    api_server.clocks.time.store(400_000, Ordering::SeqCst);
    assert_eq!((status(&token), api_server.admit(&key), is_banned()), (200, Ok(()), true));
    api_server.clocks.advance(999);
    assert_eq!((api_server.admit(&key), is_banned()), (Ok(()), true));
    api_server.clocks.advance(1);
    assert!(api_server.admit(&key).is_err() && !is_banned());
    // At the right time again the token has expired, too, and stays expired whatever the clock shows then.
    api_server.clocks.time.store(1_001_000, Ordering::SeqCst);
    assert_eq!((status(&token), bans()), (401, json!([])));
    api_server.clocks.time.store(400_000, Ordering::SeqCst);
    assert_eq!((status(&token), bans()), (401, json!([])));
    assert!(api_server.admit(&key).is_err() && !is_banned());
    // New entries count from the latest time seen.
    let token = json!({ "name": "t", "scopes": ["*"], "expires": 1_001_500 });
    let token = create("POST /tokens", token, "secret");
    let key = create("POST /keys", json!({ "expires": 1_001_500 }), "key");
    assert_eq!((status(&token), api_server.admit(&key)), (200, Ok(())));
    api_server.clocks.advance(500);
    assert!(api_server.admit(&key).is_err());
    // Counts are still written.
    let key = api_server.expect(201, "POST /keys", Some(&json!({})));
    assert_eq!(api_server.admit(key["key"].as_str().unwrap()), Ok(()));
    let one = format!("GET /keys/{}", key["id"]);
    wait_until("the first use is written", || {
        !api_server.expect(200, &one, None)["first_used"].is_null()
    });
}

/// Publishes `count` events of a kilobyte.
fn publish(api: &Api, count: u64) {
    for number in 0..count {
        let data = json!({ "message": "x".repeat(1000), "number": number });
        api.hub().publish(EventKind::Warning, data);
    }
}

#[test]
fn streams_that_are_not_read_are_closed() {
    let api_server = TestApi::start(Duration::from_secs(1));
    let hub = api_server.api.hub();
    let mut unread = Vec::new();
    while unread.len() < 4 {
        let mut stream = api_server.send("GET /events", TOKEN, None);
        // On a busy machine it may be closed before the response.
        if stream.read_exact(&mut [0; 12]).is_ok() {
            unread.push(stream);
        }
    }
    let mut published = 0;
    wait_until("all are closed", || {
        publish(&api_server.api, 100);
        published += 100;
        hub.subscribers() == 0
    });
    // They got no more than the kernel takes.
    for mut stream in unread {
        let mut bytes = Vec::new();
        // Closed cleanly or reset.
        let _ = stream.read_to_end(&mut bytes);
        assert!((bytes.len() as u64) < published * 1000, "{} bytes", bytes.len());
    }
}

impl TestApi {
    /// Creates a token with these scopes. Returns its id and secret.
    fn token(&self, scopes: &[&str], expires: Option<i64>) -> (i64, String) {
        let body = json!({ "name": "t", "scopes": scopes, "expires": expires });
        let made = self.expect(201, "POST /tokens", Some(&body));
        (made["id"].as_i64().unwrap(), made["secret"].as_str().unwrap().into())
    }

    /// Opens a stream with one more header.
    fn stream(&self, path: &str, header: &str) -> TcpStream {
        let headers = format!("Host: localhost:{}\r\n{header}\r\n", self.address.port());
        let mut stream = self.request(&format!("GET /api/v1{path}"), &headers, "");
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    }

    /// Opens a stream of each kind.
    fn streams(&self, header: &str) -> [TcpStream; 2] {
        ["/events", "/stats/stream"].map(|path| self.stream(path, header))
    }

    /// Sends a request of the dashboard. Returns the response.
    fn dashboard(&self, request: &str, cookie: &str, body: &str) -> String {
        let port = self.address.port();
        let headers = format!(
            "Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\nX-Tidegate: 1\r\n\
             Content-Type: application/json\r\nCookie: {cookie}\r\n"
        );
        read(self.request(request, &headers, body))
    }

    /// Signs in to the dashboard. Returns the cookie.
    fn sign_in(&self, token: &str) -> String {
        let body = json!({ "token": token }).to_string();
        let response = self.dashboard("POST /session", "", &body);
        let cookie = response.split("set-cookie: ").nth(1).unwrap_or_else(|| panic!("{response}"));
        assert!(cookie.starts_with(&format!("tidegate-{}=", self.address.port())), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }
}

/// Reads until the server ends the stream. Panics if it does not.
fn read_to_end(stream: &mut TcpStream) {
    stream.read_to_end(&mut Vec::new()).unwrap();
}

fn read(mut stream: TcpStream) -> String {
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn streams_end_with_their_token_and_session() {
    // Longer than streams are waited for: idle connections do not end them.
    let api_server = TestApi::start(10 * PATIENCE);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let scopes = ["events:read", "stats:read"];
    let (revoked, secret) = api_server.token(&scopes, None);
    let (_, expiring) = api_server.token(&scopes, Some(1_000_500));
    let (in_session, session_token) = api_server.token(&scopes, None);
    let mut of_revoked = api_server.streams(&bearer(&secret));
    let mut of_expiring = api_server.streams(&bearer(&expiring));
    let cookies = [(); 2].map(|()| api_server.sign_in(&session_token));
    let [mut of_signed_out, mut of_session] =
        cookies.each_ref().map(|cookie| api_server.streams(&format!("Cookie: {cookie}")));
    let mut of_other = api_server.streams(&bearer(TOKEN));

    api_server.expect(204, &format!("DELETE /tokens/{revoked}"), None);
    of_revoked.iter_mut().for_each(read_to_end);
    api_server.clocks.advance(500);
    of_expiring.iter_mut().for_each(read_to_end);
    let response = api_server.dashboard("DELETE /session", &cookies[0], "");
    assert!(response.starts_with("HTTP/1.1 204"), "{response}");
    of_signed_out.iter_mut().for_each(read_to_end);
    // The other session of the same token ends with the token.
    let show = || api_server.dashboard("GET /session", &cookies[1], "");
    assert!(show().starts_with("HTTP/1.1 200"));
    api_server.expect(204, &format!("DELETE /tokens/{in_session}"), None);
    of_session.iter_mut().for_each(read_to_end);
    assert!(show().starts_with("HTTP/1.1 204"), "the session is gone: {}", show());
    // Those of other tokens go on.
    for stream in &mut of_other {
        stream.set_nonblocking(true).unwrap();
        let ended = loop {
            match stream.read(&mut [0; 4096]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
            }
        };
        assert!(!ended);
    }
}

#[test]
fn tokens_make_and_revoke_only_what_they_may_do_themselves() {
    let api_server = TestApi::start(PATIENCE);
    let (all, _) = api_server.token(&["*"], None);
    let (stats, _) = api_server.token(&["stats:read"], None);
    let (keys, _) = api_server.token(&["keys:read", "stats:read"], None);
    let (own, limited) = api_server.token(&["tokens:write", "stats:read"], Some(1_000_500));
    let create = |scope: &str, expires: Option<i64>| {
        let body = json!({ "name": "t", "scopes": [scope], "expires": expires });
        api_server.ask_as(&limited, "POST /tokens", Some(&body))
    };
    let revoke = |id: i64| api_server.ask_as(&limited, &format!("DELETE /tokens/{id}"), None).0;
    assert_eq!(create("keys:read", Some(1_000_500)).0, 403);
    assert_eq!(create("*", Some(1_000_500)).0, 403);
    assert_eq!(create("stats:read", Some(1_000_500)).0, 201);
    // Nothing that lives longer than itself.
    for expires in [None, Some(1_000_501)] {
        let (status, problem) = create("stats:read", expires);
        assert!(
            status == 403 && problem["detail"].as_str().unwrap().contains("1000500"),
            "{problem}"
        );
    }
    assert_eq!([all, keys, stats, own, 99].map(revoke), [403, 403, 204, 204, 401]);
    assert_eq!(api_server.expect(200, "GET /tokens", None)["tokens"].as_array().unwrap().len(), 4);
}

impl TestApi {
    /// Returns the status of the response to a GET with these headers.
    fn status(&self, target: &str, headers: &str) -> u16 {
        let response = read(self.request(&format!("GET {target}"), headers, ""));
        if response.starts_with("HTTP/1.1 421") {
            assert!(response.contains("add the name to [admin] hosts"), "{response}");
        }
        response[9..12].parse().unwrap()
    }
}

#[test]
fn refuses_requests_that_name_a_foreign_host() {
    let api_server = TestApi::start(PATIENCE);
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    for target in ["/", "/main.js", "/metrics", "/session", "/api/v1/stats", "/none"] {
        let status = |host: &str| api_server.status(target, &format!("{token}Host: {host}\r\n"));
        assert_eq!(status("evil.example:6970"), 421, "{target}");
        let expected = if target == "/none" { 404 } else { 200 };
        for host in ["127.0.0.1:6970", "[::1]", "localhost", "panel.example.org"] {
            assert_eq!(status(host), expected, "{target} at {host}");
        }
    }
    // Probes by any name, and without one.
    assert_eq!(api_server.status("/health/live", "Host: balancer.example\r\n"), 200);
    assert_eq!(api_server.status("/api/v1/openapi.json", ""), 200);
}

#[test]
fn metrics_may_require_a_token() {
    let api_server = TestApi::start(PATIENCE);
    let status = |token: &str| {
        let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        api_server.status("/metrics", &headers)
    };
    let (_, stats) = api_server.token(&["stats:read"], None);
    let (_, events) = api_server.token(&["events:read"], None);
    assert_eq!(api_server.status("/metrics", "Host: localhost\r\n"), 401);
    assert_eq!(
        [&stats, &events, &stats.replace("tg_", "tg-")].map(|token| status(token)),
        [200, 403, 401]
    );
    assert_eq!(api_server.status("/health/live", "Host: localhost\r\n"), 200);
}

/// The file from which the browser test of the page *Nodes* answers `/cluster`.
const PARTITION: &str = "../../testing/clients/web/partition.json";

#[test]
fn shows_the_cluster_as_in_the_browser_test() {
    let api_server = TestApi::start(PATIENCE);
    let absent = api_server.expect(404, "GET /cluster", None);
    assert!(absent["detail"].as_str().unwrap().contains("[cluster] join"), "{absent}");
    api_server.expect(404, "POST /cluster/nodes/3/ignore", None);
    api_server.api.sources().subsystems.add("cluster", partition);
    // Node 1 is this one.
    for (status, request) in [
        (409, "POST /cluster/nodes/1/ignore"),
        (400, "POST /cluster/nodes/0/ignore"),
        (400, "POST /cluster/nodes/+3/ignore"),
        (400, "POST /cluster/nodes/256/heed"),
        (404, "POST /cluster/nodes/3/heed"),
        (204, "POST /cluster/nodes/3/ignore"),
        (204, "POST /cluster/nodes/3/ignore"),
        (204, "POST /cluster/nodes/3/heed"),
    ] {
        api_server.expect(status, request, None);
    }
    // Ignoring is applied even if nothing changes: the records decide.
    let expected = [(3, true), (3, true), (3, false)];
    assert_eq!(api_server.ignored.lock().unwrap()[..], expected);
    let shown = api_server.expect(200, "GET /cluster", None);
    let kinds = shown["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["kind"].as_str().unwrap());
    assert_eq!(kinds.collect::<Vec<_>>(), ["alone", "not_stored", "stream"]);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PARTITION);
    if std::env::var_os("TIDEGATE_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&shown).unwrap() + "\n").unwrap();
    }
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(shown == expected, "{PARTITION} differs: TIDEGATE_WRITE_OPENAPI=1 writes it anew");
}
