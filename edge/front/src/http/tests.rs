//! The front through real sockets, by clients that speak bytes.

mod panics;
mod sockets;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

use net::{TcpOptions, bind_tcp};
use tracker::counters::{Counters, DropReason, Listener, MetricsRegistry, Protocol};
use tracker::{Options, Policy, RequestKind, Secrets, StoreOptions};
use types::Refusal;
use wire::bencode::{Value, parse};

use super::*;

const HASH: &str = "%01%02%03%04%05%06%07%08%09%0a%0b%0c%0d%0e%0f%10%11%12%13%14";
/// Longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    registry: Arc<MetricsRegistry>,
    stop: watch::Sender<bool>,
    worker: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    fn start(options: HttpOptions) -> Self {
        let policy = Policy::default();
        let store = StoreOptions {
            shards: 2,
            hash_key: [3; 16],
            peer_lifetime_s: policy.peer_lifetime_s,
            web_lifetime_s: policy.web_lifetime_s(),
            keep_peer_ids: options.non_compact,
            memory_budget: None,
        };
        let keys = Secrets { connection_ids: [5; 16], offers: [6; 16], limits: [7; 16] };
        let tracker = Arc::new(Tracker::new(&Options { policy, store }, &keys));
        let registry = Arc::new(MetricsRegistry::default());
        let socket = bind_tcp(([127, 0, 0, 1], 0).into(), 1, &TcpOptions::default());
        let socket = socket.unwrap().remove(0);
        let address = socket.local_addr().unwrap();
        let [http, web] = [Protocol::Http, Protocol::Ws].map(|protocol| {
            registry.register(Listener { protocol, address, listener_policy: ListenerPolicyId(0) })
        });
        let worker = HttpWorker {
            tracker,
            listeners: vec![HttpListener { socket, tls: None, options, http, web }],
            clock: Clock::start(),
            seed: 1,
            link: WorkerLink::for_workers(1).remove(0),
        };
        let (stop, stopped) = watch::channel(false);
        let worker = Some(std::thread::spawn(move || serve(worker, stopped)));
        Self { address, registry, stop, worker }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// Sends `text` and reads until the server closes.
    fn talk(&self, text: &str) -> String {
        let mut client = self.client();
        client.write_all(text.as_bytes()).unwrap();
        read_all(&mut client)
    }

    /// Ends it, and gives what it has counted.
    fn end(mut self) -> Counters {
        self.stop.send_replace(true);
        self.worker.take().unwrap().join().unwrap().unwrap();
        self.registry.read().remove(0).1
    }
}

/// Everything up to the end of the stream, however it ends.
fn read_all(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = client.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn get(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")
}

fn announce(port: u16, more: &str, headers: &str) -> String {
    let peer = "-TG0001-abcdefghijkl";
    let target = format!("/announce?info_hash={HASH}&peer_id={peer}&port={port}&left=1{more}");
    get(&target, headers)
}

const CLOSE: &str = "Connection: close\r\n";

fn body(response: &str) -> Vec<u8> {
    let (_, body) = response.split_once("\r\n\r\n").expect(response);
    body.chars().map(|char| char as u8).collect()
}

#[test]
fn closes_when_asked_and_keeps_otherwise() {
    let server = Server::start(HttpOptions::default());
    let closed = server.talk(&announce(1, "", CLOSE));
    assert!(closed.starts_with("HTTP/1.1 200 OK\r\n") && closed.contains("Connection: close"));
    let old = server.talk(&announce(1, "", "").replace("HTTP/1.1", "HTTP/1.0"));
    assert!(old.contains("Connection: close"), "{old}");
    // Two on one connection, the second ends it; then HEAD, which has no body.
    let both = server.talk(&(announce(1, "", "") + &announce(2, "", CLOSE)));
    assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2);
    assert_eq!(both.matches("Connection: close").count(), 1);
    let head = server.talk(&announce(1, "", CLOSE).replace("GET", "HEAD"));
    assert!(body(&head).is_empty() && !head.contains("Content-Length: 0"));
    let counters = server.end();
    assert_eq!(counters.requests[0][RequestKind::Announce.index()], 5);
    assert_eq!(counters.responses[0][RequestKind::Announce.index()], 5);
    assert_eq!(counters.connections_opened, counters.connections_closed);
}

