//! The tracker's decisions, over the real store.

mod downloads;
mod hosts;
mod listeners;

use std::net::IpAddr;

use super::*;
use access::{AccessLists, Mode};
use types::{Families, NumWant, PeerId};

/// Collects answers as plain values.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) answers: Vec<(usize, Result<Accepted, Refusal>)>,
    pub(crate) peers: Vec<PeerKey>,
}

/// The figures of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) counts: SwarmCounts,
    pub(crate) interval_s: u32,
    pub(crate) interval_min_s: u32,
    pub(crate) warning: Option<Notice>,
}

impl Seen {
    /// Returns the refusal of each request.
    pub(crate) fn refusals(&self) -> Vec<Option<Refusal>> {
        self.answers.iter().map(|(_, answer)| answer.err()).collect()
    }

    pub(crate) fn push(&mut self, slot: u8, answer: Result<AnnounceOk<'_>, Refusal>) {
        let slot = usize::from(slot);
        if let Ok(AnnounceOk { answer, .. }) = &answer {
            answer.each_with_id(|peer, _| self.peers.push(peer));
        }
        let accepted = answer.map(|accepted| Accepted {
            counts: accepted.answer.counts,
            interval_s: accepted.interval_s,
            interval_min_s: accepted.interval_min_s,
            warning: accepted.warning,
        });
        self.answers.push((slot, accepted));
    }
}

pub(crate) const POLICY: AnnouncePolicy =
    AnnouncePolicy { peers_max: 100, families: Families::Own, with_downloads: true };

pub(crate) fn tracker(policy: Policy) -> Tracker {
    let mut options = Options::predictable(policy);
    options.store.keep_peer_ids = true;
    Tracker::new(&options, &Secrets::PUBLIC)
}

/// The first announce of a leecher.
pub(crate) fn leecher(info_hash: InfoHash, peer: u8) -> Announce {
    Announce {
        event: Event::Started,
        left: Some(1),
        ..Announce::new(info_hash, PeerId([peer; 20]), 6881)
    }
}

/// The first announce of a leecher, by the first listener.
pub(crate) fn request(host: u8, hash: u8) -> AnnounceRequest {
    AnnounceRequest {
        grant: UnverifiedGrant::unchecked(ListenerPolicyId(0), [10, 0, 0, host].into()),
        via_local_address: true,
        announce: leecher(InfoHash([hash; 20]), host),
        policy: POLICY,
    }
}

/// The announce of a leecher at `from` by the listener of that number.
fn request_from(listener: u16, from: &str, hash: u8) -> AnnounceRequest {
    let grant = UnverifiedGrant::unchecked(ListenerPolicyId(listener), from.parse().unwrap());
    AnnounceRequest { grant, ..request(1, hash) }
}

/// Turns an announce into the last one of its peer.
fn stop(mut request: AnnounceRequest) -> AnnounceRequest {
    request.announce.event = Event::Stopped;
    request
}

/// Puts a policy in force for the only listener.
pub(crate) fn set_policy(tracker: &Tracker, policy: ListenerPolicy) {
    tracker.replace_listeners(&[policy]);
}

/// Sets the lists of the only listener.
fn set_lists(tracker: &Tracker, lists: AccessLists) {
    set_policy(tracker, ListenerPolicy { lists, ..ListenerPolicy::default() });
}

#[test]
fn frozen_torrent_refuses_announces_and_keeps_its_peers() {
    let tracker = crowd(Policy::default());
    let (one, two) = (InfoHash([1; 20]), InfoHash([2; 20]));
    assert!(tracker.freeze(&one, true) && tracker.freeze(&one, true));
    let refusals = announce(&tracker, &[request(61, 1), request(62, 2)]).refusals();
    assert_eq!(refusals, [Some(Refusal::Frozen), None]);
    let mut counts = [SwarmCounts::default()];
    scrape(&tracker, 0, &[one], &mut counts).unwrap();
    assert_eq!(counts[0].leechers(), 60);
    let details = tracker.torrent(Tick(1), &one, 7).unwrap();
    assert_eq!((details.stats.counts, details.peers.len()), (counts[0], 7));
    assert!(tracker.frozen().contains(&one) && !tracker.frozen().contains(&two));
    assert!(tracker.freeze(&one, false) && tracker.frozen().is_empty());
    assert!(announce(&tracker, &[request(61, 1)]).answers[0].1.is_ok());
}

#[test]
fn frozen_torrents_are_bounded() {
    let tracker = tracker(Policy::default());
    let hash = |number: usize| {
        InfoHash(std::array::from_fn(|at| if at < 2 { (number >> (8 * at)) as u8 } else { 0 }))
    };
    assert!((0..limits::FROZEN_MAX).all(|number| tracker.freeze(&hash(number), true)));
    assert!(!tracker.freeze(&hash(limits::FROZEN_MAX), true));
    assert!(tracker.freeze(&hash(3), true), "already frozen");
    assert!(tracker.freeze(&hash(3), false));
    assert!(tracker.freeze(&hash(limits::FROZEN_MAX), true));
    assert_eq!(tracker.frozen().len(), limits::FROZEN_MAX);
}

