//! A roster beside what small trackers on loopback have received.

use std::collections::HashMap;

use types::{Event, PeerId};
use wire::udp::{Request, UnverifiedRequest, decode};

use super::super::tests::{Seen, honest, tracker};
use super::*;

fn options() -> RosterOptions {
    RosterOptions {
        peers: 600,
        torrents: 50,
        sockets: 3,
        has_v6: false,
        outstanding: 16,
        changes_permille: 300,
        ..RosterOptions::default()
    }
}

fn connected(options: &RosterOptions, tracker: &super::super::TrackerUrl) -> Roster {
    let mut roster = Roster::new(options).unwrap();
    roster.connect(&[&[tracker.address]]).unwrap();
    roster
}

fn run(
    roster: &mut Roster,
    task: RosterTask,
    timeout_ms: u64,
    requests: &dyn Fn() -> bool,
) -> Counters {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = RosterRun {
            task,
            stop: &stop,
            timeout: Duration::from_millis(timeout_ms),
            patience: Duration::from_secs(10),
        };
        let running = scope.spawn(move || roster.run(&run).unwrap());
        while !running.is_finished() && !requests() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    })
}

/// Returns what each peer is by the last announce that a tracker has received of it.
fn received(seen: &Seen) -> HashMap<PeerId, PeerState> {
    let mut peers = HashMap::new();
    for datagram in &*seen.lock().unwrap() {
        let Ok(Request::Connected {
            request: UnverifiedRequest::Announce { announce, .. }, ..
        }) = decode(datagram)
        else {
            continue;
        };
        let state = match (announce.event, announce.left) {
            (Event::Stopped, _) => PeerState::Absent,
            (_, Some(0)) => PeerState::Seeder,
            _ => PeerState::Leecher,
        };
        peers.insert(announce.peer_id, state);
    }
    peers
}

fn id(options: &RosterOptions, number: u64) -> PeerId {
    crate::population::peer_id(hash(options.seed, number))
}

#[test]
fn all_peers_start_and_stay_as_acknowledged() {
    let (url, seen) = honest();
    let options = options();
    let mut roster = connected(&options, &url);
    let counters = run(&mut roster, RosterTask::Fill, 60_000, &|| false);
    assert_eq!((counters.lost, roster.present()), (0, 600));
    let open = RosterTask::Announce(LoopMode::Open { rate: 5000.0 });
    let closed = RosterTask::Announce(LoopMode::Closed { outstanding: 0 });
    for task in [open, closed] {
        let before = seen.lock().unwrap().len();
        let counters =
            run(&mut roster, task, 60_000, &|| seen.lock().unwrap().len() > before + 2000);
        assert_eq!(counters.lost, 0);
        assert!(counters.errors.is_empty() && counters.sent >= 2000, "{:?}", counters.errors);
        let received = received(&seen);
        let (mut changed, mut absent) = (0, 0);
        for (peer, number) in roster.peers.all.iter().zip(0..) {
            assert_eq!(received[&id(&options, number)], peer.state);
            assert!(!peer.is_uncertain && !peer.is_waiting);
            changed += u32::from(peer.changed_ms < peer.heard_ms);
            absent += u32::from(peer.state == PeerState::Absent);
        }
        assert!(changed > 50 && absent > 50, "{changed} {absent}");
        assert_eq!(roster.present() + absent, 600);
    }
    let addresses: std::collections::HashSet<_> =
        roster.peers().map(|peer| (peer.torrent, peer.address)).collect();
    assert_eq!(addresses.len(), 600);
}

#[test]
fn peers_whose_change_was_not_acknowledged_are_uncertain() {
    // Every third announce is received, but not answered.
    let (url, seen) = tracker(|number, request, answer| {
        Some(answer.into_iter().filter(|_| request.len() == 16 || number % 3 > 0).collect())
    });
    let options = RosterOptions { peers: 60, ..options() };
    let mut roster = connected(&options, &url);
    let counters = run(&mut roster, RosterTask::Fill, 20, &|| false);
    assert!(counters.lost > 0);
    assert_eq!(roster.present(), 60);
    let task = RosterTask::Announce(LoopMode::Closed { outstanding: 0 });
    let before = seen.lock().unwrap().len();
    run(&mut roster, task, 20, &|| seen.lock().unwrap().len() > before + 300);
    let received = received(&seen);
    let mut uncertain = 0;
    for (peer, number) in roster.peers.all.iter().zip(0..) {
        uncertain += u32::from(peer.is_uncertain);
        assert!(peer.is_uncertain || received[&id(&options, number)] == peer.state);
    }
    assert!(uncertain > 0);
}

