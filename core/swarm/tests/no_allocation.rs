//! The announce of a known peer allocates nothing, whatever the size of its swarm, and neither does
//! a scrape. (A new peer may: its memory comes in chunks.)

use primitives::Random;
use tidegate_swarm::{Action, Options, PeerCaps, Store, StoreAnnounce};
use types::{
    AnnounceSummary, Families, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, PeerSink, Role,
    StoreSink, SwarmCounts, Tick, TooSoon,
};

/// Counts answers and peers.
#[derive(Default)]
struct Count {
    answers: usize,
    peers: usize,
}

impl StoreSink for Count {
    fn too_soon(&mut self, _: u8, _: TooSoon) {}
    fn accept(&mut self, _: u8, _: &AnnounceSummary) {
        self.answers += 1;
    }
}

impl PeerSink for Count {
    fn peers_v4(&mut self, _: u8, peers: &[PackedV4]) {
        self.peers += peers.len();
    }
    fn peers_v6(&mut self, _: u8, peers: &[PackedV6]) {
        self.peers += peers.len();
    }
    fn peer_with_id(&mut self, _: u8, _: PeerKey, _: PeerId) {
        self.peers += 1;
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
        with_ids: false,
    }
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
    let mut sink = Count::default();
    let round =
        |now: u32| (0..12_000).map(|number| request(number, now)).collect::<Vec<StoreAnnounce>>();
    for now in 1..=4 {
        store.announce(Tick(now), &mut random, &round(now), &mut sink);
    }
    let (requests, mut counts) = (round(5), [SwarmCounts::default(); 4]);
    let info_hashes = [0, 1, 2, 3].map(|byte| InfoHash([byte; 20]));
    let info = allocation_counter::measure(|| {
        store.announce(Tick(5), &mut random, &requests, &mut sink);
        store.scrape(&info_hashes, &mut counts);
    });
    assert_eq!(sink.answers, 5 * requests.len());
    assert!(sink.peers > sink.answers);
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