/// Announces at tick 1.
fn announce(tracker: &Tracker, requests: &[AnnounceRequest]) -> Seen {
    announce_by(&tracker.view(Tick(1)), &mut Random::new(1), requests)
}

/// Announces one batch, and returns the answers in the order of their slots.
pub(crate) fn announce_by(
    view: &View<'_>,
    random: &mut Random,
    requests: &[AnnounceRequest],
) -> Seen {
    let mut seen = Seen::default();
    view.announce(random, requests, &mut |slot, answer| seen.push(slot, answer));
    seen.answers.sort_by_key(|(slot, _)| *slot);
    seen
}

/// Scrapes by the listener of that number, which must not be private.
fn scrape(
    tracker: &Tracker,
    listener: u16,
    info_hashes: &[InfoHash],
    counts: &mut [SwarmCounts],
) -> Result<(), Refusal> {
    let (view, from) = (tracker.view(Tick(1)), [10, 0, 0, 1].into());
    let grant = view.authorize(ListenerPolicyId(listener), from, RequestKind::Scrape, None);
    view.scrape(grant?, info_hashes, counts)
}

fn with(change: impl FnOnce(&mut Announce)) -> AnnounceRequest {
    let mut request = request(99, 1);
    change(&mut request.announce);
    request
}

/// A tracker with 60 leechers of torrent 1.
fn crowd(policy: Policy) -> Tracker {
    let tracker = tracker(policy);
    let requests: Vec<AnnounceRequest> = (1..=60).map(|host| request(host, 1)).collect();
    announce(&tracker, &requests);
    tracker
}

fn peers_for(tracker: &Tracker, want: NumWant) -> usize {
    announce(tracker, &[with(|announce| announce.want = want)]).peers.len()
}

//= bep15#announce-num-want-default
//= type=test
#[test]
fn numwant_is_respected_and_capped() {
    let policy = Policy { numwant_default: 20, numwant_max: 30, ..Policy::default() };
    let tracker = crowd(policy);
    assert_eq!(peers_for(&tracker, NumWant::Default), 20);
    assert_eq!(peers_for(&tracker, NumWant::Peers(0)), 0);
    assert_eq!(peers_for(&tracker, NumWant::Peers(5)), 5);
    assert_eq!(peers_for(&tracker, NumWant::Peers(500)), 30);
    let mut capped_by_protocol = with(|_| ());
    capped_by_protocol.policy.peers_max = 3;
    assert_eq!(announce(&tracker, &[capped_by_protocol]).peers.len(), 3);
    let low = Policy { numwant_default: 50, numwant_max: 7, ..policy };
    tracker.reconfigure(&low);
    assert_eq!(peers_for(&tracker, NumWant::Default), 7);
}

//= bep15#announce-stopped
//= bep3#announce-stopped
//= type=test
#[test]
fn stopped_leaves_and_gets_no_peers() {
    let tracker = crowd(Policy::default());
    let seen = announce(&tracker, &[request(1, 1)]);
    assert_eq!(seen.peers.len(), 50);
    let seen = announce(&tracker, &[stop(request(1, 1))]);
    assert!(seen.peers.is_empty());
    let counts = seen.answers[0].1.unwrap().counts;
    assert_eq!((counts.seeders(), counts.leechers()), (0, 59));
}

//= bep7#source-address
//= type=test
#[test]
fn peers_never_include_the_client_itself() {
    let tracker = crowd(Policy::default());
    for host in 1..=60 {
        let own = PeerKey::new(IpAddr::from([10, 0, 0, host]), 6881);
        let mut all = request(host, 1);
        all.announce.want = NumWant::Peers(100);
        let peers = announce(&tracker, &[all]).peers;
        assert_eq!(peers.len(), 59);
        assert!(peers.iter().all(|peer| *peer != own));
    }
}

#[test]
fn answers_of_a_batch_have_intervals_of_their_own() {
    let policy =
        Policy { interval_s: 100, interval_min_s: 50, interval_jitter_s: 9, ..Policy::default() };
    let tracker = tracker(policy);
    let mut random = Random::new(7);
    let requests: Vec<AnnounceRequest> = (1..=50).map(|port| request(1, port)).collect();
    let mut totals = [0_u32; 10];
    for _ in 0..100 {
        let seen = announce_by(&tracker.view(Tick(1)), &mut random, &requests);
        for (_, answer) in &seen.answers {
            let accepted = answer.unwrap();
            assert_eq!(accepted.interval_min_s, 50);
            totals[accepted.interval_s as usize - 100] += 1;
        }
    }
    // 5,000 answers: 500 of each interval, give or take.
    assert!(totals.iter().all(|count| (400..600).contains(count)), "{totals:?}");
}

#[test]
fn websocket_intervals_have_the_same_share_of_jitter() {
    let intervals = |policy: Policy| {
        let Interval { interval_s, jitter_s, .. } = policy.interval(Service::Ws4, Stretch::NONE);
        (interval_s, interval_s + jitter_s)
    };
    let policy = Policy { interval_s: 1800, websocket_interval_s: 120, ..Policy::default() };
    assert_eq!(intervals(policy), (120, 120));
    assert_eq!(intervals(Policy { interval_jitter_s: 180, ..policy }), (120, 132));
    // Never more than a quarter: peers expire after one and a half intervals.
    assert_eq!(intervals(Policy { interval_jitter_s: 86_400, ..policy }), (120, 150));
}