#[test]
fn pipelines_are_answered_in_order_however_long() {
    let server = Server::start(HttpOptions::default());
    let count = 4000;
    let mut text: String = (0..count).map(|n| get(&format!("/{n}"), "")).collect();
    text += &announce(7, "", CLOSE);
    let mut client = server.client();
    let mut sender = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(text.as_bytes()).unwrap());
    let answers = read_all(&mut client);
    sending.join().unwrap();
    assert_eq!(answers.matches("HTTP/1.1 404 Not Found").count(), count);
    assert!(answers.rfind("HTTP/1.1 200 OK") > answers.rfind("404 Not Found"));
}

#[test]
fn bytes_may_come_one_by_one() {
    let server = Server::start(HttpOptions::default());
    let mut client = server.client();
    client.set_nodelay(true).unwrap();
    for byte in announce(1, "", CLOSE).bytes() {
        client.write_all(&[byte]).unwrap();
    }
    assert!(read_all(&mut client).contains("8:completei0e"));
}

#[test]
fn broken_http_is_answered_and_closed() {
    let server = Server::start(HttpOptions::default());
    let long = "a".repeat(20_000);
    for (text, status) in [
        (get("/announce", "").replace("GET", "POST"), "405 Method Not Allowed\r\nAllow: GET, HEAD"),
        ("\x16\x03\x01\r\n\r\n".into(), "400 Bad Request"),
        (get(&format!("/{long}"), ""), "414 URI Too Long"),
        (get("/none", &format!("X: {long}\r\n")), "431 Request Header Fields Too Large"),
        (get("/none", &"A: b\r\n".repeat(100)), "431 Request Header Fields Too Large"),
    ] {
        let answer = server.talk(&text);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.contains("Connection: close\r\n"));
    }
    assert!(server.talk(&get("/none", CLOSE)).starts_with("HTTP/1.1 404 Not Found\r\n"));
    let counters = server.end();
    assert_eq!(counters.drops[DropReason::HeadTooLarge.index()], 3);
    assert_eq!(counters.drops[DropReason::BadHttp.index()], 2);
}

