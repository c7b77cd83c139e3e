//! Sessions that go from one process to the next.

use super::*;

/// Returns the time of an import, in seconds.
fn time(now: u32, cut_ago_s: u32, lifetime_s: u32) -> ImportTime {
    ImportTime { now: Tick(now), cut_ago_s, lifetime_s }
}

const EXACT: SessionOrigin = SessionOrigin::EarlierProcess { is_exact: true };

/// Exports the sessions of `old` and imports them into `new`. Returns how many were news.
pub(super) fn hand_over(old: &PasskeyStore, new: &PasskeyStore, now: Tick, lifetime_s: u32) -> u64 {
    let time = time(now.0, 0, lifetime_s);
    let bodies = bodies(old, now, SessionWalk::new(true)).into_iter();
    bodies.map(|body| new.import_sessions(time, EXACT, &body).unwrap()).sum()
}

fn reports(torrent: u8, peer: u8, host: u8, bytes: u64) -> TestReport {
    TestReport { bytes: (bytes, 2 * bytes), ..TestReport::new(torrent, peer, host) }
}

fn uploaded(store: &PasskeyStore) -> u64 {
    totals(store).get(&KeyId(1)).map_or(0, |totals| {
        assert_eq!(totals.downloaded, 2 * totals.uploaded);
        totals.uploaded
    })
}

/// Two processes with the same key.
fn processes(rules: KeyRules) -> [PasskeyStore; 2] {
    [(); 2].map(|()| process(rules, SessionLimits::default()))
}

fn process(rules: KeyRules, limits: SessionLimits) -> PasskeyStore {
    let store = store_with(limits);
    assert!(store.put(KeyId(1), key(1), rules));
    store
}

/// After a kill, sessions are older than what was counted.
#[test]
fn old_copies_hold_places_but_count_nothing() {
    let rules = bounded(1, 0);
    let [old, new] = processes(rules);
    let by = |store, torrent, bytes| {
        let report = TestReport { role: Role::Seeder, ..reports(torrent, 1, 1, bytes) };
        announce(store, Tick(10), &key(1), &report).err()
    };
    assert_eq!(by(&old, 1, 1000), None);
    let export = |is_last| {
        let mut body = Vec::new();
        assert!(old.export_sessions(Tick(10), &mut SessionWalk::new(is_last), 4096, &mut body));
        body
    };
    for (is_last, is_exact) in [(false, true), (true, false)] {
        let origin = SessionOrigin::EarlierProcess { is_exact };
        new.import_sessions(time(20, 0, 100), origin, &export(is_last)).unwrap();
    }
    assert_eq!(by(&new, 2, 0), Some(Refusal::KeyTorrents));
    assert_eq!((by(&new, 1, 5000), totals(&new)[&KeyId(1)].seeding_s), (None, 0));
    assert_eq!((by(&new, 1, 5100), uploaded(&new)), (None, 100));
    // The last copy replaces earlier ones.
    let [_, new] = processes(rules);
    for is_last in [false, true] {
        new.import_sessions(time(20, 10, 100), EXACT, &export(is_last)).unwrap();
    }
    assert_eq!((by(&new, 1, 5000), uploaded(&new)), (None, 4000));
}

#[test]
fn a_refused_report_counts_once_it_is_accepted() {
    let [old, new] = processes(bounded(1, 0));
    let by = |store, torrent, bytes| {
        announce(store, Tick(10), &key(1), &reports(torrent, 1, 1, bytes)).err()
    };
    assert_eq!(by(&old, 1, 1000), None);
    new.begin_import();
    assert_eq!(by(&new, 2, 0), None);
    assert_eq!(by(&new, 1, 1100), Some(Refusal::KeyTorrents));
    hand_over(&old, &new, Tick(10), 100);
    new.finish_import();
    assert_eq!(uploaded(&new), 0);
    // The new process was there first.
    assert_eq!(by(&new, 1, 1200), Some(Refusal::KeyTorrents));
    new.put(KeyId(1), key(1), bounded(2, 0));
    assert_eq!((by(&new, 1, 1300), uploaded(&new)), (None, 300));
}

#[test]
fn an_older_copy_does_not_bring_back_a_replaced_session() {
    let [old, new] = processes(bounded(0, 2));
    let by = |store, peer| announce(store, Tick(10), &key(1), &TestReport::new(1, peer, 1)).err();
    assert_eq!(by(&old, 1), None);
    hand_over(&old, &new, Tick(20), 100);
    // Its peer comes back with another peer id.
    assert_eq!((by(&new, 2), new.sessions()), (None, 1));
    hand_over(&old, &new, Tick(20), 100);
    assert_eq!(new.sessions(), 1);
}

#[test]
fn sessions_count_towards_the_bound_of_their_key() {
    let of_at_most = |of_key_max| {
        process(bounded(100, 0), SessionLimits { of_key_max, ..SessionLimits::default() })
    };
    let by = |store: &PasskeyStore, torrent| {
        announce(store, Tick(10), &key(1), &TestReport::new(torrent, 1, 1)).err()
    };
    let [old, new, small] = [100, 20, 7].map(of_at_most);
    assert!((0..20).all(|torrent| by(&old, torrent).is_none()));
    assert_eq!(hand_over(&old, &new, Tick(500), 1000), 20);
    assert_eq!([by(&new, 5), by(&new, 50)], [None, Some(Refusal::KeySessions)]);
    assert_eq!(hand_over(&old, &small, Tick(500), 1000), 7);
}

