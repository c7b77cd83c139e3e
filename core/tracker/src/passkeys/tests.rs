//! The store of keys beside a plain list, and its guarantees while keys come and go.

mod exchange;
mod handover;

use std::collections::{BTreeMap, BTreeSet};

use primitives::Random;
use types::{ConnectionKey, PeerKey, WebPeer};

use super::*;

fn store() -> PasskeyStore {
    store_with(SessionLimits::default())
}

fn store_with(limits: SessionLimits) -> PasskeyStore {
    PasskeyStore::with_limits([1; 16], limits)
}

impl PasskeyStore {
    /// Hashes and admits a key.
    fn enter(&self, now: Tick, text: &[u8], kind: RequestKind) -> Result<KeyHash, Refusal> {
        let name = self.hash_and_prefetch(text);
        self.admit(now, name, kind).map(|_| name)
    }
}

fn key(number: u32) -> UserKey {
    UserKey::parse(format!("key-number-{number:08}")).unwrap()
}

/// A report of `peer` in `torrent`, from the address `host` and a port.
struct TestReport {
    torrent: InfoHash,
    peer: PeerId,
    host: u8,
    port: u16,
    event: Event,
    role: Role,
    bytes: (u64, u64),
}

impl TestReport {
    fn new(torrent: u8, peer: u8, host: u8) -> Self {
        Self {
            torrent: InfoHash([torrent; 20]),
            peer: PeerId([peer; 20]),
            host,
            port: 6881,
            event: Event::None,
            role: Role::Leecher,
            bytes: (0, 0),
        }
    }

    fn identity(&self) -> PeerIdentity {
        PeerIdentity::Socket(PeerKey::new([10, 0, 0, self.host].into(), self.port))
    }

    fn as_report(&self) -> Report<'_> {
        Report {
            info_hash: &self.torrent,
            prefix: [10, 0, 0, self.host].into(),
            event: self.event,
            role: self.role,
            uploaded: self.bytes.0,
            downloaded: self.bytes.1,
            is_web: false,
        }
    }
}

fn announce(
    store: &PasskeyStore,
    now: Tick,
    key: &UserKey,
    report: &TestReport,
) -> Result<bool, Refusal> {
    let name = store.hash_and_prefetch(key.as_bytes());
    let tag = store.prefetch_session(name, &report.torrent, &report.peer, &report.identity());
    store.admit(now, name, RequestKind::Announce)?.account(now, tag, &report.as_report())
}

fn totals(store: &PasskeyStore) -> BTreeMap<KeyId, KeyTotals> {
    let mut taken = Vec::new();
    store.take_totals(&mut taken);
    let mut sums = BTreeMap::<KeyId, KeyTotals>::new();
    for (id, totals) in taken {
        let sum = sums.entry(id).or_default();
        *sum = sum.plus(&totals);
    }
    sums
}

#[test]
fn unknown_keys_are_refused_without_a_hint() {
    let store = store();
    store.put(KeyId(1), key(1), KeyRules { expires: Some(Tick(100)), ..KeyRules::default() });
    let admit = |now, text: &[u8]| store.enter(Tick(now), text, RequestKind::Announce).err();
    assert_eq!(admit(99, key(1).as_bytes()), None);
    assert_eq!(admit(100, key(1).as_bytes()), Some(Refusal::KeyExpired));
    for text in
        [key(2).as_str(), "", "short", "key-number-0000000", &"x".repeat(65), "key number 00000001"]
    {
        assert_eq!(admit(0, text.as_bytes()), Some(Refusal::KeyUnknown), "{text}");
    }
    assert!(store.remove(KeyId(1)) && !store.remove(KeyId(1)));
    assert_eq!(admit(0, key(1).as_bytes()), Some(Refusal::KeyUnknown));
}

#[test]
fn ids_and_keys_belong_together_one_to_one() {
    let store = store();
    let admits = |number| store.enter(Tick(0), key(number).as_bytes(), RequestKind::Scrape).is_ok();
    store.put(KeyId(7), key(1), KeyRules::default());
    store.put(KeyId(7), key(2), KeyRules::default());
    assert!(!admits(1) && admits(2));
    store.put(KeyId(8), key(2), KeyRules::default());
    assert_eq!(store.keys(), 1);
    assert!(admits(2) && !store.remove(KeyId(7)) && admits(2));
    assert!(store.remove(KeyId(8)) && !admits(2) && store.keys() == 0);
}

