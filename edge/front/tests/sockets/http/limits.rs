//! Limits of rates, connections and memory: whom they count, and what becomes of the connection. The arithmetic of
//! rates is tested with the limiter.

use tracker::counters::Counters;
use tracker::{Limits, Rate};

use super::*;

const RATE: Rate = Rate { per_s: 1, burst: 3 };

/// Requests that are no announces, and refused ones.
#[test]
fn closes_connections_over_the_rate_of_other_requests() {
    let server = HttpServer::start();
    server.tracker.limiter().replace(Limits { others: RATE, ..Limits::default() });
    let others: [Vec<u8>; 5] = [
        get("/none", "").into(),
        get(&announce(0, ""), "").into(),
        get("/scrape", "").into(),
        b"POST / HTTP/1.1\r\n\r\n".into(),
        b"nonsense\r\n\r\n".into(),
    ];
    for request in &others {
        for _ in 0..RATE.burst {
            assert!(server.client().send(request).receive_head().status >= 200);
        }
        let mut client = server.client();
        client.send(request).send(get(&announce(1, ""), ""));
        client.expect_end_or_reset();
        // Announces and scrapes have rates of their own.
        assert!(server.client().request(get(&announce(1, ""), "")).has("8:complete"));
        // A WebSocket is not closed, and a new one is refused.
        assert_eq!(server.client().request(web_request("/")).status, 403);
        server.advance(1 + RATE.burst);
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::RequestRate.index()], others.len() as u64);
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], others.len() as u64);
}

/// A proxy's connection carries many clients: it stays, and each of them has rates of its own.
#[test]
fn clients_over_a_rate_leave_their_proxy_connected() {
    let forwarded_header = ForwardedHeader::Forwarded;
    let server = HttpServer::with(HttpOptions { forwarded_header, ..behind_proxy() });
    let limits = Limits { announces: RATE, others: RATE, connections: 1, ..Limits::default() };
    server.tracker.limiter().replace(limits);
    let mut proxies = [server.client(), server.client()];
    for target in ["/none", &announce(0, ""), &announce(1, "")] {
        let mut is_over = |number: u32, host: u8| {
            let by = format!("Forwarded: for=192.0.2.{host}\r\n");
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
    const CLIENT: &str = "192.0.2.1";
    let default = Limits::default;
    let rate = Rate { per_s: 1, burst: MAX };
    for (limits, is_tls, reason) in [
        (Limits { connections: MAX, ..default() }, false, DropReason::PrefixConnectionLimit),
        (
            Limits { network_connections: MAX, ..default() },
            false,
            DropReason::NetworkConnectionLimit,
        ),
        (Limits { openings: rate, ..default() }, false, DropReason::ConnectionRate),
        (Limits { handshakes: rate, ..default() }, true, DropReason::HandshakeRate),
    ] {
        let server = HttpServer::with(behind_proxy_protocol());
        server.tracker.limiter().replace(limits);
        let protocol = HTTP[usize::from(is_tls)];
        let to = [server.address, server.second_address][usize::from(is_tls)];
        let served = |from: &str| match is_tls {
            true => served_over_tls_as(to, from),
            false => served_as(to, from),
        };
        let held = [(); MAX as usize].map(|()| served(CLIENT).unwrap());
        assert!(served(CLIENT).is_none(), "{reason:?}");
        // Until its header has come, a connection is the proxy's.
        let mut late = Client::connect(to);
        late.send("PROXY ");
        server.wait_for_counts(protocol, "accepted", |it| it.connections_opened == 4);
        late.send(&proxy_line(CLIENT)["PROXY ".len()..]).send(PROBE);
        late.expect_end_or_reset();
        // A client of another network.
        assert!(served("192.0.3.1").is_some());
        drop(held);
        server.advance(1);
        wait_until("a permit is free", || server.has_free_permit(CLIENT));
        assert!(served(CLIENT).is_some());
        assert_eq!(server.finish(protocol).drops[reason.index()], 2);
    }
}

#[test]
fn closes_the_largest_holders_of_unfinished_heads() {
    const LEN: usize = 12_000;
    let memory_limits = MemoryLimits { read_max: 20 * LEN, ..MemoryLimits::default() };
    let server = HttpServer::set_up(Setup { memory_limits, ..Setup::default() });
    let request = get(&announce(1, ""), "");
    let (begin, end) = request.split_at(request.len() / 2);
    let mut small = server.client();
    small.send(begin);
    let long = format!("GET /announce HTTP/1.1\r\nX-Slow: {}", "x".repeat(LEN));
    let mut slow: Vec<Client> = (0..100).map(|_| server.client()).collect();
    slow.iter_mut().for_each(|client| _ = client.send(&long));
    server.wait_for_counts(Protocol::Http, "most are closed", |it| {
        let closed = it.drops[DropReason::ReadMemory.index()];
        closed >= 80 && it.connections_closed == closed
    });
    assert_eq!(small.request(end).status, 200);
    assert_eq!(server.client().request(&request).status, 200);
}

#[test]
fn closes_the_largest_holders_of_unread_responses() {
    let memory_limits = MemoryLimits { unsent_max: 1, ..MemoryLimits::default() };
    let server = HttpServer::set_up(Setup { memory_limits, ..Setup::default() });
    let writing = write_without_reading(server.client());
    server.wait_for_counts(Protocol::Http, "it is closed", |it| {
        it.drops[DropReason::UnsentMemory.index()] == 1
    });
    assert_eq!(server.client().request(get(&announce(1, ""), "")).status, 200);
    writing.join().unwrap();
}
