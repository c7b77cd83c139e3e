//! The tracker's decisions, over the real store.

use std::net::IpAddr;

use super::*;
use access::{AccessLists, HashList, Mode};
use types::{Families, NumWant};

/// Collects answers as plain values.
#[derive(Default)]
struct Seen {
    answers: Vec<(usize, Result<AnnounceOk, Refusal>)>,
    peers: Vec<(usize, PeerKey)>,
    ids: Vec<PeerId>,
}

impl AnnounceSink for Seen {
    fn accept(&mut self, slot: u8, accepted: &AnnounceOk) {
        self.answers.push((slot.into(), Ok(*accepted)));
    }
    fn refuse(&mut self, slot: u8, refusal: Refusal) {
        self.answers.push((slot.into(), Err(refusal)));
    }
}

impl PeerSink for Seen {
    fn peers_v4(&mut self, slot: u8, peers: &[PackedV4]) {
        self.peers.extend(peers.iter().map(|peer| (slot.into(), peer.key())));
    }
    fn peers_v6(&mut self, slot: u8, peers: &[PackedV6]) {
        self.peers.extend(peers.iter().map(|peer| (slot.into(), peer.key())));
    }
    fn peer_with_id(&mut self, slot: u8, peer: PeerKey, id: PeerId) {
        self.peers.push((slot.into(), peer));
        self.ids.push(id);
    }
}

const POLICY: AnnouncePolicy = AnnouncePolicy {
    peers_max: 100,
    families: Families::Own,
    with_ids: false,
    with_downloads: true,
};

pub(crate) fn tracker(policy: Policy) -> Tracker {
    let store = swarm::Options {
        shards: 4,
        hash_key: [3; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids: true,
        memory_budget: None,
    };
    Tracker::new(
        &Options { policy, store },
        &Secrets {
            connection_ids: [5; 16],
            offers: [6; 16],
            limits: [7; 16],
            sessions: [8; 16],
            previous: None,
        },
    )
}

fn request(host: u8, hash: u8) -> AnnounceRequest {
    AnnounceRequest {
        grant: UnverifiedGrant::unchecked(ListenerPolicyId(0), [10, 0, 0, host].into()),
        via_local_address: true,
        announce: Announce {
            info_hash: InfoHash([hash; 20]),
            peer_id: PeerId([host; 20]),
            port: 6881,
            event: Event::Started,
            left: Some(1),
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Default,
        },
        policy: POLICY,
    }
}

/// Sets the lists of the only listener.
fn set_lists(tracker: &Tracker, lists: AccessLists) {
    tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { lists, ..ListenerPolicy::default() }]);
}

#[test]
fn listener_without_keys_refuses_a_key() {
    let tracker = tracker(Policy::default());
    let (listener_policy, from) = (ListenerPolicyId(0), [10, 0, 0, 1].into());
    let view = tracker.view(Tick(0));
    let authorize = |key| view.authorize(listener_policy, from, RequestKind::Announce, key).err();
    assert_eq!(authorize(None), None);
    assert_eq!(authorize(Some(b"k")), Some(Refusal::KeyUnexpected));
}

