//! Framing, responses and refusals.

use tracker::access::{AccessLists, Mode};
use tracker::{ListenerPolicy, RequestKind};

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
    for last in [&old, &close, &many] {
        for (_, mut client) in server.both_clients() {
            let response = client.request(last);
            assert_eq!((response.status, response.closes()), (200, true));
            client.expect_end();
        }
    }
    let counters = server.finish(Protocol::Https);
    assert_eq!(counters.requests[0][RequestKind::Announce.index()], 3);
    assert_eq!(counters.drops[DropReason::Reset.index()], 0);
}

/// All kinds of malformed requests, and the texts of the responses, are tested with the codec.
#[test]
fn answers_malformed_requests_and_closes() {
    let server = HttpServer::start();
    for (malformed, status) in [
        ("POST /announce HTTP/1.1\r\n\r\n".to_owned(), 405),
        ("\x16\x03\x01\x02\0\x01\0\x01\x7c".to_owned(), 400),
        (format!("GET /announce?{}", "x".repeat(200_000)), 414),
        (get("/announce", &format!("Cookie: {}\r\n", "x".repeat(200_000))), 431),
    ] {
        for (_, mut client) in server.both_clients() {
            // A well-formed request before it is still answered.
            client.send(get(&announce(1, ""), "") + &malformed);
            assert_eq!(client.receive().status, 200);
            let response = client.receive();
            assert_eq!((response.status, response.closes()), (status, true));
            client.expect_end();
        }
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::HeadTooLarge.index()], 2);
    assert_eq!(counters.drops[DropReason::BadHttp.index()], 2);
    assert_eq!(counters.responses[0], [0, 4, 0, 0, 4]);
}

//= bep3#failure-reason
//= type=test
#[test]
fn refuses_with_status_200_and_a_failure_reason() {
    let server = HttpServer::start();
    let lists = AccessLists { mode: Mode::Allow, ..AccessLists::default() };
    set_policy(&server.tracker, ListenerPolicy { lists, ..ListenerPolicy::default() });
    let cases = [
        (announce(1, ""), Refusal::NotAllowedYet),
        ("/announce".into(), Refusal::InfoHashMissing),
        ("/scrape".into(), Refusal::FullScrape),
    ];
    let mut client = server.client();
    for (target, refusal) in &cases {
        let response = client.request(get(target, ""));
        assert_eq!((response.status, response.closes()), (200, false), "{target}");
        let text = refusal.text();
        assert!(response.has(format!("d14:failure reason{}:{text}", text.len())), "{target}");
    }
    let counters = server.finish(Protocol::Http);
    assert!(cases.iter().all(|(_, refusal)| counters.refusals[refusal.index()] == 1));
    assert_eq!(counters.responses[0], [0, 0, 0, 0, 3]);
}

#[test]
fn sends_peer_dictionaries_only_if_configured() {
    let compact = "5:peers6:";
    let with_id = "5:peersld2:ip9:127.0.0.17:peer id20:-XX0001-0000000000014:porti1eeee";
    let without_id = "5:peersld2:ip9:127.0.0.14:porti1eeee";
    for (non_compact, more, peers) in [
        (false, "&compact=0", compact),
        (true, "", compact),
        (true, "&compact=0", with_id),
        (true, "&compact=0&no_peer_id=1", without_id),
    ] {
        let server = HttpServer::with(HttpOptions { non_compact, ..HttpOptions::default() });
        server.client().request(get(&announce(1, ""), ""));
        let response = server.client().request(get(&announce(2, more), ""));
        assert!(response.has(peers), "{non_compact} {more}: {}", response.text());
    }
}
