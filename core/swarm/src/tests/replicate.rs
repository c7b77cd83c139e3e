//! Changes and walks, replayed: what they say is what the store holds.

use super::*;
use crate::block::{self, Block, Header, Kind};
use crate::meta::{AGE_UNIT_S, PeerMeta, age_max};
use crate::{StoreWalk, WalkTime};

const EPOCH_MIN: u32 = 29_000_000;

/// A peer as blocks tell of it.
#[derive(Clone, Copy, Debug)]
struct Replayed {
    role: Role,
    counted: bool,
    /// The unit of its last announce.
    mark: u32,
    id: Option<PeerId>,
}

/// What blocks say, peer by peer: the plain form of [`Store::merge`].
#[derive(Default)]
struct Replay {
    peers: BTreeMap<(InfoHash, PeerKey), Replayed>,
    downloads: BTreeMap<InfoHash, u32>,
}

impl Replay {
    fn apply(&mut self, cut: &Cut) {
        let (block, len) = Block::read(&cut.bytes).expect("a block that was just written");
        assert_eq!(len, cut.bytes.len());
        for group in block.groups().expect("groups that were just written") {
            if let Some(head) = group.head {
                let downloads = self.downloads.entry(group.info_hash).or_default();
                *downloads = head.downloads.max(*downloads);
            }
            let v4 = group.v4.map(|peer| (PeerKey::V4(peer.key), peer.word, peer.id));
            let v6 = group.v6.map(|peer| (PeerKey::V6(peer.key), peer.word, peer.id));
            for (key, word, id) in v4.chain(v6) {
                let place = (group.info_hash, key);
                let mark = (cut.at / AGE_UNIT_S).saturating_sub(word.age());
                if self.peers.get(&place).is_some_and(|known| known.mark > mark) {
                    continue;
                }
                if word.is_gone() {
                    self.peers.remove(&place);
                    continue;
                }
                if word.is_completed() {
                    *self.downloads.entry(group.info_hash).or_default() += 1;
                }
                let counted = word.is_counted();
                let peer = Replayed { role: word.role(), counted, mark, id };
                self.peers.insert(place, peer);
            }
        }
    }
}

/// A block, and the tick at which it was cut.
struct Cut {
    at: u32,
    bytes: Vec<u8>,
}

/// Writes a store's changes and walks, as a journal does.
struct Journal<'a> {
    store: &'a Store,
    walk: StoreWalk,
    changes: Vec<block::Change>,
    ids: Vec<PeerId>,
    body: Vec<u8>,
    cuts: Vec<Cut>,
    longest: usize,
}

impl<'a> Journal<'a> {
    fn new(store: &'a Store) -> Self {
        store.keep_changes(1 << 16);
        Self {
            store,
            walk: StoreWalk::default(),
            changes: Vec::new(),
            ids: Vec::new(),
            body: Vec::new(),
            cuts: Vec::new(),
            longest: 0,
        }
    }

    fn cut(&mut self, at: u32, kind: Kind) {
        if self.body.is_empty() {
            return;
        }
        let has_ids = self.store.keeps_peer_ids();
        let header = Header { kind, has_ids, node: 0, boot: 1, number: 1, cut_ms: 0 };
        let mut bytes = Vec::new();
        block::write(&header, &self.body, &mut bytes);
        self.body.clear();
        self.cuts.push(Cut { at, bytes });
    }

    fn cut_changes(&mut self, at: u32) {
        assert!(self.body.is_empty());
        block::encode_changes(&self.changes, &self.ids, &mut self.body);
        self.changes.clear();
        self.ids.clear();
        self.cut(at, Kind::CHANGES);
    }

    fn take(&mut self, at: u32) {
        for shard in 0..self.store.shards() {
            assert_eq!(self.store.take_changes(shard, &mut self.changes, &mut self.ids), 0);
            self.cut_changes(at);
        }
    }