#[test]
fn frozen_torrent_refuses_announces_and_keeps_its_peers() {
    let tracker = crowd(Policy::default());
    let (one, two) = (InfoHash([1; 20]), InfoHash([2; 20]));
    assert!(tracker.freeze(&one, true) && tracker.freeze(&one, true));
    let refused = announce(&tracker, &[request(61, 1), request(62, 2)]).answers;
    assert!(refused.contains(&(0, Err(Refusal::Frozen))));
    assert!(refused.iter().any(|(at, answer)| *at == 1 && answer.is_ok()));
    let mut counts = [SwarmCounts::default()];
    scrape(&tracker, 0, &[one], &mut counts).unwrap();
    assert_eq!(counts[0].leechers(), 60);
    let details = tracker.torrent(Tick(1), &one, 7).unwrap();
    assert_eq!((details.frozen, details.stats.counts, details.peers.len()), (true, counts[0], 7));
    assert!(!tracker.torrent(Tick(1), &two, 7).unwrap().frozen);
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

#[test]
fn event_stream_reports_torrents() {
    let tracker = tracker(Policy::default());
    let event_stream = tracker.event_stream();
    event_stream.listen();
    announce(&tracker, &[request(1, 1)]);
    assert!(tracker.remove_torrent(&InfoHash([1; 20])));
    let mut events_seen = Vec::new();
    assert_eq!(event_stream.take(&mut events_seen), 0);
    let hash = InfoHash([1; 20]);
    assert_eq!(
        events_seen,
        [events::TorrentEvent::Added(hash), events::TorrentEvent::Removed(hash)]
    );
    event_stream.stop();
    announce(&tracker, &[request(1, 1)]);
    assert_eq!((event_stream.take(&mut events_seen), events_seen.len()), (0, 2));
}

fn announce(tracker: &Tracker, requests: &[AnnounceRequest]) -> Seen {
    let mut seen = Seen::default();
    tracker.view(Tick(1)).announce(&mut Random::new(1), requests, &mut seen);
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
    let low = Policy { numwant_default: 50, numwant_max: 7, ..policy };
    tracker.reconfigure(&low);
    assert_eq!(peers_for(&tracker, NumWant::Default), 7);
}

#[test]
fn protocol_caps_peers() {
    let tracker = crowd(Policy::default());
    let mut capped = with(|_| ());
    capped.policy.peers_max = 3;
    assert_eq!(announce(&tracker, &[capped]).peers.len(), 3);
}

//= bep15#announce-stopped
//= type=test
//= bep3#announce-stopped
//= type=test
#[test]
fn stopped_leaves_and_gets_no_peers() {
    let tracker = crowd(Policy::default());
    let seen = announce(&tracker, &[AnnounceRequest { ..request(1, 1) }]);
    assert_eq!(seen.peers.len(), 50);
    let mut leaving = request(1, 1);
    leaving.announce.event = Event::Stopped;
    let seen = announce(&tracker, &[leaving]);
    assert!(seen.peers.is_empty());
    let counts = seen.answers[0].1.unwrap().chosen.counts;
    assert_eq!((counts.seeders(), counts.leechers()), (0, 59));
}

#[test]
fn counts_include_the_announcing_peer() {
    let tracker = tracker(Policy::default());
    let counts = announce(&tracker, &[request(1, 1)]).answers[0].1.unwrap().chosen.counts;
    assert_eq!((counts.seeders(), counts.leechers()), (0, 1));
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
        assert!(peers.iter().all(|(_, peer)| *peer != own));
    }
}

#[test]
fn refusals_do_not_affect_the_rest_of_the_batch() {
    let tracker = crowd(Policy::default());
    let deny = Arc::new([InfoHash([2; 20])].into_iter().collect::<HashList>());
    set_lists(&tracker, AccessLists { mode: Mode::Deny, deny, ..AccessLists::default() });
    let batch =
        [with(|a| a.port = 0), request(1, 2), request(70, 1), with(|a| a.port = 0), request(71, 3)];
    let seen = announce(&tracker, &batch);
    let mut refused: Vec<_> = seen
        .answers
        .iter()
        .filter_map(|(request, answer)| Some((*request, answer.err()?)))
        .collect();
    refused.sort_by_key(|(request, _)| *request);
    let expected = [(0, Refusal::PortZero), (1, Refusal::Denied), (3, Refusal::PortZero)];
    assert_eq!(refused, expected);
    let mut served: Vec<_> = seen
        .answers
        .iter()
        .filter_map(|(request, answer)| answer.is_ok().then_some(*request))
        .collect();
    served.sort_unstable();
    assert_eq!(served, [2, 4]);
    assert!(seen.peers.iter().all(|(request, _)| *request == 2));
    assert_eq!(seen.peers.len(), 50);
}

#[test]
fn lists_hold_for_scrapes_too() {
    let tracker = crowd(Policy::default());
    announce(&tracker, &[request(1, 2)]);
    let hashes = [InfoHash([1; 20]), InfoHash([2; 20]), InfoHash([9; 20])];
    let mut counts = [SwarmCounts::default(); 3];
    assert_eq!(scrape(&tracker, 0, &hashes, &mut counts), Ok(()));
    assert_eq!(counts.map(|count| count.leechers()), [60, 1, 0]);

    let allow = Arc::new([hashes[1]].into_iter().collect::<HashList>());
    set_lists(&tracker, AccessLists { mode: Mode::Allow, allow, ..AccessLists::default() });
    assert_eq!(scrape(&tracker, 0, &hashes, &mut counts), Ok(()));
    assert_eq!(counts.map(|count| count.leechers()), [0, 1, 0]);
    let only_refused = scrape(&tracker, 0, &hashes[..1], &mut counts[..1]);
    assert_eq!(only_refused, Err(Refusal::NotAllowed));
}

