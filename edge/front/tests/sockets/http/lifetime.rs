//! Connections that are slow, silent, many or broken, and shutdown.

use std::io::Write;
use std::net::Shutdown;

use super::*;

fn slow_to_stop() -> HttpOptions {
    HttpOptions { shutdown_timeout_s: PATIENCE.as_secs() as u32, ..HttpOptions::default() }
}

fn timed_out(server: HttpServer) -> u64 {
    server.finish(Protocol::Http).drops[DropReason::TimedOut.index()]
}

#[test]
fn closes_a_connection_whose_head_takes_too_long() {
    let server = HttpServer::start();
    let timeout_s = HttpOptions::default().head_timeout_s;
    let mut sent = 0;
    // The first request of a connection, and a later one.
    for is_first in [true, false] {
        let mut client = server.client();
        if !is_first {
            let whole = get(&announce(1, ""), "");
            client.request(&whole);
            sent += whole.len() as u64;
        }
        client.send("GET ");
        sent += 4;
        server.wait_for_counts(Protocol::Http, "the head has begun", |it| it.bytes_in == sent);
        // More of it comes within the time, but not the end.
        for part in ["/announce", "?info_hash="] {
            server.advance(timeout_s / 2);
            client.send(part);
            sent += part.len() as u64;
        }
        server.advance(timeout_s / 2);
        client.expect_end_or_reset();
    }
    assert_eq!(timed_out(server), 2);
}

#[test]
fn closes_idle_connections() {
    let server = HttpServer::start();
    let timeout_s = HttpOptions::default().idle_timeout_s;
    let mut idle = server.client();
    assert_eq!(idle.request(get(&announce(1, ""), "")).status, 200);
    server.advance(timeout_s / 2);
    let mut busy = server.client();
    // The response to the second request shows that the connection waits for one since the first.
    for _ in 0..2 {
        assert_eq!(busy.request(get(&announce(1, ""), "")).status, 200);
    }
    server.advance(timeout_s / 2 + 1);
    idle.expect_end();
    assert_eq!(busy.request(get(&announce(1, ""), "")).status, 200);
    assert_eq!(timed_out(server), 1);
}

#[test]
fn closes_silent_connections_and_serves_others() {
    const SILENT: usize = 500;
    net::process::raise_descriptor_limit().unwrap();
    let server = HttpServer::start();
    let mut good = server.client();
    assert_eq!(good.request(get(&announce(1, ""), "")).status, 200);
    let mut silent: Vec<Client> = (0..SILENT).map(|_| server.client()).collect();
    // The kernel would keep connections without any input to itself for some seconds.
    silent.iter_mut().for_each(|client| _ = client.send("G"));
    assert_eq!(good.request(get(&announce(1, ""), "")).status, 200);
    server.wait_for_counts(Protocol::Http, "all are accepted", |it| {
        it.connections_opened == SILENT as u64 + 1
    });
    server.advance(HttpOptions::default().head_timeout_s + 1);
    silent.into_iter().for_each(Client::expect_end_or_reset);
    assert_eq!(good.request(get(&announce(1, ""), "")).status, 200);
    assert_eq!(timed_out(server), SILENT as u64);
}

#[test]
fn closes_clients_that_never_read() {
    let server = HttpServer::with(HttpOptions { write_timeout_s: 1, ..patient() });
    let client = server.client();
    let mut writer = client.0.stream.try_clone().unwrap();
    // The responses fill all buffers between client and server long before the requests end.
    let requests = get("/scrape?x", "").repeat(1000);
    let writing =
        std::thread::spawn(move || while writer.write_all(requests.as_bytes()).is_ok() {});
    wait_until("the server closes", || {
        server.advance(1);
        writing.is_finished()
    });
    drop(client);
    assert_eq!(timed_out(server), 1);
}