#[test]
fn first_uses_are_reported_once() {
    let store = store();
    (0..3).for_each(|number| _ = store.put(KeyId(number), key(number), KeyRules::default()));
    for number in [1, 2, 1] {
        store.enter(Tick(0), key(number).as_bytes(), RequestKind::Announce).unwrap();
    }
    let mut used = Vec::new();
    store.take_first_uses(&mut used);
    used.sort_unstable();
    assert_eq!(used, [KeyId(1), KeyId(2)]);
    store.put(KeyId(1), key(1), KeyRules { torrents: 1, ..KeyRules::default() });
    store.enter(Tick(0), key(1).as_bytes(), RequestKind::Announce).unwrap();
    used.clear();
    store.take_first_uses(&mut used);
    assert_eq!(used, [], "new rules do not make a new key");
}

/// A user who reports a second's worth of bytes 200 times within a second, each time of another torrent.
#[test]
fn the_torrents_of_a_key_share_its_credit() {
    let store = store();
    store.put(KeyId(1), key(1), KeyRules::default());
    let second = 1000 * bytes_per_ms(limits::KEY_MBIT_PER_S);
    let report = |now, torrent, bytes| {
        let report = TestReport { bytes: (bytes, 0), ..TestReport::new(torrent, 1, 1) };
        announce(&store, Tick(now), &key(1), &report).unwrap();
    };
    (0..200).for_each(|torrent| report(1000, torrent, 0));
    (0..200).for_each(|torrent| report(1001, torrent, second));
    assert_eq!(totals(&store)[&KeyId(1)].uploaded, 2 * second);
    assert_eq!(store.excessive_reports(), 198);
}

/// Returns the bodies of a whole walk, of at most 200 bytes of sessions each.
fn bodies(store: &PasskeyStore, now: Tick, mut walk: SessionWalk) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    loop {
        let mut body = Vec::new();
        if !store.export_sessions(now, &mut walk, 200, &mut body) {
            return bodies;
        }
        assert!(body.len() <= 212, "{} bytes", body.len());
        bodies.push(body);
    }
}

/// Changes some bytes of a body, and cuts it or not.
fn damage(body: &[u8], random: &mut Random) -> Vec<u8> {
    let mut body = body.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(body.len() as u32) as usize;
        body[at] = random.below(256) as u8;
    }
    body.truncate(random.below(2 * body.len() as u32) as usize);
    body
}

fn bounded(torrents: u32, peers_per_torrent: u16) -> KeyRules {
    KeyRules { torrents, peers_per_torrent, ..KeyRules::default() }
}

#[test]
fn a_client_has_a_bounded_number_of_sessions() {
    let store = store();
    let count = limits::KEY_SESSIONS_OF_CLIENT_MAX as u16;
    let by = |number, peer, port| {
        let report = TestReport { port, ..TestReport::new(1, peer, 1) };
        announce(&store, Tick(0), &key(number), &report).err()
    };
    store.put(KeyId(1), key(1), KeyRules { peers_per_torrent: 1000, ..KeyRules::default() });
    store.put(KeyId(2), key(2), KeyRules::default());
    for number in [1, 2] {
        assert!((1..=count).all(|port| by(number, 1, port).is_none()));
    }
    assert_eq!(by(1, 1, count + 1), Some(Refusal::KeySessions));
    assert_eq!([by(2, 1, count + 1), by(1, 2, count + 1)], [None; 2]);
    assert_eq!(store.sessions(), 2 * usize::from(count) + 1);
}

#[test]
fn peers_of_keys_that_may_only_seed_are_seeders() {
    let store = store();
    store.put(KeyId(1), key(1), KeyRules { seed_only: true, ..KeyRules::default() });
    let by = |role, event| {
        let report = TestReport { role, event, ..TestReport::new(1, 1, 1) };
        announce(&store, Tick(0), &key(1), &report).err()
    };
    let refused = Some(Refusal::KeySeedOnly);
    assert_eq!(by(Role::Leecher, Event::Started), refused);
    assert_eq!(by(Role::PartialSeed, Event::Paused), refused);
    assert_eq!(store.sessions(), 0);
    assert_eq!(by(Role::Seeder, Event::Started), None);
    // A client that may not go on may stop.
    assert_eq!(by(Role::Leecher, Event::Stopped), None);
    store.put(KeyId(1), key(1), KeyRules::default());
    assert_eq!(by(Role::Leecher, Event::Started), None);
}

