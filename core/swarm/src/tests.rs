//! The store beside a naive twin, driven by random operations.

pub(crate) mod caps;
mod inspect;
mod memory;
pub(crate) mod merge;
mod near;
mod replicate;
mod twin;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use primitives::Random;
use replication::block::{self, Block, Change, Header, Kind, Word};
use replication::{MergeTime, Merged};
use types::{
    Families, Family, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Role, SwarmCounts, Tick,
    TooSoon, WebPeer,
};

use crate::{
    Action, Answer, Options, PeerCaps, RelayTargets, Store, StoreAnnounce, StoreWebAnnounce, Totals,
};
use twin::{Twin, TwinTorrent, check_sums};

const LIFETIME_S: u32 = 1000;
pub(crate) const ROLES: [Role; 3] = [Role::Seeder, Role::Leecher, Role::PartialSeed];

pub(crate) fn options(shards: usize) -> Options {
    Options {
        web_lifetime_s: LIFETIME_S / 2,
        keep_peer_ids: true,
        ..Options::new(shards, [7; 16], LIFETIME_S)
    }
}

fn store(shards: usize) -> Store {
    Store::new(&options(shards))
}

#[derive(Clone, Debug, Default)]
struct Answered {
    counts: Option<SwarmCounts>,
    too_soon: Option<TooSoon>,
    peers: Vec<PeerKey>,
    ids: Vec<PeerId>,
}

impl Answered {
    fn new(answer: Result<Answer<'_>, TooSoon>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(too_soon) => return Self { too_soon: Some(too_soon), ..Self::default() },
        };
        let mut answered = Self { counts: Some(answer.counts), ..Self::default() };
        answer.each_v4(|run| answered.peers.extend(run.iter().map(PackedV4::key)));
        assert_eq!(answered.peers.len(), usize::from(answer.v4_len()));
        answer.each_v6(|run| answered.peers.extend(run.iter().map(PackedV6::key)));
        assert_eq!(answered.peers.len(), usize::from(answer.v4_len() + answer.v6_len()));
        let mut again = Vec::new();
        answer.each_with_id(|peer, id| {
            again.push(peer);
            answered.ids.push(id);
        });
        assert_eq!(again, answered.peers, "another choice");
        answered
    }
}

fn answers(
    store: &Store,
    now: u32,
    random: &mut Random,
    requests: &[StoreAnnounce],
) -> BTreeMap<u8, Answered> {
    let mut answers = BTreeMap::new();
    store.announce(Tick(now), random, requests, &mut |slot, answer| {
        assert!(answers.insert(slot, Answered::new(answer)).is_none(), "answered twice");
    });
    assert_eq!(answers.len(), requests.len());
    answers
}

fn v4(number: u32) -> PeerKey {
    PeerKey::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)), 6881)
}

fn v6(number: u32) -> PeerKey {
    PeerKey::new(IpAddr::V6(Ipv6Addr::from(u128::from(number) + (0x2001_0db8 << 96))), 6881)
}

pub(crate) fn update(torrent: u8, peer: PeerKey, role: Role) -> StoreAnnounce {
    StoreAnnounce {
        peer_id: PeerId([1; 20]),
        want: 50,
        ..StoreAnnounce::update(InfoHash([torrent; 20]), peer, role)
    }
}

/// Returns the announce of a browser with a local address.
pub(crate) fn web_update(torrent: u8, peer: WebPeer, role: Role) -> StoreWebAnnounce {
    StoreWebAnnounce {
        info_hash: InfoHash([torrent; 20]),
        peer,
        address: Ipv4Addr::LOCALHOST.into(),
        role,
        action: Action::Update { completed: false },
        min_interval_s: 0,
        caps: PeerCaps::default(),
        want: 0,
        extra_s: 0,
    }
}

pub(crate) fn join(store: &Store, now: u32, request: &StoreWebAnnounce) {
    let mut random = Random::new(u64::from(now));
    store.announce_web(Tick(now), &mut random, request, &mut RelayTargets::new()).unwrap();
}

fn counts(store: &Store, torrent: u8) -> SwarmCounts {
    let mut counts = [SwarmCounts::default()];
    store.scrape(&[InfoHash([torrent; 20])], &mut counts);
    counts[0]
}