#[test]
fn jitter_is_added_to_the_interval() {
    let policy =
        Policy { interval_s: 100, interval_min_s: 50, interval_jitter_s: 10, ..Policy::default() };
    let tracker = tracker(policy);
    let mut random = Random::new(7);
    let mut intervals = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let mut seen = Seen::default();
        tracker.view(Tick(1)).announce(&mut random, &[request(1, 1)], &mut seen);
        let accepted = seen.answers[0].1.unwrap();
        assert_eq!(accepted.interval_min_s, 50);
        intervals.insert(accepted.interval_s);
    }
    assert_eq!(intervals, (100..=110).collect());
}

#[test]
fn answers_of_a_batch_have_intervals_of_their_own() {
    let policy = Policy { interval_s: 100, interval_jitter_s: 9, ..Policy::default() };
    let tracker = tracker(policy);
    let mut random = Random::new(7);
    let requests: Vec<AnnounceRequest> = (1..=50).map(|port| request(1, port)).collect();
    let mut totals = [0_u32; 10];
    for _ in 0..100 {
        let mut seen = Seen::default();
        tracker.view(Tick(1)).announce(&mut random, &requests, &mut seen);
        for (_, answer) in &seen.answers {
            totals[answer.unwrap().interval_s as usize - 100] += 1;
        }
    }
    // 5,000 answers: 500 of each interval, give or take.
    assert!(totals.iter().all(|count| (400..600).contains(count)), "{totals:?}");
}

#[test]
fn websocket_intervals_have_the_same_share_of_jitter() {
    let intervals = |policy: Policy| {
        let mut random = Random::new(7);
        let all = (0..2000).map(|_| policy.jittered_websocket_interval_s(&mut random));
        let all: std::collections::BTreeSet<u32> = all.collect();
        (all.first().copied().unwrap(), all.last().copied().unwrap())
    };
    let policy = Policy { interval_s: 1800, websocket_interval_s: 120, ..Policy::default() };
    assert_eq!(intervals(policy), (120, 120));
    assert_eq!(intervals(Policy { interval_jitter_s: 180, ..policy }), (120, 132));
    // Never more than a quarter: peers expire after one and a half intervals.
    assert_eq!(intervals(Policy { interval_jitter_s: 86_400, ..policy }), (120, 150));
}

#[test]
fn ids_are_included_on_request() {
    let tracker = crowd(Policy::default());
    let mut dict = with(|_| ());
    dict.policy.with_ids = true;
    let seen = announce(&tracker, &[dict]);
    assert_eq!(seen.ids.len(), 50);
    for ((_, peer), id) in seen.peers.iter().zip(&seen.ids) {
        let IpAddr::V4(ip) = peer.socket_addr().ip() else { panic!("a v4 swarm") };
        assert_eq!(*id, PeerId([ip.octets()[3]; 20]));
    }
}