#[test]
fn slow_and_silent_clients_are_closed_while_others_are_served() {
    let options = HttpOptions { head_timeout_s: 1, idle_timeout_s: 1, ..HttpOptions::default() };
    let server = Server::start(options);
    let mut idle = server.client();
    idle.write_all(announce(1, "", "").as_bytes()).unwrap();
    let mut slow = server.client();
    slow.write_all(b"GET /ann").unwrap();
    let silent: Vec<TcpStream> = (0..500).map(|_| server.client()).collect();
    let dribble = std::thread::spawn(move || {
        // A byte now and then does not buy time.
        while slow.write_all(b"o").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(server.talk(&announce(2, "", CLOSE)).contains("200 OK"));
    assert!(read_all(&mut idle).contains("200 OK"));
    dribble.join().unwrap();
    silent.into_iter().for_each(|mut client| assert_eq!(read_all(&mut client), ""));
    let counters = server.end();
    assert!(counters.drops[DropReason::TimedOut.index()] >= 2, "{counters:?}");
}

#[test]
fn connections_are_bounded() {
    let server = Server::start(HttpOptions { connections_max: 3, ..HttpOptions::default() });
    let mut kept: Vec<TcpStream> = Vec::new();
    for number in 0..8 {
        let mut client = server.client();
        client.write_all(announce(number + 1, "", "").as_bytes()).unwrap();
        let mut first = [0; 12];
        if client.read_exact(&mut first).is_ok() {
            kept.push(client);
        }
    }
    assert_eq!(kept.len(), 3);
    drop(kept);
    assert_eq!(server.end().drops[DropReason::ConnectionLimit.index()], 5);
}

#[test]
fn both_families_and_forwarded_addresses() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let server = Server::start(HttpOptions { trusted_proxies, ..HttpOptions::default() });
    let from = |ip: &str| format!("{CLOSE}X-Forwarded-For: 9.9.9.9, {ip}\r\n");
    server.talk(&announce(1, "", &from("2001:db8::1")));
    server.talk(&announce(2, "", &from("192.0.2.2")));
    let answer = body(&server.talk(&announce(3, "", &from("192.0.2.3"))));
    let answer = parse(&answer).unwrap();
    let bytes = |key| answer.at(key).and_then(Value::bytes).unwrap();
    assert_eq!(bytes("external ip"), [192, 0, 2, 3]);
    assert_eq!(bytes("peers"), [192, 0, 2, 2, 0, 2]);
    assert_eq!(bytes("peers6").len(), 18);
    let counters = server.end();
    assert_eq!(counters.requests.map(|row| row[RequestKind::Announce.index()]), [2, 1]);
}

#[test]
fn strangers_forward_nothing() {
    let server = Server::start(HttpOptions::default());
    let forged = format!("{CLOSE}X-Forwarded-For: 9.9.9.9\r\n");
    let answer = body(&server.talk(&announce(1, "", &forged)));
    let ip = parse(&answer).unwrap().at("external ip").and_then(Value::bytes).map(<[u8]>::to_vec);
    assert_eq!(ip.unwrap(), [127, 0, 0, 1]);
}

#[test]
fn dict_model_only_where_it_is_configured() {
    for non_compact in [false, true] {
        let server = Server::start(HttpOptions { non_compact, ..HttpOptions::default() });
        server.talk(&announce(1, "", CLOSE));
        let answer = body(&server.talk(&announce(2, "&compact=0", CLOSE)));
        let answer = parse(&answer).unwrap();
        match answer.at("peers").unwrap() {
            Value::List(peers) if non_compact => {
                let id = peers[0].at("peer id").and_then(Value::bytes);
                assert_eq!(id, Some(b"-TG0001-abcdefghijkl".as_slice()));
            }
            Value::Bytes(peers) if !non_compact => assert_eq!(peers.len(), 6),
            other => panic!("{non_compact}: {other:?}"),
        }
    }
}

#[test]
fn scrapes_and_failures() {
    let server = Server::start(HttpOptions::default());
    server.talk(&announce(1, "", CLOSE));
    let scraped = body(&server.talk(&get(&format!("/scrape?info_hash={HASH}"), CLOSE)));
    let scraped = parse(&scraped).unwrap();
    let Some(Value::Dict(files)) = scraped.at("files") else { panic!("{scraped:?}") };
    assert_eq!(files[0].1.at("incomplete").unwrap().int(), Some(1));
    for (target, refusal) in [
        ("/scrape", Refusal::FullScrape),
        ("/announce", Refusal::InfoHashMissing),
        ("/announce/0123456789abcdef", Refusal::KeyUnexpected),
    ] {
        let answer = server.talk(&get(target, CLOSE));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let failure = body(&answer);
        let reason = parse(&failure).unwrap().at("failure reason").and_then(Value::bytes);
        assert_eq!(reason, Some(refusal.text().as_bytes()));
    }
    assert!(body(&server.talk(&announce(0, "", CLOSE))).starts_with(b"d14:failure reason"));
}

#[test]
fn stops_although_connections_are_kept() {
    let server = Server::start(HttpOptions::default());
    let mut kept = server.client();
    kept.write_all(announce(1, "", "").as_bytes()).unwrap();
    kept.read_exact(&mut [0; 16]).unwrap();
    let counters = server.end();
    assert_eq!(counters.connections_closed, 1);
}

//= rfc8555#http-challenge
//= type=test
#[test]
fn an_authority_gets_its_proof_and_nobody_else() {
    let options = HttpOptions::default();
    let challenges = Arc::clone(&options.challenges);
    let server = Server::start(options);
    let path = "/.well-known/acme-challenge/a-token_1";
    assert!(server.talk(&get(path, CLOSE)).starts_with("HTTP/1.1 404 "));
    challenges.replace("a-token_1", "a-token_1.thumb");
    let answer = server.talk(&get(path, CLOSE));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(body(&answer), b"a-token_1.thumb");
    assert!(server.talk(&get("/a-token_1", CLOSE)).starts_with("HTTP/1.1 404 "));
    challenges.clear();
    assert!(server.talk(&get(path, CLOSE)).starts_with("HTTP/1.1 404 "));
}
