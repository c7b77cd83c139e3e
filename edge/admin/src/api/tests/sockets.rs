//! The API through its sockets, with clocks that tests set.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU32;
use std::thread::{self, JoinHandle};

use serde_json::json;
use tokio::sync::watch;
use tracker::{ListenerPolicy, ListenerPolicyId, RequestKind};
use types::Refusal;

use super::super::*;
use crate::events::EventKind;
use crate::listener::ConnectionLimits;
use crate::restore::CountCollector;
use crate::{Service, metrics, serve_within};

const TOKEN: &str = "tg_0123456789abcdefghijABCDEFGHIJ01";
const PATIENCE: Duration = Duration::from_secs(60);
const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// What the clocks show.
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

    fn pass(&self, seconds: u32) {
        self.tick.fetch_add(seconds, Ordering::SeqCst);
        self.time.fetch_add(seconds.into(), Ordering::SeqCst);
    }
}

/// An API with its records and its threads, until it is dropped.
struct World {
    clocks: Arc<Clocks>,
    api: Arc<Api>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

impl World {
    fn start(idle_timeout: Duration) -> Self {
        let clocks = Arc::new(Clocks::default());
        clocks.time.store(1_000_000, Ordering::SeqCst);
        clocks.tick.store(100, Ordering::SeqCst);
        let (records, writer) = Records::open(None).unwrap();
        let sources = Arc::new(metrics::tests::sources());
        let (ticks, times, moments) = (clocks.clone(), clocks.clone(), clocks.clone());
        let deps = ApiDeps {
            sources: Arc::clone(&sources),
            records: Arc::new(records),
            control: Box::new(drop),
            clock: Box::new(move || ticks.clock_reading().tick),
            time: Box::new(move || times.clock_reading().time),
            send_post: Arc::new(|_| Box::pin(async { Ok(204) })),
            traces: None,
        };
        let token = Some(TOKEN.into());
        let options = ApiOptions { token, wrong_tokens_per_min: 60_000, ..ApiOptions::default() };
        let (api, _) = Api::new(deps, options, &writer).unwrap();
        let api = Arc::new(api);
        let hub = Arc::clone(api.hub());
        let tracker = Arc::clone(&sources.tracker);
        thread::spawn(move || {
            let mut collector = CountCollector::new(tracker, hub, move || moments.clock_reading());
            writer.run(&mut collector, Duration::from_millis(20));
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let api_of = Some(Arc::clone(&api));
        let service = Service { sources, api: api_of, tls: None, lower_priority: || {} };
        let limits = ConnectionLimits { connections: 16, idle_timeout };
        let server = thread::spawn(move || {
            serve_within(limits, vec![listener], &service, stopped).unwrap();
        });
        Self { clocks, api, address, stop, server: Some(server) }
    }

    fn send(&self, request: &str, token: &str, body: Option<&Value>) -> TcpStream {
        let (method, path) = request.split_once(' ').unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask_as(&self, token: &str, request: &str, body: Option<&Value>) -> (u16, Value) {
        let mut answer = String::new();
        self.send(request, token, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn expect(&self, status: u16, request: &str, body: Option<&Value>) -> Value {
        let (found, answer) = self.ask_as(TOKEN, request, body);
        assert_eq!(found, status, "{request}: {answer}");
        answer
    }

    /// What an announce by that key comes to.
    fn admit(&self, key: &str) -> Result<(), Refusal> {
        let (tracker, tick) = (self.api.tracker(), self.clocks.clock_reading().tick);
        let (kind, key) = (RequestKind::Announce, Some(key.as_bytes()));
        tracker.view(tick).authorize(ListenerPolicyId(0), HOME, kind, key).map(drop)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        // It has panicked only if the test fails anyway.
        let _ = self.server.take().map(JoinHandle::join);
    }
}

/// The machine's clock is set back by days; the tracker's own goes on.
#[test]
fn nothing_that_has_ended_comes_back_with_the_clock() {
    let world = World::start(PATIENCE);
    world
        .api
        .tracker()
        .listener_policies()
        .replace(vec![ListenerPolicy { private: true, ..ListenerPolicy::default() }]);
    let made = |request: &str, wish: Value, name: &str| {
        world.expect(201, request, Some(&wish))[name].as_str().unwrap().to_owned()
    };
    let token = json!({ "name": "t", "scopes": ["*"], "expires": 1_001_000 });
    let token = made("POST /tokens", token, "secret");
    let key = made("POST /keys", json!({ "expires": 1_001_000 }), "key");
    made("POST /bans", json!({ "network": "192.0.2.1", "expires": 1_001_000 }), "network");
    let status = |token: &str| world.ask_as(token, "GET /keys", None).0;
    let bans = || world.expect(200, "GET /bans", None)["bans"].clone();
    let is_banned = || {
        let ip = [192, 0, 2, 1].into();
        world.api.tracker().bans().contains(world.clocks.clock_reading().tick, ip)
    };
    // Set back while all of it is good: it stays good, for as long as it has left.
    world.clocks.time.store(400_000, Ordering::SeqCst);
    assert_eq!((status(&token), world.admit(&key), is_banned()), (200, Ok(()), true));
    world.clocks.pass(999);
    assert_eq!((world.admit(&key), is_banned()), (Ok(()), true));
    world.clocks.pass(1);
    assert!(world.admit(&key).is_err() && !is_banned());
    // Right again, a token has ended, too; and stays so whatever the clock shows after that.
    world.clocks.time.store(1_001_000, Ordering::SeqCst);
    assert_eq!((status(&token), bans()), (401, json!([])));
    world.clocks.time.store(400_000, Ordering::SeqCst);
    assert_eq!((status(&token), bans()), (401, json!([])));
    assert!(world.admit(&key).is_err() && !is_banned());
    // What is made now counts from the latest time there was.
    let token = json!({ "name": "t", "scopes": ["*"], "expires": 1_001_500 });
    let token = made("POST /tokens", token, "secret");
    let key = made("POST /keys", json!({ "expires": 1_001_500 }), "key");
    assert_eq!((status(&token), world.admit(&key)), (200, Ok(())));
    world.clocks.pass(500);
    assert!(world.admit(&key).is_err());
    // Counts are written all the while.
    let key = world.expect(201, "POST /keys", Some(&json!({})));
    assert_eq!(world.admit(key["key"].as_str().unwrap()), Ok(()));
    let one = format!("GET /keys/{}", key["id"]);
    let deadline = std::time::Instant::now() + PATIENCE;
    while world.expect(200, &one, None)["first_used"].is_null() {
        assert!(std::time::Instant::now() < deadline, "it is not flushed");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a stream of events up to one of that number, and gives the numbers.
fn numbers_up_to(stream: &mut BufReader<TcpStream>, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
        assert!(!line.contains("missed"), "{line}");
        numbers.extend(line.strip_prefix("id: ").map(|id| id.trim().parse::<u64>().unwrap()));
    }
    numbers
}

#[test]
fn who_listens_but_never_reads_holds_nobody_up_and_is_closed() {
    const EVENTS: u64 = 24_000;
    const STEP: u64 = 1000;
    // Long enough for a busy machine to write to whoever reads.
    let world = World::start(Duration::from_secs(15));
    let mut deaf: Vec<_> = (0..4).map(|_| world.send("GET /events", TOKEN, None)).collect();
    let mut reader = BufReader::new(world.send("GET /events", TOKEN, None));
    let mut line = String::new();
    while !line.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    let padding = "x".repeat(1000);
    let mut read = Vec::new();
    for at in 0..EVENTS / STEP {
        for number in 0..STEP {
            let data = json!({ "text": padding, "number": number });
            world.api.hub().publish(EventKind::Warning, data);
        }
        // Whoever reads misses nothing.
        read.extend(numbers_up_to(&mut reader, (at + 1) * STEP));
    }
    assert!(read.iter().copied().eq(1..=EVENTS));
    // Those that do not read get no more than the kernel holds for them, and their end.
    for stream in &mut deaf {
        let mut bytes = Vec::new();
        // Silence ends, in whatever way.
        let _ = stream.take(EVENTS * 1000).read_to_end(&mut bytes);
        assert!((bytes.len() as u64) < EVENTS * 1000 / 2, "{} bytes", bytes.len());
    }
    // Their places are free again.
    let more: Vec<_> = (0..4).map(|_| world.send("GET /events", TOKEN, None)).collect();
    for stream in more {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    }
}