#[test]
fn peers_beside_the_tracker_are_given_under_its_public_address() {
    let tracker = tracker(Policy::default());
    let external = ExternalAddress {
        v4: Some([8, 8, 8, 8].into()),
        v6: None,
        networks: Networks::parse(["10.0.0.0/8"]).unwrap(),
    };
    let external = Some(Arc::new(external));
    tracker.listener_policies().replace(vec![ListenerPolicy { external, ..Default::default() }]);
    // The limits know them by their own addresses.
    let exempt = Networks::parse(["10.0.0.0/8"]).unwrap();
    tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    let by = |from: &str, port| {
        let grant = UnverifiedGrant::unchecked(ListenerPolicyId(0), from.parse().unwrap());
        let mut request = AnnounceRequest { grant, via_local_address: false, ..request(1, 1) };
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
    let mut stop = by("10.1.2.3", 1);
    stop.announce.event = Event::Stopped;
    announce(&tracker, &[stop]);
    assert_eq!(tracker.totals().v4.leechers, u64::from(caps) - 1);
    // Bans hold for the address that they announce from.
    let banned = tracker.bans().put(&[("10.1.2.0/24".parse().unwrap(), None)]);
    let view = tracker.view(Tick(0));
    let listener = ListenerPolicyId(0);
    let from =
        |ip: &str| view.authorize(listener, ip.parse().unwrap(), RequestKind::Announce, None);
    assert_eq!((banned, from("10.1.2.3").err()), (1, Some(Refusal::Banned)));
    assert!(from("10.1.3.3").is_ok() && from("8.8.8.8").is_ok());
    assert_eq!(view.peer_ip(listener, [10, 9, 9, 9].into()), IpAddr::from([8, 8, 8, 8]));
    assert_eq!(view.peer_ip(listener, [1, 1, 1, 1].into()), IpAddr::from([1, 1, 1, 1]));
}

#[test]
fn policy_decides_about_addresses_that_are_not_public() {
    use PrivateAddresses::{Allow, Auto, Deny};
    let refused = |private_addresses, from: &str, via_local_address| {
        let tracker = tracker(Policy::default());
        tracker
            .listener_policies()
            .replace(vec![ListenerPolicy { private_addresses, ..ListenerPolicy::default() }]);
        let grant = UnverifiedGrant::unchecked(ListenerPolicyId(0), from.parse().unwrap());
        let request = AnnounceRequest { grant, via_local_address, ..request(1, 1) };
        let refused =
            announce(&tracker, &[request]).answers == [(0, Err(Refusal::AddressNotPublic))];
        assert_eq!(tracker.totals().torrents, u64::from(!refused));
        refused
    };
    for address in ["10.0.0.1", "127.0.0.1", "169.254.1.1", "fd00::1", "fe80::1", "192.0.2.1"] {
        for (policy, via_local_address) in [(Auto, true), (Allow, true), (Allow, false)] {
            assert!(
                !refused(policy, address, via_local_address),
                "{address} by {policy:?}, {via_local_address}"
            );
        }
        for (policy, via_local_address) in [(Auto, false), (Deny, true), (Deny, false)] {
            assert!(
                refused(policy, address, via_local_address),
                "{address} by {policy:?}, {via_local_address}"
            );
        }
    }
    for (policy, via_local_address) in [(Auto, true), (Auto, false), (Allow, true), (Deny, false)] {
        for address in ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(
                !refused(policy, address, via_local_address),
                "{address} by {policy:?}, {via_local_address}"
            );
        }
        for address in ["224.0.0.1", "ff02::1", "0.0.0.0", "::", "255.255.255.255"] {
            assert!(
                refused(policy, address, via_local_address),
                "{address} by {policy:?}, {via_local_address}"
            );
        }
    }
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
                let mut seen = Seen::default();
                tracker.view(Tick(now)).announce(&mut Random::new(1), &[request], &mut seen);
                seen.answers.remove(0).1
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

#[test]
fn each_listener_has_its_own_lists_and_addresses() {
    let tracker = tracker(Policy::default());
    let deny: Arc<HashList> = Arc::new([InfoHash([1; 20])].into_iter().collect());
    let lists = AccessLists { mode: Mode::Deny, deny, ..AccessLists::default() };
    let strict = ListenerPolicy {
        lists,
        private_addresses: PrivateAddresses::Deny,
        ..ListenerPolicy::default()
    };
    tracker.listener_policies().replace(vec![ListenerPolicy::default(), strict]);
    let by = |listener_policy, hash, from: &str| {
        let listener_policy = ListenerPolicyId(listener_policy);
        let grant = UnverifiedGrant::unchecked(listener_policy, from.parse().unwrap());
        AnnounceRequest { grant, ..request(1, hash) }
    };
    let public = "8.8.8.8";
    let requests = [by(0, 1, public), by(1, 1, public), by(1, 2, public), by(1, 2, "10.0.0.1")];
    let mut seen = announce(&tracker, &requests).answers;
    seen.sort_by_key(|(at, _)| *at);
    let refusals: Vec<_> = seen.into_iter().map(|(_, answer)| answer.err()).collect();
    let expected = [None, Some(Refusal::Denied), None, Some(Refusal::AddressNotPublic)];
    assert_eq!(refusals, expected, "in one batch");
    let mut counts = [SwarmCounts::default()];
    let mut by = |listener| scrape(&tracker, listener, &[InfoHash([1; 20])], &mut counts);
    assert_eq!([by(0), by(1)], [Ok(()), Err(Refusal::Denied)]);
}

#[test]
fn private_listeners_require_a_key_for_every_kind_of_request() {
    let tracker = tracker(Policy::default());
    let private = ListenerPolicy { private: true, ..ListenerPolicy::default() };
    tracker.listener_policies().replace(vec![ListenerPolicy::default(), private]);
    let key = UserKey::parse("0123456789abcdef").unwrap();
    tracker.passkeys().put(KeyId(5), key, KeyRules { torrents: 1, ..KeyRules::default() });
    let admit = |listener_policy, asked, key| {
        let view = tracker.view(Tick(0));
        view.authorize(ListenerPolicyId(listener_policy), [8; 4].into(), asked, key)
    };
    for asked in [RequestKind::Announce, RequestKind::Scrape, RequestKind::Other] {
        assert_eq!(admit(1, asked, None), Err(Refusal::KeyMissing));
        assert_eq!(admit(1, asked, Some(b"0123456789abcdeg")), Err(Refusal::KeyUnknown));
        assert_eq!(admit(0, asked, Some(key.as_bytes())), Err(Refusal::KeyUnexpected));
        assert!(admit(0, asked, None).is_ok() && admit(1, asked, Some(key.as_bytes())).is_ok());
    }
    let grant = |key: &str| {
        let (from, kind) = ([10, 0, 0, 1].into(), RequestKind::Announce);
        let view = tracker.view(Tick(0));
        view.authorize_unverified(ListenerPolicyId(1), from, kind, Some(key.as_bytes())).unwrap()
    };
    let by = |hash| AnnounceRequest { grant: grant(key.as_str()), ..request(1, hash) };
    let mut guess = AnnounceRequest { grant: grant("0123456789abcdeg"), ..request(1, 1) };
    guess.announce.port = 0;
    let answers = announce(&tracker, &[guess]).answers;
    assert_eq!(answers, [(0, Err(Refusal::KeyUnknown))], "whatever else is wrong");
    let stop = |hash| {
        let mut stop = by(hash);
        stop.announce.event = Event::Stopped;
        stop
    };
    let requests = [by(1), by(2), by(1), stop(1), by(2), request(1, 3)];
    let mut seen = announce(&tracker, &requests).answers;
    seen.sort_by_key(|(at, _)| *at);
    let refusals: Vec<_> = seen.into_iter().map(|(_, answer)| answer.err()).collect();
    assert_eq!(
        refusals,
        [None, Some(Refusal::KeyTorrents), None, None, None, None],
        "in one batch"
    );
    let mut totals = Vec::new();
    tracker.passkeys().take_totals(&mut totals);
    assert_eq!((totals[0].0, totals[0].1.announces), (KeyId(5), 4));
    tracker.passkeys().remove(KeyId(5));
    assert_eq!(announce(&tracker, &[by(2)]).answers, [(0, Err(Refusal::KeyUnknown))], "at once");
}

#[test]
fn sessions_expire_with_their_peers() {
    let tracker = tracker(Policy { peer_lifetime_s: 100, ..Policy::default() });
    tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { private: true, ..ListenerPolicy::default() }]);
    let key = UserKey::parse("0123456789abcdef").unwrap();
    tracker.passkeys().put(KeyId(5), key, KeyRules { torrents: 1, ..KeyRules::default() });
    let at = |now, hash| {
        let (from, kind, view) = ([8; 4].into(), RequestKind::Announce, tracker.view(Tick(now)));
        let key = Some(key.as_bytes());
        let grant = view.authorize_unverified(ListenerPolicyId(0), from, kind, key).unwrap();
        let mut seen = Seen::default();
        let request = AnnounceRequest { grant, ..request(1, hash) };
        view.announce(&mut Random::new(1), &[request], &mut seen);
        seen.answers.remove(0).1.err()
    };
    assert_eq!([at(0, 1), at(50, 2)], [None, Some(Refusal::KeyTorrents)]);
    let sweep = |now| (0..20).for_each(|_| tracker.sweep(Tick(now), 20));
    sweep(100);
    assert_eq!((at(100, 2), tracker.passkeys().sessions()), (Some(Refusal::KeyTorrents), 1));
    sweep(101);
    assert_eq!((at(101, 2), tracker.passkeys().sessions()), (None, 1));
}

