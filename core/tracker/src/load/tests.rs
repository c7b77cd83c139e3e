//! Budgets through the tracker, and the controller alone. A day of clients is simulated in `tests/load_day.rs`.

use std::net::IpAddr;

use types::{InfoHash, PeerId, Tick};

use super::*;
use crate::tests::{POLICY, announce_by, leecher, tracker};
use crate::{AnnounceRequest, Credentials, ListenerPolicyId, Random, UnverifiedGrant};

const NOW: Tick = Tick(100);

fn authorize(tracker: &Tracker, now: Tick, announce: Announce) -> Option<Refusal> {
    let from = IpAddr::from([192, 0, 2, 1]);
    let view = tracker.view(now);
    let (policy, credentials) = (ListenerPolicyId(0), Credentials::default());
    let admitted = view.authorize_announce(policy, from, credentials, || Ok(announce));
    admitted.err()
}

fn announce_known(tracker: &Tracker, hash: InfoHash) {
    let grant = UnverifiedGrant::unchecked(ListenerPolicyId(0), IpAddr::from([8, 8, 8, 8]));
    let announce = leecher(hash, 1);
    let request = AnnounceRequest { grant, via_local_address: false, announce, policy: POLICY };
    announce_by(&tracker.view(Tick(1)), &mut Random::new(1), &[request]);
}

fn gates(limits: ServiceGate) -> [ServiceGate; SERVICES] {
    let mut gates = [ServiceGate::default(); SERVICES];
    gates[Service::Udp4.index()] = limits;
    gates
}

#[test]
fn announces_over_the_budget_are_quiet_and_stops_are_served() {
    let tracker = tracker(Policy::default());
    let limits = ServiceGate { announces_per_s: 2, ..ServiceGate::default() };
    let stretch_max = Stretch(3000);
    tracker.pace(&Pacing { gates: gates(limits), stretch_max, ..Pacing::default() });
    let hash = InfoHash([1; 20]);
    let refusals: Vec<_> =
        (0..3).map(|peer| authorize(&tracker, NOW, leecher(hash, peer))).collect();
    assert_eq!(refusals, [None, None, Some(Refusal::OverBudget { interval_s: 5400 })]);
    let stop = Announce { event: Event::Stopped, ..leecher(hash, 1) };
    assert_eq!(authorize(&tracker, NOW, stop), None);
    assert_eq!(tracker.over_budget()[Service::Udp4.index()], 1);
    let quiet = tracker.view(NOW).quiet_response(Refusal::OverBudget { interval_s: 5400 });
    let quiet = quiet.expect("it is always quiet");
    assert_eq!((quiet.interval_s, quiet.interval_min_s, quiet.warning), (5400, 5400, None));
    // Other services have no budget.
    let from = IpAddr::from([192, 0, 2, 1]);
    let view = tracker.view_of(Service::Http4, NOW);
    let announce = || Ok(leecher(hash, 1));
    let http = view.authorize_announce(ListenerPolicyId(0), from, Credentials::default(), announce);
    assert!(http.is_ok());
}

#[test]
fn known_torrents_come_before_new_ones() {
    let tracker = tracker(Policy::default());
    let limits = ServiceGate { bytes: BytesLeft::Few, ..ServiceGate::default() };
    tracker.pace(&Pacing { gates: gates(limits), ..Pacing::default() });
    let [known, new] = [1, 2].map(|byte| InfoHash([byte; 20]));
    announce_known(&tracker, known);
    assert_eq!(authorize(&tracker, NOW, leecher(known, 2)), None);
    let refusal = authorize(&tracker, NOW, leecher(new, 2));
    assert_eq!(refusal, Some(Refusal::OverBudget { interval_s: 1800 }));
    tracker.pace(&Pacing {
        gates: gates(ServiceGate { bytes: BytesLeft::None, ..limits }),
        ..Pacing::default()
    });
    assert!(authorize(&tracker, NOW, leecher(known, 2)).is_some(), "no bytes are left");
}

