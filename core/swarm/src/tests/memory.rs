//! The memory budget under attack. `benches/hostile.rs` is the same at full scale.

use types::{ConnectionKey, WebPeer};

use super::*;
use crate::{RelayTargets, StoreWebAnnounce};

const STEP_S: u32 = 60;
/// Steps after which every peer announces again.
const STEPS: u32 = 30;

fn in_torrent(kind: u8, torrent: u32, peer: PeerKey) -> StoreAnnounce {
    let mut info_hash = [kind; 20];
    info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
    let caps = PeerCaps { per_address: 8, per_network: 64 };
    let request = StoreAnnounce { caps, want: 0, ..update(0, peer, Role::Leecher) };
    StoreAnnounce { info_hash: InfoHash(info_hash), ..request }
}

/// Returns an honest peer in a network of its own. Half of them share a torrent.
fn honest(number: u32) -> StoreAnnounce {
    let [.., a, b] = number.to_be_bytes();
    let peer = match number % 4 {
        3 => PeerKey::new(Ipv6Addr::new(0x2400, number as u16, 0, 0, 0, 0, 0, 1).into(), 6881),
        _ => PeerKey::new(Ipv4Addr::new(30, a, b, 1).into(), 6881),
    };
    let torrent = if number.is_multiple_of(2) { 0 } else { 1 + number / 8 };
    in_torrent(1, torrent, peer)
}

fn junk(number: u32, networks: u32) -> StoreAnnounce {
    let peer = Ipv4Addr::new(20, 0, (number % networks) as u8, 9).into();
    in_torrent(2, number, PeerKey::new(peer, 1 + (number % 60_000) as u16))
}

fn budgeted(shards: usize, budget: u64) -> Store {
    let store = Options { memory_budget: Some(budget), keep_peer_ids: false, ..options(shards) };
    Store::new(&Options { peer_lifetime_s: 2700, ..store })
}

/// Announces `junk_count` torrents of `networks` networks again and again, beside honest peers of
/// whom half come during the attack. Returns the store, and how many honest peers it has.
fn attack(networks: u32, junk_count: u32, honest_count: u32) -> (Store, u32) {
    let store = budgeted(2, 8 << 20);
    let known: Vec<_> = (0..honest_count / 2).map(honest).collect();
    announce(&store, 0, &known);
    for step in 0..3 * STEPS {
        let now = STEP_S * (step + 1);
        let part = |all: u32| all / STEPS * (step % STEPS)..all / STEPS * (step % STEPS + 1);
        let others: Vec<_> = part(junk_count).map(|number| junk(number, networks)).collect();
        announce(&store, now, &others);
        let known = if step < STEPS { honest_count / 2 } else { honest_count };
        announce(&store, now, &part(known).map(honest).collect::<Vec<_>>());
        store.sweep(Tick(now), 1, &|_| false);
    }
    let mut stored = BTreeSet::new();
    for number in 0..honest_count {
        let info_hash = honest(number).info_hash;
        let peers = store.inspect(Tick(0), &info_hash, 1000).map(|details| details.peers);
        stored.extend(peers.unwrap_or_default().into_iter().map(|peer| peer.address));
    }
    (store, stored.len() as u32)
}

#[test]
fn honest_peers_stay_and_join_while_a_source_fills_the_memory() {
    for networks in [1, 64] {
        let (store, stored) = attack(networks, 180_000, 600);
        assert!(stored >= 594, "{networks} networks: {stored} of 600");
        let totals = store.totals();
        assert!(totals.refused_for_share > 100_000, "{totals:?}");
        assert_eq!(totals.refused_for_memory, 0);
    }
}

#[test]
fn the_largest_networks_lose_peers_first_when_memory_is_short() {
    let store = budgeted(1, 2 << 20);
    // Local peers have no share: they fill the memory to nine tenths.
    let mut number = 0;
    let mut fill = |until: u64| {
        while store.totals().memory_used < until {
            let requests = (number..number + 64).map(|number| in_torrent(3, number, v4(number)));
            announce(&store, 1, &requests.collect::<Vec<_>>());
            number += 64;
        }
    };
    fill(1 << 20);
    let of_network = |network: u32, count: u32| -> Vec<_> {
        (0..count).map(|number| junk((number << 8) + network, 256)).collect()
    };
    announce(&store, 1, &of_network(1, 900));
    announce(&store, 1, &of_network(2, 100));
    fill((2 << 20) / 16 * 15 - 10_000);
    let stored = |network: u8| {
        let ip = Ipv4Addr::new(20, 0, network, 9).into();
        store.peers_at(Tick(1), ip, usize::MAX).len()
    };
    assert_eq!((stored(1), stored(2)), (900, 100));
    // Exempt networks lose none.
    (0..2).for_each(|_| store.sweep(Tick(2), 1, &|_| true));
    assert_eq!((stored(1), stored(2)), (900, 100));
    (0..2).for_each(|_| store.sweep(Tick(2), 1, &|_| false));
    assert!(stored(1) < 500 && stored(2) == 100, "{} {}", stored(1), stored(2));
    let totals = store.totals();
    assert_eq!((totals.evicted, totals.expired), (900 - stored(1) as u64, 0));
    assert_eq!(totals.refused_for_share, 0);
}

