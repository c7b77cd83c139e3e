//! Connections that always have more take turns with others.

use std::io::Write;
use std::thread;

use client::codec::webtorrent as messages;
use client::codec::ws as frames;
use front::http::{PageOptions, StatsForm, StatsOptions};
use front::webtorrent::WebOptions;

use super::*;

fn start() -> HttpServer {
    let networks = Networks::parse(["127.0.0.0/8"]).unwrap();
    let stats = StatsOptions { path: "/stats".into(), form: StatsForm::Opentracker, networks };
    let pages = PageOptions { stats: Some(stats), ..PageOptions::default() };
    HttpServer::with_pages(HttpOptions { web: Some(WebOptions::default()), ..patient() }, pages)
}

/// Has one connection send `input`, which ends with an announce, while the worker is busy, and two others a
/// scrape, one before it and one behind. Checks that both scrapes are served before that announce.
fn check_turns(greedy: &Client, input: Vec<u8>, server: &HttpServer) {
    let mut others = [server.client(), server.client()];
    let scrape = get("/scrape?info_hash=hhhhhhhhhhhhhhhhhhhh", "");
    // The second request is served by a task that has waited for it, as those that follow are.
    for _ in 0..2 {
        for other in &mut others {
            assert!(other.request(&scrape).has("10:incompletei0e"));
        }
    }
    let mut stream = greedy.0.stream.try_clone().unwrap();
    let mut writer = None;
    server.pause("/stats", || {
        others[0].send(&scrape);
        // The worker is to find as much as the kernel takes.
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(len @ 1..) = stream.write(&input[sent..]) {
            sent += len;
        }
        stream.set_nonblocking(false).unwrap();
        writer = Some(thread::spawn(move || stream.write_all(&input[sent..]).unwrap()));
        others[1].send(&scrape);
    });
    for other in &mut others {
        let response = other.receive();
        assert!(response.has("10:incompletei0e"), "{}", response.text());
    }
    writer.unwrap().join().unwrap();
}

fn last_announce() -> String {
    get(&announce(1, "").replace("aaaaaaaaaaaaaaaaaaaa", "hhhhhhhhhhhhhhhhhhhh"), "")
}

#[test]
fn a_long_pipeline_lets_others_have_their_turn() {
    let server = start();
    let mut greedy = server.client();
    assert_eq!(greedy.request(get("/none", "")).status, 404);
    let requests = get("/none", "").repeat(500) + &last_announce();
    check_turns(&greedy, requests.into_bytes(), &server);
    for _ in 0..500 {
        assert_eq!(greedy.receive().status, 404);
    }
    assert!(greedy.receive().has("8:complete"));
}

/// Requests of more than a read, and fewer than end a turn.
#[test]
fn a_socket_that_always_has_more_lets_others_have_their_turn() {
    let server = start();
    let mut greedy = server.client();
    assert_eq!(greedy.request(get("/none", "")).status, 404);
    let long = get("/none", &format!("X: {}\r\n", "x".repeat(12_000)));
    check_turns(&greedy, (long.repeat(8) + &last_announce()).into_bytes(), &server);
    for _ in 0..8 {
        assert_eq!(greedy.receive().status, 404);
    }
    assert!(greedy.receive().has("8:complete"));
}

#[test]
fn a_websocket_that_always_has_more_lets_others_have_their_turn() {
    let server = start();
    let mut greedy = server.web_client();
    let mut input = Vec::new();
    for _ in 0..2 {
        frames::text(&mut input, MASK, &"x".repeat(50_000));
    }
    let mut text = Vec::new();
    messages::announce(&mut text, &leecher(1));
    frames::text(&mut input, MASK, &String::from_utf8(text).unwrap());
    check_turns(&greedy.client, input, &server);
    for _ in 0..2 {
        assert!(matches!(greedy.receive(), Received::Failure(_)));
    }
    assert_eq!(greedy.receive(), announced(0, 1));
}
