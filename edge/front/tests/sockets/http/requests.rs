//! Framing, responses and refusals.

use tracker::RequestKind;
use tracker::access::{AccessLists, Mode};
use types::Refusal;

use super::*;

#[test]
fn answers_pipelined_requests_in_order() {
    let server = HttpServer::start();
    for (protocol, mut client) in server.both_clients() {
        for port in 1..=1000 {
            client.request(get(&announce(port, "&numwant=0"), ""));
        }
        // 300 responses of 6 KB exceed the worker's output buffer and the socket's.
        let request =
            |number: usize| get(&announce(1, &format!("&numwant={}", 900 + number % 90)), "");
        client.send((0..300).map(request).collect::<String>());
        server.wait_for_counts(protocol, "many responses", |it| it.bytes_out > 1 << 18);
        for number in 0..300 {
            let peers = format!("5:peers{}:", 6 * (900 + number % 90));
            assert!(client.receive().has(&peers), "{number}: {peers}");
        }
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
}

/// Requests behind the one that closes are ignored, however many.
#[test]
fn closes_in_order_when_the_client_asks_for_it() {
    let server = HttpServer::start();
    let request = get(&announce(1, ""), "");
    let old = request.replace("HTTP/1.1", "HTTP/1.0");
    let close = get(&announce(1, ""), "Connection: close\r\n");
    let many = close.clone() + &request.repeat(1000);
    for last in [&old, &close, &(close.clone() + &request), &many] {
        for (_, mut client) in server.both_clients() {
            let response = client.request(last);
            assert_eq!((response.status, response.closes()), (200, true));
            client.expect_end();
        }
    }
    let kept = old.replace("Host", "Connection: keep-alive\r\nHost");
    for (_, mut client) in server.both_clients() {
        assert!(!client.request(&kept).closes());
        assert!(!client.request(&kept).closes());
    }
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.requests[0][RequestKind::Announce.index()], 6);
    assert_eq!(counters.drops[DropReason::Reset.index()], 0);
}

#[test]
fn answers_malformed_requests_and_closes() {
    let server = HttpServer::start();
    let flood = "A: b\r\n".repeat(70);
    let cases = [
        ("POST /announce HTTP/1.1\r\n\r\n".to_owned(), 405),
        ("\x16\x03\x01\x02\0\x01\0\x01\x7c".to_owned(), 400),
        (get("/announce", "Content-Length: 5\r\n") + "12345", 400),
        (format!("GET /announce?{}", "x".repeat(200_000)), 414),
        (get("/announce", &format!("Cookie: {}\r\n", "x".repeat(200_000))), 431),
        (get("/announce", &flood), 431),
    ];
    for (number, (request, status)) in cases.iter().enumerate() {
        for (_, mut client) in server.both_clients() {
            // A well-formed request before it is still answered.
            client.send(get(&announce(1, ""), "") + request);
            assert_eq!(client.receive().status, 200, "{number}");
            let response = client.receive();
            assert_eq!((response.status, response.closes()), (*status, true), "{number}");
            let allowed = (*status == 405).then_some("GET, HEAD");
            assert_eq!(response.header("Allow"), allowed, "{number}");
            assert!(!response.body.is_empty());
            let is_tls = request.starts_with('\x16');
            assert_eq!(response.has("this port does not use TLS: use an http://"), is_tls);
            client.expect_end();
        }
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::HeadTooLarge.index()], 3);
    assert_eq!(counters.drops[DropReason::BadHttp.index()], 3);
    assert_eq!(counters.responses[0], [0, 6, 0, 0, 6]);
}

//= bep3#failure-reason
//= type=test
//= bep31#retry-in
//= type=test
#[test]
fn refuses_with_status_200_and_a_failure_reason() {
    let server = HttpServer::start();
    set_lists(&server.tracker, AccessLists { mode: Mode::Allow, ..AccessLists::default() });
    let cases = [
        (announce(1, ""), Refusal::NotAllowed, "8:retry ini60e"),
        ("/announce/0123456789abcdef?x=1".into(), Refusal::KeyUnexpected, "8:retry in5:never"),
        ("/announce".into(), Refusal::InfoHashMissing, ""),
        ("/scrape".into(), Refusal::FullScrape, ""),
    ];
    let mut client = server.client();
    for (target, refusal, retry) in &cases {
        let response = client.request(get(target, ""));
        assert_eq!((response.status, response.closes()), (200, false), "{target}");
        let text = refusal.text();
        let body = format!("d14:failure reason{}:{text}{retry}e", text.len());
        assert_eq!(response.text(), body, "{target}");
    }
    let counters = server.finish(Protocol::Http);
    for (_, refusal, _) in &cases {
        assert_eq!(counters.refusals[refusal.index()], 1);
    }
    assert_eq!(counters.responses[0], [0, 0, 0, 0, cases.len() as u64]);
}

#[test]
fn sends_peer_dictionaries_only_if_configured() {
    let compact = "5:peers6:\x7f\0\0\x01\x1a\u{e1}";
    let with_id = "5:peersld2:ip9:127.0.0.17:peer id20:-XX0001-0000000068814:porti6881eeee";
    let without_id = "5:peersld2:ip9:127.0.0.14:porti6881eeee";
    for (non_compact, more, peers) in [
        (false, "&compact=0", compact),
        (true, "&compact=1", compact),
        (true, "", compact),
        (true, "&compact=0", with_id),
        (true, "&compact=0&no_peer_id=1", without_id),
    ] {
        let server = HttpServer::with(HttpOptions { non_compact, ..HttpOptions::default() });
        server.client().request(get(&announce(6881, ""), ""));
        let response = server.client().request(get(&announce(6882, more), ""));
        // One character a byte: compact peers are no UTF-8.
        let body: String = response.body.iter().map(|byte| char::from(*byte)).collect();
        assert!(body.contains(peers), "{non_compact} {more}: {body}");
    }
}