pub(crate) fn header(kind: Kind, node: u16) -> Header {
    Header { kind, has_ids: false, node, boot: 1, number: 1, cut_ms: 1 }
}

/// Returns the bytes of a block.
fn written(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    block::write(header, body, &mut bytes);
    bytes
}

/// A block, and when it was cut, in seconds.
struct Cut {
    at: u32,
    bytes: Vec<u8>,
}

impl Cut {
    fn block(&self) -> Block<'_> {
        let (block, len) = Block::read(&self.bytes).expect("a block that was just written");
        assert_eq!(len, self.bytes.len());
        block
    }

    fn merge(&self, store: &Store, now: Tick, cut_ago_s: u32) -> Merged {
        let time = MergeTime { now, cut_ago_s, epoch_min: 0 };
        let groups = self.block().groups().expect("groups that were just written");
        store.merge(time, &mut Random::new(1), groups, 0..store.shards())
    }
}

fn block_of(node: u16, changes: &[Change]) -> Vec<u8> {
    let mut body = Vec::new();
    block::encode_changes(changes, &[], &mut body);
    written(&header(Kind::CHANGES, node), &body)
}

/// Returns a word as a block may have it, likely or not.
pub(crate) fn random_word(random: &mut Random) -> Word {
    let role = ROLES[random.below(3) as usize];
    match random.below(12) {
        0 => Word::gone(),
        1 => Word(Word::gone().0 | random.below(70) as u16),
        2 => Word::completed(role),
        3 => Word(random.next() as u16),
        _ => Word::present(random.below(60), role, random.below(4) == 0),
    }
}

fn numbered(requests: &[StoreAnnounce]) -> Vec<StoreAnnounce> {
    (0..).zip(requests).map(|(slot, request)| StoreAnnounce { slot, ..*request }).collect()
}

fn announce(store: &Store, now: u32, requests: &[StoreAnnounce]) -> Vec<Answered> {
    let mut random = Random::new(u64::from(now) + 1);
    let mut all = Vec::new();
    // Longer than a batch, so that the store has to split it.
    for requests in requests.chunks(200) {
        all.extend(answers(store, now, &mut random, &numbered(requests)).into_values());
    }
    all
}

struct Scale {
    torrents: u32,
    peers: u32,
    rounds: u32,
}

/// Drives both with the same operations and compares every answer, what merges did, and everything that is
/// visible.
fn compare(seed: u64, scale: &Scale) {
    // Enough for all, but peers are counted for their networks.
    let store = Store::new(&Options { memory_budget: Some(1 << 30), ..options(4) });
    let mut twin = Twin::default();
    let mut random = Random::new(seed);
    // Younger than most marks of merged peers, which are before tick 0.
    let (mut now, mut refused) = (5, 0);
    let mut all = Merged::default();
    for round in 0..scale.rounds {
        now += random.below(30);
        let batch = 1 + random.below(64);
        // Slots are the caller's: use an order that is not the batch's.
        let request = |slot| StoreAnnounce { slot, ..random_request(&mut random, scale) };
        let requests: Vec<StoreAnnounce> = (0..batch as u8).rev().map(request).collect();
        let answers = answers(&store, now, &mut random, &requests);
        for request in &requests {
            let answer = &answers[&request.slot];
            if let Err(too_soon) = twin.announce(now, request) {
                assert_eq!(answer.too_soon, Some(too_soon));
                refused += 1;
                continue;
            }
            let empty = TwinTorrent::default();
            twin.torrents.get(&request.info_hash).unwrap_or(&empty).check(request, answer);
        }
        if random.below(2) == 0 {
            all = all.plus(merge::compare(&store, &mut twin, &mut random, scale, now));
        }
        match random.below(20) {
            0 => {
                sweep_all(&store, now);
                twin.sweep(now);
            }
            1 => {
                let is_on = twin.stopped.is_none();
                twin.stopped = is_on.then(BTreeMap::new);
                store.remember_stopped(is_on);
            }
            2 => inspect::remove_some(&store, &mut twin, Tick(now), &mut random),
            _ => {}
        }
        if round % 5 == 4 {
            twin.check(&store, now);
        }
    }
    assert!(refused >= 20, "{refused}");
    assert!(all.peers > 100 && all.gone > 20 && all.old > 100, "{all:?}");
    // All peers expire: nothing may be left, including memory.
    now += 3 * LIFETIME_S;
    sweep_all(&store, now);
    sweep_all(&store, now);
    twin.sweep(now);
    twin.check(&store, now);
    let totals = store.totals();
    assert_eq!(totals.torrents, 0);
    assert!(totals.memory_used < 200_000, "{totals:?}");
}

