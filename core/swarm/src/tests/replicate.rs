//! Changes and walks, replayed: what they say is what the store holds.

use std::io;

use replication::{AGE_UNIT_S, Now, PeerMeta, age_max};

use super::*;
use crate::TorrentEvent;
use crate::store::Dump;
use crate::{Encoder, Feed};

/// The unix time at tick 0.
const EPOCH_MS: u64 = 1_740_000_000_000;

/// Keeps a store's changes and walks, as a journal does.
struct Journal<'a> {
    store: &'a Store,
    encoder: Encoder<'a>,
    cuts: Vec<Cut>,
    /// Bytes of the longest step.
    longest: u64,
}

impl<'a> Journal<'a> {
    fn new(feed: &'a Feed, store: &'a Store) -> Self {
        Self { store, encoder: Encoder::new(feed, store, 1), cuts: Vec::new(), longest: 0 }
    }

    fn take(&mut self, at: u32) {
        let missed = self.encoder.changes(now(at), &mut sink(&mut self.cuts)).unwrap();
        assert_eq!(missed, 0);
    }

    /// Returns whether the walk is complete.
    fn step(&mut self, at: u32) -> bool {
        let step = self.encoder.step(now(at), &mut sink(&mut self.cuts)).unwrap();
        assert_eq!(step.missed, 0);
        self.longest = self.longest.max(step.bytes);
        step.is_complete
    }

    /// Returns a store into which all blocks are merged, each at the time of its cut.
    fn replay(&self) -> Store {
        let keep_peer_ids = self.store.keeps_peer_ids();
        let store = Store::new(&Options { keep_peer_ids, hash_key: [9; 16], ..options(2) });
        for cut in &self.cuts {
            cut.merge(&store, Tick(cut.at), 0);
        }
        store
    }
}

/// Returns a sink that keeps blocks.
fn sink(cuts: &mut Vec<Cut>) -> impl FnMut(Kind, &[u8]) -> io::Result<()> {
    |_, bytes| {
        let (block, _) = Block::read(bytes).unwrap();
        let at = ((block.header.cut_ms - EPOCH_MS) / 1000) as u32;
        cuts.push(Cut { at, bytes: bytes.to_vec() });
        Ok(())
    }
}

fn now(at: u32) -> Now {
    Now { tick: Tick(at), unix_ms: EPOCH_MS + u64::from(at) * 1000 }
}

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
    /// Number of stops among 16 announces, on average.
    stops: u32,
}

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

    /// Removes peers as an operator or the sweep does.
    fn disturb(&mut self) {
        let number = self.random.below(self.crowd);
        let [.., a, b] = number.to_be_bytes();
        match self.random.below(40) {
            0 => drop(self.store.remove(&InfoHash([self.random.below(60) as u8; 20]))),
            1..6 => {
                let public = PeerKey::new(Ipv4Addr::new(20, 1, a, b).into(), 6881);
                let ip = self.pick([v4(number), v6(number), public]).socket_addr().ip();
                self.store.remove_peers_at(ip);
            }
            _ => self.store.sweep(Tick(self.now), 10),
        }
    }
}

