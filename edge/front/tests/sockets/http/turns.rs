//! Connections that always have more take turns with others, and tasks that panic.

use std::io::Write;
use std::sync::{Arc, Barrier};

use client::codec::ws as frames;

use super::*;

/// Returns a server whose page `/hook` passes the barrier twice.
fn start() -> (HttpServer, Arc<Barrier>) {
    let barrier = Arc::new(Barrier::new(2));
    let hook = Arc::clone(&barrier);
    let server = HttpServer::with_hook(move || {
        hook.wait();
        hook.wait();
    });
    (server, barrier)
}

/// Has one connection send `input`, which ends with an announce, while the worker is busy, and two others a
/// scrape, one before it and one behind. Checks that both scrapes are served before that announce.
fn check_turns(greedy: &Client, input: Vec<u8>, server: &HttpServer, barrier: &Barrier) {
    let mut others = [server.client(), server.client()];
    let scrape = get("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa", "");
    // The second request is served by a task that has waited for it, as those that follow are.
    for other in &mut others {
        (0..2).for_each(|_| assert!(other.request(&scrape).has("10:incompletei0e")));
    }
    let mut stream = greedy.tcp();
    let mut busy = server.client();
    busy.send(get("/hook", ""));
    barrier.wait();
    others[0].send(&scrape);
    // The worker is to find as much as the kernel takes.
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(len @ 1..) = stream.write(&input[sent..]) {
        sent += len;
    }
    stream.set_nonblocking(false).unwrap();
    let writer = spawn(move || stream.write_all(&input[sent..]).unwrap());
    others[1].send(&scrape);
    barrier.wait();
    assert_eq!(busy.receive().status, 200);
    for other in &mut others {
        let response = other.receive();
        assert!(response.has("10:incompletei0e"), "{}", response.text());
    }
    writer.join().unwrap();
}

#[test]
fn a_connection_that_always_has_more_lets_others_have_their_turn() {
    // A long pipeline; and requests of more than a read, and fewer than end a turn.
    let long = get("/none", &format!("X: {}\r\n", "x".repeat(12_000)));
    for (request, count) in [(get("/none", ""), 500), (long, 8)] {
        let (server, barrier) = start();
        let mut greedy = server.client();
        assert_eq!(greedy.request(PROBE).status, 404);
        let input = request.repeat(count) + &get(&announce(1, ""), "");
        check_turns(&greedy, input.into_bytes(), &server, &barrier);
        for _ in 0..count {
            assert_eq!(greedy.receive().status, 404);
        }
        assert!(greedy.receive().has("8:complete"));
    }
}

#[test]
fn a_websocket_that_always_has_more_lets_others_have_their_turn() {
    let (server, barrier) = start();
    let mut greedy = server.web_client();
    let mut input = Vec::new();
    for _ in 0..2 {
        frames::text(&mut input, MASK, &"x".repeat(50_000));
    }
    input.extend(announce_frame(&leecher(1)));
    check_turns(&greedy.client, input, &server, &barrier);
    for _ in 0..2 {
        assert!(matches!(greedy.receive(), Received::Message(Message::Failure { .. })));
    }
    assert_eq!(greedy.receive(), announced(0, 1));
}

/// A panic in any task ends the worker, so that the process ends instead of serving no client.
#[test]
fn panic_in_a_task_ends_the_worker() {
    // The accepting task serves the first request of a connection, and its own task the second.
    for begin in ["", PROBE] {
        let mut server = HttpServer::with_hook(|| panic!("a test asked for this panic"));
        let mut client = server.client();
        if !begin.is_empty() {
            assert_eq!(client.request(begin).status, 404);
        }
        client.send(get("/hook", ""));
        let worker = server.workers.remove(0);
        wait_until("the worker has ended", || worker.is_finished());
        assert!(worker.join().is_err());
    }
}