#[test]
fn skips_what_does_not_belong_here() {
    let [old, new] = processes(bounded(9, 9));
    announce(&old, Tick(10), &key(1), &reports(1, 1, 1, 1000)).unwrap();
    assert_eq!(hand_over(&old, &new, Tick(111), 100), 0, "too old");
    assert_eq!(hand_over(&old, &store(), Tick(20), 100), 0, "no such key");
    let other = PasskeyStore::new([2; 16]);
    other.put(KeyId(1), key(1), KeyRules::default());
    assert_eq!(hand_over(&old, &other, Tick(20), 100), 0, "another secret");
    let mut body = Vec::new();
    assert!(old.export_sessions(Tick(20), &mut SessionWalk::new(true), 4096, &mut body));
    assert_eq!(new.import_sessions(time(20, 81, 100), EXACT, &body[..20]), Err(BadSessions));
    let as_changes = new.import_sessions(time(20, 0, 100), SessionOrigin::OtherNode, &body);
    assert_eq!(as_changes, Err(BadSessions));
    let imported = |ago_s| new.import_sessions(time(200, ago_s, 100), EXACT, &body).unwrap();
    assert_eq!((imported(91), imported(50)), (0, 1));
    assert_eq!(imported(60), 0, "an earlier copy");
    assert_eq!(imported(5), 1, "a later copy");
    assert_eq!((new.sessions(), other.sessions()), (1, 0));
}

/// Whatever the bytes are: no panic, and no more sessions than they hold.
#[test]
fn takes_any_bytes() {
    let mut random = Random::new(9);
    let [old, new] = processes(bounded(3, 3));
    old.keep_session_changes();
    for port in 0..40 {
        let event = if port % 3 == 0 { Event::Stopped } else { Event::None };
        let torrent = 1 + (port % 4) as u8;
        let report = TestReport { event, port: port / 2, ..reports(torrent, 1, 1, 5) };
        let _ = announce(&old, Tick(10), &key(1), &report);
    }
    let walks = [SessionWalk::new(true), SessionWalk::of_changes()];
    let exports = walks.map(|mut walk| {
        let mut body = Vec::new();
        assert!(old.export_sessions(Tick(20), &mut walk, 1 << 16, &mut body));
        body
    });
    for round in 0..10_000 {
        let origin = [EXACT, SessionOrigin::OtherNode][round % 2];
        let body = damage(&exports[round % 2], &mut random);
        if random.below(2) == 0 {
            new.begin_import();
        }
        let _ = new.import_sessions(time(random.below(50), random.below(20), 100), origin, &body);
        let report = reports(1, 1 + random.below(3) as u8, 1, random.below(100).into());
        let _ = announce(&new, Tick(40), &key(1), &report);
        new.finish_import();
    }
    new.sweep(Tick(100_000), 1, 100, 100);
    assert_eq!(new.sessions(), 0);
}

/// Some announces go to the new process while sessions move: what both count together is what one process
/// would have counted. A client that has been at the new one stays there, as its connections do.
#[test]
fn nothing_is_lost_or_counted_twice() {
    let mut random = Random::new(5);
    for round in 0..400 {
        let rules = if round % 2 == 0 { KeyRules::default() } else { bounded(9, 9) };
        let [old, new] = processes(rules);
        let [one, _] = processes(rules);
        let (mut bytes, mut is_at_new) = ([0_u64; 8], [false; 8]);
        let mut report = |random: &mut Random, peer: usize, now: u32, moves: bool| {
            is_at_new[peer] |= moves;
            let event = match random.below(8) {
                0 => Event::Started,
                1 => Event::Stopped,
                _ => Event::None,
            };
            bytes[peer] += u64::from(random.below(100));
            if event == Event::Started {
                bytes[peer] = 0;
            }
            let report = TestReport {
                event,
                role: [Role::Leecher, Role::Seeder][peer % 2],
                ..reports(1, peer as u8, 1 + peer as u8, bytes[peer])
            };
            announce(&one, Tick(now), &key(1), &report).unwrap();
            let store = if is_at_new[peer] { &new } else { &old };
            announce(store, Tick(now), &key(1), &report).unwrap();
        };
        // Most have sessions, so that the first report to the new process is not their first.
        (0..8).for_each(|peer| report(&mut random, peer, 0, false));
        new.begin_import();
        for now in 1..100 {
            let (peer, moves) = (random.below(8) as usize, now > 60 && random.below(2) == 0);
            report(&mut random, peer, now, moves || now > 80);
            if now == 90 {
                // A journal may have them twice.
                hand_over(&old, &new, Tick(now), 1000);
                hand_over(&old, &new, Tick(now), 1000);
            }
        }
        new.finish_import();
        (100..120).for_each(|now| report(&mut random, now as usize % 8, now, true));
        let sum = [&old, &new].map(|store| totals(store)[&KeyId(1)]);
        assert_eq!(sum[0].plus(&sum[1]), totals(&one)[&KeyId(1)]);
        assert_eq!(new.sessions(), one.sessions());
    }
}
