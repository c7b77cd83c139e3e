//! The announce of a known peer allocates nothing, whatever the size of its swarm, and neither does
//! a scrape, or keeping and taking its changes and refreshes. (A new peer may: its memory comes in chunks.)

use primitives::Random;
use replication::ReplicatedStore;
use replication::block::Change;
use tidegate_swarm::{Action, Answer, Options, PeerCaps, Store, StoreAnnounce};
use types::{Families, InfoHash, PeerId, PeerKey, Role, SwarmCounts, Tick};

/// Counts answers and peers.
#[derive(Default)]
struct Count {
    answers: usize,
    peers: usize,
}

impl Count {
    fn add(&mut self, answer: &Answer<'_>) {
        self.answers += 1;
        answer.each_v4(|peers| self.peers += peers.len());
        answer.each_v6(|peers| self.peers += peers.len());
        answer.each_with_id(|_, _| self.peers += 1);
    }
}

/// An announce of peer `number` in a torrent of 1, 3, 60 or 1000 peers.
fn request(number: u32, now: u32) -> StoreAnnounce {
    let sizes = [1, 3, 60, 1000];
    let torrent = number % 4;
    let [a, b, c, d] = (number / 4 % sizes[torrent as usize]).to_be_bytes();
    let peer = match number % 3 {
        0 => PeerKey::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, 1, 2]),
        _ => PeerKey::V4([a, b, c, d, 1, 2]),
    };
    StoreAnnounce {
        slot: 0,
        info_hash: InfoHash([torrent as u8; 20]),
        peer,
        peer_id: PeerId([number as u8; 20]),
        // Peers change their role from one round to the next.
        role: if (number + now).is_multiple_of(4) { Role::Seeder } else { Role::Leecher },
        action: Action::Update { completed: false },
        min_interval_s: 0,
        caps: PeerCaps { per_address: 8, per_network: 64 },
        want: 50,
        families: Families::Both,
    }
}

/// Takes the changes of all shards and returns how many there were, and how many of them were refreshes.
fn take_all(store: &Store, changes: &mut Vec<Change>, ids: &mut Vec<PeerId>) -> (usize, usize) {
    let (mut count, mut refreshes) = (0, 0);
    for shard in 0..store.shards() {
        assert_eq!(store.take_changes(shard, changes, ids), 0);
        count += changes.len();
        refreshes += changes.iter().filter(|change| change.is_refresh).count();
        changes.clear();
        ids.clear();
    }
    (count, refreshes)
}

fn allocations(keep_peer_ids: bool) -> u64 {
    let store = Store::new(&Options {
        shards: 4,
        hash_key: [3; 16],
        peer_lifetime_s: 1000,
        web_lifetime_s: 240,
        keep_peer_ids,
        memory_budget: None,
    });
    let mut random = Random::new(1);
    let mut seen = Count::default();
    let round =
        |now: u32| (0..12_000).map(|number| request(number, now)).collect::<Vec<StoreAnnounce>>();
    for now in 1..=4 {
        store.announce(Tick(now), &mut random, &round(now), &mut |_, answer| {
            seen.add(&answer.expect("no minimal interval"));
        });
    }
    store.keep_changes(1 << 16);
    store.keep_refreshes(1);
    let (mut changes, mut ids) = (Vec::new(), Vec::new());
    for now in 5..=8 {
        // A vector for each shard, and the one that goes round.
        store.announce(Tick(now), &mut random, &round(now), &mut |_, answer| {
            seen.add(&answer.expect("no minimal interval"));
        });
        take_all(&store, &mut changes, &mut ids);
    }
    // In the next unit of age, so that there are refreshes.
    let (requests, mut counts) = (round(20), [SwarmCounts::default(); 4]);
    let (mut changed, mut refreshed) = (0, 0);
    let info_hashes = [0, 1, 2, 3].map(|byte| InfoHash([byte; 20]));
    let info = allocation_counter::measure(|| {
        store.announce(Tick(20), &mut random, &requests, &mut |_, answer| {
            seen.add(&answer.expect("no minimal interval"));
        });
        store.scrape(&info_hashes, &mut counts);
        (changed, refreshed) = take_all(&store, &mut changes, &mut ids);
    });
    assert_eq!(seen.answers, 9 * requests.len());
    assert!(changed > 1000 && refreshed > 100, "{changed} {refreshed}");
    assert!(seen.peers > seen.answers);
    assert!(counts.iter().all(|counts| counts.leechers() + counts.seeders() > 0));
    info.count_total
}

#[test]
fn known_peers_allocate_nothing() {
    let canary = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(canary.count_total, 1, "allocations are not counted");
    assert_eq!(allocations(false), 0);
    assert_eq!(allocations(true), 0);
}