#[test]
fn peers_beside_the_tracker_are_given_under_its_public_address() {
    let tracker = tracker(Policy::default());
    let networks = Networks::parse(["10.0.0.0/8"]).unwrap();
    let external = ExternalAddress::new(Some([8, 8, 8, 8].into()), None, networks);
    let external = Some(Arc::new(external));
    set_policy(&tracker, ListenerPolicy { external, ..ListenerPolicy::default() });
    // The limits know them by their own addresses.
    let exempt = Networks::parse(["10.0.0.0/8"]).unwrap();
    tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    let by = |from: &str, port| {
        let mut request = request_from(0, from, 1);
        request.via_local_address = false;
        request.announce.port = port;
        request
    };
    let caps = u16::from(u8::MAX);
    for port in 1..=caps {
        announce(&tracker, &[by("10.1.2.3", port)]);
    }
    let peers = tracker.torrent(Tick(0), &InfoHash([1; 20]), 1000).unwrap().peers;
    assert_eq!(peers.len(), usize::from(caps), "no cap for exempt peers");
    let is_external = |peer: &PeerInfo| peer.address.unwrap().ip() == IpAddr::from([8, 8, 8, 8]);
    assert!(peers.iter().all(is_external));
    // Two hosts with the same port cannot both be reached at one address.
    announce(&tracker, &[by("10.1.2.4", 1)]);
    assert_eq!(tracker.totals().v4.leechers, u64::from(caps));
    announce(&tracker, &[stop(by("10.1.2.3", 1))]);
    assert_eq!(tracker.totals().v4.leechers, u64::from(caps) - 1);
    // Bans hold for the address that they announce from.
    let banned = tracker.bans().put(&[("10.1.2.0/24".parse().unwrap(), None)]);
    let view = tracker.view(Tick(0));
    let listener = ListenerPolicyId(0);
    let from =
        |ip: &str| view.authorize(listener, ip.parse().unwrap(), RequestKind::Announce, None);
    assert_eq!((banned, from("10.1.2.3").err()), (1, Some(Refusal::Banned)));
    assert!(from("10.1.3.3").is_ok() && from("8.8.8.8").is_ok());
}

//= bep31#retry-in
//= type=test
#[test]
fn early_announce_is_served_after_the_wait_it_was_told() {
    for interval_min_s in [1, 15, 47, 60, 100, 300] {
        let policy = Policy { interval_min_s, enforce_interval_min: true, ..Policy::default() };
        let tracker = tracker(policy);
        let mut port = 0;
        // Returns the answer to a new peer that announces at `start` and again `after_s` later.
        let mut again = |start: u32, after_s: u32| {
            port += 1;
            let request = with(|announce| (announce.event, announce.port) = (Event::None, port));
            let answer = [start, start + after_s].map(|now| {
                announce_by(&tracker.view(Tick(now)), &mut Random::new(1), &[request]).answers[0].1
            });
            assert!(answer[0].is_ok());
            answer[1]
        };
        for (start, after_s) in
            (0..16).flat_map(|start| (0..interval_min_s).map(move |s| (start, s)))
        {
            match again(start, after_s) {
                Err(Refusal::TooSoon { wait_min }) => {
                    assert!(after_s + 15 < interval_min_s, "{after_s} of {interval_min_s}");
                    let waited_s = after_s + 60 * u32::from(wait_min);
                    assert!(waited_s < interval_min_s + 76, "{wait_min} min more than {after_s} s");
                    assert!(again(start, waited_s).is_ok(), "{after_s} s and {wait_min} min");
                }
                answer => {
                    answer.unwrap();
                    assert!(after_s + 47 > interval_min_s, "{after_s} of {interval_min_s}");
                }
            }
        }
    }
}

#[test]
fn events_are_never_too_soon_and_refusals_change_nothing() {
    let tracker = tracker(Policy { enforce_interval_min: true, ..Policy::default() });
    let is_refused = |event, left| {
        let request = with(|announce| (announce.event, announce.left) = (event, left));
        let refused = announce(&tracker, &[request]).answers[0].1.is_err();
        assert_eq!(tracker.totals().torrents, 1);
        refused
    };
    let (some, none) = (Some(9), Some(0));
    assert!(!is_refused(Event::Started, some) && !is_refused(Event::Started, some));
    assert!(is_refused(Event::None, some) && !is_refused(Event::Paused, some));
    assert!(is_refused(Event::Paused, some) && !is_refused(Event::None, some));
    assert!(!is_refused(Event::Completed, none) && !is_refused(Event::Completed, none));
    assert!(is_refused(Event::None, none));
    assert_eq!((tracker.totals().v4.seeders, tracker.totals().downloads), (1, 1));
    assert!(!is_refused(Event::Stopped, none) && !is_refused(Event::None, none));
    tracker.reconfigure(&Policy::default());
    assert!(!is_refused(Event::None, none));
}
