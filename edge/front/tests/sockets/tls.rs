//! TLS handshakes that fail or never end, and connections that end within TLS. Requests over TLS are tested with
//! those over TCP, sessions and certificates with edge/net.

use std::io::Write;

use tracker::Limits;
use tracker::counters::{Counters, DropReason, Protocol};

use crate::testing::*;

/// Seconds for the handshake and the first request, by default.
const HEAD_TIMEOUT_S: u32 = 10;

fn hello() -> Vec<u8> {
    written(|out| _ = tls_session().write_tls(out).unwrap())
}

/// A TCP connection to the TLS listener that has sent some bytes.
fn send(server: &HttpServer, bytes: &[u8]) -> Client {
    let mut client = Client::connect(server.second_address);
    client.send(bytes);
    client
}

#[test]
fn closes_unfinished_handshakes_and_serves_others() {
    net::process::raise_descriptor_limit().unwrap();
    let server = HttpServer::start();
    let mut good = server.tls_client();
    good.request(PROBE);
    let hello = hello();
    // One byte, half a ClientHello, or a whole one and nothing after it.
    let lens = [1, hello.len() / 2, hello.len()];
    let mut held: Vec<Client> = (0..600).map(|at| send(&server, &hello[..lens[at % 3]])).collect();
    // A handshake that is complete, without a request after it.
    let mut silent = server.tls_client();
    silent.send("");
    server.wait_for_counts(Protocol::Https, "accepted", |it| {
        (it.connections_opened, it.tls_handshakes) == (602, 2)
    });
    // More of a ClientHello gives it no more time.
    server.advance(HEAD_TIMEOUT_S / 2);
    held[0].send(&hello[1..9]);
    assert_eq!(good.request(PROBE).status, 404);
    server.advance(HEAD_TIMEOUT_S / 2 + 1);
    for (number, client) in held.iter_mut().enumerate() {
        assert_eq!(client.receive_rest().is_empty(), number % 3 != 2, "{number}");
    }
    silent.expect_end();
    assert_eq!(good.request(PROBE).status, 404);
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 601);
}

/// Nor is a PROXY header of an untrusted address TLS, but it is counted apart.
//= proxy#trusted-only
//= type=test
#[test]
fn answers_garbage_with_an_alert_and_counts_it() {
    let server = HttpServer::start();
    send(&server, proxy_line("192.0.2.9").as_bytes()).receive_rest();
    for garbage in [b"\x16\x03\x01\xff\xff\0\0".as_slice(), &[0; 100], b"\x80\x2e\x01\0\x02"] {
        let received = send(&server, garbage).receive_rest();
        // An alert (21) with a payload of two bytes.
        assert_eq!((received[0], &received[3..5]), (21, [0, 2].as_slice()), "{received:?}");
    }
    let drops = server.finish(Protocol::Https).drops;
    assert_eq!(drops[DropReason::BadTls.index()], 3);
    assert_eq!(drops[DropReason::UntrustedProxy.index()], 1);
}

#[test]
fn counts_no_drop_for_handshakes_cut_off_by_the_stop() {
    let server = HttpServer::start();
    let mut client = send(&server, &hello()[..100]);
    server.wait_for_counts(Protocol::Https, "accepted", |it| it.connections_opened == 1);
    assert_eq!(server.finish(Protocol::Https).drops, Counters::default().drops);
    assert_eq!(client.receive_rest(), b"");
}

#[test]
fn limits_the_unfinished_handshakes_of_a_client() {
    const MAX: u32 = 4;
    let server = HttpServer::with(behind_proxy_protocol());
    let limits = Limits { unfinished_handshakes: MAX, ..Limits::default() };
    server.tracker.limiter().replace(limits);
    let served = |from: &str| served_over_tls_as(server.second_address, from).is_some();
    // Handshakes that are complete do not count.
    assert!((0..3 * MAX).all(|_| served("192.0.2.1")));
    let stuck = [proxy_line("192.0.2.1").as_bytes(), &hello()[..100]].concat();
    let held = [(); MAX as usize].map(|()| send(&server, &stuck));
    server.wait_for_counts(Protocol::Https, "accepted", |it| it.connections_opened == 16);
    assert!(!served("192.0.2.1") && served("192.0.2.2"));
    drop(held);
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.drops[DropReason::HandshakeLimit.index()], 1);
}

#[test]
fn closes_a_websocket_whose_tls_breaks() {
    let server = HttpServer::start();
    let mut web = WebClient::open(server.tls_client(), "/");
    web.join(1);
    let mut broken = vec![23, 3, 3, 0, 32];
    broken.resize(200, 1);
    web.client.tcp().write_all(&broken).unwrap();
    assert!(web.client.0.receive_more().is_err(), "expected the alert, which is an error");
    assert_eq!(server.finish(Protocol::Wss).drops[DropReason::BadTls.index()], 1);
}
