//! Stores of several nodes, which send each other blocks.

use replication::{AGE_UNIT_S, ReplicatedStore};

use super::*;

/// Seconds, as all nodes count them, when tests begin: whole units.
const BEGIN: u32 = 100_000 * AGE_UNIT_S;

/// A node whose tick 0 is `epoch`, a multiple of 16 s, so that all nodes use the same units of age.
struct Node {
    store: Store,
    number: u16,
    epoch: u32,
}

impl Node {
    fn new(number: u16) -> Self {
        let hash_key = [number as u8; 16];
        let store = Store::new(&Options { hash_key, keep_peer_ids: false, ..options(2) });
        store.keep_changes(100);
        // Without a period of refreshes, stops of unknown peers are not told.
        store.keep_refreshes(32);
        store.remember_removals(true);
        let epoch = BEGIN - u32::from(number) * 7 * AGE_UNIT_S;
        Self { store, number, epoch }
    }

    fn tick(&self, now: u32) -> Tick {
        Tick(now - self.epoch)
    }

    /// Announces, and returns the block of what changed.
    fn announce(&self, now: u32, request: StoreAnnounce) -> Cut {
        announce(&self.store, self.tick(now).0, &[request]);
        let mut changes = Vec::new();
        for shard in 0..self.store.shards() {
            let mut taken = Vec::new();
            assert_eq!(self.store.take_changes(shard, &mut taken, &mut Vec::new()), 0);
            changes.append(&mut taken);
        }
        Cut { at: now, bytes: block_of(self.number, &changes) }
    }

    /// Returns a block of a walk that has found a leecher.
    fn walk_of(&self, at: u32, peer: PeerKey) -> Cut {
        let mut body = Vec::new();
        let head = block::Head { downloads: 0, born_min: 0 };
        let word = Word::present(0, Role::Leecher, false);
        block::GroupWriter::new(&mut body, InfoHash([1; 20]), Some(head)).push(peer, word, None);
        Cut { at, bytes: written(&header(Kind::WALK, self.number), &body) }
    }

    fn merge(&self, now: u32, cut: &Cut) {
        cut.merge(&self.store, self.tick(now), now - cut.at);
    }

    fn peers(&self) -> usize {
        self.store.dump().len()
    }
}

#[test]
fn refreshes_are_kept_on_demand_only() {
    let store = store(1);
    let request = update(1, v4(1), Role::Leecher);
    let peer_of_set: Vec<_> = (10..20).map(|number| update(2, v4(number), Role::Seeder)).collect();
    let all = [&[request], &*peer_of_set].concat();
    announce(&store, 0, &all);
    let taken = || replicate::take(&store).0;
    // Without changes there are no refreshes.
    store.keep_refreshes(1);
    announce(&store, 100, &all);
    store.keep_changes(100);
    store.keep_refreshes(0);
    announce(&store, 200, &all);
    assert_eq!(taken(), []);
    store.keep_refreshes(1);
    announce(&store, 210, &all);
    // In the same unit of age as before.
    announce(&store, 220, &all);
    let changes = taken();
    assert_eq!(changes.len(), all.len());
    let word = |role| Word::present(0, role, false);
    for (change, request) in changes.iter().zip(&all) {
        assert_eq!((change.info_hash, change.peer), (request.info_hash, request.peer));
        assert_eq!((change.word, change.is_refresh), (word(request.role), true));
    }
    // Keeping changes anew leaves the period as it is.
    store.keep_changes(100);
    let completed =
        StoreAnnounce { action: Action::Update { completed: true }, role: Role::Seeder, ..all[3] };
    let too_soon = StoreAnnounce { min_interval_s: 400, ..all[4] };
    announce(&store, 300, &[completed, too_soon, update(1, v4(1), Role::Seeder)]);
    let changes = taken();
    let found: Vec<_> = changes.iter().map(|change| (change.word, change.is_refresh)).collect();
    assert_eq!(found, [(Word::completed(Role::Seeder), false), (word(Role::Seeder), false)]);
    announce(&store, 400, &[completed]);
    assert_eq!(taken().iter().filter(|change| change.is_refresh).count(), 1);
}

#[test]
#[should_panic(expected = "expected a power of two, found 3")]
fn periods_are_powers_of_two() {
    store(1).keep_refreshes(3);
}

/// Two peers begin at one node and stop at another; one of them begins again. Then blocks of the first node
/// come late: those that reported their begin, and one of a walk that was cut before it knew of the stops.
#[test]
fn blocks_that_come_late_bring_back_no_peer() {
    let nodes = [1, 2, 3].map(Node::new);
    let (gone, back) = (v4(7), v6(8));
    let start = |peer| update(1, peer, Role::Leecher);
    let stop = |peer| StoreAnnounce { action: Action::Stop, ..start(peer) };
    let began = [nodes[0].announce(BEGIN, start(gone)), nodes[0].announce(BEGIN + 1, start(back))];
    let ended =
        [nodes[1].announce(BEGIN + 3, stop(gone)), nodes[2].announce(BEGIN + 5, stop(back))];
    let walk = nodes[0].walk_of(BEGIN + 4, gone);
    let log = began.iter().chain(&ended).chain([&walk]).chain(&began);
    for node in &nodes {
        log.clone().for_each(|cut| node.merge(BEGIN + 9, cut));
        assert_eq!(node.peers(), 0);
    }
    // An announce after a stop counts, also within the same unit of age.
    let again = nodes[0].announce(BEGIN + 10, start(back));
    for node in &nodes {
        node.merge(BEGIN + 10, &again);
        assert_eq!(node.peers(), 1);
    }
    // In time, removals are forgotten.
    for node in &nodes {
        node.store.forget_removals();
        node.store.forget_removals();
        node.merge(BEGIN + 11, &began[0]);
        assert_eq!(node.peers(), 2);
    }
}
