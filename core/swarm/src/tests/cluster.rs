//! Stores of several nodes, which send each other blocks.

use replication::{AGE_UNIT_S, ReplicatedStore, refresh_period_units};

use super::*;

/// Seconds, as all nodes count them, when tests begin: whole units.
const BEGIN: u32 = 100_000 * AGE_UNIT_S;

/// A node whose tick 0 is `epoch`, a multiple of 16 s, so that all nodes use the same units of age.
struct Node {
    store: Store,
    number: u16,
    epoch: u32,
    changes: Vec<Change>,
}

impl Node {
    fn new(number: u16, options: Options, period_units: u32) -> Self {
        let hash_key = [number as u8; 16];
        let store = Store::new(&Options { hash_key, keep_peer_ids: false, ..options });
        store.keep_changes(1 << 16);
        store.keep_refreshes(period_units);
        store.remember_removals(true);
        let epoch = BEGIN - u32::from(number) * 7 * AGE_UNIT_S;
        Self { store, number, epoch, changes: Vec::new() }
    }

    fn tick(&self, now: u32) -> Tick {
        Tick(now - self.epoch)
    }

    fn announce(&self, now: u32, requests: &[StoreAnnounce]) {
        announce(&self.store, self.tick(now).0, requests);
    }

    /// Takes all changes, and returns their block if there are any. Keeps them in `changes`.
    fn cut(&mut self, at: u32) -> Option<Cut> {
        self.changes.clear();
        for shard in 0..self.store.shards() {
            let (mut changes, mut ids) = (Vec::new(), Vec::new());
            assert_eq!(self.store.take_changes(shard, &mut changes, &mut ids), 0);
            self.changes.append(&mut changes);
        }
        let bytes = block_of(self.number, &self.changes);
        (!self.changes.is_empty()).then_some(Cut { at, bytes })
    }

    /// Returns a block of a walk.
    fn walk_of(&self, at: u32, peers: &[Change]) -> Cut {
        let mut body = Vec::new();
        for Change { info_hash, peer, word, .. } in peers {
            let head = block::Head { downloads: 0, born_min: 0 };
            block::GroupWriter::new(&mut body, *info_hash, Some(head)).push(*peer, *word, None);
        }
        Cut { at, bytes: written(&header(Kind::WALK, self.number), &body) }
    }

    fn merge(&self, now: u32, cut: &Cut) {
        cut.merge(&self.store, self.tick(now), now - cut.at);
    }

    /// Returns the roles and marks of all peers, the latter in units that all nodes count alike.
    fn peers(&self, now: u32) -> BTreeMap<(InfoHash, PeerKey), (Role, u32)> {
        let unit = now / AGE_UNIT_S;
        let of = |(role, meta, _): (Role, replication::PeerMeta, PeerId)| {
            (role, unit - meta.age(self.tick(now)))
        };
        self.store.dump().into_iter().map(|(peer, what)| (peer, of(what))).collect()
    }
}

