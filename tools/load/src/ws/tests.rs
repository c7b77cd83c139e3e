//! The load against a small tracker on loopback, made of the codec's other side.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use types::{InfoHash, PeerId, Refusal, SwarmCounts};
use wire::http::{Head, Upgrade, read_head};
use wire::webtorrent::{Action, Message, Relay, announce_reply, failure, read, scrape_reply};
use wire::ws::{self as frames, Event, Reader};

use super::peer::{Peer, Turn};
use super::*;
use crate::random::Random;

/// What a tracker is like.
#[derive(Clone, Copy)]
struct Manner {
    /// It replies to answers, too.
    acknowledges: bool,
    /// It refuses every announce.
    refuses: bool,
    interval_s: u32,
}

const PLAIN: Manner = Manner { acknowledges: false, refuses: false, interval_s: 120 };

/// What it remembers.
#[derive(Default)]
struct Memory {
    peers: Vec<(InfoHash, PeerId, TcpStream)>,
    announces: u64,
    answers: u64,
    pings: u64,
    pongs: u64,
}

/// A tracker for `connections`, in the order of what comes.
fn tracker(connections: usize, manner: Manner) -> (Url, Arc<Mutex<Memory>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::web(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    let memory = Arc::new(Mutex::new(Memory::default()));
    let shared = memory.clone();
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let (stream, memory) = (stream.unwrap(), shared.clone());
            thread::spawn(move || serve(stream, manner, &memory));
        }
    });
    (url, memory)
}

fn serve(mut stream: TcpStream, manner: Manner, memory: &Mutex<Memory>) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut reader, mut open) = (Vec::new(), Reader::of_client(), false);
    let mut room = [0; 65536];
    while let Ok(len @ 1..) = stream.read(&mut room) {
        input.extend_from_slice(&room[..len]);
        if !open {
            let Head::Whole(request) = read_head(&input) else { continue };
            let Upgrade::WebSocket { key, .. } = request.upgrade else { panic!("{request:?}") };
            let mut out = Vec::new();
            frames::switching_protocols(&mut out, key);
            frames::ping(&mut out, b"there?");
            stream.write_all(&out).unwrap();
            let consumed = request.consumed;
            input.drain(..consumed);
            open = true;
        }
        loop {
            let frames::Read { consumed, event } = reader.read(&mut input, usize::MAX);
            let mut memory = memory.lock().unwrap();
            match event {
                Event::Partial { .. } => {
                    input.drain(..consumed);
                    break;
                }
                Event::Text(text) => answer(&mut stream, &text, manner, &mut memory),
                Event::Pong(payload) => memory.pongs += u64::from(payload == b"there?"),
                Event::Ping(payload) => {
                    memory.pings += 1;
                    let mut out = Vec::new();
                    frames::pong(&mut out, payload);
                    let _ = stream.write_all(&out);
                }
                other => panic!("{other:?}"),
            }
            input.drain(..consumed);
        }
    }
}