#[test]
fn torrents_are_not_larger_than_allowed() {
    let options = RosterOptions { peers: 2000, torrents: 100, torrent_peers_max: 40, ..options() };
    let peers = Peers::new(&options);
    let mut sizes = [0; 100];
    peers.all.iter().for_each(|peer| sizes[peer.torrent as usize] += 1);
    let largest = sizes.into_iter().max().unwrap();
    // Approximately: the peers that find no room go anywhere.
    assert!((40..80).contains(&largest), "{largest}");
    assert_eq!((0..3).map(|lane| peers.of_lane(lane)).sum::<u32>(), 2000);
    assert!(Roster::new(&RosterOptions { peers: 64_000 * 3 + 1, ..options }).is_err());
}

#[test]
fn requests_go_to_all_nodes_that_are_routed_to() {
    let (nodes, options) = ([honest(), honest()], options());
    let mut roster = Roster::new(&options).unwrap();
    let addresses = [[nodes[0].0.address], [nodes[1].0.address]];
    roster.connect(&addresses.each_ref().map(|it| it.as_slice())).unwrap();
    let received = || [0, 1].map(|node: usize| nodes[node].1.lock().unwrap().len());
    let counters = run(&mut roster, RosterTask::Fill, 60_000, &|| false);
    assert_eq!((counters.lost, roster.present()), (0, 600));
    assert!(received().iter().all(|count| *count > 200), "{:?}", received());
    roster.routes().set(0, false);
    let before = received();
    let task = RosterTask::Announce(LoopMode::Closed { outstanding: 0 });
    let counters = run(&mut roster, task, 60_000, &|| received()[1] > before[1] + 500);
    assert_eq!((counters.lost, received()[0]), (0, before[0]));
}

#[test]
fn peers_whose_announce_was_not_answered_change_nothing_until_one_is() {
    let options = RosterOptions { peers: 1, rest_ms: 20_000, changes_permille: 1000, ..options() };
    let mut peers = Peers::new(&options);
    let announce = |peers: &mut Peers, now_ms| peers.announce(0, now_ms).1;
    let started = announce(&mut peers, 0);
    peers.give_up(started, 0);
    assert_eq!(announce(&mut peers, 1), started);
    peers.acknowledge(started, 1);
    // It has rested, so it changes.
    let (state, at) = (peers.all[0].state, 30_000);
    assert_ne!(announce(&mut peers, at).state, state);
    let same = Sent { number: 0, state };
    peers.acknowledge(same, at);
    // A node may take this one later.
    peers.give_up(same, at);
    assert_eq!(announce(&mut peers, at + 30_000).state, state);
    peers.acknowledge(same, at + 30_000);
    assert_eq!(announce(&mut peers, at + 40_000).state, state);
    assert_ne!(announce(&mut peers, at + 60_000).state, state);
}

#[test]
fn downloads_are_listed_with_what_is_known_of_them() {
    let mut peers = Peers::new(&RosterOptions { peers: 2, ..options() });
    let completed = |number| Sent { number, state: PeerState::Seeder };
    for number in 0..2 {
        peers.acknowledge(Sent { number, state: PeerState::Leecher }, 1);
    }
    peers.acknowledge(completed(0), 2);
    // Its state is the same.
    peers.acknowledge(completed(0), 3);
    peers.give_up(completed(1), 4);
    peers.acknowledge(completed(1), 5);
    let found = peers.downloads.iter().map(|it| (it.at, it.is_acknowledged, it.is_first));
    let expected = [(2, true, true), (4, false, true), (5, true, false)];
    let expected =
        expected.map(|(ms, acknowledged, first)| (peers.moment(ms), acknowledged, first));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