#[test]
fn live_entries_hold_for_every_listener_from_the_next_announce_on() {
    let tracker = tracker(Policy::default());
    let listener_policy = |mode| ListenerPolicy {
        lists: AccessLists { mode, ..AccessLists::default() },
        ..ListenerPolicy::default()
    };
    tracker
        .listener_policies()
        .replace([Mode::Open, Mode::Allow, Mode::Deny].map(listener_policy).to_vec());
    let torrent = InfoHash([1; 20]);
    let refusals = || {
        let by = |listener| {
            let from = [10, 0, 0, 1].into();
            let grant = UnverifiedGrant::unchecked(ListenerPolicyId(listener), from);
            AnnounceRequest { grant, ..request(1, 1) }
        };
        [0, 1, 2]
            .map(|listener_policy| announce(&tracker, &[by(listener_policy)]).answers[0].1.err())
    };
    let (no, bad) = (Some(Refusal::NotAllowed), Some(Refusal::Denied));
    assert_eq!(refusals(), [None, no, None]);
    tracker.allowed().insert(&[torrent]);
    assert_eq!(refusals(), [None, None, None]);
    tracker.denied().insert(&[torrent]);
    assert_eq!(refusals(), [None, None, bad]);
    let mut counts = [SwarmCounts::default()];
    assert_eq!(scrape(&tracker, 2, &[torrent], &mut counts), Err(Refusal::Denied));
    tracker.allowed().remove(&[torrent]);
    tracker.denied().remove(&[torrent]);
    assert_eq!(refusals(), [None, no, None]);
}