/// Compares a store into which blocks were merged with the one that they are of. `before` is what that one held when
/// the first was cut.
fn check_replay(store: &Store, now: u32, before: &Dump, replayed: &Store) {
    let (unit, there, told) = (now / AGE_UNIT_S, store.dump(), replayed.dump());
    let mark = |meta: PeerMeta| unit - meta.age(Tick(now));
    let is_old = |meta: PeerMeta| meta.age(Tick(now)) + 1 > age_max(LIFETIME_S);
    for (peer, (role, meta, id)) in there.iter().filter(|(_, (_, meta, _))| !is_old(*meta)) {
        let found = told.get(peer).unwrap_or_else(|| panic!("{peer:?} was lost"));
        assert_eq!((found.0, found.1.is_counted()), (*role, meta.is_counted()), "{peer:?}");
        // Refreshes are no changes, so a mark is that of the last change or visit.
        let earliest = before.get(peer).map_or(0, |(_, meta, _)| mark(*meta)).min(mark(*meta));
        assert!((earliest..=mark(*meta) + 1).contains(&mark(found.1)), "{peer:?}: {found:?}");
        assert_eq!(found.2, *id);
    }
    for (peer, (_, meta, _)) in told.iter().filter(|(peer, _)| !there.contains_key(peer)) {
        // It expired, or was removed because memory was short.
        let is_evicted = store.memory_budget().is_some();
        assert!(is_old(*meta) || is_evicted, "{peer:?} has left: {meta:?}");
    }
    // Of a torrent that was without peers for a while, only its own store knows the downloads.
    let (mut counted, mut unknown, mut events) = (0, 0, Vec::new());
    let are_all_known = store.take_events(&mut events) == 0;
    store.each_torrent(|stats| {
        if !are_all_known || events.contains(&TorrentEvent::Removed(stats.info_hash)) {
            return;
        }
        let mut told = [SwarmCounts::default()];
        replayed.scrape(&[stats.info_hash], &mut told);
        let expected = stats.counts.downloads;
        assert!(told[0].downloads <= expected, "{told:?} {stats:?}");
        counted += u32::from(expected > 0);
        unknown += u32::from(told[0].downloads < expected);
    });
    assert!(unknown * 5 <= counted, "{unknown} of {counted}");
}

/// Returns how many rounds of the walk were checked.
fn run(case: Case) -> u32 {
    let Case { seed, operations, keeps_ids, budget } = case;
    let options = Options { keep_peer_ids: keeps_ids, memory_budget: budget, ..options(2) };
    let store = Store::new(&options);
    let random = Random::new(seed);
    let mut driver = Driver { store: &store, random, now: 1, crowd: 5000, stops: 2 };
    let feed = Feed::default();
    let mut journal = Journal::new(&feed, &store);
    store.listen(true);
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
                check_replay(&store, driver.now, &before, &journal.replay());
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
    let case = Case { seed: 1, operations: 20_000, keeps_ids: false, budget: None };
    let rounds = [
        run(case),
        run(Case { seed: 2, keeps_ids: true, ..case }),
        run(Case { seed: 3, budget: Some(1 << 20), ..case }),
    ];
    assert!(rounds.iter().all(|rounds| *rounds >= 2), "{rounds:?}");
}

pub(super) fn take(store: &Store) -> (Vec<Change>, Vec<PeerId>, u64) {
    let (mut changes, mut ids) = (Vec::new(), Vec::new());
    let missed = store.take_changes(0, &mut changes, &mut ids);
    (changes, ids, missed)
}

