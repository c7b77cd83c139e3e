//! The load against a small tracker on loopback, with TLS and without.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// What it has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    requests: AtomicU64,
    resumed: AtomicU64,
}

/// Answers the requests of each connection with `body`, until a request asks it to close.
fn tracker(tls: bool, body: &'static str) -> (Url, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let scheme = if tls { "https" } else { "http" };
    let address = listener.local_addr().unwrap();
    let url = Url::http(&format!("{scheme}://{address}/announce?key=1")).unwrap();
    let seen = Arc::new(Seen::default());
    let (shared, config) = (Arc::clone(&seen), tls.then(server_config));
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let (tcp, seen, config) = (tcp.unwrap(), Arc::clone(&shared), config.clone());
            tcp.set_nodelay(true).unwrap();
            thread::spawn(move || {
                seen.connections.fetch_add(1, Ordering::Relaxed);
                let Some(config) = config else { return serve(tcp, body, &seen) };
                let tls = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(tls, tcp);
                while stream.conn.is_handshaking() {
                    if stream.conn.complete_io(&mut stream.sock).is_err() {
                        return;
                    }
                }
                let is_resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
                seen.resumed.fetch_add(u64::from(is_resumed), Ordering::Relaxed);
                serve(stream, body, &seen);
            });
        }
    });
    (url, seen)
}

fn server_config() -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
    let chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let builder = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    builder.with_single_cert(chain, key).unwrap().into()
}

fn serve(mut stream: impl Read + Write, body: &str, seen: &Seen) {
    let (mut room, mut input) = ([0; 4096], String::new());
    // The load may leave at any time.
    while let Ok(len @ 1..) = stream.read(&mut room) {
        input += std::str::from_utf8(&room[..len]).unwrap();
        if !input.ends_with("\r\n\r\n") {
            continue;
        }
        assert!(input.starts_with("GET /announce?key=1&info_hash=%"), "{input}");
        assert!(input.contains("&left=1&compact=1&numwant=50 HTTP/1.1\r\nHost: 127.0.0.1:"));
        seen.requests.fetch_add(1, Ordering::Relaxed);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all((head + body).as_bytes());
        let _ = stream.flush();
        if input.contains("Connection: close\r\n") {
            return;
        }
        input.clear();
    }
}

fn options(url: Url) -> Options {
    Options {
        connections: 4,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(400),
        pid: Some(std::process::id()),
        ..Options::of(url)
    }
}

#[test]
fn connections_are_kept() {
    for tls in [false, true] {
        let (url, seen) = tracker(tls, "d8:intervali9ee");
        let report = run(&options(url)).unwrap();
        assert!(report.answers > 10, "{report:?}");
        assert_eq!((report.refused, report.lost), (0, 0), "{report:?}");
        assert_eq!(seen.connections.load(Ordering::Relaxed), 4);
        assert!(seen.requests.load(Ordering::Relaxed) >= report.answers);
        let text = report.to_string();
        for label in ["measured: 0.4", "responses per second: ", "responses per tracker CPU second"]
        {
            assert_eq!(text.matches(label).count(), 1, "{text}");
        }
    }
}

#[test]
fn connections_are_made_anew() {
    for (tls, resume) in [(false, false), (true, false), (true, true)] {
        let (url, seen) = tracker(tls, "d8:intervali9ee");
        let report = run(&Options { close: true, resume, ..options(url) }).unwrap();
        assert!(report.answers > 10, "{report:?}");
        assert_eq!((report.refused, report.lost), (0, 0), "{report:?}");
        let connections = seen.connections.load(Ordering::Relaxed);
        assert!(connections >= report.answers, "{connections} {report:?}");
        assert_eq!(seen.resumed.load(Ordering::Relaxed) > 0, resume);
    }
}

#[test]
fn refusals_are_counted_and_told() {
    let (url, _) = tracker(false, "d14:failure reason4:nopee");
    let report = run(&options(url)).unwrap();
    assert_eq!(report.refused, report.answers);
    assert!(report.complaint.unwrap().contains("nope"));
}

#[test]
fn trackers_that_are_none_end_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::http(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let _ = stream.write_all(b"220 mail.test ESMTP\r\n\r\n");
        }
    });
    let long = Options { duration: Duration::from_secs(3600), ..options(url) };
    let error = run(&long).unwrap_err().to_string();
    assert!(error.contains("without Content-Length"), "{error}");
}
