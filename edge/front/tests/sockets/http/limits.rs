//! Rate limits and connection limits.

use client::codec::ws as frames;
use front::webtorrent::WebOptions;
use tracker::counters::Counters;
use tracker::{Limits, Rate};

use super::*;

const RATE: Rate = Rate { per_s: 1, burst: 3 };
const SENT: u32 = 20;

fn held(connections: u32) -> Limits {
    Limits { connections, ..Limits::default() }
}

//= bep31#retry-in
//= type=test
#[test]
fn tells_rate_limited_clients_when_to_retry() {
    let server = HttpServer::start();
    server.tracker.limiter().replace(Limits { announces: RATE, ..Limits::default() });
    let mut client = server.client();
    let reason = Refusal::TooManyRequests.text();
    let refusal = format!("d14:failure reason{}:{reason}8:retry ini1ee", reason.len());
    let mut refused = || {
        let requests = (0..SENT).map(|_| client.request(get(&announce(1, ""), "")));
        requests.filter(|response| response.body == refusal.as_bytes()).count() as u32
    };
    assert_eq!(refused(), SENT - RATE.burst);
    server.advance(1);
    assert_eq!(refused(), SENT - RATE.per_s);
    // Scrapes have a bucket of their own.
    let scrape = client.request(get("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa", ""));
    assert!(scrape.has("8:complete"), "{}", scrape.text());
    let counters = server.finish(Protocol::Http);
    let refused = 2 * SENT - RATE.burst - RATE.per_s;
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], u64::from(refused));
}

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
        assert_eq!(server.client().request(web_request()).status, 403);
        server.advance(1);
        assert!(server.client().send(request).receive_head().status >= 200);
        server.advance(RATE.burst);
    }
    let exempt = Networks::parse(["127.0.0.1"]).unwrap();
    server.tracker.limiter().replace(Limits { exempt, ..limits });
    let mut client = server.client();
    for _ in 0..SENT {
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::RequestRate.index()], others.len() as u64);
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], others.len() as u64);
}

fn web_request() -> Vec<u8> {
    let mut request = Vec::new();
    frames::request(&mut request, "tracker.test", "/", KEY);
    request
}

/// A proxy's connection carries many clients.
#[test]
fn clients_over_the_rate_of_other_requests_leave_their_proxy_connected() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let server = HttpServer::with(HttpOptions { trusted_proxies, ..HttpOptions::default() });
    server.tracker.limiter().replace(Limits { others: RATE, ..Limits::default() });
    let mut proxy = server.client();
    for target in ["/none", &announce(0, "")] {
        let mut ask = |host: u8| {
            let response =
                proxy.request(get(target, &format!("X-Forwarded-For: 192.0.2.{host}\r\n")));
            assert!(!response.closes());
            response.status
        };
        let statuses: Vec<u16> = (0..SENT).map(|_| ask(1)).collect();
        assert_eq!(
            statuses.iter().filter(|status| **status == 429).count() as u32,
            SENT - RATE.burst
        );
        assert!(ask(2) != 429);
        server.advance(SENT);
    }
    let counters = server.finish(Protocol::Http);
    let refused = u64::from(2 * (SENT - RATE.burst));
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], refused);
    assert_eq!(counters.drops, Counters::default().drops);
}

#[test]
fn limits_clients_behind_a_proxy_separately() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let options = HttpOptions { trusted_proxies, ..HttpOptions::default() };
    let server = HttpServer::with(options);
    server.tracker.limiter().replace(Limits { announces: RATE, ..held(1) });
    let mut connections: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let by = format!("X-Forwarded-For: 192.0.2.{number}\r\n");
        assert!(connection.request(get(&announce(1, ""), &by)).has("8:complete"));
    }
}

