//! Clients that ask for more than they may, or hold more connections.

use tracker::{Limits, Rate};

use super::*;
use tracker::Networks;

fn held(connections: u32) -> Limits {
    Limits { connections, ..Limits::default() }
}

fn upgrade_from(server: &Server, ip: &str) -> Client {
    let mut client = server.connect();
    let mut request = Vec::new();
    ws::client::request(&mut request, "tracker.test", "/", KEY);
    let head = request.len() - 2;
    request.truncate(head);
    request.extend(format!("X-Forwarded-For: {ip}\r\n\r\n").bytes());
    client.say(&request);
    client
}

#[test]
fn who_asks_too_much_is_told_so_and_stays() {
    let server = Server::start(WebOptions::default());
    let rate = Rate { per_s: 1, burst: 3 };
    server.tracker.limiter().replace(Limits { announces: rate, scrapes: rate, ..held(0) });
    let mut client = server.client();
    let start = Instant::now();
    let too_many = Heard::Failure(Refusal::TooManyRequests.text().into());
    let refused = (0..20).filter(|_| client.join(1) == too_many).count() as u64;
    let scrape = |client: &mut Client| {
        client.send(|out| client::scrape(out, &[HASH]));
        client.hear() == too_many
    };
    let scrapes = (0..20).filter(|_| scrape(&mut client)).count() as u64;
    let seconds = start.elapsed().as_secs() + 1;
    for refused in [refused, scrapes] {
        assert!((3..=3 + seconds).contains(&(20 - refused)), "{refused} in {seconds} s");
    }
    client.hears_nothing();
    server.tracker.limiter().replace(held(0));
    assert_eq!(server.counts().web.leechers, 1);
    assert_eq!(server.end().refusals[Refusal::TooManyRequests.index()], refused + scrapes);
}

#[test]
fn connections_of_one_prefix_are_bounded_over_all_workers_and_both_kinds() {
    let server = Server::with(2, HttpOptions::default());
    server.tracker.limiter().replace(held(3));
    let clients = || {
        let mut clients = [0, 1].map(|worker| server.client_of(worker));
        // Its seat is free for a moment when a connection becomes a WebSocket.
        clients.iter_mut().for_each(Client::hears_nothing);
        clients
    };
    let before = clients();
    let mut http = Client::connect(server.addresses[1]);
    http.say(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(http.read_more());
    let mut above = server.connect();
    above.say(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(above.read_all(), "");
    // A connection that has a seat keeps it when it becomes a WebSocket.
    http.heard.clear();
    http.upgrade("/");
    http.join(1);
    drop(before);
    let deadline = Instant::now() + PATIENCE;
    while server.counters(Protocol::Ws).connections_closed < 2 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let _after = clients();
    let mut above = server.connect();
    above.say(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(above.read_all(), "");
    http.hears_nothing();
}

#[test]
fn behind_a_proxy_websockets_are_counted_by_their_clients() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let server = Server::with(1, HttpOptions { trusted_proxies, ..HttpOptions::default() });
    server.tracker.limiter().replace(held(1));
    let mut one = upgrade_from(&server, "192.0.2.1");
    one.expect_upgrade();
    let refusal = upgrade_from(&server, "192.0.2.1").read_all();
    assert!(refusal.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refusal}");
    let mut other = upgrade_from(&server, "192.0.2.2");
    other.expect_upgrade();
    drop(one);
    let deadline = Instant::now() + PATIENCE;
    while !server.tracker.limiter().has_free_permit([192, 0, 2, 1].into()) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    upgrade_from(&server, "192.0.2.1").expect_upgrade();
}

#[test]
fn who_comes_too_soon_with_nothing_new_is_told_so_and_stays() {
    let server = Server::start(WebOptions::default());
    let policy = Policy { enforce_interval_min: true, ..Policy::default() };
    server.tracker.reconfigure(&policy);
    let mut client = server.client();
    let again = |client: &mut Client| {
        client.announce(&Announce { event: Event::None, ..leecher(1) });
        client.hear()
    };
    let too_soon = Heard::Failure(Refusal::TooSoon { wait_min: 0 }.text().into());
    assert_eq!(again(&mut client), announced(0, 1));
    assert_eq!([again(&mut client), again(&mut client)], [too_soon.clone(), too_soon]);
    assert_eq!(client.join(1), announced(0, 1), "it has started anew");
    client.announce(&Announce { event: Event::Completed, left: Some(0), ..leecher(1) });
    assert_eq!(client.hear(), announced(1, 0));
    // Whoever comes by another connection is another.
    assert_eq!(again(&mut server.client()), announced(1, 1));
    assert_eq!(server.end().refusals[Refusal::TooSoon { wait_min: 0 }.index()], 2);
}
