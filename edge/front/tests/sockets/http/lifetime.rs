//! Connections that are slow or silent, and the last requests before a stop. What else a stop does is tested with
//! the binary (app/tidegate/tests/end_to_end/shutdown.rs).

use super::*;

/// Stops the server, and returns the connections that were closed for being late, without TLS and with it.
fn timed_out(server: HttpServer) -> [u64; 2] {
    server.finish_both(HTTP).map(|counters| counters.drops[DropReason::TimedOut.index()])
}

#[test]
fn closes_a_connection_whose_head_takes_too_long() {
    let server = HttpServer::start();
    let timeout_s = HttpOptions::default().head_timeout_s;
    let mut sent = 0;
    // The first request of a connection, and a later one.
    for before in ["", PROBE] {
        let mut client = server.client();
        if !before.is_empty() {
            client.request(before);
        }
        client.send("GET ");
        sent += before.len() as u64 + 4;
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
    assert_eq!(timed_out(server), [2, 0]);
}

#[test]
fn closes_idle_connections() {
    let server = HttpServer::start();
    let timeout_s = HttpOptions::default().idle_timeout_s;
    let request = get(&announce(1, ""), "");
    let mut idle = server.both_clients();
    for (_, client) in &mut idle {
        assert_eq!(client.request(&request).status, 200);
    }
    server.advance(timeout_s / 2);
    let mut busy = server.client();
    // The response to the second request shows that the connection waits for one since the first.
    for _ in 0..2 {
        assert_eq!(busy.request(&request).status, 200);
    }
    server.advance(timeout_s / 2 + 1);
    idle.into_iter().for_each(|(_, client)| client.expect_end());
    assert_eq!(busy.request(&request).status, 200);
    assert_eq!(timed_out(server), [1, 1]);
}

#[test]
fn closes_clients_that_never_read() {
    let server = HttpServer::with(HttpOptions { write_timeout_s: 1, ..HttpOptions::default() });
    for (_, mut client) in server.both_clients() {
        client.request(get("/none", ""));
        let writing = write_without_reading(client);
        wait_until("the server closes", || {
            server.advance(1);
            writing.is_finished()
        });
    }
    assert_eq!(timed_out(server), [1, 1]);
}

#[test]
fn answers_clients_that_end_their_output() {
    let server = HttpServer::start();
    for (_, mut client) in server.both_clients() {
        let requests: String = (1..=100).map(|port| get(&announce(port, ""), "")).collect();
        client.send(requests + "GET /announce?info").0.stream.end_output();
        for _ in 0..100 {
            assert_eq!(client.receive().status, 200);
        }
        // With TLS, TCP is still open; the server must not wait for its end.
        client.expect_end();
    }
}

#[test]
fn answers_the_last_requests_of_idle_connections_when_stopping() {
    let shutdown_timeout_s = PATIENCE.as_secs() as u32;
    let mut server = HttpServer::with(HttpOptions { shutdown_timeout_s, ..HttpOptions::default() });
    let mut idle: Vec<_> = (0..3).flat_map(|_| server.both_clients()).collect();
    let request = get(&announce(1, ""), "");
    for (_, client) in &mut idle {
        assert!(!client.request(&request).closes());
    }
    let start = Instant::now();
    server.begin_stop(PATIENCE);
    wait_until("nothing listens", || !harness::is_listening(server.address));
    // The response says that no more requests are served, however many have come already.
    for ((_, mut client), count) in idle.into_iter().zip([1, 1, 2, 2, 999, 999]) {
        let response = client.request(request.repeat(count));
        assert_eq!((response.status, response.closes()), (200, true));
        client.expect_end();
    }
    server.end();
    assert!(start.elapsed() < PATIENCE, "all clients have their last response");
}
