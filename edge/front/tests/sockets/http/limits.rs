//! Rate limits and connection limits: whom they count, and what becomes of the connection. Their arithmetic is
//! tested with the limiter.

use front::webtorrent::WebOptions;
use tracker::counters::Counters;
use tracker::{Limits, Rate};

use super::*;

const RATE: Rate = Rate { per_s: 1, burst: 3 };

/// Requests that are no announces, and refused ones.
#[test]
fn closes_connections_over_the_rate_of_other_requests() {
    let server = HttpServer::web(WebOptions::default());
    let limits = Limits { others: RATE, ..Limits::default() };
    server.tracker.limiter().replace(limits.clone());
    let unreachable = announce(0, "");
    let others: [Vec<u8>; 6] = [
        get("/", "").into(),
        get("/none", "").into(),
        get(&unreachable, "").into(),
        get("/scrape", "").into(),
        b"POST / HTTP/1.1\r\n\r\n".into(),
        b"nonsense\r\n\r\n".into(),
    ];
    for request in &others {
        let mut client = server.client();
        for _ in 0..RATE.burst {
            assert!(server.client().send(request).receive_head().status >= 200);
        }
        client.send(request).send(get(&announce(1, ""), ""));
        client.expect_end_or_reset();
        // Announces and scrapes have rates of their own.
        assert!(server.client().request(get(&announce(1, ""), "")).has("8:complete"));
        // A WebSocket is not closed, and a new one is refused.
        assert_eq!(server.client().request(web_request("/")).status, 403);
        server.advance(1);
        assert!(server.client().send(request).receive_head().status >= 200);
        server.advance(RATE.burst);
    }
    let exempt = Networks::parse(["127.0.0.1"]).unwrap();
    server.tracker.limiter().replace(Limits { exempt, ..limits });
    let mut client = server.client();
    for _ in 0..20 {
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::RequestRate.index()], others.len() as u64);
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], others.len() as u64);
}

/// A proxy's connection carries many clients: it stays, and each of them has rates of its own.
#[test]
fn clients_over_a_rate_leave_their_proxy_connected() {
    let server = HttpServer::with(behind_proxy());
    let limits = Limits { announces: RATE, others: RATE, connections: 1, ..Limits::default() };
    server.tracker.limiter().replace(limits);
    let mut proxies = [server.client(), server.client()];
    for target in ["/none", &announce(0, ""), &announce(1, "")] {
        let mut is_over = |number: u32, host: u8| {
            let by = format!("X-Forwarded-For: 192.0.2.{host}\r\n");
            let response = proxies[number as usize % 2].request(get(target, &by));
            assert!(!response.closes());
            response.status == 429 || response.has(Refusal::TooManyRequests.text())
        };
        assert_eq!((0..20).filter(|number| is_over(*number, 1)).count() as u32, 20 - RATE.burst);
        assert!(!is_over(0, 2));
        server.advance(20);
    }
    let counters = server.finish(Protocol::Http);
    let refused = u64::from(3 * (20 - RATE.burst));
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], refused);
    assert_eq!(counters.drops, Counters::default().drops);
}

/// Each limit is the client's that the PROXY header names, and connections over it are closed.
#[test]
fn limits_connections_by_the_address_of_the_proxy_header() {
    const MAX: u32 = 3;
    let none = Limits::default();
    let openings = Rate { per_s: 1, burst: MAX };
    for (limits, reason, others) in [
        // Of a prefix, of a network, and over time.
        (
            Limits { connections: MAX, ..none.clone() },
            DropReason::PrefixConnectionLimit,
            ["192.0.2.2", "2001:db8:1:2::1"],
        ),
        (
            Limits { network_connections: MAX, ..none.clone() },
            DropReason::NetworkConnectionLimit,
            ["192.0.3.1", "2001:db8:2::1"],
        ),
        (Limits { openings, ..none }, DropReason::ConnectionRate, ["192.0.2.2", "2001:db8:1:2::1"]),
    ] {
        let server = HttpServer::with(behind_proxy_protocol());
        let to = server.address;
        server.tracker.limiter().replace(limits);
        let mut opened = 0;
        let mut refused = 0;
        for (from, other) in ["192.0.2.1", "2001:db8:1:1::1"].into_iter().zip(others) {
            let held: Vec<_> = (0..MAX).map(|_| served_as(to, from).unwrap()).collect();
            assert!(served_as(to, from).is_none(), "{reason:?}");
            // Until its header has come, a connection is the proxy's.
            let mut late = server.client();
            late.send("PROXY ");
            opened += u64::from(MAX) + 1;
            server
                .wait_for_counts(Protocol::Http, "accepted", |it| it.connections_opened == opened);
            late.send(&proxy_line(from)["PROXY ".len()..]).send(PROBE);
            late.expect_end_or_reset();
            refused += 2;
            assert!(served_as(to, other).is_some());
            opened += 2;
            drop(held);
            if reason == DropReason::ConnectionRate {
                server.advance(1);
            } else {
                wait_until("a permit is free", || server.has_free_permit(from));
            }
            assert!(served_as(to, from).is_some());
        }
        assert_eq!(server.finish(Protocol::Http).drops[reason.index()], refused);
    }
}

/// A listener for fewer connections than the others have: a network has its share of those only.
#[test]
fn limits_the_connections_of_a_network_at_each_listener() {
    const MAX: usize = 100;
    let options = |connections_max| HttpOptions { connections_max, ..behind_proxy_protocol() };
    let server = HttpServer::two(options(MAX), options(MAX / 4));
    let small = server.second_address.unwrap();
    server.tracker.limiter().replace(Limits { network_connections: 20, ..Limits::default() });
    // Prefixes of one /48.
    let flood = |to| -> Vec<_> {
        (0..MAX / 4).filter_map(|it| served_as(to, &format!("2001:db8:1:{it:x}::1"))).collect()
    };
    let at_small = flood(small);
    assert_eq!(at_small.len(), 5);
    // Others have seats there, and the /48 has the rest of its share at the other listener.
    let honest = served_as(small, "2001:db8:2::1");
    assert!(honest.is_some());
    let at_large = flood(server.address);
    assert_eq!(at_large.len(), 15);
    drop((at_small, at_large));
    wait_until("seats are free", || served_as(small, "2001:db8:1::1").is_some());
}

#[test]
fn a_change_of_the_limit_holds_for_connections_that_are_open() {
    let server = HttpServer::at("[::1]:0", HttpOptions::default());
    let held = |connections| Limits { connections, ..Limits::default() };
    server.tracker.limiter().replace(held(2));
    let mut both: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut both {
        assert_eq!(client.request(PROBE).status, 404);
    }
    // A connection that is opened and closed in between returns its permit.
    for _ in 0..3 {
        both.pop();
        wait_until("a permit is free", || server.has_free_permit("::1"));
        let mut brief = server.client();
        assert!(brief.request(get("/none", "Connection: close\r\n")).closes());
        brief.expect_end();
        wait_until("the permit is free again", || server.has_free_permit("::1"));
        both.push(server.client());
        assert_eq!(both[1].request(PROBE).status, 404);
    }
    // Without a limit, new connections stay open, and so do those opened before.
    server.tracker.limiter().replace(held(0));
    let mut more: Vec<Client> = (0..9).map(|_| server.client()).collect();
    assert!(more.iter_mut().chain(&mut both).all(|it| it.request(PROBE).status == 404));
    assert_eq!(server.finish(Protocol::Http).drops, Counters::default().drops);
}