#[test]
fn keys_with_bounds_are_refused_without_room_and_others_served() {
    let limits = SessionLimits { of_key_max: 3, all_max: 6, ..SessionLimits::default() };
    let store = store_with(limits);
    store.put(KeyId(1), key(1), bounded(1000, 0));
    store.put(KeyId(2), key(2), KeyRules { announces_per_minute: 1000, ..KeyRules::default() });
    let by = |now, number, torrent, event| {
        let report = TestReport { event, ..TestReport::new(torrent, 1, 1) };
        announce(&store, Tick(now), &key(number), &report).err()
    };
    let start = |now, number, torrent| by(now, number, torrent, Event::Started);
    // 1. Of one key.
    for number in [1, 2] {
        assert_eq!([1, 2, 3].map(|torrent| start(0, number, torrent)), [None; 3]);
    }
    assert_eq!([start(0, 1, 4), start(0, 2, 4)], [Some(Refusal::KeySessions), None]);
    assert_eq!((start(0, 1, 3), store.sessions()), (None, 6), "a known peer is served");
    assert_eq!([by(0, 1, 3, Event::Stopped), start(0, 1, 4)], [None; 2], "another has left");
    // 2. Expired sessions are forgotten, in two lifetimes at most.
    const LIFETIME_S: u32 = 100;
    store.sweep(Tick(101), 1, LIFETIME_S, LIFETIME_S);
    assert_eq!(store.sessions(), 0);
    assert_eq!(start(101, 1, 9), Some(Refusal::KeySessions));
    assert_eq!([7, 8, 9].map(|torrent| start(201, 1, torrent)), [None; 3]);
    // 3. Of all keys.
    store.put(KeyId(3), key(3), bounded(1000, 0));
    store.put(KeyId(4), key(4), KeyRules::default());
    assert_eq!([1, 2, 3].map(|torrent| start(202, 3, torrent)), [None; 3]);
    assert_eq!(by(202, 1, 7, Event::Stopped), None);
    assert_eq!([start(202, 4, 1), start(202, 1, 1)], [None, Some(Refusal::KeyTableFull)]);
    assert_eq!([start(202, 4, 2), start(202, 1, 9)], [None; 2], "a known peer is served");
    assert_eq!(by(202, 1, 1, Event::Stopped), None);
    assert_eq!(totals(&store)[&KeyId(4)].announces, 2, "served, and counted as announces");
}

#[test]
fn a_seeder_is_credited_until_its_connection_ends() {
    let store = store();
    store.put(KeyId(1), key(1), KeyRules::default());
    let name = store.hash_and_prefetch(key(1).as_bytes());
    let report = TestReport { role: Role::Seeder, ..TestReport::new(1, 1, 1) };
    let tag = |connection| {
        let peer = WebPeer { connection: ConnectionKey(connection), peer_id: report.peer };
        store.prefetch_session(name, &report.torrent, &report.peer, &PeerIdentity::Web(peer))
    };
    let locked = store.admit(Tick(0), name, RequestKind::Announce).unwrap();
    locked.account(Tick(0), tag(1), &Report { is_web: true, ..report.as_report() }).unwrap();
    store.leave(Tick(7), name, tag(2));
    store.leave(Tick(7), store.hash_and_prefetch(b"unknown"), tag(1));
    assert_eq!(store.sessions(), 1);
    store.leave(Tick(30), name, tag(1));
    assert_eq!((store.sessions(), totals(&store)[&KeyId(1)].seeding_s), (0, 30));
}

#[test]
fn a_removed_key_with_bounds_leaves_no_sessions() {
    let store = store();
    let by = |torrent| announce(&store, Tick(0), &key(1), &TestReport::new(torrent, 1, 1)).err();
    for id in 0..3 {
        store.put(KeyId(id), key(1), bounded(2, 0));
        let expected = [None, None, Some(Refusal::KeyTorrents)];
        assert_eq!([1, 2, 3].map(by), expected, "the key's bounds begin anew");
        assert!(store.remove(KeyId(id)));
        assert_eq!(store.sessions(), 0);
    }
}

