//! Requests and answers.

use super::*;

const OK: &str = "HTTP/1.1 200 OK";

#[test]
fn announces_are_answered_over_both_versions() {
    let server = Server::start();
    for (version, port) in VERSIONS.into_iter().zip([1, 2]) {
        let mut client = server.client_of("tracker.test", client_config(&[version]));
        for _ in 0..3 {
            let (status, body) = client.ask(announce(port, ""));
            assert_eq!(status, OK);
            assert!(find(&body, b"8:complete").is_some(), "{}", body.escape_ascii());
        }
        assert!(client.tls.conn.peer_certificates().is_some());
    }
    let counters = server.finish(Protocol::Https);
    assert_eq!((counters.tls_handshakes, counters.connections_opened), (2, 2));
    assert_eq!(counters.requests[0].iter().sum::<u64>(), 6);
    assert_eq!(counters.drops, Counters::default().drops);
}

#[test]
fn requests_may_come_in_one_write_or_byte_by_byte() {
    let server = Server::start();
    let mut client = server.client();
    client.say(announce(1, "").repeat(300));
    for _ in 0..300 {
        assert_eq!(client.hear().0, OK);
    }
    for byte in announce(2, "").bytes() {
        client.say([byte]);
        client.tls.flush().unwrap();
    }
    assert_eq!(client.hear().0, OK);
}

#[test]
fn the_last_answer_is_followed_by_the_end() {
    let server = Server::start();
    for version in VERSIONS {
        let mut client = server.client_of("tracker.test", client_config(&[version]));
        assert_eq!(client.ask(announce(1, "Connection: close\r\n")).0, OK);
        client.hear_end();
        // With requests behind the last, and with what is none.
        let mut client = server.client();
        client.say(announce(1, "Connection: close\r\n") + &announce(2, ""));
        assert_eq!(client.hear().0, OK);
        client.hear_end();
        let mut client = server.client();
        assert_eq!(client.ask("POST / HTTP/1.1\r\n\r\n").0, "HTTP/1.1 405 Method Not Allowed");
        client.hear_end();
    }
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::Reset.index()], 0);
}

#[test]
fn who_says_that_nothing_more_comes_is_answered_and_let_go() {
    // TCP stays open, and the server does not wait for that.
    let server = Server::start();
    let mut client = server.client();
    client.say(announce(1, ""));
    client.tls.conn.send_close_notify();
    client.tls.flush().unwrap();
    assert_eq!(client.hear().0, OK);
    let before = Instant::now();
    client.hear_end();
    assert!(before.elapsed() < Duration::from_secs(30), "it has been idle instead");
}

#[test]
fn answers_wait_for_who_reads_late() {
    let server = Server::start();
    for port in 1..=200 {
        let (status, _) = server.client().ask(announce(port, ""));
        assert_eq!(status, OK);
    }
    let mut client = server.client();
    client.ask(announce(1, ""));
    // 200 peers make 1.2 KB: some megabytes are more than all buffers between the two hold.
    let rounds = 8000;
    let request = announce(1, "").replace("left=1", "left=1&numwant=200");
    let requests = request.repeat(rounds);
    let mut sent = 0;
    let mut answered = 0;
    // One thread does both: it writes what is taken at once, and reads only when nothing is.
    client.tls.sock.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while answered < rounds {
        assert!(Instant::now() < deadline);
        let wrote = match client.tls.write(&requests.as_bytes()[sent..]) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        sent += wrote;
        if wrote > 0 && sent < requests.len() {
            continue;
        }
        let mut buffer = [0; 64 * 1024];
        match client.tls.read(&mut buffer) {
            Ok(0) => panic!("the end"),
            Ok(len) => client.heard.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
        while let Some(end) = find(&client.heard, b"\r\n\r\n") {
            let head = std::str::from_utf8(&client.heard[..end]).unwrap();
            let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            let end = end + 4 + len.parse::<usize>().unwrap();
            if client.heard.len() < end {
                break;
            }
            assert!(find(&client.heard[..end], b"5:peers1194:").is_some());
            client.heard.drain(..end);
            answered += 1;
        }
    }
    assert!(client.heard.is_empty());
}

#[test]
fn who_never_reads_is_closed() {
    let server = Server::with(HttpOptions { write_timeout_s: 1, ..HttpOptions::default() });
    let mut client = server.client();
    let requests = announce(1, "").repeat(100);
    let deadline = Instant::now() + PATIENCE;
    while client.tls.write_all(requests.as_bytes()).is_ok() {
        assert!(Instant::now() < deadline, "it goes on for ever");
    }
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 1);
}

#[test]
fn an_idle_connection_is_closed_in_order() {
    let server = Server::with(HttpOptions { idle_timeout_s: 1, ..HttpOptions::default() });
    let mut client = server.client();
    client.ask(announce(1, ""));
    client.hear_end();
    assert_eq!(server.finish(Protocol::Https).drops[DropReason::TimedOut.index()], 1);
}

#[test]
fn stopping_lets_answers_leave_and_closes_what_is_idle_in_order() {
    let mut server = Server::start();
    let mut idle: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut idle {
        client.ask(announce(1, ""));
    }
    let mut busy = server.client();
    let request = announce(2, "");
    let (first, rest) = request.split_at(40);
    busy.ask(announce(2, ""));
    let before = server.counters(Protocol::Https).bytes_in;
    busy.say(first);
    wait_until("it has come", || server.counters(Protocol::Https).bytes_in > before);
    server.stop.send_replace(true);
    idle.into_iter().for_each(Client::hear_end);
    assert_eq!(busy.ask(rest).0, OK);
    busy.hear_end();
    server.end();
}
