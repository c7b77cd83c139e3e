//! The load against a small tracker on loopback, built from the codec's server side.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use types::{InfoHash, PeerId, Refusal, SwarmCounts};
use wire::http::{ParsedRequest, Upgrade, read_head};
use wire::webtorrent::{Action, Message, Relay, announce_reply, failure, read};
use wire::ws::{self as frames, Event, Reader};

use super::worker::Ws;
use super::*;
use crate::Checks;
use crate::schedule::tests::check_open_loop;

#[derive(Clone, Copy)]
struct TrackerBehavior {
    /// Acknowledges answers.
    acknowledges: bool,
    /// Refuses every announce.
    refuses: bool,
    interval_s: u32,
}

const PLAIN: TrackerBehavior =
    TrackerBehavior { acknowledges: false, refuses: false, interval_s: 120 };

/// Messages that the tracker has received.
#[derive(Default)]
struct Memory {
    peers: Vec<(InfoHash, PeerId, TcpStream)>,
    announces: u64,
    answers: u64,
    pings: u64,
    pongs: u64,
}

/// Starts a tracker that accepts this many connections.
fn tracker(connections: usize, behavior: TrackerBehavior) -> (TrackerUrl, Arc<Mutex<Memory>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = TrackerUrl::web(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    let memory = Arc::new(Mutex::new(Memory::default()));
    let shared = memory.clone();
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let (stream, memory) = (stream.unwrap(), shared.clone());
            thread::spawn(move || serve(stream, behavior, &memory));
        }
    });
    (url, memory)
}