    /// Returns whether the walk is complete.
    fn step(&mut self, at: u32) -> bool {
        let mut groups = Vec::new();
        let time = WalkTime { now: Tick(at), epoch_min: EPOCH_MIN };
        let (changes, ids) = (&mut self.changes, &mut self.ids);
        let walked = self.store.walk(time, &mut self.walk, changes, ids, &mut groups);
        assert_eq!(walked.missed, 0);
        self.cut_changes(at);
        self.longest = self.longest.max(groups.len());
        self.body = groups;
        self.cut(at, Kind::WALK);
        walked.is_complete
    }
}

/// What a test does.
#[derive(Clone, Copy)]
struct Case {
    seed: u64,
    operations: u32,
    keeps_ids: bool,
    budget: Option<u64>,
}

/// Random announces, removals and sweeps.
struct Driver<'a> {
    store: &'a Store,
    random: Random,
    now: u32,
    /// Peers of each large torrent.
    crowd: u32,
    /// How many of 16 announces say that a peer stops.
    stops: u32,
}

/// Returns the id that a peer always has.
fn id_of(peer: PeerKey) -> PeerId {
    let octets = match &peer {
        PeerKey::V4(key) => key.as_slice(),
        PeerKey::V6(key) => key,
    };
    PeerId([octets.iter().fold(1, |sum: u8, octet| sum.wrapping_mul(31).wrapping_add(*octet)); 20])
}

impl Driver<'_> {
    fn pick<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.random.below(N as u32) as usize]
    }

    /// Few large torrents and many small ones.
    fn request(&mut self) -> StoreAnnounce {
        let (torrent, number) = if self.random.below(4) > 0 {
            (self.random.below(3), self.random.below(self.crowd))
        } else {
            (3 + self.random.below(120), self.random.below(7))
        };
        let [.., a, b] = number.to_be_bytes();
        let peer = match torrent {
            // Public networks of up to 256 peers.
            0 if number.is_multiple_of(3) => {
                PeerKey::new(Ipv6Addr::new(0x2400, a.into(), 0, 0, 0, 0, 0, b.into()).into(), 6881)
            }
            0 => PeerKey::new(Ipv4Addr::new(20, 1, a, b).into(), 6881),
            2 if number.is_multiple_of(2) => v6(number),
            _ => v4(number),
        };
        let is_stop = self.random.below(16) < self.stops;
        let (action, role) = match self.random.below(12) {
            _ if is_stop => (Action::Stop, Role::Leecher),
            0 => (Action::Update { completed: true }, Role::Seeder),
            // Some complete more than once, and not only seeders.
            1 => (Action::Update { completed: true }, Role::Leecher),
            2..5 => (Action::Update { completed: false }, Role::Seeder),
            5..7 => (Action::Update { completed: false }, Role::PartialSeed),
            _ => (Action::Update { completed: false }, Role::Leecher),
        };
        StoreAnnounce {
            action,
            want: 0,
            caps: PeerCaps { per_address: 0, per_network: self.pick([0, 0, 40]) },
            peer_id: id_of(peer),
            ..update(torrent as u8, peer, role)
        }
    }

    /// Returns how many announces there were.
    fn announce(&mut self) -> u32 {
        let requests: Vec<_> = (0..=self.random.below(64)).map(|_| self.request()).collect();
        announce(self.store, self.now, &requests);
        requests.len() as u32
    }

    /// Does what an operator or the sweep does.
    fn disturb(&mut self) {
        let number = self.random.below(self.crowd);
        let [.., a, b] = number.to_be_bytes();
        match self.random.below(40) {
            0 => drop(self.store.remove(&InfoHash([self.random.below(60) as u8; 20]))),
            1..6 => {
                let public = PeerKey::new(Ipv4Addr::new(20, 1, a, b).into(), 6881);
                let ip = self.pick([v4(number), v6(number), public]).socket_addr().ip();
                self.store.remove_peers_at(Tick(self.now), ip);
            }
            _ => self.store.sweep(Tick(self.now), 10, &|_| false),
        }
    }
}