#[test]
fn downloads_at_other_nodes_count() {
    let tracker = tracker(Policy::default());
    let [listed, other] = [1, 2].map(|hash| InfoHash([hash; 20]));
    let lists = AccessLists {
        mode: Mode::Allow,
        allow: Arc::new([listed].into_iter().collect()),
        ..AccessLists::default()
    };
    let listening = ListenerPolicy { lists, ..ListenerPolicy::default() };
    tracker.listener_policies().replace(vec![ListenerPolicy::default(), listening]);
    let from = |host| [203, 0, 113, host].into();
    tracker.count_replicated_download(&listed, from(1));
    assert_eq!(tracker.downloads().of(&listed), 0, "off");
    tracker.downloads().enable();
    for _ in 0..3 {
        tracker.count_replicated_download(&listed, from(1));
        tracker.count_replicated_download(&other, from(1));
    }
    assert_eq!([listed, other].map(|hash| tracker.downloads().of(&hash)), [3, 0]);
}

#[test]
fn announces_do_not_count_downloads_that_are_replicated() {
    let tracker = tracker(Policy::default());
    let torrent = InfoHash([1; 20]);
    let lists =
        AccessLists { allow: Arc::new([torrent].into_iter().collect()), ..AccessLists::default() };
    tracker
        .listener_policies()
        .replace(vec![ListenerPolicy { lists, ..ListenerPolicy::default() }]);
    tracker.downloads().enable();
    let complete = |peer| {
        for event in [Event::Started, Event::Completed] {
            let mut request = request(1, peer);
            request.announce.event = event;
            announce(&tracker, &[request]);
        }
        tracker.downloads().of(&torrent)
    };
    assert_eq!(complete(1), 1);
    tracker.downloads().replicate();
    assert_eq!(complete(2), 1);
    tracker.count_replicated_download(&torrent, [203, 0, 113, 2].into());
    assert_eq!(tracker.downloads().of(&torrent), 2);
}

