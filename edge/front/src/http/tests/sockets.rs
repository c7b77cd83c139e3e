//! HTTP over real sockets: a worker serves, and plain blocking clients speak to it byte by byte, so
//! that the codec does not prove itself. Deadlines are generous; nothing is slept for.

mod lifetime;
mod proxy;
mod requests;
mod too_many;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

use net::{TcpOptions, bind_tcp};
use tracker::counters::{Counters, DropReason, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicy, Options, Policy, Secrets, StoreOptions};
use types::Refusal;

use super::super::*;

/// How long a client waits for bytes before its test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker that serves one address until it is stopped.
struct Server {
    address: SocketAddr,
    tracker: Arc<Tracker>,
    registry: Arc<MetricsRegistry>,
    stop: watch::Sender<bool>,
    worker: Option<JoinHandle<()>>,
}

impl Server {
    /// On the IPv4 loopback address, as it comes.
    fn start() -> Self {
        Self::with("127.0.0.1:0", HttpOptions::default())
    }

    fn with(listen: &str, options: HttpOptions) -> Self {
        let listener = bind_tcp(listen.parse().unwrap(), 1, &TcpOptions::default()).unwrap();
        let listener = listener.into_iter().next().unwrap();
        let address = listener.local_addr().unwrap();
        let (tracker, registry) =
            (tracker(options.non_compact), Arc::new(MetricsRegistry::default()));
        let [http, web] = [Protocol::Http, Protocol::Ws].map(|protocol| {
            registry.register(Listener { protocol, address, listener_policy: ListenerPolicyId(0) })
        });
        let worker = HttpWorker {
            tracker: Arc::clone(&tracker),
            listeners: vec![HttpListener { socket: listener, tls: None, options, http, web }],
            clock: Clock::start(),
            seed: 7,
            link: WorkerLink::for_workers(1).remove(0),
        };
        let (stop, stopped) = watch::channel(false);
        let worker = std::thread::spawn(move || serve(worker, stopped).unwrap());
        Self { address, tracker, registry, stop, worker: Some(worker) }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, heard: Vec::new() }
    }

    /// What was published last, at most a moment ago.
    fn counters(&self) -> Counters {
        self.registry.read().remove(0).1
    }

    /// Ends the worker, and gives what it counted.
    fn finish(mut self) -> Counters {
        self.end();
        self.counters()
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(worker) = self.worker.take() {
            worker.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn tracker(keep_peer_ids: bool) -> Arc<Tracker> {
    let policy = Policy { numwant_max: 1000, ..Policy::default() };
    let store = StoreOptions {
        shards: 4,
        hash_key: [3; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids,
        memory_budget: None,
    };
    Arc::new(Tracker::new(
        &Options { policy, store },
        &Secrets { connection_ids: [5; 16], offers: [6; 16], limits: [7; 16] },
    ))
}

/// A connection, and what has come over it.
struct Client {
    stream: TcpStream,
    heard: Vec<u8>,
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: u16,
    /// Each line of the head behind the first.
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Client {
    fn say(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(text.as_ref()).unwrap();
        self
    }

    /// The next response, which has a body as long as it says.
    fn hear(&mut self) -> Response {
        let mut response = self.hear_head();
        let len: usize = response.header("Content-Length").unwrap().parse().unwrap();
        while self.heard.len() < len {
            assert!(self.read_more(), "the end within a body");
        }
        response.body = self.heard.drain(..len).collect();
        response
    }

    /// The next head; what follows stays.
    fn hear_head(&mut self) -> Response {
        let end = loop {
            if let Some(at) = self.heard.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.read_more(), "the end within a head");
        };
        let head = String::from_utf8(self.heard.drain(..end).collect()).unwrap();
        let mut lines = head.trim_end().lines().map(String::from);
        let first = lines.next().unwrap();
        let status = first.strip_prefix("HTTP/1.1 ").unwrap().get(..3).unwrap().parse().unwrap();
        Response { status, headers: lines.collect(), body: Vec::new() }
    }

    fn ask(&mut self, text: impl AsRef<[u8]>) -> Response {
        self.say(text).hear()
    }

    /// Waits for the server to close in order, and fails if anything else comes first.
    fn hear_end(mut self) {
        assert!(!self.read_more() && self.heard.is_empty(), "{:?}", self.heard);
    }

    /// The same where the server may as well break the connection.
    fn hear_end_or_reset(mut self) {
        match self.stream.read(&mut [0]) {
            Ok(len) => assert_eq!((len, self.heard.len()), (0, 0)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// Whether more has come, and not the end.
    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let len = self.stream.read(&mut buffer).unwrap();
        self.heard.extend_from_slice(&buffer[..len]);
        len > 0
    }
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ String| line.starts_with(&format!("{name}: "));
        self.headers.iter().find(|line| value(line)).map(|line| &line[name.len() + 2..])
    }

    fn says_close(&self) -> bool {
        self.header("Connection") == Some("close")
    }

    /// The body, with what is no text replaced.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the body holds `bytes`.
    fn has(&self, bytes: impl AsRef<[u8]>) -> bool {
        let bytes = bytes.as_ref();
        self.body.windows(bytes.len()).any(|window| window == bytes)
    }
}

/// The target of an announce by a leecher at `port` that tells all there must be, and `more`.
fn announce(port: u16, more: &str) -> String {
    format!(
        "/announce?info_hash=aaaaaaaaaaaaaaaaaaaa&peer_id=-XX0001-{port:012}&port={port}\
         &uploaded=0&downloaded=0&left=1{more}"
    )
}

/// A request for `target`, with more headers if need be, each ended by a line feed.
fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n{headers}\r\n")
}

/// Waits for `is_so`, which other threads bring about.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
