//! The memory budget under attack.

use replication::block::WebChange;
use types::ConnectionKey;

use super::*;

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
        store.sweep(Tick(now), 1);
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
    store.set_exempt(|_| true);
    (0..2).for_each(|_| store.sweep(Tick(2), 1));
    assert_eq!((stored(1), stored(2)), (900, 100));
    store.set_exempt(|_| false);
    (0..2).for_each(|_| store.sweep(Tick(2), 1));
    assert!(stored(1) < 500 && stored(2) == 100, "{} {}", stored(1), stored(2));
    let totals = store.totals();
    assert_eq!((totals.evicted, totals.expired), (900 - stored(1) as u64, 0));
    assert_eq!(totals.refused_for_share, 0);
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

/// A browser announces at `node`, in a torrent of its own.
fn web_request(node: u8, torrent: u32, address: Ipv4Addr) -> StoreWebAnnounce {
    let mut info_hash = [3; 20];
    info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
    let connection = ConnectionKey::new(node, 1, 7, torrent as usize);
    let peer = WebPeer { connection, peer_id: PeerId([7; 20]) };
    StoreWebAnnounce {
        info_hash: InfoHash(info_hash),
        address: address.into(),
        ..web_update(0, peer, Role::Leecher)
    }
}

/// Merges browsers that another node reports.
fn merge_web(store: &Store, node: u8, requests: &[StoreWebAnnounce]) -> Merged {
    let word = Word::present(0, Role::Leecher, false);
    let change = |request: &StoreWebAnnounce| {
        let StoreWebAnnounce { info_hash, peer, address, .. } = *request;
        WebChange { info_hash, peer, address, word }
    };
    let changes: Vec<_> = requests.iter().map(change).collect();
    merge::merge_web(store, merge::How { now: 0, cut_ago_s: 0 }, node, &changes)
}

/// Announces browsers of networks in turn, at this node or at another one, until half of the memory would be
/// full many times. Returns the store and how many of 100 browsers of other networks it takes afterwards.
fn fill_by_web(networks: u32, node: u8) -> (Store, usize) {
    let store = budgeted(1, 4 << 20);
    let hostile: Vec<_> = (0..20_000)
        .map(|number| web_request(node, number, Ipv4Addr::new(20, 0, (number % networks) as u8, 9)))
        .collect();
    for part in hostile.chunks(500) {
        match node {
            0 => part.iter().for_each(|request| join(&store, 0, request)),
            _ => drop(merge_web(&store, node, part)),
        }
        store.sweep(Tick(0), 1);
    }
    let honest: Vec<_> = (0..100)
        .map(|number| web_request(node, 100_000 + number, Ipv4Addr::new(61, number as u8, 1, 1)))
        .collect();
    match node {
        0 => honest.iter().for_each(|request| join(&store, 0, request)),
        _ => drop(merge_web(&store, node, &honest)),
    }
    (0..3).for_each(|_| store.sweep(Tick(0), 1));
    let held = honest.iter().filter(|it| store.has_web(&it.info_hash, &it.peer)).count();
    (store, held)
}

#[test]
fn webtorrent_peers_have_a_share_by_network() {
    // One network keeps to its share, and many lose peers first when half of the memory runs out; at this node,
    // and of others.
    for (networks, node) in [(1, 0), (40, 0), (1, 5), (40, 5)] {
        let (store, held) = fill_by_web(networks, node);
        assert_eq!(held, 100, "{networks} {node}");
        let totals = store.totals();
        assert_eq!(totals.refused_for_memory, 0);
        assert!(totals.memory_used < (4 << 20) / 8 * 5, "{totals:?}");
        match (networks, node) {
            // A sixteenth of the budget.
            (1, 0) => assert_eq!(totals.web.leechers - 100, (4 << 20) / 16 / 128 / 4),
            (40, 0) => assert!(totals.refused_for_share > 10_000, "{totals:?}"),
            _ => assert!(totals.evicted > 10, "{totals:?}"),
        }
        assert_eq!(totals.expired, 0);
        assert_eq!(store.counted_peers(), 4 * totals.web.leechers);
        // Counts follow when they go.
        match node {
            0 => (0..9).for_each(|_| store.sweep(Tick(10_000), 1)),
            _ => assert_eq!(store.purge_web_node(node), totals.web.leechers),
        }
        assert_eq!((store.totals().web, store.counted_peers()), (<_>::default(), 0));
    }
}

#[test]
fn webtorrent_peers_leave_half_of_the_memory_to_others() {
    let budget = 4 << 20;
    let store = budgeted(1, budget);
    (0..20_000).for_each(|torrent| join(&store, 0, &web_request(0, torrent, Ipv4Addr::LOCALHOST)));
    let totals = store.totals();
    assert!(totals.refused_for_memory > 0 && totals.web.leechers > 1000, "{totals:?}");
    assert!(totals.memory_used < budget / 8 * 7, "{totals:?}");
    // Others find room, in torrents of their own.
    announce(&store, 0, &(0..1000).map(honest).collect::<Vec<_>>());
    assert_eq!(store.totals().v4.leechers + store.totals().v6.leechers, 1000);
}
