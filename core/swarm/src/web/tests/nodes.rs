//! WebTorrent peers of several nodes.

use replication::block::{Block, BlockError, Kind, encode_web_changes};
use replication::{Merged, WEB_REFRESH_S};

use super::*;
use crate::tests::header;
use crate::tests::merge::{How, merge_web};

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
