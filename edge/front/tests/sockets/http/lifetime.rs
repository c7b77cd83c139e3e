//! Connections that are slow, silent, many or broken, and shutdown.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use super::*;

fn impatient() -> HttpOptions {
    HttpOptions {
        head_timeout_s: 1,
        idle_timeout_s: 1,
        write_timeout_s: 1,
        ..HttpOptions::default()
    }
}

fn timed_out(server: HttpServer) -> u64 {
    server.finish(Protocol::Http).drops[DropReason::TimedOut.index()]
}

#[test]
fn closes_a_connection_whose_head_takes_too_long() {
    let options = HttpOptions { idle_timeout_s: 3600, ..impatient() };
    let server = HttpServer::with(options);
    // The first request of a connection, and a later one.
    for is_first in [true, false] {
        let mut client = server.client();
        if !is_first {
            client.request(get(&announce(1, ""), ""));
        }
        let start = Instant::now();
        let request = get(&announce(1, ""), &format!("X: {}\r\n", "x".repeat(10_000)));
        let mut bytes = request.bytes();
        client.0.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let ended = loop {
            // Writes fail once the server has closed.
            let next = bytes.next().expect("closed before the request is whole");
            if client.0.stream.write_all(&[next]).is_err() {
                break true;
            }
            match client.0.stream.read(&mut [0; 9]) {
                Ok(len) => break len == 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break true,
            }
            assert!(start.elapsed() < PATIENCE);
        };
        assert!(ended);
    }
    assert_eq!(timed_out(server), 2);
}

#[test]
fn closes_idle_connections() {
    let options = HttpOptions { head_timeout_s: 3600, ..impatient() };
    let server = HttpServer::with(options);
    let mut client = server.client();
    assert_eq!(client.request(get(&announce(1, ""), "")).status, 200);
    client.expect_end();
    assert_eq!(timed_out(server), 1);
}

#[test]
fn closes_silent_connections_and_serves_others() {
    const SILENT: usize = 500;
    net::process::raise_descriptor_limit().unwrap();
    let options = HttpOptions { idle_timeout_s: 3600, ..impatient() };
    let server = HttpServer::with(options);
    let mut good = server.client();
    assert_eq!(good.request(get(&announce(1, ""), "")).status, 200);
    let silent: Vec<Client> = (0..SILENT).map(|_| server.client()).collect();
    assert_eq!(good.request(get(&announce(1, ""), "")).status, 200);
    silent.into_iter().for_each(Client::expect_end);
    assert_eq!(good.request(get(&announce(1, ""), "")).status, 200);
    assert_eq!(timed_out(server), SILENT as u64);
}

#[test]
fn closes_clients_that_never_read() {
    let server = HttpServer::with(impatient());
    let client = server.client();
    let mut writer = client.0.stream.try_clone().unwrap();
    // The responses fill all buffers between client and server long before the requests end.
    let request = get("/scrape?x", "").repeat(1000);
    let start = Instant::now();
    while writer.write_all(request.as_bytes()).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the server does not close");
    }
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
    wait_until("a connection is closed", || {
        server.counters(Protocol::Http).connections_closed == 1
    });
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
    wait_until("all are closed", || server.counters(Protocol::Http).connections_closed == 20);
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
    let options = HttpOptions { shutdown_timeout_s: 60, ..HttpOptions::default() };
    let mut server = HttpServer::with(options);
    let mut idle: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut idle {
        client.request(get(&announce(1, ""), ""));
    }
    let start = Instant::now();
    server.end();
    assert!(start.elapsed() < Duration::from_secs(60), "no request was started");
    idle.into_iter().for_each(Client::expect_end);
    assert!(!harness::is_listening(server.address));
    assert_eq!(server.counters(Protocol::Http).connections_closed, 10);
}

#[test]
fn waits_for_started_requests_when_stopping() {
    let mut server = HttpServer::start();
    let mut client = server.client();
    let request = get(&announce(1, ""), "");
    let (first, rest) = request.split_at(40);
    let before = get("/none", "");
    client.request(&before);
    client.send(first);
    let expected = (before.len() + first.len()) as u64;
    wait_until("half a request has come", || server.counters(Protocol::Http).bytes_in == expected);
    server.stop.send_replace(true);
    wait_until("nothing listens", || !harness::is_listening(server.address));
    let response = client.request(rest);
    assert_eq!((response.status, response.closes()), (200, true));
    client.expect_end();
    server.end();
}
