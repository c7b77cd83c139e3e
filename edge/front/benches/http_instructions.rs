//! Drives one HTTP worker over loopback, so that valgrind can count the instructions of its thread.
//!
//! The machine's speed does not matter to the count. Run it twice with different numbers of
//! requests and divide the difference, so that start-up drops out:
//!
//! ```text
//! valgrind --tool=callgrind --separate-threads=yes BINARY keep-alive 64 20000
//! valgrind --tool=callgrind --separate-threads=yes BINARY keep-alive 64 40000
//! ```
//!
//! Arguments: `keep-alive` or `close`; connections; requests.

mod shared;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use net::{TcpOptions, bind_tcp};
use tidegate_front::Clock;
use tidegate_front::http::{HttpListener, HttpOptions, HttpWorker, MemoryLimits, StopOrder, serve};
use tidegate_front::webtorrent::WorkerLink;
use tokio::sync::watch;
use tracker::ListenerPolicyId;
use tracker::counters::{Listener, MetricsRegistry, Protocol};

use shared::{PEERS, TORRENTS, tracker};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let word =
        |at: usize, default: &str| args.get(at).cloned().unwrap_or_else(|| default.to_owned());
    let connections: usize = word(1, "8").parse().expect("connections: expected a number");
    let requests: usize = word(2, "64").parse().expect("requests: expected a number");
    let (address, stop) = start();
    match word(0, "keep-alive").as_str() {
        "keep-alive" => keep_alive(address, connections, requests),
        "close" => close(address, requests),
        other => panic!("expected keep-alive or close, found {other}"),
    }
    stop();
}

/// Starts a worker. Returns its address, and what stops it.
fn start() -> (SocketAddr, impl FnOnce()) {
    let registry = Arc::new(MetricsRegistry::default());
    let socket = bind_tcp(([127, 0, 0, 1], 0).into(), Vec::new(), 1, &TcpOptions::default());
    let socket = socket.expect("cannot bind").remove(0);
    let address = socket.local_addr().expect("no address");
    let [http, web] = [Protocol::Http, Protocol::Ws].map(|protocol| {
        registry.register(Listener { protocol, address, listener_policy: ListenerPolicyId(0) })
    });
    let options = HttpOptions::default();
    let worker = HttpWorker {
        tracker: tracker(),
        listeners: vec![HttpListener { socket, tls: None, options, pages: None, http, web }],
        clock: Clock::start(),
        seed: 1,
        link: WorkerLink::for_workers(1).remove(0),
        memory_limits: MemoryLimits::default(),
        lower_priority: || {},
    };
    let (stop, stopped) = watch::channel(None);
    let worker = std::thread::spawn(move || serve(worker, stopped).expect("the worker failed"));
    let stop = move || {
        stop.send_replace(Some(StopOrder { idle_grace: Duration::ZERO }));
        worker.join().expect("the worker panicked");
    };
    (address, stop)
}

/// An announce as qBittorrent writes it.
fn request(number: usize, extra: &str) -> Vec<u8> {
    let (torrent, peer) = (number % TORRENTS, number / TORRENTS % PEERS);
    // Every third byte is one that a URL may have as it is.
    let hash: String = (2..20)
        .map(|at| match (torrent * 31 + at * 7) % 256 {
            byte if byte % 3 == 0 => char::from(b'A' + (byte % 26) as u8).to_string(),
            byte => format!("%{byte:02x}"),
        })
        .collect();
    let hash = format!("{hash}%{:02x}%{:02x}", torrent / 256, torrent % 256);
    format!(
        "GET /announce?info_hash={hash}&peer_id=-qB4620-{peer:012}&port={}&uploaded=1073741824&\
         downloaded=734003200&left={}&corrupt=0&key=5A8C11F0&event=&numwant=50&compact=1&\
         no_peer_id=1&supportcrypto=1&redundant=0 HTTP/1.1\r\nHost: tracker.example.org:6969\r\n\
         User-Agent: qBittorrent/4.6.2\r\nAccept-Encoding: gzip\r\n{extra}\r\n",
        1024 + peer,
        peer % 4 * 1_048_576
    )
    .into_bytes()
}

fn keep_alive(address: SocketAddr, connections: usize, requests: usize) {
    let mut clients: Vec<TcpStream> =
        (0..connections).map(|_| TcpStream::connect(address).expect("cannot connect")).collect();
    let mut buffer = vec![0; 65536];
    let mut number = 0;
    while number < requests {
        for client in &mut clients {
            client.write_all(&request(number, "")).expect("cannot send");
            number += 1;
        }
        for client in &mut clients {
            // An answer comes in one piece over loopback.
            let len = client.read(&mut buffer).expect("cannot read");
            let answer = &buffer[..len];
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", answer.escape_ascii());
        }
    }
}

fn close(address: SocketAddr, requests: usize) {
    let mut buffer = Vec::new();
    for number in 0..requests {
        let mut client = TcpStream::connect(address).expect("cannot connect");
        client.write_all(&request(number, "Connection: close\r\n")).expect("cannot send");
        buffer.clear();
        client.read_to_end(&mut buffer).expect("cannot read");
        assert!(buffer.starts_with(b"HTTP/1.1 200 OK"), "{}", buffer.escape_ascii());
    }
}
