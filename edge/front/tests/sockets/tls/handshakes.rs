//! Handshakes that fail or never end, and the choice of the certificate.

use std::sync::Arc;

use harness::http::Connection;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use tracker::{Limits, Rate};

use super::*;

/// Seconds for the handshake and the first request, by default.
const HEAD_TIMEOUT_S: u32 = 10;

/// Returns a ClientHello.
fn hello() -> Vec<u8> {
    let config = client_config(&VERSIONS);
    let mut client = ClientConnection::new(config, "tracker.test".try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// All that comes up to the end of the stream.
fn read_all(stream: TcpStream) -> Vec<u8> {
    Client(Connection::new(stream)).receive_rest()
}

#[test]
fn closes_unfinished_handshakes_and_serves_others() {
    net::process::raise_descriptor_limit().unwrap();
    let server = HttpServer::tls(HttpOptions::default());
    let mut good = server.tls_client();
    good.request(announce(1, ""));
    let hello = hello();
    let held: Vec<TcpStream> = (0..600)
        .map(|number| {
            let mut stream = connect(server.second_address.unwrap());
            // One byte, half a ClientHello, or a whole one and nothing after it.
            let len = [1, hello.len() / 2, hello.len()][number % 3];
            stream.write_all(&hello[..len]).unwrap();
            stream
        })
        .collect();
    server.wait_for_counts(Protocol::Https, "accepted", |it| it.connections_opened == 601);
    assert_eq!(good.request(announce(1, "")).status, 200);
    assert_eq!(server.tls_client().request(announce(2, "")).status, 200);
    server.advance(HEAD_TIMEOUT_S + 1);
    for (number, stream) in held.into_iter().enumerate() {
        let received = read_all(stream);
        assert_eq!(received.is_empty(), number % 3 != 2, "{number}");
    }
    assert_eq!(good.request(announce(1, "")).status, 200);
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::TimedOut.index()], 600);
    assert_eq!(counters.tls_handshakes, 2);
}

#[test]
fn closes_a_connection_whose_client_hello_takes_too_long() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut stream = connect(server.second_address.unwrap());
    let hello = hello();
    let (first, rest) = hello.split_at(hello.len() / 3);
    stream.write_all(first).unwrap();
    server.wait_for_counts(Protocol::Https, "accepted", |it| it.connections_opened == 1);
    // More of it comes within the time, but not the end.
    for part in rest[1..].chunks(rest.len() / 2) {
        server.advance(HEAD_TIMEOUT_S / 2);
        stream.write_all(part).unwrap();
    }
    server.advance(HEAD_TIMEOUT_S / 2);
    assert_eq!(read_all(stream), b"");
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 1);
}

#[test]
fn closes_connections_without_a_request_after_the_handshake() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut client = server.tls_client();
    while client.0.stream.conn.is_handshaking() {
        client.0.stream.conn.complete_io(&mut client.0.stream.sock).unwrap();
    }
    server.wait_for_counts(Protocol::Https, "the handshake", |it| it.tls_handshakes == 1);
    server.advance(HEAD_TIMEOUT_S + 1);
    client.expect_end();
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 1);
}

#[test]
fn explains_plain_http_on_a_tls_port() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut stream = connect(server.second_address.unwrap());
    stream.write_all(announce(1, "").as_bytes()).unwrap();
    let text = String::from_utf8(read_all(stream)).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    assert!(text.ends_with("this port speaks TLS: the URL must begin with https:// or wss://\n"));
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::BadTls.index()], 1);
}

#[test]
fn explains_tls_on_a_plain_port() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut stream = connect(server.address);
    stream.write_all(&hello()).unwrap();
    let text = String::from_utf8(read_all(stream)).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    assert!(text.ends_with("this port does not use TLS: use an http:// or ws:// URL\n"));
    assert_eq!(server.finish(Protocol::Http).drops[DropReason::BadHttp.index()], 1);
}

#[test]
fn answers_garbage_with_an_alert_and_counts_it() {
    let server = HttpServer::tls(HttpOptions::default());
    for garbage in
        [b"\x16\x03\x01\xff\xff\0\0".as_slice(), &[0; 100], b"\x80\x2e\x01\0\x02", b"ssh-"]
    {
        let mut stream = connect(server.second_address.unwrap());
        stream.write_all(garbage).unwrap();
        let received = read_all(stream);
        // An alert (21) with a payload of two bytes.
        assert_eq!(
            (received[0], &received[3..5]),
            (21, [0, 2].as_slice()),
            "{garbage:?}: {received:?}"
        );
    }
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::BadTls.index()], 4);
}

#[test]
fn counts_clients_that_reject_the_certificate() {
    let server = HttpServer::tls(HttpOptions::default());
    let config = config_with(RootCertStore::empty(), &VERSIONS);
    let mut client = client_of(server.second_address.unwrap(), "tracker.test", config);
    assert!(client.0.stream.write_all(b"x").is_err());
    let bad_tls = DropReason::BadTls.index();
    server.wait_for_counts(Protocol::Https, "the failed handshake", |it| it.drops[bad_tls] == 1);
    assert_eq!(server.finish(Protocol::Https).tls_handshakes, 0);
}