#[test]
fn limits_connections_by_the_address_of_the_proxy_header() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let options = HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() };
    let server = HttpServer::with(options);
    server.tracker.limiter().replace(held(1));
    let request = get("/none", "");
    let line = |host: u8| format!("PROXY TCP4 192.0.2.{host} 192.0.2.200 4711 6969\r\n");
    let mut connections: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for (host, connection) in (0..).zip(&mut connections) {
        assert_eq!(connection.request(line(host) + &request).status, 404);
    }
    // With the header in one segment, and in two.
    let text = line(0) + &request;
    let mut more = server.client();
    more.send(&text);
    more.expect_end_or_reset();
    let mut slow = server.client();
    let (begin, rest) = text.split_at(5);
    slow.send(begin);
    server.wait_for_counts(Protocol::Http, "accepted", |it| it.connections_opened == 4);
    slow.send(rest);
    slow.expect_end_or_reset();
    drop(connections);
    wait_until("a permit is free", || {
        server.tracker.limiter().has_free_permit([192, 0, 2, 0].into())
    });
    assert_eq!(server.client().request(line(0) + &request).status, 404);
    assert_eq!(server.finish(Protocol::Http).drops[DropReason::PrefixConnectionLimit.index()], 2);
}

/// A client that closes each connection is limited by their rate, however few it holds.
#[test]
fn limits_the_rate_of_connections() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let options = HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() };
    let server = HttpServer::with(options);
    let exempt = Networks::parse(["10.0.0.0/8"]).unwrap();
    server.tracker.limiter().replace(Limits { openings: RATE, exempt, ..Limits::default() });
    let served = |from: &str| {
        let mut client = server.client();
        let close = get("/none", "Connection: close\r\n");
        client.send(format!("PROXY TCP4 {from} 192.0.2.200 4711 6969\r\n{close}"));
        client.0.receive().is_ok_and(|response| response.status == 404)
    };
    let count = |from: &str| (0..SENT).filter(|_| served(from)).count() as u32;
    assert_eq!(count("192.0.2.1"), RATE.burst);
    assert_eq!(count("192.0.2.2"), RATE.burst, "another address");
    server.advance(1);
    assert_eq!(count("192.0.2.1"), RATE.per_s);
    assert_eq!(count("10.0.0.1"), SENT, "exempt");
    // A header that comes late is the proxy's connection until then.
    let mut late = server.client();
    late.send("PROXY ");
    server.wait_for_counts(Protocol::Http, "accepted", |it| it.connections_open == 1);
    late.send(format!("TCP4 192.0.2.1 192.0.2.200 4711 6969\r\n{}", get("/none", "")));
    late.expect_end_or_reset();
    let refused = u64::from(3 * SENT - 2 * RATE.burst - RATE.per_s + 1);
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::ConnectionRate.index()], refused);
}

/// The permit is the client's that the PROXY header names: so one host stands for many.
#[test]
fn limits_the_connections_of_a_network() {
    const SHARE: usize = 10;
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let options = HttpOptions { trusted_proxies, proxy_protocol: true, ..HttpOptions::default() };
    let server = HttpServer::with(options);
    let network_connections = SHARE as u32;
    server.tracker.limiter().replace(Limits { network_connections, ..held(5) });
    let request = get("/none", "");
    let connect = |from: &str, to: &str| {
        let mut client = server.client();
        let family = if from.contains(':') { "TCP6" } else { "TCP4" };
        client.send(format!("PROXY {family} {from} {to} 4711 6969\r\n{request}"));
        let is_served = client.0.receive().is_ok_and(|response| response.status == 404);
        (client, is_served)
    };
    let of_subnet = |subnet: u32| connect(&format!("2001:db8:1:{subnet:x}::1"), "2001:db8::1");
    // Prefixes of one /48, from its first to its last.
    let flood: Vec<_> = (0..40).map(|number| of_subnet(number * 0x0690)).collect();
    assert_eq!(flood.iter().filter(|(_, is_served)| *is_served).count(), SHARE);
    // The next /48 has seats, and so have IPv4 clients, as many as a /24 may have.
    let others = [connect("2001:db8:2::1", "2001:db8::1"), connect("192.0.2.1", "192.0.2.200")];
    assert!(others.iter().all(|(_, is_served)| *is_served));
    let hosts = (0..40).map(|host| connect(&format!("198.51.100.{host}"), "192.0.2.200"));
    assert_eq!(hosts.collect::<Vec<_>>().iter().filter(|(_, is_served)| *is_served).count(), SHARE);
    drop(flood);
    wait_until("seats are free", || {
        let ip = "2001:db8:1::1".parse().unwrap();
        server.tracker.limiter().has_free_permit(ip)
    });
    assert!(of_subnet(7).1);
    let drops = server.finish(Protocol::Http).drops;
    assert_eq!(drops[DropReason::NetworkConnectionLimit.index()], 2 * (40 - SHARE as u64));
    assert_eq!(drops[DropReason::PrefixConnectionLimit.index()], 0);
}