fn serve(mut stream: TcpStream, behavior: TrackerBehavior, memory: &Mutex<Memory>) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut reader, mut open) = (Vec::new(), Reader::for_client_frames(), false);
    let mut room = [0; 65536];
    while let Ok(len @ 1..) = stream.read(&mut room) {
        input.extend_from_slice(&room[..len]);
        if !open {
            let ParsedRequest::Complete(request) = read_head(&input) else { continue };
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
            let frames::ReadEvent { consumed, event } = reader.read(&mut input, usize::MAX);
            let mut memory = memory.lock().unwrap();
            match event {
                Event::Partial { .. } => {
                    input.drain(..consumed);
                    break;
                }
                Event::Text(text) => answer(&mut stream, &text, behavior, &mut memory),
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

fn answer(stream: &mut TcpStream, text: &str, behavior: TrackerBehavior, memory: &mut Memory) {
    // The load may end at any time.
    let say = |stream: &mut TcpStream, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        frames::text_with(&mut out, |out| write(out));
        let _ = stream.write_all(&out);
    };
    let counts = SwarmCounts::default();
    match read(text).unwrap() {
        Message::Announce(announce) if behavior.refuses => {
            say(stream, &|out| {
                let hash = Some(&announce.info_hash);
                failure(out, Refusal::NotAllowed, Some(Action::Announce), hash);
            });
        }
        Message::Announce(announce) => {
            memory.announces += 1;
            let (hash, id) = (announce.info_hash, announce.peer_id);
            if !memory.peers.iter().any(|peer| peer.0 == hash && peer.1 == id) {
                memory.peers.push((hash, id, stream.try_clone().unwrap()));
            }
            say(stream, &|out| announce_reply(out, &hash, &counts, behavior.interval_s, None));
            let relay = Relay::new(&hash, &id);
            let others = memory.peers.iter_mut().filter(|peer| peer.0 == hash && peer.1 != id);
            for ((_, _, other), offer) in others.zip(&announce.offers) {
                say(other, &|out| relay.offer(out, offer));
            }
        }
        Message::Answer(answer) => {
            memory.answers += 1;
            let relay = Relay::new(&answer.info_hash, &answer.peer_id);
            for (hash, id, other) in &mut memory.peers {
                if *hash == answer.info_hash && *id == answer.to_peer_id {
                    say(other, &|out| relay.answer(out, &answer.offer_id, answer.json));
                }
            }
            if behavior.acknowledges {
                say(stream, &|out| {
                    announce_reply(out, &answer.info_hash, &counts, behavior.interval_s, None);
                });
            }
        }
        Message::Scrape(_) => panic!("{text}"),
    }
}

fn options(url: TrackerUrl) -> WsOptions {
    let busy = WsOptions::busy(url);
    WsOptions {
        workload: Workload { torrents: 2, peers: 6, ..busy.workload },
        offers: 2,
        plan: RunPlan {
            warm_up: Duration::from_millis(50),
            duration: Duration::from_secs(1),
            pid: Some(std::process::id()),
        },
        check_every: 1,
        ..busy
    }
}

fn load(options: &WsOptions) -> Report {
    options.run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

#[test]
fn busy_peers_offer_answer_and_announce_again() {
    for workers in [1, 2] {
        let (url, memory) = tracker(6, PLAIN);
        let report = load(&WsOptions { workers, ..options(url) });
        let (responses, web) = (report.counts.responses, report.web.unwrap());
        assert_eq!(
            (web.joined, web.counts.connections_lost, report.counts.lost),
            (6, 0, 0),
            "{report}"
        );
        assert!(report.counts.errors.is_empty() && web.counts.acknowledgements == 0, "{report}");
        let (offers, answers) = (responses.offer, responses.answer);
        assert!(responses.announce > 10 && answers > 10, "{report}");
        // Every received offer was answered at once; every peer has one outstanding request.
        assert!(web.counts.answers_sent.abs_diff(offers) <= 24, "{report}");
        assert!(report.counts.sent.abs_diff(responses.announce) <= 12, "{report}");
        let Checks { checked, own_address, duplicates, unknown_peers, bad_counts } =
            report.counts.checks;
        assert!(checked > 10, "{report}");
        assert_eq!((own_address, duplicates, unknown_peers, bad_counts), (0, 0, 0, 0));
        let seen = memory.lock().unwrap();
        assert!(seen.announces >= responses.announce);
        assert_eq!((seen.peers.len(), seen.pongs), (6, 6));
        let json = report.to_string();
        assert!(json.contains(r#""offer": "#) && json.contains(r#""web": {"#));
    }
}

#[test]
fn acknowledgements_are_not_announce_responses() {
    let (url, memory) = tracker(6, TrackerBehavior { acknowledges: true, ..PLAIN });
    let report = load(&options(url));
    let counts = report.web.unwrap().counts;
    let replies = report.counts.responses.announce - counts.acknowledgements;
    assert!(report.counts.sent.abs_diff(replies) <= 12, "{report}");
    assert!(counts.acknowledgements > 10, "{report}");
    // As many as there are answers, except those in transit at the start and at the end.
    let under_way = 6 * 2 * 6;
    assert!(counts.acknowledgements.abs_diff(counts.answers_sent) <= under_way, "{report}");
    assert!(memory.lock().unwrap().announces >= report.counts.sent);
}

#[test]
fn an_open_loop_follows_its_schedule() {
    let (url, _) = tracker(6, PLAIN);
    let options = WsOptions { timing: AnnounceTiming::Paced(300.0), ..options(url) };
    check_open_loop(&mut Ws::new(&options, 0, &AtomicU64::new(0)).unwrap(), 300.0);
}

#[test]
fn peers_come_and_go_on_their_connections() {
    let (url, memory) = tracker(6, PLAIN);
    let options = options(url);
    let workload = Workload { churn_percent: 20, ..options.workload.clone() };
    let report = load(&WsOptions { workload, offers: 0, ..options });
    assert!(report.counts.errors.is_empty() && report.counts.responses.announce > 50, "{report}");
    assert!(memory.lock().unwrap().peers.len() > 12);
}

#[test]
fn idle_peers_announce_when_they_should_and_ping() {
    let (url, memory) = tracker(5, TrackerBehavior { interval_s: 1, ..PLAIN });
    let idle = WsOptions::idle(url);
    let options = WsOptions {
        workload: Workload { peers: 5, ..idle.workload.clone() },
        timing: AnnounceTiming::Idle {
            ping_every: Some(Duration::from_millis(300)),
            interval_min: Duration::ZERO,
        },
        plan: RunPlan {
            warm_up: Duration::from_secs(1),
            duration: Duration::from_millis(1500),
            ..idle.plan.clone()
        },
        ..idle
    };
    let report = load(&options);
    // 2.5 seconds from the first announce, of which the first second is warm-up.
    assert!((5..=10).contains(&report.counts.sent), "{report}");
    // One request per peer may be outstanding when counting begins and ends.
    assert!(report.counts.responses.announce.abs_diff(report.counts.sent) <= 5, "{report}");
    let web = report.web.unwrap();
    assert!(web.counts.pongs >= 5 && memory.lock().unwrap().pings >= web.counts.pongs);
    assert_eq!((report.counts.responses.offer, web.counts.connections_lost), (0, 0));
}

#[test]
fn desktop_clients_announce_their_torrents_in_turn_on_one_connection() {
    let (url, memory) = tracker(2, TrackerBehavior { interval_s: 1, ..PLAIN });
    let desktop = WsOptions::desktop(url, 3);
    assert_eq!((desktop.connections(), desktop.workload.peers), (1000, 3000));
    let options = WsOptions {
        workload: Workload { torrents: 2, peers: 6, ..desktop.workload.clone() },
        timing: AnnounceTiming::Idle { ping_every: None, interval_min: Duration::from_secs(2) },
        plan: RunPlan {
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(2),
            ..desktop.plan.clone()
        },
        check_every: 1,
        ..desktop
    };
    let report = load(&options);
    let web = report.web.unwrap();
    assert_eq!(
        (web.joined, web.counts.connections_lost, report.counts.lost),
        (2, 0, 0),
        "{report}"
    );
    // Six torrents in two seconds, whatever the tracker says, and no more on a slow machine.
    assert!((1..=9).contains(&report.counts.sent), "{report}");
    let (offers, answers) = (report.counts.responses.offer, report.counts.responses.answer);
    assert!(offers > 0 && answers > 0 && report.counts.errors.is_empty(), "{report}");
    assert_eq!((report.counts.checks.own_address, report.counts.checks.bad_counts), (0, 0));
    let seen = memory.lock().unwrap();
    // Each connection has one id in all of its torrents.
    let ids: std::collections::BTreeSet<PeerId> = seen.peers.iter().map(|peer| peer.1).collect();
    assert_eq!(ids.len(), 2);
    assert!(seen.announces >= 6 + report.counts.responses.announce);
}

/// Counts from joining and the probe are not part of the report.
#[test]
fn keeps_results_if_the_tracker_exits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = TrackerUrl::web(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming().take(6) {
            let stream = stream.unwrap();
            streams.push(stream.try_clone().unwrap());
            let memory = Mutex::new(Memory::default());
            thread::spawn(move || serve(stream, PLAIN, &memory));
        }
        thread::sleep(Duration::from_secs(2));
        for stream in streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
    let mut options = options(url);
    (options.plan.warm_up, options.plan.duration) = (Duration::ZERO, Duration::from_secs(3600));
    let report = load(&options);
    assert!(report.counts.responses.announce > 10, "{report}");
    assert_eq!(report.ended.as_deref(), Some("no connection is left"));
    assert_eq!(report.web.unwrap().counts.connections_lost, 6);
}

#[test]
fn distinguishes_invalid_trackers() {
    let why = |options: &WsOptions| {
        let error = options.run(&AtomicBool::new(false), &mut |_| {}).unwrap_err();
        format!("{error:#}")
    };
    let one = |url| {
        let options = options(url);
        WsOptions { workload: Workload { peers: 1, ..options.workload.clone() }, ..options }
    };
    for (answer, expected) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "not a WebSocket handshake"),
        ("", "the tracker closed the connection"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = TrackerUrl::web(&format!("ws://{}", listener.local_addr().unwrap())).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = why(&one(url));
        assert!(error.contains(expected), "{error}");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = why(&one(TrackerUrl::web(&format!("ws://{free}")).unwrap()));
    assert!(error.contains("refused"), "{error}");
}