/// Peers announce within the interval, each time at any node. No node loses a peer because of announces that
/// another one does not send. The tests of `replication::is_due` say which these are.
#[test]
fn no_linked_node_lets_a_live_peer_expire() {
    const INTERVAL_S: u32 = 300;
    const PEERS: u32 = 60;
    let lifetime_s = 900;
    let period = refresh_period_units(lifetime_s, INTERVAL_S);
    assert_eq!(period, 16);
    let options = Options { peer_lifetime_s: lifetime_s, ..options(2) };
    let mut nodes: Vec<Node> = (1..=3).map(|number| Node::new(number, options, period)).collect();
    let mut random = Random::new(4);
    // Half of the peers announce as late as they may, others early and often.
    let mut next: Vec<u32> = (0..PEERS).map(|_| BEGIN + random.below(INTERVAL_S)).collect();
    let (mut announces, mut told, mut refreshes) = (0, 0, 0);
    for now in BEGIN..BEGIN + 12 * 3600 {
        for (number, next) in next.iter_mut().enumerate().filter(|(_, next)| **next == now) {
            let gap = if number % 2 == 0 { INTERVAL_S } else { 1 + random.below(INTERVAL_S) };
            *next = now + gap;
            let peer = if number % 3 == 0 { v6(number as u32) } else { v4(number as u32) };
            let at = if number % 5 == 0 { 0 } else { random.below(3) as usize };
            // A large torrent, and small ones.
            let torrent = if number % 4 == 0 { number as u8 } else { 255 };
            nodes[at].announce(now, &[update(torrent, peer, Role::Leecher)]);
            announces += 1;
            let cut = nodes[at].cut(now);
            refreshes += nodes[at].changes.iter().filter(|change| change.is_refresh).count();
            let Some(cut) = cut else { continue };
            told += 1;
            for (_, node) in nodes.iter().enumerate().filter(|(other, _)| *other != at) {
                node.merge(now, &cut);
            }
        }
        if now % AGE_UNIT_S == 0 && now > BEGIN + INTERVAL_S {
            for node in &nodes {
                node.store.sweep(node.tick(now), 1);
                assert_eq!(node.store.dump().len(), PEERS as usize, "at {now}");
            }
        }
    }
    assert_eq!(told - refreshes, PEERS as usize, "each peer comes once");
    assert!(told * 10 < announces * 9, "{told} of {announces}");
}

#[test]
fn refreshes_are_kept_on_demand_only() {
    let store = store(1);
    let request = update(1, v4(1), Role::Leecher);
    let peer_of_set: Vec<_> = (10..20).map(|number| update(2, v4(number), Role::Seeder)).collect();
    let all = [&[request], &*peer_of_set].concat();
    announce(&store, 0, &all);
    let taken = || {
        let mut changes = Vec::new();
        assert_eq!(store.take_changes(0, &mut changes, &mut Vec::new()), 0);
        changes
    };
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

/// Nodes that serve the same peers, and hear each other twice: at once or late, in any order, and some not at
/// all; and by a log, in its order, own blocks included.
struct Cluster {
    nodes: Vec<Node>,
    random: Random,
    /// Blocks of each node that are not in the log yet.
    unlogged: Vec<Vec<Cut>>,
    log: Vec<Cut>,
    /// Number of the log's blocks that each node has applied.
    applied: Vec<usize>,
    /// Blocks on the way to each node.
    live: Vec<Vec<Cut>>,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let nodes: Vec<_> = (1..=3).map(|number| Node::new(number, options(2), 1)).collect();
        let of_nodes = || vec![Vec::new(); nodes.len()];
        let (unlogged, live, applied) = (of_nodes(), of_nodes(), vec![0; nodes.len()]);
        Self { nodes, random: Random::new(seed), unlogged, log: Vec::new(), applied, live }
    }

    fn cut(&mut self, at: usize, now: u32) {
        let Some(cut) = self.nodes[at].cut(now) else { return };
        for (other, live) in self.live.iter_mut().enumerate() {
            if other != at && self.random.below(4) > 0 {
                live.push(cut.clone());
            }
        }
        self.unlogged[at].push(cut);
    }

    /// Logs the oldest block of a node that is not in the log.
    fn store_one(&mut self, at: usize) {
        if !self.unlogged[at].is_empty() {
            let cut = self.unlogged[at].remove(0);
            // It is there twice: the first acknowledgement was lost.
            if self.random.below(8) == 0 {
                self.log.push(cut.clone());
            }
            self.log.push(cut);
        }
    }

    fn hear_one(&mut self, at: usize, now: u32) {
        if !self.live[at].is_empty() {
            let which = self.random.below(self.live[at].len() as u32) as usize;
            let cut = self.live[at].swap_remove(which);
            self.nodes[at].merge(now, &cut);
        }
    }

    fn apply_one(&mut self, at: usize, now: u32) {
        if let Some(cut) = self.log.get(self.applied[at]) {
            self.nodes[at].merge(now, cut);
            self.applied[at] += 1;
        }
    }

    fn run(&mut self, seconds: u32, scale: &Scale) {
        for now in BEGIN..BEGIN + seconds {
            for at in 0..self.nodes.len() {
                let requests: Vec<_> = (0..self.random.below(4))
                    .map(|_| random_request(&mut self.random, scale))
                    .map(|request| StoreAnnounce { min_interval_s: 0, ..request })
                    .collect();
                self.nodes[at].announce(now, &requests);
                if self.random.below(3) == 0 {
                    self.cut(at, now);
                }
                if self.random.below(3) == 0 {
                    self.store_one(at);
                }
                for _ in 0..self.random.below(4) {
                    self.hear_one(at, now);
                    self.apply_one(at, now);
                }
            }
        }
        let now = BEGIN + seconds;
        for at in 0..self.nodes.len() {
            self.cut(at, now);
            (0..self.unlogged[at].len()).for_each(|_| self.store_one(at));
        }
        for at in 0..self.nodes.len() {
            while self.applied[at] < self.log.len() {
                if self.random.below(3) == 0 {
                    self.hear_one(at, now);
                }
                self.apply_one(at, now);
            }
        }
    }
}