/// A listener for fewer connections than the others have: a network has its share of those only.
#[test]
fn limits_the_connections_of_a_network_at_each_listener() {
    const MAX: usize = 100;
    let options = |connections_max| HttpOptions {
        trusted_proxies: Networks::parse(["127.0.0.1"]).unwrap(),
        proxy_protocol: true,
        connections_max,
        ..HttpOptions::default()
    };
    let server = HttpServer::two(options(MAX), options(MAX / 4));
    let small = server.second_address.unwrap();
    server.tracker.limiter().replace(Limits { network_connections: 20, ..Limits::default() });
    let connect = |to, from: String| {
        let mut client = Client::connect(to);
        client.send(format!("PROXY TCP6 {from} 2001:db8::1 4711 6969\r\n{}", get("/none", "")));
        client.0.receive().is_ok_and(|response| response.status == 404).then_some(client)
    };
    // Prefixes of one /48.
    let flood = |to| -> Vec<_> {
        (0..MAX / 4).filter_map(|it| connect(to, format!("2001:db8:1:{it:x}::1"))).collect()
    };
    let at_small = flood(small);
    assert_eq!(at_small.len(), 5);
    // Others have seats there, and the /48 has the rest of its share at the other listener.
    let honest = connect(small, "2001:db8:2::1".into());
    assert!(honest.is_some());
    let at_large = flood(server.address);
    assert_eq!(at_large.len(), 15);
    drop((at_small, at_large));
    wait_until("seats are free", || connect(small, "2001:db8:1::1".into()).is_some());
    drop(honest);
}

#[test]
fn limits_connections_per_prefix() {
    let server = HttpServer::at("[::1]:0", HttpOptions::default());
    server.tracker.limiter().replace(held(2));
    let mut both: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut both {
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
    let mut third = server.client();
    third.send(get("/none", ""));
    third.expect_end_or_reset();
    // A connection that is opened and closed in between returns its permit.
    for _ in 0..3 {
        both.pop();
        wait_until("a permit is free", || {
            server.tracker.limiter().has_free_permit(server.address.ip())
        });
        let mut brief = server.client();
        assert!(brief.request(get("/none", "Connection: close\r\n")).closes());
        brief.expect_end();
        wait_until("the permit is free again", || {
            server.tracker.limiter().has_free_permit(server.address.ip())
        });
        both.push(server.client());
        assert_eq!(both[1].request(get("/none", "")).status, 404);
    }
    // Without a limit, new connections stay open, and so do those opened before.
    server.tracker.limiter().replace(held(0));
    let mut more: Vec<Client> = (0..9).map(|_| server.client()).collect();
    assert!(more.iter_mut().chain(&mut both).all(|it| it.request(get("/none", "")).status == 404));
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::PrefixConnectionLimit.index()], 1);
    assert_eq!(counters.drops[DropReason::ConnectionLimit.index()], 0);
}

//= bep31#retry-in
//= type=test
#[test]
fn tells_early_announces_when_to_retry() {
    let server = HttpServer::start();
    let policy = Policy { enforce_interval_min: true, ..Policy::default() };
    server.tracker.reconfigure(&policy);
    let mut client = server.client();
    let reason = Refusal::TooSoon { wait_min: 0 }.text();
    let refusal = format!("d14:failure reason{}:{reason}8:retry ini15ee", reason.len());
    let mut announce_again = |more: &str| client.request(get(&announce(1, more), "")).text();
    assert!(announce_again("").contains("8:complete"));
    assert_eq!([announce_again(""), announce_again("")], [refusal.clone(), refusal]);
    assert!(announce_again("&event=started").contains("8:complete"));
    assert!(
        announce_again("&event=paused").contains("8:complete"),
        "the change to partial seed is news"
    );
    assert_eq!(server.finish(Protocol::Http).refusals[Refusal::TooSoon { wait_min: 0 }.index()], 2);
}