#[test]
fn closes_connections_above_the_limit() {
    let options = HttpOptions { connections_max: 2, ..HttpOptions::default() };
    let server = HttpServer::with(options);
    let mut held: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut held {
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
    let mut third = server.client();
    third.send(get("/none", ""));
    third.expect_end_or_reset();
    assert_eq!(held[0].request(get("/none", "")).status, 404);
    // A closed connection makes room for another.
    held.pop();
    server.wait_for_counts(Protocol::Http, "one is closed", |it| it.connections_closed == 1);
    assert_eq!(server.client().request(get("/none", "")).status, 404);
    let counters = server.finish(Protocol::Http);
    assert_eq!(counters.drops[DropReason::ConnectionLimit.index()], 1);
    assert_eq!(counters.connections_opened, 3);
}

#[test]
fn answers_half_closed_clients() {
    let server = HttpServer::start();
    let mut client = server.client();
    let requests: String = (0..100).map(|port| get(&announce(port + 1, ""), "")).collect();
    client.send(requests + "GET /announce?info").0.stream.shutdown(Shutdown::Write).unwrap();
    for _ in 0..100 {
        assert_eq!(client.receive().status, 200);
    }
    client.expect_end();
}

#[test]
fn survives_resets() {
    let server = HttpServer::start();
    let mut good = server.client();
    good.request(get("/none", ""));
    for _ in 0..20 {
        // Closing a socket with unread data resets the connection.
        server.client().send(get(&announce(1, ""), "").repeat(100));
    }
    server.wait_for_counts(Protocol::Http, "all are closed", |it| it.connections_closed == 20);
    assert_eq!(good.request(get("/none", "")).status, 404);
}

#[test]
fn serves_beside_a_thousand_idle_connections() {
    net::process::raise_descriptor_limit().unwrap();
    let server = HttpServer::start();
    let mut idle: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for client in &mut idle {
        client.send(get(&announce(1, ""), ""));
    }
    for client in &mut idle {
        assert_eq!(client.receive().status, 200);
    }
    let mut good = server.client();
    for _ in 0..100 {
        assert_eq!(good.request(get(&announce(2, ""), "")).status, 200);
    }
    // All connections are still open and still work.
    for client in &mut idle {
        assert_eq!(client.request(get("/none", "")).status, 404);
    }
    assert_eq!(server.finish(Protocol::Http).connections_opened, 1001);
}

#[test]
fn closes_idle_connections_at_once_when_stopping() {
    let mut server = HttpServer::with(slow_to_stop());
    let mut idle: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut idle {
        client.request(get(&announce(1, ""), ""));
    }
    let start = Instant::now();
    server.end();
    assert!(start.elapsed() < PATIENCE, "no request was started");
    idle.into_iter().for_each(Client::expect_end);
    assert!(!harness::is_listening(server.address));
    assert_eq!(server.counters(Protocol::Http).connections_closed, 10);
}

#[test]
fn answers_requests_of_idle_connections_when_stopping() {
    let mut server = HttpServer::with(slow_to_stop());
    let mut idle: Vec<Client> = (0..10).map(|_| server.client()).collect();
    let request = get(&announce(1, ""), "");
    for client in &mut idle {
        assert!(!client.request(&request).closes());
    }
    let start = Instant::now();
    server.begin_stop(PATIENCE);
    wait_until("nothing listens", || !harness::is_listening(server.address));
    for mut client in idle {
        let response = client.request(&request);
        assert_eq!((response.status, response.closes()), (200, true));
        client.expect_end();
    }
    server.end();
    assert!(start.elapsed() < PATIENCE, "all clients have their last response");
}

#[test]
fn loses_no_request_of_busy_connections_when_stopping() {
    for _ in 0..5 {
        let mut server = HttpServer::with(slow_to_stop());
        let address = server.address;
        let announce_until_closed = move || {
            let mut client = Client::connect(address);
            while !client.request(get(&announce(1, ""), "")).closes() {}
            client.expect_end();
        };
        let clients: Vec<_> = (0..8).map(|_| std::thread::spawn(announce_until_closed)).collect();
        server.wait_for_counts(Protocol::Http, "all are served", |it| {
            it.connections_opened == 8 && it.bytes_out > 100_000
        });
        server.begin_stop(PATIENCE);
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.end();
    }
}

#[test]
fn delivers_the_last_response_although_more_requests_come() {
    let mut server = HttpServer::with(slow_to_stop());
    let mut client = server.client();
    let request = get(&announce(1, ""), "");
    client.request(&request);
    server.begin_stop(PATIENCE);
    wait_until("nothing listens", || !harness::is_listening(server.address));
    assert!(client.request(request.repeat(2000)).closes());
    client.expect_end();
    server.end();
}

#[test]
fn waits_for_started_requests_when_stopping() {
    let mut server = HttpServer::with(slow_to_stop());
    let mut client = server.client();
    let request = get(&announce(1, ""), "");
    let (first, rest) = request.split_at(40);
    let before = get("/none", "");
    client.request(&before);
    client.send(first);
    let expected = (before.len() + first.len()) as u64;
    server.wait_for_counts(Protocol::Http, "half a request", |it| it.bytes_in == expected);
    server.begin_stop(Duration::ZERO);
    wait_until("nothing listens", || !harness::is_listening(server.address));
    let response = client.request(rest);
    assert_eq!((response.status, response.closes()), (200, true));
    client.expect_end();
    server.end();
}
