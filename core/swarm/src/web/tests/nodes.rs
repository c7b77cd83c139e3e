//! WebTorrent peers of several nodes, beside a naive twin.

use std::collections::BTreeSet;

use replication::block::{Block, BlockError, Kind, WEB_CHANGE_BYTES_MAX, encode_web_changes};
use replication::{Merged, ReplicatedStore, WEB_REFRESH_S};

use super::*;
use crate::shard::WebWalk;
use crate::tests::merge::{How, merge_web};
use crate::tests::{header, random_word};

const UNIT_S: i64 = AGE_UNIT_S as i64;
/// Seconds that peers of other nodes live, as intervals are short here.
const REMOTE_LIFETIME_S: u32 = 900;

pub(super) fn peer_of(node: u8, place: usize, id: u8) -> WebPeer {
    WebPeer { connection: ConnectionKey::new(node, 1, 7, place), peer_id: PeerId([id; 20]) }
}

pub(super) fn change(torrent: u8, peer: WebPeer, word: Word) -> WebChange {
    let address = match peer.peer_id.0[0] % 2 {
        0 => Ipv4Addr::new(192, 0, 2, 1).into(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    WebChange { info_hash: InfoHash([torrent; 20]), peer, address, word }
}

fn body_of(changes: &[WebChange]) -> Vec<u8> {
    let mut body = Vec::new();
    encode_web_changes(changes, &mut body);
    body
}

pub(super) fn merge(store: &Store, now: u32, node: u8, changes: &[WebChange]) -> Merged {
    merge_web(store, How { now, cut_ago_s: 0 }, node, changes)
}

pub(super) fn take(store: &Store) -> Vec<WebChange> {
    let mut changes = Vec::new();
    assert_eq!(store.take_web_changes(&mut changes), 0);
    changes
}

#[test]
fn changes_are_grouped_by_torrent_and_stay_in_order() {
    let mut random = Random::new(8);
    for _ in 0..100 {
        let changes: Vec<_> = (0..random.below(60))
            .map(|_| {
                let peer = peer_of(5, random.below(4) as usize, random.below(3) as u8);
                change(random.below(4) as u8, peer, Word(random.next() as u16))
            })
            .collect();
        let body = body_of(&changes);
        assert!(body.len() <= changes.len() * WEB_CHANGE_BYTES_MAX);
        let groups = Block { header: header(Kind::WEB, 5), body: &body }.web_groups().unwrap();
        assert_eq!(groups.node(), 5);
        let found: Vec<_> = groups.flat_map(|group| group.peers).collect();
        let mut expected = changes.clone();
        expected.sort_by_key(|change| change.info_hash);
        assert_eq!(found, expected);
    }
}

#[test]
fn a_torrent_with_many_changes_continues_in_another_group() {
    let changes: Vec<_> = (0..70_000)
        .map(|place| change(1, peer_of(2, place, 0), Word::present(0, Role::Leecher, false)))
        .collect();
    let body = body_of(&changes);
    let groups = Block { header: header(Kind::WEB, 2), body: &body }.web_groups().unwrap();
    let lens: Vec<_> = groups.map(|group| group.peers.len()).collect();
    assert_eq!(lens, [65_535, 70_000 - 65_535]);
}

#[test]
fn nodes_speak_for_their_own_connections_only() {
    let of = |node| change(1, peer_of(node, 3, 3), Word::present(0, Role::Seeder, false));
    let read = |node: u16, kind: Kind, changes: &[WebChange]| {
        let header = header(kind, node);
        Block { header, body: &body_of(changes) }.web_groups().map(|groups| groups.node())
    };
    assert_eq!(read(2, Kind::WEB, &[of(2), of(2)]), Ok(2));
    for (node, kind, changes) in [
        (2, Kind::WEB, [of(2), of(3)]),
        (3, Kind::WEB, [of(2), of(3)]),
        (2 + 256, Kind::WEB, [of(2), of(2)]),
        (2, Kind::CHANGES, [of(2), of(2)]),
    ] {
        assert_eq!(read(node, kind, &changes), Err(BlockError::BadGroups));
    }
    // And what says that it is from here is not merged: it has come back.
    let store = store();
    store.set_node(2);
    assert_eq!(merge(&store, 9, 2, &[of(2)]), Merged::default());
    assert_eq!(merge(&store, 9, 3, &[of(3)]).peers, 1);
}

#[test]
fn changes_are_what_happens_to_own_peers_and_nothing_else() {
    let (store, mut random) = (store(), Random::new(1));
    store.set_node(1);
    let one = peer_of(1, 1, 1);
    let mut announce = |now: u32, role, completed| {
        let request = web_request(1, one, role, Action::Update { completed }, 5);
        store.announce_web(Tick(now), &mut random, &request, &mut RelayTargets::new()).unwrap();
    };
    announce(0, Role::Leecher, false);
    assert_eq!(take(&store), [], "none are kept yet");
    store.keep_web_changes(100);
    announce(1, Role::Leecher, false);
    announce(2, Role::PartialSeed, false);
    announce(3, Role::PartialSeed, false);
    announce(4, Role::Seeder, true);
    announce(5, Role::Seeder, true);
    announce(6, Role::Leecher, false);
    store.leave_web(&InfoHash([1; 20]), one);
    store.leave_web(&InfoHash([1; 20]), one);
    announce(7, Role::Leecher, false);
    let address = Ipv4Addr::LOCALHOST.into();
    let own = |word| WebChange { address, ..change(1, one, word) };
    let gone = WebChange { address: Ipv4Addr::UNSPECIFIED.into(), ..own(Word::gone()) };
    let expected = [
        own(Word::present(0, Role::PartialSeed, false)),
        own(Word::completed(Role::Seeder)),
        own(Word::present(0, Role::Leecher, true)),
        gone,
        own(Word::present(0, Role::Leecher, false)),
    ];
    assert_eq!(take(&store), expected);
    // Neither what others tell, nor expiry.
    merge(&store, 9, 2, &[change(1, peer_of(2, 1, 1), Word::present(0, Role::Leecher, false))]);
    (0..5).for_each(|_| store.sweep(Tick(5000), 1));
    assert_eq!((store.totals().web, take(&store)), (Default::default(), vec![]));
    // A client that announces all the time is sent once in a period.
    for now in (5000..5000 + 20 * WEB_REFRESH_S).step_by(60) {
        announce(now, Role::Leecher, false);
    }
    let refreshes = take(&store);
    assert!((19..=22).contains(&refreshes.len()), "{}", refreshes.len());
    assert!(refreshes.iter().all(|one| one.word == Word::present(0, Role::Leecher, false)));
}

#[test]
fn all_peers_of_this_node_are_told_again_after_what_happened() {
    let (store, mut random) = (store(), Random::new(1));
    store.set_node(1);
    store.keep_web_changes(10_000);
    let mut announce = |number: usize, role| {
        let request = web_request(number as u8 % 5, peer_of(1, number, 1), role, UPDATE, 0);
        store.announce_web(Tick(9), &mut random, &request, &mut RelayTargets::new()).unwrap();
    };
    (0..300).for_each(|number| announce(number, ROLES[number % 3]));
    take(&store);
    announce(0, ROLES[1]);
    store.leave_web(&InfoHash([1; 20]), peer_of(1, 1, 1));
    merge(&store, 9, 2, &[change(1, peer_of(2, 1, 1), Word::present(0, Role::Seeder, false))]);
    let mut changes = Vec::new();
    assert_eq!(store.take_all_web(&mut changes), 0);
    // The last word on each.
    let told: BTreeMap<_, _> =
        changes.iter().map(|it| ((it.info_hash, it.peer), it.word)).collect();
    assert_eq!((changes.len(), told.len()), (2 + 299, 300));
    for ((info_hash, peer), word) in told {
        let number = (0..300).find(|number| peer_of(1, *number, 1) == peer).unwrap();
        assert_eq!(info_hash, InfoHash([number as u8 % 5; 20]));
        let expected = match number {
            0 => Word::present(0, ROLES[1], false),
            1 => Word::gone(),
            _ => Word::present(0, ROLES[number % 3], false),
        };
        assert_eq!(word, expected, "{number}");
    }
}

/// A peer whose interval is longer by `extra_s` is kept for longer by as many, and told at each announce.
#[test]
fn peers_with_a_longer_interval_live_longer() {
    const EXTRA_S: u32 = 600;
    let store = store();
    store.set_node(1);
    store.keep_web_changes(100);
    let usual = web_request(1, peer_of(1, 1, 1), Role::Leecher, UPDATE, 0);
    let longer = StoreWebAnnounce { peer: peer_of(1, 2, 1), extra_s: EXTRA_S, ..usual };
    let is_there = |request: &StoreWebAnnounce| store.has_web(&request.info_hash, &request.peer);
    for now in [9, 9 + WEB_LIFETIME_S] {
        join(&store, now, &usual);
        join(&store, now, &longer);
    }
    assert_eq!(take(&store).iter().filter(|it| it.peer == longer.peer).count(), 2);
    let sweep = |now| (0..4).for_each(|_| store.sweep(Tick(now), 1));
    let end = 9 + WEB_LIFETIME_S + WEB_LIFETIME_S;
    sweep(end + 2 * AGE_UNIT_S);
    assert_eq!([is_there(&usual), is_there(&longer)], [false, true]);
    sweep(end + EXTRA_S);
    assert!(is_there(&longer));
    sweep(end + EXTRA_S + 2 * AGE_UNIT_S);
    assert!(!is_there(&longer));
}

/// With long intervals peers of other nodes live as long as it takes to hear of them.
#[test]
fn peers_of_other_nodes_outlive_a_long_interval() {
    let store = store();
    store.set_node(1);
    store.set_lifetimes(1000, 1500);
    let seeder = change(1, peer_of(2, 1, 1), Word::present(0, Role::Seeder, false));
    merge(&store, 3000, 2, &[seeder]);
    (0..4).for_each(|_| store.sweep(Tick(3000 + WEB_REFRESH_S + 1000), 1));
    assert_eq!(store.totals().web.seeders, 1);
    let old = How { now: 9000, cut_ago_s: 3000 };
    assert_eq!(merge_web(&store, old, 2, &[seeder]).old, 1);
}

/// A peer as the naive twin has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TwinPeer {
    role: Role,
    counted: bool,
    unit: i64,
}

/// The naive twin: peers, and downloads of each torrent.
#[derive(Default)]
struct Twin {
    peers: BTreeMap<(u8, WebPeer), TwinPeer>,
    downloads: [u32; TORRENTS as usize],
}

impl Twin {
    /// Returns whether the announce counts as a download.
    fn announce(&mut self, now: u32, request: &StoreWebAnnounce) -> Result<bool, TooSoon> {
        let torrent = request.info_hash.0[0];
        let Action::Update { completed } = request.action else {
            self.peers.remove(&(torrent, request.peer));
            return Ok(false);
        };
        let unit = i64::from(now) / UNIT_S;
        let known = self.peers.get(&(torrent, request.peer));
        if let Some(same) = known.filter(|known| known.role == request.role) {
            let age = (unit - same.unit) as u32;
            if age < request.min_interval_s / AGE_UNIT_S {
                return Err(TooSoon { age_s: age * AGE_UNIT_S });
            }
        }
        let was_counted = known.is_some_and(|known| known.counted);
        self.downloads[usize::from(torrent)] += u32::from(completed && !was_counted);
        let counted = was_counted || completed;
        self.peers.insert((torrent, request.peer), TwinPeer { role: request.role, counted, unit });
        Ok(completed && !was_counted)
    }

    /// Checks the peers that offers of an announce go to: as many as it wants, of this and other nodes.
    fn check_targets(&self, request: &StoreWebAnnounce, chosen: &RelayTargets) {
        let is_useful = |((torrent, peer), known): &(&(u8, WebPeer), &TwinPeer)| {
            *torrent == request.info_hash.0[0]
                && *peer != request.peer
                && (request.role == Role::Leecher || known.role != Role::Seeder)
        };
        let useful = self.peers.iter().filter(is_useful).map(|((_, peer), _)| *peer);
        let useful: BTreeSet<_> = useful.collect();
        assert_eq!(chosen.len(), useful.len().min(request.want.into()));
        let distinct: BTreeSet<_> = chosen.iter().copied().collect();
        assert_eq!(distinct.len(), chosen.len());
        assert!(distinct.is_subset(&useful));
    }

    fn merge(&mut self, how: How, change: &WebChange) {
        let How { now, cut_ago_s } = how;
        let (torrent, word) = (change.info_hash.0[0], change.word);
        let cut = (i64::from(now) - i64::from(cut_ago_s)).div_euclid(UNIT_S);
        let unit = cut - i64::from(word.age());
        if i64::from(now) / UNIT_S - unit > i64::from(REMOTE_LIFETIME_S.div_ceil(AGE_UNIT_S)) {
            return;
        }
        let key = (torrent, change.peer);
        let known = self.peers.get(&key).copied();
        let was_counted = known.is_some_and(|known| known.counted);
        let counted = was_counted || word.is_counted();
        match known {
            Some(known) if known.unit > unit => {
                let counted = was_counted || (word.is_counted() && !word.is_gone());
                self.peers.insert(key, TwinPeer { counted, ..known });
            }
            _ if word.is_gone() => {
                self.peers.remove(&key);
                return;
            }
            _ => drop(self.peers.insert(key, TwinPeer { role: word.role(), counted, unit })),
        }
        self.downloads[usize::from(torrent)] += u32::from(word.is_completed() && !was_counted);
    }

    fn sweep(&mut self, now: u32) {
        self.peers.retain(|(_, peer), known| {
            let own = peer.connection.node() == 1;
            let lifetime_s = if own { WEB_LIFETIME_S } else { REMOTE_LIFETIME_S };
            i64::from(now) / UNIT_S - known.unit <= i64::from(lifetime_s.div_ceil(AGE_UNIT_S))
        });
    }

    fn check(&self, store: &Store, now: u32) {
        let (mut seeders, mut leechers, mut partial) = (0, 0, 0);
        for torrent in 0..TORRENTS {
            let of = |wanted: &dyn Fn(Role) -> bool| {
                let all = self.peers.iter().filter(|((of, _), _)| *of == torrent);
                all.filter(|(_, peer)| wanted(peer.role)).count() as u32
            };
            let counts = announce_plain(store, Tick(now), torrent, UPDATE);
            let [own_seeders, own_partial] =
                [Role::Seeder, Role::PartialSeed].map(|role| of(&|other| other == role));
            assert_eq!(counts.web.seeders, own_seeders);
            assert_eq!(counts.web.leechers, of(&|role| role != Role::Seeder));
            assert_eq!(counts.partial_seeds, own_partial);
            assert_eq!(counts.downloads, self.downloads[usize::from(torrent)]);
            seeders += u64::from(counts.web.seeders);
            leechers += u64::from(counts.web.leechers);
            partial += u64::from(counts.partial_seeds);
            let details = store.inspect(Tick(now), &InfoHash([torrent; 20]), 1000).unwrap();
            let ages = details.peers.iter().filter(|peer| peer.address.is_none());
            let mut ages: Vec<_> = ages.map(|peer| (peer.id, peer.role, peer.age_s)).collect();
            let mine = self.peers.iter().filter(|((of, _), _)| *of == torrent);
            let age = |unit: i64| ((i64::from(now) / UNIT_S - unit) * UNIT_S) as u32;
            let mut expected: Vec<_> = mine
                .map(|((_, peer), known)| (Some(peer.peer_id), known.role, age(known.unit)))
                .collect();
            ages.sort_by_key(|(id, role, age)| (*id, format!("{role:?}"), *age));
            expected.sort_by_key(|(id, role, age)| (*id, format!("{role:?}"), *age));
            assert_eq!(ages, expected);
        }
        let totals = store.totals();
        let found = (totals.web.seeders, totals.web.leechers, totals.partial_seeds);
        assert_eq!(found, (seeders, leechers, partial));
    }
}

#[test]
fn agrees_with_a_naive_twin() {
    for seed in 1..=4 {
        let (store, mut twin, mut random) = (store(), Twin::default(), Random::new(seed));
        store.set_node(1);
        store.keep_web_changes(1 << 16);
        let (mut now, mut purged) = (5, 0);
        // A torrent without peers may be removed, with its download count: an IP peer keeps each.
        for torrent in 0..TORRENTS {
            announce_plain(&store, Tick(now), torrent, UPDATE);
        }
        for _ in 0..300 {
            now += random.below(30);
            for _ in 0..random.below(10) {
                let peer = peer_of(1, random.below(30) as usize, random.below(2) as u8);
                let role = ROLES[random.below(3) as usize];
                let completed = random.below(6) == 0;
                let action = match random.below(4) {
                    0 => Action::Stop,
                    _ => Action::Update { completed },
                };
                let want = match action {
                    Action::Stop => 0,
                    Action::Update { .. } => random.below(12) as u16,
                };
                let request = StoreWebAnnounce {
                    min_interval_s: [0, 0, 45][random.below(3) as usize],
                    ..web_request(random.below(4) as u8, peer, role, action, want)
                };
                let mut targets = RelayTargets::new();
                let done = store.announce_web(Tick(now), &mut random, &request, &mut targets);
                assert_eq!(done.map(|done| done.downloaded), twin.announce(now, &request));
                if done.is_ok() {
                    twin.check_targets(&request, &targets);
                }
            }
            let node = 2 + random.below(2) as u8;
            let mut changes: Vec<_> = (0..random.below(100))
                .map(|_| {
                    let peer = peer_of(node, random.below(30) as usize, random.below(2) as u8);
                    change(random.below(TORRENTS.into()) as u8, peer, random_word(&mut random))
                })
                .collect();
            changes.sort_by_key(|change| change.info_hash);
            let how = How::random(&mut random, now);
            merge_web(&store, how, node, &changes);
            changes.iter().for_each(|change| twin.merge(how, change));
            twin.check(&store, now);
            match random.below(12) {
                0 => {
                    (0..4).for_each(|_| store.sweep(Tick(now), 1));
                    twin.sweep(now);
                }
                1 => {
                    let before = twin.peers.len();
                    twin.peers.retain(|(_, peer), _| peer.connection.node() != node);
                    let gone = store.purge_web_node(node);
                    assert_eq!(gone, (before - twin.peers.len()) as u64);
                    purged += gone;
                }
                _ => {}
            }
            twin.check(&store, now);
        }
        assert!(purged > 100, "{purged}");
        // All expire: WebTorrent peers, then the IP peers, which live longer, and their torrents.
        for (late_s, torrents) in [(1000, TORRENTS), (410 * AGE_UNIT_S, 0)] {
            (0..4).for_each(|_| store.sweep(Tick(now + late_s), 1));
            assert_eq!(store.totals().web, Default::default());
            assert_eq!(store.totals().torrents, u64::from(torrents));
        }
    }
}

#[test]
fn a_purge_misses_none_while_peers_come_and_go() {
    let store = Store::new(&Options { keep_peer_ids: false, ..options(1) });
    store.set_node(1);
    let mut random = Random::new(3);
    for round in 0..20 {
        let word = Word::present(0, ROLES[round % 3], false);
        for node in [2, 3] {
            let all: Vec<_> = (0..600)
                .map(|place| change((place % 7) as u8, peer_of(node, place, 1), word))
                .collect();
            merge(&store, 9, node, &all);
        }
        let (mut walk, mut purged) = (WebWalk::new(2), 0);
        loop {
            let steps = 1 + random.below(9) as usize;
            let has_more = store.lock(0).purge_web(&mut walk, steps, &mut purged);
            if !has_more {
                break;
            }
            // Of both nodes, and of this one, some leave, and others come.
            for _ in 0..random.below(4) {
                let node = 2 + random.below(2) as u8;
                let place = random.below(600) as usize;
                let gone = change((place % 7) as u8, peer_of(node, place, 1), Word::gone());
                merge(&store, 9, node, &[gone]);
                let own = peer_of(1, random.below(50) as usize, 1);
                let request = web_request(random.below(7) as u8, own, Role::Seeder, UPDATE, 0);
                let mut targets = RelayTargets::new();
                store.announce_web(Tick(9), &mut random, &request, &mut targets).unwrap();
            }
        }
        assert!(purged > 200);
        assert_eq!(store.purge_web_node(2), 0);
        assert!(store.purge_web_node(3) > 200);
        assert!(store.purge_web_node(1) > 0);
        assert_eq!(store.totals().web, Default::default());
    }
}