#[test]
fn changes_are_what_happens_to_peers_and_nothing_else() {
    let store = store(1);
    let change =
        |peer, word| Change { info_hash: InfoHash([1; 20]), peer, word, is_refresh: false };
    let comes = |peer, role| change(peer, Word::present(0, role, false));
    let completed = Action::Update { completed: true };
    announce(&store, 1, &[update(1, v4(1), Role::Leecher)]);
    assert_eq!(take(&store), (vec![], vec![], 0));
    store.keep_changes(100);
    // Inline, then dense, then paged.
    for (number, fill) in [(10, 0), (20, 50), (30, 500)] {
        let others: Vec<_> =
            (0..fill).map(|peer| update(1, v4(1000 * number + peer), Role::Leecher)).collect();
        store.keep_changes(0);
        announce(&store, 1, &others);
        store.keep_changes(100);
        for peer in [v4(number), v6(number)] {
            let says = |role| update(1, peer, role);
            announce(&store, 2, &[says(Role::Leecher), says(Role::Leecher)]);
            announce(&store, 3, &[says(Role::PartialSeed), says(Role::PartialSeed)]);
            announce(&store, 4, &[StoreAnnounce { action: completed, ..says(Role::PartialSeed) }]);
            announce(&store, 5, &[StoreAnnounce { action: completed, ..says(Role::Seeder) }]);
            let stop = StoreAnnounce { action: Action::Stop, ..says(Role::Seeder) };
            announce(&store, 6, &[stop, stop]);
            announce(&store, 7, &[StoreAnnounce { action: completed, ..says(Role::Seeder) }]);
            assert_eq!(store.remove_peers_at(peer.socket_addr().ip()), 1);
            let (changes, ids, missed) = take(&store);
            let expected = [
                comes(peer, Role::Leecher),
                comes(peer, Role::PartialSeed),
                change(peer, Word::completed(Role::PartialSeed)),
                change(peer, Word::present(0, Role::Seeder, true)),
                change(peer, Word::gone()),
                change(peer, Word::completed(Role::Seeder)),
                change(peer, Word::gone()),
            ];
            assert_eq!((&changes[..], missed), (&expected[..], 0));
            let (here, gone) = (PeerId([1; 20]), PeerId([0; 20]));
            assert_eq!(ids, [here, here, here, here, gone, here, gone]);
        }
    }
    // The sweep makes no changes.
    assert!(store.totals().v4.leechers > 500);
    sweep_all(&store, 9 * LIFETIME_S);
    assert_eq!((store.totals().torrents, take(&store)), (0, (vec![], vec![], 0)));
}

/// A store that was just restored has peers that announced before tick 0.
#[test]
fn a_walk_since_a_moment_before_the_start_visits_restored_peers() {
    let store = store(1);
    let change = |peer, age| Change {
        info_hash: InfoHash([1; 20]),
        peer,
        word: Word::present(age, Role::Leecher, false),
        is_refresh: false,
    };
    let block = Cut { at: 0, bytes: block_of(0, &[change(v4(1), 3), change(v4(2), 9)]) };
    block.merge(&store, Tick(5), 5);
    for (age_s, expected) in [(0, 0), (37, 0), (38, 1), (133, 1), (134, 2), (9000, 2)] {
        let feed = Feed::default();
        let mut journal = Journal::new(&feed, &store);
        journal.encoder.restart_walk_since(Tick(5), age_s);
        while !journal.step(6) {}
        assert_eq!(journal.replay().dump().len(), expected, "{age_s}");
    }
}

/// With refreshes: a stop of an unknown peer, and what contradicts a block that says that a peer is gone.
#[test]
fn other_nodes_hear_what_they_may_not_know() {
    let change = |peer, word| Change { info_hash: InfoHash([1; 20]), peer, word, is_refresh: true };
    for peer in [v4(1), v6(1)] {
        let store = store(1);
        store.keep_changes(100);
        let stop = StoreAnnounce { action: Action::Stop, ..update(1, peer, Role::Leecher) };
        announce(&store, 16, &[stop]);
        assert_eq!(take(&store).0, []);
        store.keep_refreshes(8);
        announce(&store, 16, &[stop]);
        announce(&store, 16, &[update(1, v4(7), Role::Leecher)]);
        announce(&store, 17, &[stop]);
        let expected = [change(peer, Word::gone()), change(peer, Word::gone())];
        let changes = take(&store).0;
        assert_eq!([changes[0], changes[2]], expected);
        // It announces at 64 s. Blocks that were cut at 48 s and 64 s say that it is gone.
        announce(&store, 64, &[update(1, peer, Role::Seeder)]);
        take(&store);
        let gone = block_of(0, &[Change { is_refresh: false, ..change(peer, Word::gone()) }]);
        let gone = Cut { at: 0, bytes: gone };
        let merge = |cut_ago_s| gone.merge(&store, Tick(80), cut_ago_s).gone;
        assert_eq!(merge(32), 0);
        let expected = change(peer, Word::present(1, Role::Seeder, false));
        assert_eq!(take(&store).0, [expected]);
        assert_eq!((merge(16), take(&store).0), (1, vec![]));
    }
}

