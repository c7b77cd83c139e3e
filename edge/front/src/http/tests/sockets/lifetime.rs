//! Connections that are slow, silent, many or broken, and the end of all.

use std::net::Shutdown;
use std::time::Instant;

use super::*;

fn impatient() -> HttpOptions {
    HttpOptions {
        head_timeout_s: 1,
        idle_timeout_s: 1,
        write_timeout_s: 1,
        ..HttpOptions::default()
    }
}

fn timed_out(server: Server) -> u64 {
    server.finish().drops[DropReason::TimedOut.index()]
}

#[test]
fn a_slow_head_has_one_deadline() {
    let options = HttpOptions { idle_timeout_s: 3600, ..impatient() };
    let server = Server::with("127.0.0.1:0", options);
    // As a first request, and after one that was answered.
    for is_first in [true, false] {
        let mut client = server.client();
        if !is_first {
            client.ask(get(&announce(1, ""), ""));
        }
        let start = Instant::now();
        let request = get(&announce(1, ""), &format!("X: {}\r\n", "x".repeat(10_000)));
        let mut bytes = request.bytes();
        client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let ended = loop {
            // Writing fails once the server has closed.
            let next = bytes.next().expect("closed before the request is whole");
            if client.stream.write_all(&[next]).is_err() {
                break true;
            }
            match client.stream.read(&mut [0; 9]) {
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
fn an_idle_connection_is_closed() {
    let options = HttpOptions { head_timeout_s: 3600, ..impatient() };
    let server = Server::with("127.0.0.1:0", options);
    let mut client = server.client();
    assert_eq!(client.ask(get(&announce(1, ""), "")).status, 200);
    client.hear_end();
    assert_eq!(timed_out(server), 1);
}

#[test]
fn who_never_says_a_word_is_closed() {
    let options = HttpOptions { idle_timeout_s: 3600, ..impatient() };
    let server = Server::with("127.0.0.1:0", options);
    server.client().hear_end();
    assert_eq!(timed_out(server), 1);
}

#[test]
fn who_never_reads_is_closed() {
    let server = Server::with("127.0.0.1:0", impatient());
    let client = server.client();
    let mut writer = client.stream.try_clone().unwrap();
    // The answers fill every buffer between the two long before these requests end.
    let request = get("/scrape?x", "").repeat(1000);
    let start = Instant::now();
    while writer.write_all(request.as_bytes()).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it goes on for ever");
    }
    drop(client);
    assert_eq!(timed_out(server), 1);
}

#[test]
fn connections_above_the_limit_are_closed() {
    let options = HttpOptions { connections_max: 2, ..HttpOptions::default() };
    let server = Server::with("127.0.0.1:0", options);
    let mut held: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut held {
        assert_eq!(client.ask(get("/none", "")).status, 404);
    }
    let mut third = server.client();
    third.say(get("/none", ""));
    third.hear_end_or_reset();
    assert_eq!(held[0].ask(get("/none", "")).status, 404);
    // One that leaves makes room.
    held.pop();
    wait_until("a place is free", || server.counters().connections_closed == 1);
    assert_eq!(server.client().ask(get("/none", "")).status, 404);
    let counters = server.finish();
    assert_eq!(counters.drops[DropReason::ConnectionLimit.index()], 1);
    assert_eq!(counters.connections_opened, 3);
}

#[test]
fn a_half_closed_client_gets_its_answers() {
    let server = Server::start();
    let mut client = server.client();
    let requests: String = (0..100).map(|port| get(&announce(port + 1, ""), "")).collect();
    client.say(requests + "GET /announce?info").stream.shutdown(Shutdown::Write).unwrap();
    for _ in 0..100 {
        assert_eq!(client.hear().status, 200);
    }
    client.hear_end();
}

#[test]
fn a_reset_harms_nobody_else() {
    let server = Server::start();
    let mut good = server.client();
    good.ask(get("/none", ""));
    for _ in 0..20 {
        // Closing with unread answers resets the connection.
        server.client().say(get(&announce(1, ""), "").repeat(100));
    }
    wait_until("all are gone", || server.counters().connections_closed == 20);
    assert_eq!(good.ask(get("/none", "")).status, 404);
}

#[test]
fn a_thousand_idle_connections_are_no_burden() {
    net::process::raise_descriptor_limit().unwrap();
    let server = Server::start();
    let mut idle: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for client in &mut idle {
        client.say(get(&announce(1, ""), ""));
    }
    for client in &mut idle {
        assert_eq!(client.hear().status, 200);
    }
    let mut good = server.client();
    for _ in 0..100 {
        assert_eq!(good.ask(get(&announce(2, ""), "")).status, 200);
    }
    // They were all kept, and all still work.
    for client in &mut idle {
        assert_eq!(client.ask(get("/none", "")).status, 404);
    }
    assert_eq!(server.finish().connections_opened, 1001);
}

#[test]
fn stopping_lets_answers_leave_and_closes_what_is_idle() {
    let options = HttpOptions { shutdown_timeout_s: 60, ..HttpOptions::default() };
    let mut server = Server::with("127.0.0.1:0", options);
    let mut idle: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut idle {
        client.ask(get(&announce(1, ""), ""));
    }
    let start = Instant::now();
    server.end();
    assert!(start.elapsed() < Duration::from_secs(60), "nothing was under way");
    idle.into_iter().for_each(Client::hear_end);
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
    assert_eq!(server.counters().connections_closed, 10);
}

#[test]
fn stopping_waits_for_a_request_under_way() {
    let mut server = Server::start();
    let mut client = server.client();
    let request = get(&announce(1, ""), "");
    let (first, rest) = request.split_at(40);
    let before = get("/none", "");
    client.ask(&before);
    client.say(first);
    let due = (before.len() + first.len()) as u64;
    wait_until("it has come", || server.counters().bytes_in == due);
    server.stop.send_replace(true);
    wait_until("nobody listens", || TcpStream::connect(server.address).is_err());
    let response = client.ask(rest);
    assert_eq!((response.status, response.says_close()), (200, true));
    client.hear_end();
    server.end();
}