fn answer(stream: &mut TcpStream, text: &str, manner: Manner, memory: &mut Memory) {
    // The load may leave at any time.
    let say = |stream: &mut TcpStream, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        frames::text_with(&mut out, |out| write(out));
        let _ = stream.write_all(&out);
    };
    let counts = SwarmCounts::default();
    match read(text).unwrap() {
        Message::Announce(announce) if manner.refuses => {
            say(stream, &|out| {
                let hash = Some(&announce.info_hash);
                failure(out, Refusal::NotAllowed, Some(Action::Announce), hash);
            });
        }
        Message::Announce(announce) => {
            memory.announces += 1;
            let (hash, id) = (announce.info_hash, announce.peer_id);
            if !memory.peers.iter().any(|peer| peer.1 == id) {
                memory.peers.push((hash, id, stream.try_clone().unwrap()));
            }
            say(stream, &|out| announce_reply(out, &hash, &counts, manner.interval_s));
            let relay = Relay::new(&hash, &id);
            let others = memory.peers.iter_mut().filter(|peer| peer.0 == hash && peer.1 != id);
            for ((_, _, other), offer) in others.zip(&announce.offers) {
                say(other, &|out| relay.offer(out, offer));
            }
        }
        Message::Answer(answer) => {
            memory.answers += 1;
            let relay = Relay::new(&answer.info_hash, &answer.peer_id);
            for (_, id, other) in &mut memory.peers {
                if *id == answer.to_peer_id {
                    say(other, &|out| relay.answer(out, &answer.offer_id, answer.json));
                }
            }
            if manner.acknowledges {
                say(stream, &|out| {
                    announce_reply(out, &answer.info_hash, &counts, manner.interval_s);
                });
            }
        }
        Message::Scrape(scrape) => {
            let mut room = [InfoHash::default(); types::limits::SCRAPE_HASHES_WEB_MAX];
            let hashes = scrape.read_into(&mut room).unwrap();
            let counts = vec![counts; hashes.len()];
            say(stream, &|out| scrape_reply(out, hashes, &counts));
        }
    }
}

fn options(url: Url) -> Options {
    Options {
        connections: 6,
        torrents: 2,
        offers: 2,
        pace: Pace::Busy { warm_up: Duration::from_millis(50) },
        duration: Duration::from_millis(400),
        pid: Some(std::process::id()),
        ..Options::busy(url)
    }
}

#[test]
fn busy_peers_offer_answer_and_announce_again() {
    let (url, memory) = tracker(6, PLAIN);
    let mut stages = Vec::new();
    let options = Options { scrapes_percent: 20, ..options(url) };
    let report = run(&options, &mut |stage| stages.push(stage.to_owned())).unwrap();
    let tally = report.tally;
    assert_eq!((report.joined, tally.lost, tally.unanswered), (6, 0, 0));
    assert_eq!((tally.failures, tally.unreadable, tally.acknowledgements), (0, 0, 0));
    assert!(tally.replies > 10 && tally.scrapes > 0 && tally.answers > 10, "{tally:?}");
    // Every offer that came was answered at once; every peer has one request under way.
    assert_eq!(tally.answers_sent, tally.offers);
    assert!(tally.announces.abs_diff(tally.replies) <= 6, "{tally:?}");
    assert!(tally.scrape_requests.abs_diff(tally.scrapes) <= 6, "{tally:?}");
    let seen = memory.lock().unwrap();
    assert!(seen.announces >= tally.announces && seen.answers + 12 >= tally.answers_sent);
    assert_eq!((seen.peers.len(), seen.pongs), (6, 6));
    assert!(stages[0].starts_with("6 joined in ") && stages[1] == "measuring");
    let text = report.to_string();
    for label in ["messages per second: ", "latency: p50 ", "messages per tracker CPU second: "] {
        assert_eq!(text.matches(label).count(), 1, "{text}");
    }
}

#[test]
fn replies_to_answers_are_not_taken_for_replies_to_announces() {
    let (url, memory) = tracker(6, Manner { acknowledges: true, ..PLAIN });
    let tally = run(&options(url), &mut |_| {}).unwrap().tally;
    assert!(tally.announces.abs_diff(tally.replies) <= 6, "{tally:?}");
    assert!(tally.acknowledgements > 10, "{tally:?}");
    // As many as there are answers, but for those under way at the start and at the end.
    let under_way = 6 * 2 * 6;
    assert!(tally.acknowledgements.abs_diff(tally.answers_sent) <= under_way, "{tally:?}");
    assert!(memory.lock().unwrap().announces >= tally.announces);
}

#[test]
fn refusals_are_answers_and_their_reason_is_told() {
    let (url, _) = tracker(6, Manner { refuses: true, ..PLAIN });
    let report = run(&options(url), &mut |_| {}).unwrap();
    assert!(report.tally.failures > 10 && report.tally.replies == 0, "{:?}", report.tally);
    assert!(report.complaint.unwrap().contains(Refusal::NotAllowed.text()));
}