#[test]
fn survives_clients_that_leave_during_the_handshake() {
    let server = HttpServer::tls(HttpOptions::default());
    let hello = hello();
    for number in 1..30 {
        let mut stream = connect(server.second_address.unwrap());
        stream.write_all(&hello[..hello.len() * number / 29]).unwrap();
    }
    server.wait_for_counts(Protocol::Https, "all are closed", |it| it.connections_closed == 29);
    assert_eq!(server.tls_client().request(announce(1, "")).status, 200);
    // The whole ClientHello was answered, and the client has not read the answer.
    let drops = server.finish(Protocol::Https).drops;
    assert_eq!(drops[DropReason::BadTls.index()] + drops[DropReason::Reset.index()], 29);
    assert!(drops[DropReason::BadTls.index()] >= 28);
}

#[test]
fn counts_no_drop_for_handshakes_cut_off_by_the_stop() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut stream = connect(server.second_address.unwrap());
    stream.write_all(&hello()[..100]).unwrap();
    server.wait_for_counts(Protocol::Https, "accepted", |it| it.connections_opened == 1);
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops, Counters::default().drops);
    assert_eq!(read_all(stream), b"");
}

/// Replays a ClientHello as one client, named by a PROXY header, and as another.
#[test]
fn limits_the_rate_of_handshakes() {
    const RATE: Rate = Rate { per_s: 1, burst: 3 };
    let server = behind_a_proxy();
    server.tracker.limiter().replace(Limits { handshakes: RATE, ..Limits::default() });
    let hello = hello();
    let answered = |from: &str| {
        let mut stream = connect(server.second_address.unwrap());
        stream.write_all(&[proxy_line(from).as_bytes(), &hello].concat()).unwrap();
        stream.read(&mut [0; 1024]).is_ok_and(|len| len > 0)
    };
    let count = |from: &str| (0..20).filter(|_| answered(from)).count() as u32;
    assert_eq!([count("192.0.2.1"), count("192.0.2.2")], [RATE.burst; 2]);
    server.advance(1);
    assert_eq!(count("192.0.2.1"), RATE.per_s);
    // Connections without TLS have no such rate.
    let plain = |_| {
        let mut client = server.client();
        client.send(proxy_line("192.0.2.1"));
        client.request(announce(1, "")).status
    };
    assert!((0..20).map(plain).all(|status| status == 200));
    let refused = u64::from(3 * 20 - 2 * RATE.burst - RATE.per_s);
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::HandshakeRate.index()], refused);
}

#[test]
fn limits_the_unfinished_handshakes_of_a_client() {
    const MAX: u32 = 4;
    let server = behind_a_proxy();
    let limits = Limits { unfinished_handshakes: MAX, ..Limits::default() };
    server.tracker.limiter().replace(limits);
    let stuck = |from: &str| {
        let mut stream = connect(server.second_address.unwrap());
        let half = &hello()[..100];
        stream.write_all(&[proxy_line(from).as_bytes(), half].concat()).unwrap();
        stream
    };
    let served = |from: &str| {
        let mut stream = connect(server.second_address.unwrap());
        stream.write_all(proxy_line(from).as_bytes()).unwrap();
        let mut client = handshake_over(stream, "tracker.test", client_config(&VERSIONS));
        client.0.send(announce(1, "")).is_ok()
            && client.0.receive().is_ok_and(|response| response.status == 200)
    };
    // Handshakes that are complete do not count.
    assert!((0..3 * MAX).all(|_| served("192.0.2.1")));
    let held: Vec<_> = (0..MAX).map(|_| stuck("192.0.2.1")).collect();
    let opened = u64::from(4 * MAX);
    server.wait_for_counts(Protocol::Https, "accepted", |it| it.connections_opened == opened);
    assert!(!served("192.0.2.1") && served("192.0.2.2"));
    drop(held);
    let closed = opened + 1;
    server.wait_for_counts(Protocol::Https, "closed", |it| it.connections_closed == closed);
    assert!(served("192.0.2.1"));
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::HandshakeLimit.index()], 1);
}

fn behind_a_proxy() -> HttpServer {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    HttpServer::tls(HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() })
}

fn proxy_line(from: &str) -> String {
    format!("PROXY TCP4 {from} 192.0.2.200 4711 6969\r\n")
}

#[test]
fn presents_the_certificate_of_the_named_host() {
    let server = HttpServer::tls(HttpOptions::default());
    let others = ["tracker.test", "other.test", "*.wild.test"];
    server.certificates.replace(others.map(certificate).into());
    for (host, is_there) in [
        ("tracker.test", true),
        ("other.test", true),
        ("any.wild.test", true),
        ("deep.any.wild.test", false),
        ("unknown.test", false),
    ] {
        let mut client = client_of(server.second_address.unwrap(), host, client_config(&VERSIONS));
        // The client verifies the name.
        assert_eq!(client.0.stream.write_all(b"GET").is_ok(), is_there, "{host}");
    }
}

#[test]
fn replaces_certificates_under_open_connections() {
    let server = HttpServer::tls(HttpOptions::default());
    let seen = |client: &TlsClient| client.0.stream.conn.peer_certificates().unwrap()[0].clone();
    let config = {
        let mut config = ClientConfig::clone(&client_config(&VERSIONS));
        config.resumption = Resumption::disabled();
        Arc::new(config)
    };
    let mut old = client_of(server.second_address.unwrap(), "tracker.test", Arc::clone(&config));
    old.request(announce(1, ""));
    server.certificates.replace(vec![certificate("tracker.test")]);
    let mut new = client_of(server.second_address.unwrap(), "tracker.test", config);
    for client in [&mut old, &mut new] {
        assert_eq!(client.request(announce(2, "")).status, 200);
    }
    assert_ne!(seen(&old), seen(&new));
}
