//! Rate limits and connection limits.

use tracker::{Limits, Rate};

use super::*;

#[test]
fn refuses_messages_over_the_rate_and_keeps_the_connection() {
    let server = HttpServer::start();
    let announces = Rate { per_s: 1, burst: 3 };
    server.tracker.limiter().replace(Limits { announces, ..Limits::default() });
    let mut client = server.web_client();
    let too_many = failure(Refusal::TooManyRequests);
    assert_eq!((0..20).filter(|_| client.join(1) == too_many).count(), 17);
    client.expect_nothing();
    drop(client);
    let refusals = server.finish(Protocol::Ws).refusals;
    assert_eq!(refusals[Refusal::TooManyRequests.index()], 17);
}

#[test]
fn limits_connections_per_prefix_over_workers_and_protocols() {
    let server =
        HttpServer::set_up(Setup { links: WorkerLink::for_workers(2), ..Setup::default() });
    server.tracker.limiter().replace(Limits { connections: 3, ..Limits::default() });
    let mut held = [0, 1].map(|worker| server.web_client_of(worker));
    // A permit is free for a moment when a connection becomes a WebSocket.
    held.iter_mut().for_each(WebClient::expect_nothing);
    let mut http = Client::connect(server.addresses[1]);
    assert_eq!(http.request(PROBE).status, 404);
    assert_eq!(server.client().send(PROBE).receive_rest(), b"");
    // A connection keeps its permit when it becomes a WebSocket, and returns it at its end.
    let mut web = WebClient::open(http, "/");
    web.expect_nothing();
    assert_eq!(server.client().send(PROBE).receive_rest(), b"");
    drop(web);
    wait_until("a permit is free", || server.has_free_permit("127.0.0.1"));
}

#[test]
fn limits_websockets_behind_a_proxy_by_their_clients() {
    let server = HttpServer::with(behind_proxy());
    server.tracker.limiter().replace(Limits { connections: 1, ..Limits::default() });
    let one = web_client_at(&server, "192.0.2.1");
    assert_eq!(upgrade_from(&server, "192.0.2.1").receive().status, 503);
    let _other = web_client_at(&server, "192.0.2.2");
    drop(one);
    wait_until("a permit is free", || server.has_free_permit("192.0.2.1"));
    web_client_at(&server, "192.0.2.1");
}