/// A peer's last report: when, bytes sent, and whether as a seeder.
type Last = (Tick, u64, bool);
/// A key, a torrent, a peer id, and an address and port.
type Identity = (u32, u8, u8, (u8, u16));

/// The plain form.
#[derive(Default)]
struct Twin {
    keys: BTreeMap<u32, (KeyId, KeyRules)>,
    sessions: BTreeMap<Identity, Last>,
    totals: BTreeMap<KeyId, KeyTotals>,
}

impl Twin {
    fn announce(&mut self, now: Tick, who: Identity, report: &TestReport) -> Option<Refusal> {
        let (number, torrent, peer, at) = who;
        let Some((id, rules)) = self.keys.get(&number) else { return Some(Refusal::KeyUnknown) };
        let KeyRules { peers_per_torrent, torrents, addresses, .. } = *rules;
        let old = self.sessions.get(&who).copied();
        if old.is_none() && (peers_per_torrent > 0 || torrents > 0 || addresses > 0) {
            let is_same = |it: &Identity| (it.0, it.1, it.3) == (number, torrent, at);
            self.sessions.retain(|it, _| !is_same(it));
        }
        let own = || self.sessions.iter().filter(|(it, _)| it.0 == number);
        if old.is_none() && report.event != Event::Stopped {
            let is_reached = |bound: usize, found| bound > 0 && found >= bound;
            let peers = own().filter(|(it, _)| it.1 == torrent).count();
            let present: BTreeSet<u8> = own().map(|(it, _)| it.1).collect();
            let hosts: BTreeSet<u8> = own().map(|(it, _)| it.3.0).collect();
            if present.contains(&torrent) {
                if is_reached(peers_per_torrent.into(), peers) {
                    return Some(Refusal::KeyPeers);
                }
            } else if is_reached(torrents as usize, present.len()) {
                return Some(Refusal::KeyTorrents);
            }
            if !hosts.contains(&at.0) && is_reached(addresses.into(), hosts.len()) {
                return Some(Refusal::KeyAddresses);
            }
        }
        let totals = self.totals.entry(*id).or_default();
        totals.announces += 1;
        if let Some((at, bytes, is_seeder)) = old
            && report.event != Event::Started
        {
            // The client has reported the same from its other addresses.
            let is_sibling = |it: &Identity| (it.1, it.2) == (torrent, peer) && *it != who;
            let others: Vec<Last> =
                own().filter(|(it, _)| is_sibling(it)).map(|(_, last)| *last).collect();
            let most = others.iter().map(|last| last.1).chain([bytes]).max();
            let sent = report.bytes.0.saturating_sub(most.unwrap());
            totals.uploaded += sent;
            totals.downloaded += 2 * sent;
            let seeders = others.iter().filter(|last| last.2).map(|last| last.0);
            let since = seeders.chain([at]).max().unwrap();
            totals.seeding_s += if is_seeder { now.since(since).into() } else { 0 };
        }
        if report.event == Event::Stopped {
            self.sessions.remove(&who);
        } else {
            self.sessions.insert(who, (now, report.bytes.0, report.role == Role::Seeder));
        }
        None
    }
}

/// Returns a store with the same keys.
fn successor(keys: &BTreeMap<u32, (KeyId, KeyRules)>) -> PasskeyStore {
    let next = store();
    keys.iter().for_each(|(number, (id, rules))| assert!(next.put(*id, key(*number), *rules)));
    next
}