/// Walks of what has announced since a moment: between its steps time passes, and the moment stays.
#[test]
fn a_walk_since_a_moment_visits_the_peers_that_announced_since() {
    let store = store(2);
    let mut random = Random::new(3);
    // A torrent of pages, a dense one, and some inline; for each peer the tick of its last announce.
    let mut seen = BTreeMap::new();
    for now in 100..500 {
        for _ in 0..10 {
            let torrent = [1, 1, 1, 2, 10 + random.below(40) as u8][random.below(5) as usize];
            let number = random.below([3, 1000, 60][usize::from(torrent).min(3) % 3]);
            let peer = if number.is_multiple_of(5) { v6(number) } else { v4(number) };
            announce(&store, now, &[update(torrent, peer, Role::Leecher)]);
            seen.insert((InfoHash([torrent; 20]), peer), now);
        }
    }
    for since in [0, 100, 300, 470, 490, 499] {
        let feed = Feed::default();
        let mut journal = Journal::new(&feed, &store);
        journal.encoder.restart_walk_since(Tick(500), 500 - since);
        let mut now = 500;
        while !journal.step(now) {
            now += 20;
        }
        let walked = journal.replay().dump();
        for (peer, at) in &seen {
            let is_young = at / AGE_UNIT_S >= since / AGE_UNIT_S;
            assert_eq!(walked.contains_key(peer), is_young, "{since}: {peer:?} at {at}");
        }
        let mut groups = journal.cuts.iter().flat_map(|cut| cut.block().groups().unwrap());
        assert!(groups.all(|group| group.v4.len() + group.v6.len() > 0), "groups without peers");
        // The walk after it visits all.
        while !journal.step(now) {}
        assert_eq!(journal.replay().dump().len(), seen.len());
    }
}

/// A network with 4096 peers, all in one page, does not fill a block.
#[test]
fn the_longest_pages_are_walked_in_parts() {
    for keep_peer_ids in [false, true] {
        let store = Store::new(&Options { keep_peer_ids, ..options(1) });
        let network = |network: u16, host: u16| {
            let [a, b] = host.to_be_bytes();
            PeerKey::new(Ipv6Addr::new(0x2400, network, 0, 0, 0, a.into(), 0, b.into()).into(), 1)
        };
        let hosts = (0..4096).flat_map(|host| [(1, host), (2, host)]);
        let requests: Vec<_> = hosts
            .map(|(of, host)| StoreAnnounce {
                want: 0,
                ..update(1, network(of, host), Role::Seeder)
            })
            .collect();
        announce(&store, 1, &requests);
        assert_eq!(store.totals().v6.seeders, 8192);
        let feed = Feed::default();
        let mut journal = Journal::new(&feed, &store);
        while !journal.step(2) {}
        assert!(journal.longest < 32 * 1024, "{}", journal.longest);
        assert_eq!(journal.replay().dump().len(), 8192);
        let groups = journal.cuts.iter().flat_map(|cut| cut.block().groups().unwrap());
        let all: usize = groups.map(|group| group.v4.len() + group.v6.len()).sum();
        assert_eq!(all, 8192, "visited twice");
        let bytes: usize = journal.cuts.iter().map(|cut| cut.bytes.len()).sum();
        let estimate = store.walk_bytes() as usize;
        assert!(bytes.abs_diff(estimate) < bytes / 10, "{bytes} {estimate}");
    }
}

/// Pages that merge behind a walk take no peers with them.
#[test]
fn removing_the_peers_of_an_address_misses_none_while_pages_merge() {
    let store = store(1);
    let same = Ipv4Addr::new(10, 9, 9, 9).into();
    let requests: Vec<_> = (0..4000)
        .map(|port| update(1, PeerKey::new(same, port + 1), Role::Leecher))
        .map(|request| StoreAnnounce { want: 0, ..request })
        .collect();
    announce(&store, 1, &requests);
    assert_eq!(store.remove_peers_at(same), 4000);
    assert_eq!(store.totals().v4.leechers, 0);
}