type Dump = BTreeMap<(InfoHash, PeerKey), (Role, PeerMeta)>;

/// Compares what blocks say with what the store holds now. `before` is what it held when the first was
/// cut.
fn check_replay(store: &Store, now: u32, before: &Dump, cuts: &[Cut]) {
    let mut replay = Replay::default();
    cuts.iter().for_each(|cut| replay.apply(cut));
    let unit = now / AGE_UNIT_S;
    let mark = |meta: PeerMeta| unit - meta.age(Tick(now));
    let there = store.dump();
    for (peer, (role, meta)) in &there {
        let found = replay.peers.get(peer).unwrap_or_else(|| panic!("{peer:?} was lost"));
        assert_eq!((found.role, found.counted), (*role, meta.is_counted()), "{peer:?}");
        // Refreshes are no changes, so a mark is that of the last change or visit.
        let earliest = before.get(peer).map_or(0, |(_, meta)| mark(*meta)).min(mark(*meta));
        assert!((earliest..=mark(*meta) + 1).contains(&found.mark), "{peer:?}: {found:?}");
        assert_eq!(found.id, store.keeps_peer_ids().then(|| id_of(peer.1)));
    }
    for (peer, found) in replay.peers.iter().filter(|(peer, _)| !there.contains_key(peer)) {
        // It expired, or was removed because memory was short.
        let is_old = unit + 1 - found.mark > age_max(LIFETIME_S);
        assert!(is_old || store.memory_budget().is_some(), "{peer:?} has left: {found:?}");
    }
    store.each_torrent(|stats| {
        // More if it was removed and came again.
        let found = replay.downloads.get(&stats.info_hash).copied().unwrap_or_default();
        assert!(found >= stats.counts.downloads, "{stats:?} {found}");
    });
}

/// Returns how many rounds of the walk were checked.
fn run(case: Case) -> u32 {
    let Case { seed, operations, keeps_ids, budget } = case;
    let options = Options { keep_peer_ids: keeps_ids, memory_budget: budget, ..options(2) };
    let store = Store::new(&options);
    let random = Random::new(seed);
    let mut driver = Driver { store: &store, random, now: 1, crowd: 5000, stops: 2 };
    let mut journal = Journal::new(&store);
    let (mut before, mut pace, mut rounds, mut done) = (store.dump(), 10, 0, 0);
    let mut until = operations / 10;
    while done < operations || rounds == 0 {
        if done > until {
            until += 1 + driver.random.below(operations / 10);
            driver.crowd = driver.pick([60, 130, 300, 1000, 5000, 12_000]);
            driver.stops = driver.pick([1, 3, 12]);
            pace = driver.pick([3, 10, 40]);
        }
        let unit = driver.now / AGE_UNIT_S;
        driver.now += driver.random.below(2);
        if driver.random.below(20) == 0 || driver.now / AGE_UNIT_S != unit {
            journal.take(driver.now);
        }
        done += driver.announce();
        if driver.random.below(8) == 0 {
            driver.disturb();
        }
        for _ in 0..driver.random.below(4) {
            if driver.random.below(pace) == 0 && journal.step(driver.now) {
                journal.take(driver.now);
                check_replay(&store, driver.now, &before, &journal.cuts);
                journal.cuts.clear();
                before = store.dump();
                rounds += 1;
            }
        }
    }
    assert!(journal.longest < 64 * 1024, "{}", journal.longest);
    rounds
}

#[test]
fn changes_and_walks_tell_what_the_store_holds() {
    let case = Case { seed: 1, operations: 40_000, keeps_ids: false, budget: None };
    let rounds = [
        run(case),
        run(Case { seed: 2, keeps_ids: true, ..case }),
        run(Case { seed: 3, budget: Some(1 << 20), ..case }),
    ];
    assert!(rounds.iter().all(|rounds| *rounds >= 4), "{rounds:?}");
}