/// The order of the log decides, whatever nodes have heard at once, and whatever announces came in between.
/// The log may be read again from an earlier position.
#[test]
fn nodes_that_apply_a_log_in_its_order_end_equal() {
    for seed in 1..=12 {
        let mut cluster = Cluster::new(seed);
        let scale = match seed % 3 {
            0 => Scale { torrents: 2, peers: 400, rounds: 0 },
            1 => Scale { torrents: 6, peers: 30, rounds: 0 },
            _ => Scale { torrents: 3, peers: 4, rounds: 0 },
        };
        cluster.run(400, &scale);
        let now = BEGIN + 400;
        let [node, others @ ..] = &*cluster.nodes else { unreachable!("there are three nodes") };
        let first = node.peers(now);
        assert!(first.len() > 5);
        assert!(others.iter().all(|other| other.peers(now) == first), "seed {seed}");
        cluster.log.iter().for_each(|cut| node.merge(now, cut));
        assert_eq!(node.peers(now), first, "applied twice");
    }
}

/// Two peers begin at one node and stop at another; one of them begins again. Then blocks of the first node
/// come late: those that reported their begin, and one of a walk that was cut before it knew of the stops.
#[test]
fn blocks_that_come_late_bring_back_no_peer() {
    let mut nodes = [1, 2, 3].map(|number| Node::new(number, options(2), 32));
    let (gone, back) = (v4(7), v6(8));
    let start = |peer| update(1, peer, Role::Leecher);
    let stop = |peer| StoreAnnounce { action: Action::Stop, ..start(peer) };
    let mut at = |node: usize, now: u32, request: StoreAnnounce| {
        nodes[node].announce(now, &[request]);
        nodes[node].cut(now).unwrap()
    };
    let began = [at(0, BEGIN, start(gone)), at(0, BEGIN + 1, start(back))];
    let ended = [at(1, BEGIN + 3, stop(gone)), at(2, BEGIN + 5, stop(back))];
    let walk = Change {
        info_hash: InfoHash([1; 20]),
        peer: gone,
        word: Word::present(0, Role::Leecher, false),
        is_refresh: false,
    };
    let walk = nodes[0].walk_of(BEGIN + 4, &[walk]);
    let log = began.iter().chain(&ended).chain([&walk]).chain(&began);
    for node in &nodes {
        log.clone().for_each(|cut| node.merge(BEGIN + 9, cut));
        assert_eq!(node.peers(BEGIN + 9), BTreeMap::new());
    }
    // An announce after a stop counts, also within the same unit of age.
    nodes[0].announce(BEGIN + 10, &[start(back)]);
    let again = nodes[0].cut(BEGIN + 10).unwrap();
    for node in &nodes {
        node.merge(BEGIN + 10, &again);
        assert_eq!(node.peers(BEGIN + 10).len(), 1);
    }
    // In time, removals are forgotten.
    for node in &nodes {
        node.store.forget_removals();
        node.store.forget_removals();
        node.merge(BEGIN + 11, &began[0]);
        assert_eq!(node.peers(BEGIN + 11).len(), 2);
    }
}
