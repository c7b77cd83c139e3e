//! The load against small trackers on loopback: a correct one and faulty ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use wire::udp::{Request, UnverifiedRequest, decode};

use super::worker::Udp;
use super::*;
use crate::runner::SILENCE_MAX;
use crate::schedule::tests::check_open_loop;

/// The datagrams that a tracker has received.
pub(super) type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

const ID: u64 = 0x0123_4567_89ab_cdef;

/// Returns the response of a correct tracker whose swarms are empty.
fn answer(datagram: &[u8]) -> Option<Vec<u8>> {
    let answer = |action: u32, id: u32, rest: &[u8]| {
        Some([&action.to_be_bytes(), &id.to_be_bytes(), rest].concat())
    };
    match decode(datagram).ok()? {
        Request::Connect { transaction_id } => answer(0, transaction_id, &ID.to_be_bytes()),
        Request::Connected { connection_id, transaction_id, .. } if connection_id != ID => {
            answer(3, transaction_id, b"bad connection id")
        }
        Request::Connected { transaction_id, request, .. } => match request {
            UnverifiedRequest::Announce { .. } => {
                answer(1, transaction_id, &[0, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            UnverifiedRequest::Scrape(hashes) => {
                answer(2, transaction_id, &vec![0; 12 * hashes.len()])
            }
            UnverifiedRequest::Malformed(why) => answer(3, transaction_id, why.text().as_bytes()),
        },
    }
}

/// Serves until no datagram arrives for some seconds. `behavior` turns the correct response to each
/// datagram into the sent ones; `None` ends the tracker.
pub(super) fn tracker(
    mut behavior: impl FnMut(u64, &[u8], Option<Vec<u8>>) -> Option<Vec<Vec<u8>>> + Send + 'static,
) -> (TrackerUrl, Seen) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let url = TrackerUrl::udp(&format!("udp://{}/announce", socket.local_addr().unwrap())).unwrap();
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    thread::spawn(move || {
        let mut buffer = [0; 65536];
        for number in 0.. {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { return };
            shared.lock().unwrap().push(buffer[..len].to_vec());
            let answer = answer(&buffer[..len]);
            let Some(answers) = behavior(number, &buffer[..len], answer) else { return };
            for answer in answers {
                // The load may end at any time.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    (url, seen)
}

pub(super) fn honest() -> (TrackerUrl, Seen) {
    tracker(|_, _, answer| Some(answer.into_iter().collect()))
}

/// Starts a tracker that changes every response except those to connects.
fn tracker_that(
    mut change: impl FnMut(u64, Vec<u8>) -> Vec<Vec<u8>> + Send + 'static,
) -> TrackerUrl {
    let behavior = move |number, request: &[u8], answer: Option<Vec<u8>>| {
        let answer = answer.unwrap_or_default();
        Some(if request.len() == 16 { vec![answer] } else { change(number, answer) })
    };
    tracker(behavior).0
}

fn options(url: TrackerUrl) -> UdpOptions {
    UdpOptions {
        workload: Workload { torrents: 20, peers: 400, want: Some(10), ..Workload::default() },
        loop_mode: LoopMode::Closed { outstanding: 16 },
        plan: RunPlan {
            warm_up: Duration::from_millis(50),
            duration: Duration::from_millis(800),
            ..RunPlan::default()
        },
        mix: Mix { connect: 1, announce: 10, scrape: 1 },
        sockets: 2,
        // Long enough that nothing is late because of a busy machine.
        timeout: Duration::from_secs(10),
        check_every: 1,
        ..UdpOptions::of(url)
    }
}

fn load(options: &UdpOptions) -> Report {
    options.run(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

#[test]
fn peers_use_their_keys() {
    let (url, seen) = honest();
    let keys = ["0123456789abcdef", "fedcba9876543210"].map(String::from);
    let url = TrackerUrl::udp(&format!("{url}/{{key}}")).unwrap().with_keys(&keys).unwrap();
    load(&UdpOptions { sockets: 3, ..options(url) });
    let mut keys_of_peers = BTreeMap::new();
    for request in seen.lock().unwrap().iter() {
        if let Ok(Request::Connected {
            request: UnverifiedRequest::Announce { announce, options },
            ..
        }) = decode(request)
        {
            let mut buffer = [0; 64];
            let url = String::from_utf8(options.url_data(&mut buffer).to_vec()).unwrap();
            assert!(keys.iter().any(|key| url == format!("/announce/{key}")), "{url}");
            let before = keys_of_peers.insert(announce.peer_id.0, url.clone());
            assert!(before.is_none_or(|before| before == url));
        }
    }
    let both: BTreeSet<String> = keys_of_peers.into_values().collect();
    assert_eq!(both.len(), 2);
}

#[test]
fn equal_seeds_send_equal_requests() {
    let first = |seed, offload| {
        let (url, seen) = honest();
        let workload = Workload { seed, churn_percent: 10, ..options(url.clone()).workload };
        let loop_mode = LoopMode::Closed { outstanding: 1 };
        load(&UdpOptions { sockets: 1, loop_mode, workload, offload, ..options(url) });
        let seen = seen.lock().unwrap();
        assert!(seen.len() > 50);
        seen[..50].to_vec()
    };
    assert_eq!(first(1, true), first(1, false));
    assert_ne!(first(1, true), first(2, true));
}

#[test]
fn an_open_loop_follows_its_schedule() {
    let (url, _) = honest();
    let options = UdpOptions { loop_mode: LoopMode::Open { rate: 2000.0 }, ..options(url) };
    check_open_loop(&mut Udp::new(&options, 0).unwrap(), 2000.0);
}

/// While a tracker stalls for 200 ms, all requests scheduled meanwhile wait and must show it.
#[test]
fn a_stall_delays_all_requests_scheduled_meanwhile() {
    let mut stall = Some(Duration::from_millis(200));
    let url = tracker_that(move |number, answer| {
        if number > 300 {
            stall.take().into_iter().for_each(thread::sleep);
        }
        vec![answer]
    });
    let mut options = UdpOptions { loop_mode: LoopMode::Open { rate: 1000.0 }, ..options(url) };
    options.timeout = Duration::from_secs(2);
    options.plan =
        RunPlan { warm_up: Duration::ZERO, duration: Duration::from_secs(1), ..options.plan };
    let report = load(&options);
    let latency = report.latency_us;
    // 200 of 1000 waited, half of them for longer than half of it.
    assert!(latency.max >= 190e3 && latency.p99 >= 150e3, "{report}");
    assert!(latency.p90 >= 60e3 && latency.mean >= 10e3, "{report}");
}

#[test]
fn distinguishes_invalid_responses() {
    let wrong = |change: fn(u64, Vec<u8>) -> Vec<Vec<u8>>| {
        let mut options = options(tracker_that(change));
        // Unanswered requests are not repeated.
        options.plan.warm_up = Duration::ZERO;
        let report = load(&options);
        assert_eq!(
            (report.counts.responses.announce, report.counts.responses.scrape),
            (0, 0),
            "{report}"
        );
        report.counts.errors.into_keys().collect::<Vec<_>>()
    };
    let unasked = "a response with an unknown transaction id";
    assert_eq!(wrong(|_, answer| vec![[&answer[..4], b"what", &answer[8..]].concat()]), [unasked]);
    let garbage = "an invalid response";
    assert_eq!(wrong(|_, _| vec![b"HTTP/1.1 400 Bad Request".to_vec()]), [garbage]);
    assert_eq!(wrong(|_, answer| vec![answer[..7].to_vec()]), [garbage]);
    assert_eq!(wrong(|_, _| vec![Vec::new()]), [garbage]);
    let other = "a response of another kind than the request";
    assert_eq!(wrong(|_, answer| vec![[&[0; 4], &answer[4..8], &[0; 8]].concat()]), [other]);
}

/// An overloaded tracker answers each request when those that took its place in the window arrive.
#[test]
fn a_tracker_that_answers_late_is_not_silent() {
    const WINDOW: usize = 16;
    let mut queue = VecDeque::new();
    let (url, _) = tracker(move |number, _, answer| {
        queue.extend(answer);
        let kept = if number > 100 { WINDOW } else { 0 };
        let ready = queue.len().saturating_sub(kept);
        Some(queue.drain(..ready).collect())
    });
    let mut options = options(url);
    options.timeout = Duration::from_millis(100);
    options.plan.warm_up = Duration::ZERO;
    options.plan.duration = SILENCE_MAX + Duration::from_secs(2);
    let report = load(&options);
    assert!(report.ended.is_none() && report.counts.late > 100, "{report}");
}

#[test]
fn unreachable_trackers_are_an_error() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let url = TrackerUrl::udp(&format!("udp://{address}")).unwrap();
        let error = options(url).run(&AtomicBool::new(false), &mut |_| {}).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("no connection id within"), "{error}");
    }
}

#[test]
fn keeps_results_if_the_tracker_exits() {
    let behavior = |number, _: &[u8], answer: Option<Vec<u8>>| {
        (number < 500).then(|| answer.into_iter().collect())
    };
    let (url, _) = tracker(behavior);
    let mut options = options(url);
    options.timeout = Duration::from_millis(500);
    options.plan.warm_up = Duration::ZERO;
    options.plan.duration = Duration::from_secs(3600);
    let begun = Instant::now();
    let report = load(&options);
    assert!(report.ended.as_deref().unwrap().contains("has not answered for"), "{report}");
    assert!((300..=500).contains(&report.counts.responses.all()), "{report}");
    assert!(report.counts.lost > 0 && begun.elapsed() < Duration::from_secs(60));
}
