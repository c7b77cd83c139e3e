//! Requests and responses.

use super::*;

#[test]
fn answers_announces_over_both_tls_versions() {
    let server = HttpServer::tls(HttpOptions::default());
    for (version, port) in VERSIONS.into_iter().zip([1, 2]) {
        let mut client =
            client_of(server.second_address.unwrap(), "tracker.test", client_config(&[version]));
        for _ in 0..3 {
            let response = client.request(announce(port, ""));
            assert_eq!(response.status, 200);
            assert!(response.has("8:complete"), "{}", response.text());
        }
        assert!(client.0.stream.conn.peer_certificates().is_some());
    }
    let counters = server.finish(Protocol::Https);
    assert_eq!((counters.tls_handshakes, counters.connections_opened), (2, 2));
    assert_eq!(counters.requests[0].iter().sum::<u64>(), 6);
    assert_eq!(counters.drops, Counters::default().drops);
}

#[test]
fn accepts_requests_in_one_write_or_byte_by_byte() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut client = server.tls_client();
    client.send(announce(1, "").repeat(300));
    for _ in 0..300 {
        assert_eq!(client.receive().status, 200);
    }
    for byte in announce(2, "").bytes() {
        client.send([byte]);
        client.0.stream.flush().unwrap();
    }
    assert_eq!(client.receive().status, 200);
}

#[test]
fn ends_tls_after_the_last_response() {
    let server = HttpServer::tls(HttpOptions::default());
    for version in VERSIONS {
        let mut client =
            client_of(server.second_address.unwrap(), "tracker.test", client_config(&[version]));
        assert_eq!(client.request(announce(1, "Connection: close\r\n")).status, 200);
        client.expect_end();
        // With another request behind the last one, and after a malformed request.
        let mut client = server.tls_client();
        client.send(announce(1, "Connection: close\r\n") + &announce(2, ""));
        assert_eq!(client.receive().status, 200);
        client.expect_end();
        let mut client = server.tls_client();
        assert_eq!(client.request("POST / HTTP/1.1\r\n\r\n").status, 405);
        client.expect_end();
    }
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::Reset.index()], 0);
}

#[test]
fn answers_and_closes_after_a_close_notify() {
    // The client keeps TCP open; the server must not wait for its end.
    let options = HttpOptions { idle_timeout_s: 3600, ..HttpOptions::default() };
    let server = HttpServer::tls(options);
    let mut client = server.tls_client();
    client.send(announce(1, ""));
    client.0.stream.conn.send_close_notify();
    client.0.stream.flush().unwrap();
    assert_eq!(client.receive().status, 200);
    client.expect_end();
}

#[test]
fn delivers_responses_to_clients_that_read_late() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut client = server.tls_client();
    for port in 1..=200 {
        assert_eq!(client.request(announce(port, "")).status, 200);
    }
    // A response with 200 peers has 1.2 KB: 8,000 of them exceed all buffers on the way.
    let count = 8000;
    let request = announce(1, "").replace("left=1", "left=1&numwant=200");
    let sealed = seal(&mut client, &request.repeat(count));
    let mut socket = client.0.stream.sock.try_clone().unwrap();
    let sending = std::thread::spawn(move || socket.write_all(&sealed).unwrap());
    server.wait_for_counts(Protocol::Https, "many responses", |it| it.bytes_out > 1 << 18);
    for _ in 0..count {
        let response = client.receive();
        assert!(response.has("5:peers1194:"), "{}", response.text());
    }
    sending.join().unwrap();
    assert!(client.0.received.is_empty());
}

/// Returns TLS records with this text, which the client has not sent yet.
fn seal(client: &mut TlsClient, text: &str) -> Vec<u8> {
    let tls = &mut client.0.stream.conn;
    tls.set_buffer_limit(None);
    tls.writer().write_all(text.as_bytes()).unwrap();
    let mut sealed = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut sealed).unwrap();
    }
    sealed
}

#[test]
fn closes_clients_that_never_read() {
    let server = HttpServer::tls(HttpOptions { write_timeout_s: 1, ..patient() });
    let mut client = server.tls_client();
    client.request(announce(1, ""));
    let requests = announce(1, "").repeat(100);
    let writing =
        std::thread::spawn(move || while client.0.stream.write_all(requests.as_bytes()).is_ok() {});
    wait_until("the server closes", || {
        server.advance(1);
        writing.is_finished()
    });
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 1);
}

#[test]
fn closes_idle_connections_in_order() {
    let server = HttpServer::tls(HttpOptions::default());
    let mut client = server.tls_client();
    client.request(announce(1, ""));
    server.advance(HttpOptions::default().idle_timeout_s + 1);
    client.expect_end();
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 1);
}

#[test]
fn sends_responses_and_closes_idle_connections_in_order_when_stopping() {
    let shutdown_timeout_s = PATIENCE.as_secs() as u32;
    let mut server = HttpServer::tls(HttpOptions { shutdown_timeout_s, ..HttpOptions::default() });
    let mut idle: Vec<TlsClient> = (0..10).map(|_| server.tls_client()).collect();
    for client in &mut idle {
        client.request(announce(1, ""));
    }
    let mut busy = server.tls_client();
    let request = announce(2, "");
    let (first, rest) = request.split_at(40);
    busy.send(first);
    let sent = (10 * announce(1, "").len() + first.len()) as u64;
    server.wait_for_counts(Protocol::Https, "half a request", |it| it.bytes_in == sent);
    server.begin_stop(Duration::ZERO);
    idle.into_iter().for_each(TlsClient::expect_end);
    assert_eq!(busy.request(rest).status, 200);
    busy.expect_end();
    server.end();
}
