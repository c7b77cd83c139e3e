//! Connections that always have more take turns with others.

use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use client::codec::ws as frames;
use front::http::{LongBody, PageAnswer, Pages};
use tracker::{FullScrapePermit, View};
use wire::http::{RequestHead, Status};

use super::*;

/// A page that waits for the test.
#[derive(Default)]
struct Pause {
    gate: Mutex<()>,
    is_waited_for: AtomicBool,
}

impl Pages for Pause {
    fn full_scrape(&self, _: FullScrapePermit) -> LongBody {
        unreachable!("no test scrapes all torrents here");
    }

    fn answer(&self, _: &View<'_>, request: &RequestHead<'_>, _: IpAddr) -> PageAnswer {
        if request.path != b"/pause" {
            return PageAnswer::NotFound;
        }
        self.is_waited_for.store(true, Ordering::Relaxed);
        drop(self.gate.lock());
        PageAnswer::Text(Status::Ok, "".into())
    }
}

/// Returns a server whose page `/pause` is the other.
fn start() -> (HttpServer, Arc<Pause>) {
    let pause = Arc::<Pause>::default();
    let pages = Some(Arc::clone(&pause) as _);
    (HttpServer::set_up(Setup { options: patient(), pages, ..Setup::default() }), pause)
}

/// Has one connection send `input`, which ends with an announce, while the worker is busy, and two others a
/// scrape, one before it and one behind. Checks that both scrapes are served before that announce.
fn check_turns(greedy: &Client, input: Vec<u8>, server: &HttpServer, pause: &Pause) {
    let mut others = [server.client(), server.client()];
    let scrape = get("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa", "");
    // The second request is served by a task that has waited for it, as those that follow are.
    for _ in 0..2 {
        for other in &mut others {
            assert!(other.request(&scrape).has("10:incompletei0e"));
        }
    }
    let mut stream = greedy.0.stream.try_clone().unwrap();
    let gate = pause.gate.lock();
    let mut busy = server.client();
    busy.send(get("/pause", ""));
    wait_until("the worker waits", || pause.is_waited_for.load(Ordering::Relaxed));
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
    drop(gate);
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
        let (server, pause) = start();
        let mut greedy = server.client();
        assert_eq!(greedy.request(PROBE).status, 404);
        let input = request.repeat(count) + &get(&announce(1, ""), "");
        check_turns(&greedy, input.into_bytes(), &server, &pause);
        for _ in 0..count {
            assert_eq!(greedy.receive().status, 404);
        }
        assert!(greedy.receive().has("8:complete"));
    }
}

#[test]
fn a_websocket_that_always_has_more_lets_others_have_their_turn() {
    let (server, pause) = start();
    let mut greedy = server.web_client();
    let mut input = Vec::new();
    for _ in 0..2 {
        frames::text(&mut input, MASK, &"x".repeat(50_000));
    }
    input.extend(announce_frame(&leecher(1)));
    check_turns(&greedy.client, input, &server, &pause);
    for _ in 0..2 {
        assert!(matches!(greedy.receive(), Received::Message(Message::Failure { .. })));
    }
    assert_eq!(greedy.receive(), announced(0, 1));
}