fn random_request(random: &mut Random, scale: &Scale) -> StoreAnnounce {
    // The product of two makes some torrents large and most small.
    let torrent = random.below(scale.torrents) * random.below(scale.torrents) / scale.torrents;
    let number = random.below(scale.peers) / (torrent + 1);
    let peer = random_peer(random, number);
    let role = [Role::Seeder, Role::Leecher, Role::Leecher, Role::PartialSeed];
    let action = match random.below(10) {
        0 => Action::Stop,
        1 => Action::Update { completed: true },
        _ => Action::Update { completed: false },
    };
    let role = match action {
        Action::Update { completed: true } => Role::Seeder,
        _ => role[random.below(4) as usize],
    };
    StoreAnnounce {
        peer_id: PeerId([number as u8; 20]),
        role,
        action,
        min_interval_s: match action {
            Action::Update { completed: false } => [0, 0, 0, 40, 300][random.below(5) as usize],
            _ => 0,
        },
        want: [0, 1, 3, 50, 200][random.below(5) as usize],
        families: if random.below(2) == 0 { Families::Own } else { Families::Both },
        ..update(torrent as u8, peer, role)
    }
}

/// Returns one of four peers with that number: of both families, local, or in a public network with others.
fn random_peer(random: &mut Random, number: u32) -> PeerKey {
    match random.below(6) {
        0 => v6(number),
        1 => PeerKey::new(Ipv6Addr::from(u128::from(number) << 76 | 0x2400 << 112).into(), 6881),
        2 => PeerKey::new(Ipv4Addr::from(0x1400_0000 + number).into(), 6881),
        _ => v4(number),
    }
}

fn sweep_all(store: &Store, now: u32) {
    for _ in 0..64 {
        store.sweep(Tick(now), 8);
    }
}

//= bep3#announce-completed-once
//= type=test
#[test]
fn agrees_with_the_twin_on_small_swarms() {
    for seed in 1..=4 {
        compare(seed, &Scale { torrents: 200, peers: 12, rounds: 150 });
    }
}

#[test]
fn agrees_with_the_twin_on_dense_and_paged_swarms() {
    for seed in 1..=2 {
        compare(seed, &Scale { torrents: 12, peers: 150, rounds: 100 });
        compare(seed, &Scale { torrents: 4, peers: 2000, rounds: 60 });
    }
}

/// Checks that every other peer is chosen as often as chance predicts (chi-square). The bounds are
/// so wide, and the seeds fixed, that only a fault exceeds them.
fn check_chances(peers: u32, seeders: u32, want: u16) {
    let store = store(1);
    for number in 0..peers {
        let role = if number < seeders { Role::Seeder } else { Role::Leecher };
        announce(&store, 1, &[update(1, v4(number), role)]);
    }
    let rounds = 3000;
    let mut seen: BTreeMap<PeerKey, u32> = BTreeMap::new();
    let mut random = Random::new(42);
    for _ in 0..rounds {
        let request = StoreAnnounce { want, ..update(1, v4(peers - 1), Role::Leecher) };
        let answers = answers(&store, 1, &mut random, &[request]);
        assert_eq!(answers[&0].peers.len(), usize::from(want));
        answers[&0].peers.iter().for_each(|peer| *seen.entry(*peer).or_default() += 1);
    }
    let others = f64::from(peers - 1);
    let expected = f64::from(rounds) * f64::from(want) / others;
    let share = |number| f64::from(seen.get(&v4(number)).copied().unwrap_or(0));
    let chi: f64 = (0..peers - 1).map(|number| (share(number) - expected).powi(2) / expected).sum();
    // Expected: about the number of others, slightly less without replacement.
    assert!(chi < others + 8.0 * (2.0 * others).sqrt(), "{peers} {want}: {chi} for {others}");
}

