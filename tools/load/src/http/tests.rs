//! The load against a small tracker on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::worker::Http;
use super::*;
use crate::random::Random;
use crate::schedule::tests::check_open_loop;

/// Starts a tracker that handles each connection with `behavior`.
fn tracker_that(behavior: impl Fn(u64, TcpStream) + Send + Sync + 'static) -> TrackerUrl {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let behavior = Arc::new(behavior);
    thread::spawn(move || {
        for (number, stream) in (0..).zip(listener.incoming()) {
            let (behavior, stream) = (Arc::clone(&behavior), stream.unwrap());
            thread::spawn(move || behavior(number, stream));
        }
    });
    TrackerUrl::http(&format!("http://{address}/announce")).unwrap()
}

/// Reads a request of any kind. Returns false at the end of the stream.
fn ask(stream: &mut TcpStream) -> bool {
    let mut input = Vec::new();
    while !input.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => input.push(byte[0]),
            _ => return false,
        }
    }
    true
}

fn answer(stream: &mut TcpStream, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

const NONE: &str = "d8:completei0e10:incompletei1e8:intervali9e5:peers0:e";

fn options(url: TrackerUrl) -> HttpOptions {
    HttpOptions {
        connections: 4,
        plan: RunPlan {
            warm_up: Duration::from_millis(50),
            duration: Duration::from_millis(800),
            pid: Some(std::process::id()),
        },
        check_every: 1,
        ..HttpOptions::of(url)
    }
}

fn load(options: &HttpOptions) -> Report {
    options.run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn no_errors(report: &Report) {
    assert!(
        report.counts.errors.is_empty() && report.counts.lost == 0 && report.ended.is_none(),
        "{report}"
    );
}

/// Starts a tracker that answers every request with `body`. Returns the number of its connections, too.
fn tracker(body: &'static str) -> (TrackerUrl, Arc<AtomicU64>) {
    let connections = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&connections);
    let url = tracker_that(move |_, mut stream| {
        shared.fetch_add(1, Ordering::Relaxed);
        while ask(&mut stream) {
            answer(&mut stream, body.as_bytes());
        }
    });
    (url, connections)
}

#[test]
fn keeps_connections_or_opens_one_for_each_request() {
    let (url, connections) = tracker(NONE);
    let report = load(&options(url.clone()));
    no_errors(&report);
    // One more connection checked at the start that the tracker is reachable.
    assert_eq!(connections.load(Ordering::Relaxed), 5);
    let announces = report.counts.responses.announce;
    assert!(announces > 10, "{report}");
    assert_eq!((report.counts.checks.checked, report.counts.checks.bad_counts), (announces, 0));
    assert!(report.tracker.is_some_and(|tracker| tracker.responses_per_cpu_s.is_some()));
    let report = load(&HttpOptions { close: true, workers: 2, ..options(url) });
    no_errors(&report);
    let announces = report.counts.responses.announce;
    assert!((10..connections.load(Ordering::Relaxed)).contains(&announces), "{report}");
}

#[test]
fn reopens_connections_that_the_tracker_closes() {
    let url = tracker_that(|_, mut stream| {
        // It closes the connection unannounced after the third response.
        for _ in 0..3 {
            if ask(&mut stream) {
                answer(&mut stream, NONE.as_bytes());
            }
        }
    });
    for rate in [None, Some(300.0)] {
        let report = load(&HttpOptions { rate, ..options(url.clone()) });
        assert!(report.counts.responses.announce > 10, "{report}");
        // Each request that is sent is answered or lost: none takes the place of another.
        let done = report.counts.responses.announce + report.counts.lost;
        assert!(report.counts.sent.abs_diff(done) <= 8, "{report}");
        let is_end = |text: &String| text.contains("closed") || text.contains("reset");
        assert!(report.counts.errors.keys().all(is_end), "{report}");
    }
}

#[test]
fn an_open_loop_follows_its_schedule() {
    let (url, _) = tracker(NONE);
    let options = HttpOptions { rate: Some(500.0), ..options(url) };
    check_open_loop(&mut Http::new(&options, 0).unwrap(), 500.0);
}

/// All four connections wait for 200 ms; requests scheduled meanwhile wait, too.
#[test]
fn a_stall_delays_all_requests_scheduled_meanwhile() {
    let begun = Instant::now();
    let url = tracker_that(move |_, mut stream| {
        while ask(&mut stream) {
            let stall = Duration::from_millis(500)..Duration::from_millis(700);
            if stall.contains(&begun.elapsed()) {
                thread::sleep(stall.end - begun.elapsed().min(stall.end));
            }
            answer(&mut stream, NONE.as_bytes());
        }
    });
    let mut options = HttpOptions { rate: Some(500.0), ..options(url) };
    options.plan =
        RunPlan { warm_up: Duration::ZERO, duration: Duration::from_secs(1), ..options.plan };
    let report = load(&options);
    let latency = report.latency_us;
    // 100 of 500 requests were scheduled during the stall.
    assert!(latency.max >= 190e3 && latency.p99 >= 150e3 && latency.p90 >= 60e3, "{report}");
}

#[test]
fn counts_and_reports_refusals() {
    let (url, _) = tracker("d14:failure reason4:nopee");
    let report = load(&options(url));
    let refused = report.counts.responses.error;
    assert!(refused > 10 && report.counts.responses.announce == 0);
    assert_eq!(report.counts.errors["refused: nope"], refused, "{report}");
    let url = tracker_that(|_, mut stream| {
        while ask(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let report = load(&options(url));
    assert_eq!(report.counts.errors["HTTP status 503"], report.counts.responses.error, "{report}");
}

#[test]
fn distinguishes_invalid_responses() {
    for (wrong, text) in [
        (&b"220 mail.test ESMTP\r\n\r\n"[..], "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nd1:", "without a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "invalid announce response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlele", "unexpected bytes"),
        (b"", "without a response"),
    ] {
        let url = tracker_that(move |_, mut stream| {
            if ask(&mut stream) {
                let _ = stream.write_all(wrong);
            }
        });
        let mut options = options(url);
        // Broken connections are reopened only a few times a second, so count from the start.
        options.plan.warm_up = Duration::ZERO;
        options.plan.duration = Duration::from_secs(2);
        let report = load(&options);
        assert_eq!(report.counts.responses.announce, 0);
        assert!(report.counts.errors.keys().any(|error| error.contains(text)), "{text}: {report}");
    }
}

#[test]
fn unanswered_requests_are_lost() {
    let url = tracker_that(|_, mut stream| while ask(&mut stream) {});
    let mut options = HttpOptions { timeout: Duration::from_millis(100), ..options(url) };
    options.plan.warm_up = Duration::ZERO;
    let report = load(&options);
    assert!(report.counts.lost > 0 && report.counts.responses.all() == 0, "{report}");
    assert!(report.counts.errors.contains_key("no response within 100ms"), "{report}");
}

#[test]
fn counts_faults_in_peer_lists() {
    let url = tracker_that(|number, mut stream| {
        let mut random = Random::new(number);
        while ask(&mut stream) {
            let peer = [&[192, 0, 2, 1][..], &random.bytes::<2>()].concat();
            let body =
                [&b"d8:completei0e10:incompletei1e8:intervali9e5:peers12:"[..], &peer, &peer, b"e"];
            answer(&mut stream, &body.concat());
        }
    });
    let report = load(&options(url));
    let checks = report.counts.checks;
    assert!(checks.checked > 10, "{report}");
    assert_eq!((checks.duplicates, checks.bad_counts), (checks.checked, checks.checked));
    assert_eq!(checks.unknown_peers, 2 * checks.checked);
    assert_eq!(report.peers_per_response, 2.0);
}

#[test]
fn keeps_results_if_the_tracker_exits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url =
        TrackerUrl::http(&format!("http://{}/announce", listener.local_addr().unwrap())).unwrap();
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> = listener.incoming().take(5).map(Result::unwrap).collect();
        drop(listener);
        for _ in 0..50 {
            for stream in &mut streams[1..] {
                assert!(ask(stream));
                answer(stream, NONE.as_bytes());
            }
        }
    });
    let mut options = options(url);
    (options.plan.warm_up, options.plan.duration) = (Duration::ZERO, Duration::from_secs(3600));
    let report = load(&options);
    assert_eq!(report.counts.responses.announce, 200, "{report}");
    assert!(report.ended.unwrap().contains("connection refused"));
}