#[test]
fn v6_announces_do_not_grow_a_full_store() {
    let store = budgeted(1, 1 << 20);
    let mut number = 0;
    while store.totals().refused_for_memory == 0 {
        announce(&store, 1, &[in_torrent(3, number, v4(number))]);
        number += 1;
    }
    while store.totals().memory_used < 1 << 20 {
        announce(&store, 1, &[in_torrent(3, 0, v4(number))]);
        number += 1;
    }
    let full = store.totals();
    assert!(full.memory_used >= 1 << 20);
    let requests: Vec<_> =
        (0..full.torrents as u32).map(|number| in_torrent(3, number, v6(number))).collect();
    announce(&store, 1, &requests);
    let refused = full.refused_for_memory + full.torrents;
    let totals = store.totals();
    assert_eq!(totals.memory_used, full.memory_used);
    assert_eq!((totals.v6.leechers, totals.refused_for_memory), (0, refused));
}

#[test]
fn torrents_that_are_left_at_once_do_not_fill_the_memory() {
    let store = budgeted(1, 1 << 20);
    for number in 0..50_000 {
        let request = junk(number, 1);
        let stop = StoreAnnounce { action: Action::Stop, ..request };
        announce(&store, 1, &[request, stop]);
    }
    let totals = store.totals();
    assert!(totals.memory_used < 1 << 20, "{totals:?}");
    assert_eq!(totals.refused_for_memory, 0);
    announce(&store, 1, &[honest(0)]);
    assert_eq!(store.totals().v4.leechers, 1);
}

/// Whatever happens to peers, the counts of networks follow: otherwise a debug assertion fails, or
/// refusals remain.
#[test]
fn counts_of_networks_follow_all_removals() {
    let store = budgeted(1, 64 << 20);
    let mut random = Random::new(3);
    for now in 0..400 {
        let requests: Vec<_> = (0..32)
            .map(|_| {
                let request = if random.below(2) == 0 {
                    junk(random.below(4000), 4)
                } else {
                    honest(random.below(400))
                };
                let roles = [Role::Seeder, Role::Leecher, Role::PartialSeed];
                let stops = [Action::Stop, request.action][random.below(5).min(1) as usize];
                let role = roles[random.below(3) as usize];
                // Most in a few torrents, so that caps replace peers.
                let info_hash = match random.below(3) {
                    0 => request.info_hash,
                    _ => InfoHash([random.below(3) as u8; 20]),
                };
                StoreAnnounce { action: stops, role, info_hash, ..request }
            })
            .collect();
        announce(&store, now * 20, &requests);
        match random.below(20) {
            0 => drop(store.remove(&InfoHash([random.below(3) as u8; 20]))),
            1 => drop(store.remove_peers_at(Tick(now * 20), Ipv4Addr::new(20, 0, 1, 9).into())),
            2 => store.sweep(Tick(now * 20), 1, &|_| false),
            _ => {}
        }
    }
    assert!(store.totals().replaced > 100);
    (0..3).for_each(|_| sweep_all(&store, 100_000));
    let totals = store.totals();
    assert_eq!((totals.torrents, totals.v4, totals.v6), (0, <_>::default(), <_>::default()));
    assert_eq!(store.counted_peers(), 0);
}

#[test]
fn webtorrent_peers_leave_half_of_the_memory_to_others() {
    let budget = 4 << 20;
    let store = budgeted(1, budget);
    let join = |torrent: u32| {
        let mut info_hash = [3; 20];
        info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
        let connection = ConnectionKey(u64::from(torrent));
        let request = StoreWebAnnounce {
            info_hash: InfoHash(info_hash),
            peer: WebPeer { connection, peer_id: PeerId([7; 20]) },
            role: Role::Leecher,
            action: Action::Update { completed: false },
            min_interval_s: 0,
            address: Ipv4Addr::LOCALHOST.into(),
            caps: PeerCaps::default(),
            want: 0,
        };
        let mut random = Random::new(u64::from(torrent));
        store.announce_web(Tick(0), &mut random, &request, &mut RelayTargets::default()).unwrap();
    };
    (0..20_000).for_each(join);
    let totals = store.totals();
    assert!(totals.refused_for_memory > 0 && totals.web.leechers > 1000, "{totals:?}");
    assert!(totals.memory_used < budget / 8 * 7, "{totals:?}");
    // Others find room, in torrents of their own.
    announce(&store, 0, &(0..1000).map(honest).collect::<Vec<_>>());
    assert_eq!(store.totals().v4.leechers + store.totals().v6.leechers, 1000);
}