#[test]
fn clients_over_the_budget_do_not_return_together() {
    let policy = Policy { interval_jitter_s: 90, ..Policy::default() };
    let tracker = tracker(policy);
    let limits = ServiceGate { bytes: BytesLeft::None, ..ServiceGate::default() };
    tracker.pace(&Pacing { gates: gates(limits), ..Pacing::default() });
    let intervals: std::collections::BTreeSet<u32> = (0..100)
        .filter_map(|peer| {
            let announce =
                Announce { peer_id: PeerId([peer; 20]), ..leecher(InfoHash([1; 20]), 1) };
            match authorize(&tracker, NOW, announce)? {
                Refusal::OverBudget { interval_s } => Some(interval_s),
                other => panic!("unexpected: {other:?}"),
            }
        })
        .collect();
    assert!(intervals.len() > 30, "{intervals:?}");
    assert!(intervals.iter().all(|seconds| (1800..=1890).contains(seconds)), "{intervals:?}");
}

#[test]
fn lifetimes_and_minima_follow_the_intervals_also_through_a_reload() {
    let policy = Policy::default();
    let tracker = tracker(policy);
    assert_eq!(tracker.settings().lifetimes(), PeerLifetimes { peer_s: 2700, web_s: 180 });
    let mut stretch = [Stretch::NONE; SERVICES];
    stretch[Service::Http6.index()] = Stretch(2000);
    stretch[Service::Ws4.index()] = Stretch(1500);
    tracker.pace(&Pacing {
        stretch,
        lifetime: Stretch(2000),
        web_lifetime: Stretch(1500),
        ..Pacing::default()
    });
    let check = |interval_s: u32| {
        let settings = tracker.settings();
        let http = settings.interval(Service::Http6);
        assert_eq!((http.interval_s, http.min_s), (2 * interval_s, 1800));
        assert_eq!(settings.interval(Service::Udp4).interval_s, interval_s);
        assert_eq!(settings.interval(Service::Ws4).interval_s, 180);
        assert_eq!(settings.lifetimes(), PeerLifetimes { peer_s: 5400, web_s: 270 });
    };
    check(1800);
    tracker.reconfigure(&Policy { interval_s: 1900, ..policy });
    check(1900);
    // A peer that announced at the longer interval is still there when it returns.
    let hash = InfoHash([1; 20]);
    announce_known(&tracker, hash);
    let peers = |tracker: &Tracker| {
        let mut counts = [SwarmCounts::default()];
        tracker.store().scrape(&[hash], &mut counts);
        counts[0].leechers()
    };
    (0..4).for_each(|_| tracker.sweep(Tick(4000), 1));
    assert_eq!(peers(&tracker), 1);
    tracker.pace(&Pacing::default());
    (0..4).for_each(|_| tracker.sweep(Tick(4000), 1));
    assert_eq!(peers(&tracker), 0);
}

fn rules(budgets: &[(Service, Budget)]) -> LoadRules {
    let policy = Policy::default();
    let mut rules = LoadRules {
        interval_s: Service::ALL.map(|service| policy.interval(service, Stretch::NONE).interval_s),
        stretch_max: Stretch(3000),
        cpu_percent: 70,
        budgets: Default::default(),
        lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keeps_longest: false,
    };
    for (service, budget) in budgets {
        rules.budgets[service.index()] = *budget;
    }
    rules
}

fn time(seconds: u64, unix_s: u64) -> LoadTime {
    LoadTime { steady_ms: seconds * 1000, unix_s }
}

#[test]
fn bytes_are_counted_by_days_of_utc_also_when_the_clock_jumps() {
    let budget = Budget { bytes_per_day: 1000, ..Budget::default() };
    let rules = rules(&[(Service::Https4, budget)]);
    let midnight = 20_000 * 86_400;
    let mut controller = Controller::new(&rules, time(0, midnight - 30));
    let at = Service::Https4.index();
    let mut measured = LoadMeasured::default();
    measured.bytes[at] = 300;
    let mut step = |steady_s, unix_s| {
        let gates = controller.step(&rules, time(steady_s, unix_s), &measured).gates;
        let bytes = controller.services(&rules)[at].bytes_today;
        (bytes, gates[at].bytes)
    };
    assert_eq!(step(10, midnight - 20), (300, BytesLeft::Enough));
    assert_eq!(step(20, midnight - 10), (600, BytesLeft::Enough));
    assert_eq!(step(30, midnight), (300, BytesLeft::Enough), "a new day");
    // Set back to the day before: no fresh budget.
    assert_eq!(step(40, midnight - 3600), (600, BytesLeft::Enough));
    assert_eq!(step(50, midnight - 3590), (900, BytesLeft::Enough));
    assert_eq!(step(60, midnight - 3580), (1200, BytesLeft::None));
    // Set forward by a year, and back: the count continues.
    let year = 365 * 86_400;
    assert_eq!(step(70, midnight + year), (300, BytesLeft::Enough));
    assert_eq!(step(80, midnight + 10), (600, BytesLeft::Enough));
    assert_eq!(step(90, midnight + 20), (900, BytesLeft::Enough));
    // 970 of 1000: what is left is for known torrents.
    measured.bytes[at] = 70;
    let gates = controller.step(&rules, time(100, midnight + 30), &measured).gates;
    assert_eq!(gates[at].bytes, BytesLeft::Few);
}