#[test]
fn idle_peers_announce_when_they_should_and_ping() {
    let (url, memory) = tracker(5, Manner { interval_s: 1, ..PLAIN });
    let options = Options {
        connections: 5,
        pace: Pace::Idle { ping_every: Some(Duration::from_millis(300)) },
        duration: Duration::from_millis(1500),
        ..Options::idle(url)
    };
    let report = run(&options, &mut |_| {}).unwrap();
    let tally = report.tally;
    // Two seconds and a half from the first announce, the first of them to settle.
    assert!((5..=10).contains(&tally.announces), "{tally:?}");
    // One may be under way when the count begins, and when it ends.
    assert!(tally.replies.abs_diff(tally.announces) <= 5, "{tally:?}");
    assert!(tally.pongs >= 5 && memory.lock().unwrap().pings >= tally.pongs, "{tally:?}");
    assert_eq!((tally.offers, tally.lost), (0, 0));
}

#[test]
fn trackers_that_are_none_are_told_apart() {
    for (answer, why) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "not a WebSocket's handshake"),
        ("", "the tracker closed the connection"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::web(&format!("ws://{}", listener.local_addr().unwrap())).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let options = Options { connections: 1, ..options(url) };
        let error = run(&options, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = options(Url::web(&format!("ws://{free}")).unwrap());
    let error = run(&options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}

/// All that a tracker may say to a peer that has just asked for a WebSocket with `key`.
fn conversation(key: &[u8; 24]) -> Vec<u8> {
    let (hash, other) = (InfoHash([0xa7; 20]), PeerId([0xff; 20]));
    let relay = Relay::new(&hash, &other);
    let json = format!(r#"{{"type":"offer","sdp":"{}"}}"#, "x".repeat(900));
    let offer = wire::webtorrent::Offer { id: types::OfferId([9; 20]), json: &json };
    let mut out = Vec::new();
    frames::switching_protocols(&mut out, key);
    frames::ping(&mut out, b"?");
    frames::text_with(&mut out, |out| relay.offer(out, &offer));
    frames::text_with(&mut out, |out| announce_reply(out, &hash, &SwarmCounts::default(), 90));
    frames::text_with(&mut out, |out| relay.answer(out, &offer.id, &json));
    frames::text(&mut out, "[]");
    out
}

#[test]
fn what_comes_in_pieces_is_heard_as_a_whole() {
    let mut random = Random::new(5);
    let options = Options::busy(Url::web("ws://127.0.0.1").unwrap());
    let mut first = None;
    for pieces in 1..100 {
        let mut crowd = crowd::Crowd::new(&options);
        let mut out = Vec::new();
        let now = Instant::now();
        let mut turn = Turn { crowd: &mut crowd, now, out: &mut out, congested: false };
        let mut peer = Peer::new(0, &mut turn);
        let Head::Whole(request) = read_head(turn.out) else { panic!("no request") };
        let Upgrade::WebSocket { key, .. } = request.upgrade else { panic!("{request:?}") };
        let mut left = conversation(key);
        let (mut unread, mut heard) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            // Once in one piece; then in ever smaller ones.
            let len = if pieces == 1 { left.len() } else { 1 + random.below(3000 / pieces) };
            unread.extend(left.drain(..len.min(left.len())));
            let now = peer.hear(&mut unread, &mut turn).unwrap();
            unread.drain(..now.consumed);
            heard.extend(now.answered.then_some((now.interval, now.joined)));
        }
        assert_eq!(heard, [(Some(Duration::from_secs(90)), true)]);
        let tally = crowd.tally;
        assert_eq!((tally.offers, tally.answers, tally.replies), (1, 1, 1));
        assert_eq!((tally.unreadable, tally.pings, tally.answers_sent), (1, 1, 1));
        assert!(unread.is_empty());
        assert_eq!(*first.get_or_insert_with(|| out.clone()), out);
    }
}