/// Merges a block of 20 peers of a host, and returns how many of them the tracker has.
fn merge_host(tracker: &Tracker, network: u8) -> usize {
    use swarm::block;
    let info_hash = InfoHash([1; 20]);
    let peers = (0..20).map(|port| block::Change {
        info_hash,
        peer: PeerKey::V4([20, 0, network, 1, 1, port]),
        word: block::Word::present(0, types::Role::Leecher, false),
        is_refresh: false,
    });
    let (mut body, mut bytes) = (Vec::new(), Vec::new());
    block::encode_changes(&peers.collect::<Vec<_>>(), &[], &mut body);
    let kind = block::Kind::CHANGES;
    let header = block::Header { kind, has_ids: false, node: 2, boot: 1, number: 1, cut_ms: 1 };
    block::write(&header, &body, &mut bytes);
    let (block, _) = block::Block::read(&bytes).unwrap();
    let time = swarm::MergeTime { now: Tick(0), cut_ago_s: 0, epoch_min: 0 };
    let (groups, store) = (block.groups().unwrap(), tracker.store());
    let counting = swarm::Counting::None;
    store.merge(time, counting, &mut Random::new(1), groups, 0..store.shards());
    store.peers_at(Tick(0), [20, 0, network, 1].into(), 100).len()
}

#[test]
fn peers_of_other_nodes_and_of_the_journal_keep_to_the_caps() {
    let tracker = tracker(Policy::default());
    assert_eq!(merge_host(&tracker, 1), limits::PEERS_PER_ADDRESS.into());
    let peer_caps = PeerCaps { per_address: 11, per_network: 64 };
    tracker.reconfigure(&Policy { peer_caps, ..Policy::default() });
    assert_eq!(merge_host(&tracker, 2), 11);
    let exempt = Networks::parse(["20.0.3.0/24"]).unwrap();
    tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    assert_eq!(merge_host(&tracker, 3), 20);
    assert_eq!(merge_host(&tracker, 4), 11);
}

#[test]
fn durable_download_counts_outlive_torrents() {
    let tracker = tracker(Policy { peer_lifetime_s: 100, ..Policy::default() });
    let torrent = InfoHash([1; 20]);
    let downloads = |now, event| {
        let mut seen = Seen::default();
        let mut request = request(1, 1);
        request.announce.event = event;
        tracker.view(Tick(now)).announce(&mut Random::new(1), &[request], &mut seen);
        let mut counts = [SwarmCounts::default()];
        scrape(&tracker, 0, &[torrent], &mut counts).unwrap();
        let [SwarmCounts { downloads, .. }] = counts;
        assert_eq!(seen.answers[0].1.unwrap().chosen.counts.downloads, downloads);
        downloads
    };
    let forget = |now| {
        (0..20).for_each(|_| tracker.sweep(Tick(now), 1));
        assert_eq!(tracker.totals().torrents, 0);
    };
    assert_eq!(downloads(0, Event::Completed), 1);
    let day = 24 * 3600;
    forget(day);
    assert_eq!(downloads(day, Event::Started), 0, "forgotten with the torrent");
    tracker.downloads().load([(torrent, 41)].into_iter());
    tracker.downloads().enable();
    assert_eq!(downloads(day, Event::Completed), 42);
    assert_eq!(downloads(day, Event::Completed), 42, "once for each peer");
    forget(2 * day);
    assert_eq!(downloads(2 * day, Event::Started), 42);
    let mut changed = Vec::new();
    tracker.downloads().take_changed(&mut changed);
    assert_eq!(changed, [(torrent, 42)]);
}

#[test]
fn exempt_networks_are_not_banned_automatically() {
    let tracker = tracker(Policy::default());
    let exempt = Networks::parse(["10.0.0.0/8"]).unwrap();
    tracker.limiter().replace(Limits { exempt, prefix_v4: 24, ..Limits::default() });
    tracker.bans().set_rules(BanRules { malformed_per_min: 1, time_s: 60, ..BanRules::default() });
    let [monitor, stranger] = ["10.0.0.1", "8.8.8.8"].map(|ip| ip.parse::<IpAddr>().unwrap());
    for from in [monitor, stranger] {
        (0..5).for_each(|_| tracker.view(Tick(0)).report_offence(from, BanReason::Malformed));
    }
    tracker.sweep(Tick(0), 1);
    let view = tracker.view(Tick(0));
    let admits =
        |from| view.authorize(ListenerPolicyId(0), from, RequestKind::Announce, None).err();
    assert_eq!([admits(monitor), admits(stranger)], [None, Some(Refusal::Banned)]);
    assert_eq!(view.authorize_connect(stranger), Err(Refusal::Banned));
    assert_eq!(admits("8.8.8.9".parse().unwrap()), Some(Refusal::Banned), "the prefix is");
    assert_eq!(admits("8.8.9.8".parse().unwrap()), None);
}