#[test]
fn every_peer_has_the_same_probability() {
    check_chances(4, 2, 1);
    check_chances(4, 1, 2);
    check_chances(30, 10, 7);
    check_chances(64, 60, 10);
}

#[test]
fn every_peer_of_a_large_swarm_has_about_the_same_probability() {
    // Pages differ in length, so runs from a random start are fair but not independent: peers of
    // one page come together. Here the bound is on single peers.
    let store = store(1);
    let peers = 2000;
    for number in 0..peers {
        let request = StoreAnnounce { want: 0, ..update(1, v4(number), Role::Leecher) };
        announce(&store, 1, &[request]);
    }
    let mut seen: HashMap<PeerKey, u32> = HashMap::new();
    let mut random = Random::new(4);
    let rounds = 20_000;
    for _ in 0..rounds {
        let request =
            StoreAnnounce { want: 50, ..update(1, v4(random.below(peers)), Role::Leecher) };
        let answers = answers(&store, 1, &mut random, &[request]);
        answers[&0].peers.iter().for_each(|peer| *seen.entry(*peer).or_default() += 1);
    }
    let expected = rounds * 50 / peers;
    for number in 0..peers {
        let share = seen.get(&v4(number)).copied().unwrap_or(0);
        assert!(share * 2 > expected && share < expected * 2, "{number}: {share} of {expected}");
    }
}

#[test]
fn memory_is_released_when_peers_have_left() {
    let store = Store::new(&Options { keep_peer_ids: false, ..options(2) });
    let requests: Vec<StoreAnnounce> = (0..100_000)
        .map(|number| StoreAnnounce {
            want: 0,
            ..update((number % 83) as u8, v4(number), Role::Leecher)
        })
        .collect();
    announce(&store, 1, &requests);
    let full = store.totals();
    assert_eq!(full.v4.leechers, 100_000);
    assert!(full.memory_used < 100_000 * 11, "{full:?}");
    for pass in 0..4 {
        let now = 4 * LIFETIME_S + pass;
        sweep_all(&store, now);
    }
    let empty = store.totals();
    assert_eq!((empty.torrents, empty.expired), (0, 100_000));
    assert!(empty.memory_reserved < full.memory_reserved / 20, "{empty:?}");
}

#[test]
fn budget_holds_and_known_peers_are_still_served() {
    let budget = 1 << 20;
    let store =
        Store::new(&Options { memory_budget: Some(budget), keep_peer_ids: false, ..options(1) });
    let request = |number: u32| {
        let mut hash = [0; 20];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        StoreAnnounce { info_hash: InfoHash(hash), ..update(0, v4(number), Role::Leecher) }
    };
    for number in 0..50_000 {
        announce(&store, 1, &[request(number)]);
    }
    let totals = store.totals();
    assert!(totals.refused_for_memory > 10_000, "{totals:?}");
    assert!(totals.memory_used <= budget + budget / 50, "{totals:?}");
    // A v6 peer would need lines of its own in a torrent that is stored.
    announce(&store, 1, &[StoreAnnounce { peer: v6(1), ..request(0) }]);
    let known = announce(&store, 2, &[request(0)])[0].counts.unwrap();
    assert_eq!((known.v4.leechers, known.v6.leechers), (1, 0));
    assert_eq!(store.totals().refused_for_memory, totals.refused_for_memory + 1);
    // Under memory pressure peers expire early.
    for _ in 0..4 {
        sweep_all(&store, LIFETIME_S / 2);
    }
    assert!(store.totals().torrents < totals.torrents);
}

#[test]
fn threads_share_the_store() {
    let store = store(4);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(thread.into());
                for round in 0..150u32 {
                    let requests: Vec<StoreAnnounce> = (0..64)
                        .map(|_| {
                            let peer = v4(thread * 100_000 + random.below(2000));
                            let torrent = random.below(20) as u8;
                            StoreAnnounce { want: 5, ..update(torrent, peer, Role::Leecher) }
                        })
                        .collect();
                    announce(store, round, &requests);
                }
            });
        }
        for _ in 0..200 {
            store.sweep(Tick(1), 10);
        }
    });
    let sum: u64 = (0..20).map(|torrent| u64::from(counts(&store, torrent).leechers())).sum();
    assert_eq!(sum, store.totals().v4.leechers);
    assert!(sum > 20_000, "{sum}");
}
