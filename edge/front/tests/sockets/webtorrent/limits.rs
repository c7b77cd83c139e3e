//! Rate limits and connection limits.

use tracker::{Limits, Rate};

use super::*;

fn held(connections: u32) -> Limits {
    Limits { connections, ..Limits::default() }
}

#[test]
fn refuses_messages_over_the_rate_and_keeps_the_connection() {
    let server = HttpServer::start();
    let rate = Rate { per_s: 1, burst: 3 };
    server.tracker.limiter().replace(Limits { announces: rate, scrapes: rate, ..held(0) });
    let mut client = server.web_client();
    let too_many = Received::Failure(Refusal::TooManyRequests.text().into());
    let announce = |client: &mut WebClient| client.join(1) == too_many;
    let scrape = |client: &mut WebClient| {
        client.scrape(&[HASH]);
        client.receive() == too_many
    };
    for expected in [20 - 3, 20 - 1] {
        assert_eq!((0..20).filter(|_| announce(&mut client)).count(), expected);
        assert_eq!((0..20).filter(|_| scrape(&mut client)).count(), expected);
        server.advance(1);
    }
    client.expect_nothing();
    server.tracker.limiter().replace(held(0));
    assert_eq!(server.counts().web.leechers, 1);
    drop(client);
    let refusals = server.finish(Protocol::Ws).refusals;
    assert_eq!(refusals[Refusal::TooManyRequests.index()], 2 * (17 + 19));
}

#[test]
fn limits_connections_per_prefix_over_workers_and_protocols() {
    let server = HttpServer::workers(2, HttpOptions::default());
    server.tracker.limiter().replace(held(3));
    let clients = || {
        let mut clients = [0, 1].map(|worker| server.web_client_of(worker));
        // A permit is free for a moment when a connection becomes a WebSocket.
        clients.iter_mut().for_each(WebClient::expect_nothing);
        clients
    };
    let before = clients();
    let mut http = Client::connect(server.addresses[1]);
    assert_eq!(http.request("GET /none HTTP/1.1\r\nHost: x\r\n\r\n").status, 404);
    let mut above = server.client();
    above.send(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(above.receive_rest(), b"");
    // A connection keeps its permit when it becomes a WebSocket.
    let mut web = WebClient::open(http, "/");
    web.join(1);
    drop(before);
    server.wait_for_counts(Protocol::Ws, "both are closed", |it| it.connections_closed == 2);
    let _after = clients();
    let mut above = server.client();
    above.send(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(above.receive_rest(), b"");
    web.expect_nothing();
}

#[test]
fn limits_websockets_behind_a_proxy_by_their_clients() {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    let server = HttpServer::with(HttpOptions { trusted_proxies, ..HttpOptions::default() });
    server.tracker.limiter().replace(held(1));
    let one = WebClient::expect_upgrade(upgrade_from(&server, 0, "192.0.2.1"));
    assert_eq!(upgrade_from(&server, 0, "192.0.2.1").receive().status, 503);
    let _other = WebClient::expect_upgrade(upgrade_from(&server, 0, "192.0.2.2"));
    drop(one);
    let address = [192, 0, 2, 1].into();
    wait_until("a permit is free", || server.tracker.limiter().has_free_permit(address));
    WebClient::expect_upgrade(upgrade_from(&server, 0, "192.0.2.1"));
}

#[test]
fn refuses_early_announces_and_keeps_the_connection() {
    let server = HttpServer::start();
    let policy = Policy { enforce_interval_min: true, ..Policy::default() };
    server.tracker.reconfigure(&policy);
    let mut client = server.web_client();
    let again = |client: &mut WebClient| {
        client.announce(&Announce { event: Event::None, ..leecher(1) });
        client.receive()
    };
    let too_soon = Received::Failure(Refusal::TooSoon { wait_min: 0 }.text().into());
    assert_eq!(again(&mut client), announced(0, 1));
    assert_eq!([again(&mut client), again(&mut client)], [too_soon.clone(), too_soon]);
    assert_eq!(client.join(1), announced(0, 1), "`started` is news");
    client.announce(&Announce { event: Event::Completed, left: Some(0), ..leecher(1) });
    assert_eq!(client.receive(), announced(1, 0));
    // Another connection is another peer.
    assert_eq!(again(&mut server.web_client()), announced(1, 1));
    drop(client);
    assert_eq!(server.finish(Protocol::Ws).refusals[Refusal::TooSoon { wait_min: 0 }.index()], 2);
}