/// Drives both with the same operations and compares every answer. The first report of a peer counts nothing:
/// its bytes were transferred elsewhere, or before.
#[test]
fn agrees_with_a_plain_list() {
    const LIFETIME_S: u32 = 200;
    let mut random = Random::new(5);
    for round in 0..60 {
        let (mut store, mut twin) = (store(), Twin::default());
        let bound = |random: &mut Random| if round % 3 == 0 { 0 } else { random.below(4) };
        let mut now = 0;
        for _ in 0..600 {
            now += random.below(9);
            let number = random.below(5);
            match random.below(30) {
                0 if !twin.keys.contains_key(&number) => {
                    let rules = KeyRules {
                        peers_per_torrent: bound(&mut random) as u16,
                        torrents: bound(&mut random),
                        addresses: bound(&mut random) as u16,
                        ..KeyRules::default()
                    };
                    // Ids are never used twice, as those of records.
                    let id = KeyId(now * 100 + number);
                    assert!(store.put(id, key(number), rules));
                    twin.keys.insert(number, (id, rules));
                }
                1 if random.below(4) == 0 => {
                    if let Some((id, _)) = twin.keys.remove(&number) {
                        assert!(store.remove(id));
                    }
                    // Let the sessions expire: a key that comes again would find them.
                    now += 2 * LIFETIME_S;
                    store.sweep(Tick(now), 1, LIFETIME_S, LIFETIME_S);
                    twin.sessions.clear();
                }
                2 => {
                    store.sweep(Tick(now), 1, LIFETIME_S, LIFETIME_S);
                    twin.sessions.retain(|_, (last, ..)| now - last.0 <= LIFETIME_S);
                }
                3 => {
                    let mut expected = std::mem::take(&mut twin.totals);
                    expected.retain(|_, totals| *totals != KeyTotals::default());
                    assert_eq!(totals(&store), expected);
                    // Another process continues. The twin does not notice.
                    if random.below(3) == 0 {
                        store.sweep(Tick(now), 1, LIFETIME_S, LIFETIME_S);
                        twin.sessions.retain(|_, (last, ..)| now - last.0 <= LIFETIME_S);
                        let next = successor(&twin.keys);
                        handover::hand_over(&store, &next, Tick(now), LIFETIME_S);
                        store = next;
                    }
                }
                _ => {
                    let (torrent, peer) = (random.below(4) as u8, random.below(4) as u8);
                    let at = (random.below(4) as u8, 1 + random.below(2) as u16);
                    let events = [Event::None, Event::Started, Event::Stopped, Event::Completed];
                    let sent = u64::from(random.below(1000));
                    let report = TestReport {
                        event: events[random.below(4) as usize],
                        role: [Role::Seeder, Role::Leecher][random.below(2) as usize],
                        bytes: (sent, 2 * sent),
                        port: at.1,
                        ..TestReport::new(torrent, peer, at.0)
                    };
                    let who = (number, torrent, peer, at);
                    let expected = twin.announce(Tick(now), who, &report);
                    assert_eq!(announce(&store, Tick(now), &key(number), &report).err(), expected);
                }
            }
            assert_eq!(store.keys(), twin.keys.len());
        }
        assert_eq!(store.sessions(), twin.sessions.len());
    }
}

#[test]
fn later_quotas_hold_from_the_next_announce_on() {
    let store = store();
    store.put(KeyId(1), key(1), KeyRules::default());
    let by = |torrent, host| {
        announce(&store, Tick(0), &key(1), &TestReport::new(torrent, 1, host)).err()
    };
    assert_eq!([1, 2, 3].map(|torrent| by(torrent, 1)), [None; 3]);
    store.put(KeyId(1), key(1), KeyRules { torrents: 2, ..KeyRules::default() });
    let expected = [None, None, Some(Refusal::KeyTorrents)];
    assert_eq!([3, 2, 1].map(|torrent| by(torrent, 1)), expected);
    store.put(KeyId(1), key(1), KeyRules { addresses: 1, ..KeyRules::default() });
    assert_eq!(
        [by(3, 1), by(3, 2), by(4, 2)],
        [None, Some(Refusal::KeyAddresses), Some(Refusal::KeyAddresses)]
    );
    // A peer that comes back with another peer id replaces a session from before the quota, too.
    store.put(KeyId(1), key(1), KeyRules { peers_per_torrent: 1, ..KeyRules::default() });
    let by = |peer, port| {
        let report = TestReport { port, ..TestReport::new(1, peer, 1) };
        announce(&store, Tick(0), &key(1), &report).err()
    };
    assert_eq!([by(1, 6881), by(2, 6881), by(1, 6881)], [None; 3]);
    assert_eq!(by(1, 6882), Some(Refusal::KeyPeers));
}