#[test]
fn a_process_continues_the_bytes_of_the_one_before_on_the_same_day() {
    let rules = rules(&[(Service::Udp6, Budget { bytes_per_day: 1000, ..Budget::default() })]);
    let noon = 20_000 * 86_400 + 43_200;
    let mut before = Controller::new(&rules, time(0, noon));
    let at = Service::Udp6.index();
    let mut measured = LoadMeasured::default();
    measured.bytes[at] = 600;
    before.step(&rules, time(10, noon), &measured);
    let left = before.bytes_of_day();
    assert_eq!((left.day, left.bytes[at]), (20_000, 600));
    let bytes_at = |unix_s| {
        let mut after = Controller::new(&rules, time(0, unix_s));
        after.resume(&left);
        // An upgrade reads what the old process left twice: nothing counts twice.
        after.resume(&left);
        let gates = after.step(&rules, time(10, unix_s), &measured).gates;
        (after.services(&rules)[at].bytes_today, gates[at].bytes)
    };
    assert_eq!(bytes_at(noon + 60), (1200, BytesLeft::None));
    assert_eq!(bytes_at(noon + 86_400), (600, BytesLeft::Enough), "the day after");
    assert_eq!(bytes_at(noon - 86_400), (1200, BytesLeft::None), "a clock that was set back");
}

#[test]
fn an_idle_tracker_keeps_its_intervals_and_its_lifetimes_after_the_first_hours() {
    let budget = Budget { announces_per_s: 100, bytes_per_day: 1 << 40 };
    let rules = rules(&[(Service::Udp4, budget)]);
    let mut controller = Controller::new(&rules, time(0, 0));
    let mut measured = LoadMeasured { cpu: [Some(0.01); 2], ..LoadMeasured::default() };
    measured.answered[0] = 20;
    measured.bytes[0] = 2000;
    let mut pacing = Pacing::default();
    for step in 1..=2000_u64 {
        pacing = controller.step(&rules, time(10 * step, 10 * step), &measured);
        assert_eq!(pacing.stretch, [Stretch::NONE; SERVICES]);
        let expected = if 10 * step <= 6 * 2700 { Stretch(6000) } else { Stretch::NONE };
        assert_eq!(pacing.lifetime, expected, "after {} s", 10 * step);
    }
    assert_eq!(pacing.web_lifetime, Stretch::NONE);
}

#[test]
fn only_the_workers_that_are_busy_get_longer_intervals() {
    let rules = rules(&[]);
    let mut controller = Controller::new(&rules, time(0, 0));
    let mut measured = LoadMeasured { cpu: [Some(0.2), Some(0.95)], ..LoadMeasured::default() };
    measured.answered = [1000; SERVICES];
    let mut pacing = Pacing::default();
    for step in 1..=2000 {
        pacing = controller.step(&rules, time(10 * step, 0), &measured);
    }
    assert_eq!(pacing.stretch[Service::Udp4.index()], Stretch::NONE);
    // These clients heed no interval, so it grows to its maximum.
    assert_eq!(pacing.stretch[Service::Https6.index()], Stretch(3000));
    assert_eq!(pacing.lifetime, Stretch(3000));
    let cluster = LoadRules { keeps_longest: true, ..rules };
    let idle =
        Controller::new(&cluster, time(0, 0)).step(&cluster, time(10, 0), &LoadMeasured::default());
    assert_eq!((idle.stretch[0], idle.lifetime), (Stretch::NONE, Stretch(3000)));
}
