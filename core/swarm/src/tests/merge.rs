//! Merging beside a naive twin.

use replication::block::{Block, GroupWriter, Head};
use replication::{Counting, MergeTime, Merged, ReplicatedStore};

use super::*;

const UNIT_S: i64 = 16;
const EPOCH_MIN: u32 = 29_000_000;

/// A peer as a block reports it.
#[derive(Clone, Copy, Debug)]
struct Reported {
    peer: PeerKey,
    word: Word,
    id: PeerId,
}

/// A group before it is written.
#[derive(Clone, Debug)]
struct PlainGroup {
    torrent: InfoHash,
    head: Option<Head>,
    peers: Vec<Reported>,
}

fn bytes_of(groups: &[PlainGroup], has_ids: bool) -> Vec<u8> {
    let mut body = Vec::new();
    for group in groups {
        let mut writer = GroupWriter::new(&mut body, group.torrent, group.head);
        for Reported { peer, word, id } in &group.peers {
            writer.push(*peer, *word, has_ids.then_some(*id));
        }
    }
    let is_walk = groups.iter().any(|group| group.head.is_some());
    let kind = if is_walk { Kind::WALK } else { Kind::CHANGES };
    written(&Header { has_ids, ..header(kind, 0) }, &body)
}

/// The times and the counting rule of a merge.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) now: u32,
    pub(crate) cut_ago_s: u32,
    pub(crate) counting: Counting,
}

impl How {
    pub(crate) fn random(random: &mut Random, now: u32) -> Self {
        let cut_ago_s = [0, 1, 15, 100, 400, 5000, u32::MAX][random.below(7) as usize];
        let counting = [Counting::ByPeer, Counting::Each, Counting::None];
        Self { now, cut_ago_s, counting: counting[random.below(3) as usize] }
    }

    pub(crate) fn time(self) -> MergeTime {
        MergeTime { now: Tick(self.now), cut_ago_s: self.cut_ago_s, epoch_min: EPOCH_MIN }
    }
}

fn merge(store: &Store, now: u32, cut_ago_s: u32, groups: &[PlainGroup], has_ids: bool) -> Merged {
    merge_as(store, How { now, cut_ago_s, counting: Counting::ByPeer }, groups, has_ids)
}

fn merge_as(store: &Store, how: How, groups: &[PlainGroup], has_ids: bool) -> Merged {
    let bytes = bytes_of(groups, has_ids);
    let (block, _) = Block::read(&bytes).unwrap();
    let groups = block.groups().unwrap();
    let mut random = Random::new(u64::from(how.now));
    // In halves, as two threads do it.
    let half = store.shards() / 2;
    let first = store.merge(how.time(), how.counting, &mut random, groups, 0..half);
    let second = store.merge(how.time(), how.counting, &mut random, groups, half..store.shards());
    first.plus(second)
}

#[derive(Clone, Debug)]
struct MergedPeer {
    role: Role,
    counted: bool,
    /// The time of its last announce, in units of age.
    unit: i64,
    id: PeerId,
}

#[derive(Clone, Debug, Default)]
struct MergedTorrent {
    peers: BTreeMap<PeerKey, MergedPeer>,
    downloads: u32,
    born: u32,
}

/// The expected contents of a store.
#[derive(Default)]
struct MergeTwin {
    torrents: BTreeMap<InfoHash, MergedTorrent>,
    /// The times at which peers stopped, in units, if they are remembered.
    stopped: Option<BTreeMap<(InfoHash, PeerKey), i64>>,
}

impl MergeTwin {
    fn unit(now: u32) -> i64 {
        i64::from(now) / UNIT_S
    }

    fn announce(&mut self, now: u32, request: &StoreAnnounce) {
        let key = (request.info_hash, request.peer);
        let Action::Update { completed } = request.action else {
            if let Some(stopped) = &mut self.stopped {
                stopped.insert(key, Self::unit(now));
            }
            let torrent = self.torrents.get_mut(&request.info_hash);
            torrent.and_then(|torrent| torrent.peers.remove(&request.peer));
            return;
        };
        let new = MergedTorrent { born: now, ..MergedTorrent::default() };
        let torrent = self.torrents.entry(request.info_hash).or_insert(new);
        let counted = torrent.peers.get(&request.peer).is_some_and(|peer| peer.counted);
        torrent.downloads += u32::from(completed && !counted);
        let (counted, unit) = (counted || completed, Self::unit(now));
        let peer = MergedPeer { role: request.role, counted, unit, id: request.peer_id };
        torrent.peers.insert(request.peer, peer);
    }

    fn merge(&mut self, how: How, group: &PlainGroup, has_ids: bool) -> Merged {
        let How { now, cut_ago_s, counting } = how;
        let mut merged = Merged::default();
        let born = group.head.map_or(now, |head| {
            now.min(head.born_min.saturating_sub(EPOCH_MIN).saturating_mul(60).saturating_add(59))
        });
        let was_there = self.torrents.contains_key(&group.torrent);
        let new = MergedTorrent { born, ..MergedTorrent::default() };
        let mut torrent = self.torrents.remove(&group.torrent).unwrap_or(new);
        if let Some(head) = group.head {
            torrent.downloads = torrent.downloads.max(head.downloads);
            torrent.born = torrent.born.min(born);
        }
        let known = torrent.downloads;
        for reported in &group.peers {
            let counts = counting == Counting::Each && reported.word.is_completed();
            torrent.downloads += u32::from(counts);
            let cut = (i64::from(now) - i64::from(cut_ago_s)).div_euclid(UNIT_S);
            let unit = cut - i64::from(reported.word.age());
            if Self::unit(now) - unit > oldest() {
                merged.old += 1;
                continue;
            }
            let stop = self
                .stopped
                .as_ref()
                .and_then(|stopped| stopped.get(&(group.torrent, reported.peer)).copied());
            if stop.is_none_or(|stop| stop < unit) {
                let completed = torrent.merge(reported, unit, has_ids, &mut merged);
                torrent.downloads += u32::from(counting == Counting::ByPeer && completed);
            }
        }
        if was_there || !torrent.peers.is_empty() || torrent.downloads > known {
            merged.torrents = u64::from(!was_there);
            self.torrents.insert(group.torrent, torrent);
        }
        merged
    }

    fn sweep(&mut self, now: u32) {
        for torrent in self.torrents.values_mut() {
            torrent.peers.retain(|_, peer| Self::unit(now) - peer.unit <= oldest());
        }
        self.torrents.retain(|_, torrent| !torrent.peers.is_empty());
    }

    fn check(&self, store: &Store, now: u32) {
        let mut found = BTreeMap::new();
        store.each_torrent(|stats| {
            found.insert(stats.info_hash, *stats);
        });
        assert_eq!(found.len(), self.torrents.len());
        for (info_hash, torrent) in &self.torrents {
            let stats = found[info_hash];
            let twin = TwinTorrent {
                peers: torrent.peers.iter().map(|(key, peer)| (*key, peer.plain())).collect(),
                downloads: torrent.downloads,
            };
            assert_eq!(stats.counts, twin.counts());
            assert_eq!(stats.first_seen.0, torrent.born / 1024 * 1024);
            let details = store.inspect(Tick(now), info_hash, 1000).unwrap();
            assert_eq!(details.peers.len(), torrent.peers.len().min(1000));
            for peer in details.peers {
                let address = peer.address.unwrap();
                let known = &torrent.peers[&PeerKey::new(address.ip(), address.port())];
                assert_eq!((peer.role, peer.id), (known.role, Some(known.id)));
                assert_eq!(i64::from(peer.age_s), (Self::unit(now) - known.unit) * UNIT_S);
            }
        }
        check_sums(store);
    }
}

impl MergedTorrent {
    /// Returns whether the peer is there and has completed a download that was not counted.
    fn merge(
        &mut self,
        reported: &Reported,
        unit: i64,
        has_ids: bool,
        merged: &mut Merged,
    ) -> bool {
        let Reported { peer, word, id } = *reported;
        let known = self.peers.get_mut(&peer);
        let was_counted = known.as_ref().is_some_and(|known| known.counted);
        let is_stored = match known {
            Some(known) if known.unit > unit => {
                known.counted |= word.is_counted() && !word.is_gone();
                true
            }
            known if word.is_gone() => {
                merged.gone += u64::from(known.is_some());
                self.peers.remove(&peer);
                false
            }
            known => {
                merged.peers += 1;
                let old_id = known.map_or_else(PeerId::default, |known| known.id);
                let id = if has_ids { id } else { old_id };
                let counted = was_counted || word.is_counted();
                self.peers.insert(peer, MergedPeer { role: word.role(), counted, unit, id });
                true
            }
        };
        is_stored && word.is_completed() && !was_counted
    }
}

impl MergedPeer {
    fn plain(&self) -> TwinPeer {
        TwinPeer { role: self.role, counted: self.counted, seen: 0, id: self.id }
    }
}

fn oldest() -> i64 {
    i64::from(LIFETIME_S.div_ceil(UNIT_S as u32))
}

fn random_group(random: &mut Random, scale: &Scale, is_walk: bool) -> PlainGroup {
    let torrent = random.below(scale.torrents) * random.below(scale.torrents) / scale.torrents;
    let len = random.below(scale.peers);
    let reported = |_| {
        let number = random.below(scale.peers) / (torrent + 1);
        let peer = if random.below(3) == 0 { v6(number) } else { v4(number) };
        Reported { peer, word: random_word(random), id: PeerId([random.next() as u8; 20]) }
    };
    let mut peers: Vec<_> = (0..len).map(reported).collect();
    // As a group has them.
    peers.sort_by_key(|reported| reported.peer.family() == Family::V6);
    let head = |random: &mut Random| Head {
        downloads: random.below(50),
        born_min: EPOCH_MIN.wrapping_sub(20) + random.below(100),
    };
    let head = is_walk.then(|| head(random));
    PlainGroup { torrent: InfoHash([torrent as u8; 20]), head, peers }
}

/// Announces, merges and sweeps; the store and the twin have the same torrents and peers all the time.
fn compare_merges(seed: u64, scale: &Scale) {
    let store = store(4);
    let mut twin = MergeTwin::default();
    let mut random = Random::new(seed);
    // Younger than most marks, which are before tick 0.
    let mut now = 5;
    let mut all = Merged::default();
    for _ in 0..scale.rounds {
        now += random.below(40);
        let requests: Vec<_> = (0..random.below(30))
            .map(|_| {
                let request = random_request(&mut random, scale);
                StoreAnnounce { min_interval_s: 0, ..request }
            })
            .collect();
        announce(&store, now, &requests);
        requests.iter().for_each(|request| twin.announce(now, request));
        let (is_walk, has_ids) = (random.below(2) == 0, random.below(3) > 0);
        let groups: Vec<_> =
            (0..random.below(12)).map(|_| random_group(&mut random, scale, is_walk)).collect();
        let how = How::random(&mut random, now);
        let merged = merge_as(&store, how, &groups, has_ids);
        let expected = groups.iter().map(|group| twin.merge(how, group, has_ids));
        let expected: Vec<_> = expected.collect();
        let sum = |figure: fn(&Merged) -> u64| expected.iter().map(figure).sum::<u64>();
        assert_eq!(merged.torrents, sum(|merged| merged.torrents));
        assert_eq!((merged.old, merged.full), (sum(|merged| merged.old), 0));
        // Of a torrent that comes, each peer counts once.
        assert!(merged.peers <= sum(|merged| merged.peers));
        assert_eq!(merged.gone, sum(|merged| merged.gone));
        (all.peers, all.gone, all.old) =
            (all.peers + merged.peers, all.gone + merged.gone, all.old + merged.old);
        twin.check(&store, now);
        match random.below(20) {
            0 => {
                sweep_all(&store, now);
                twin.sweep(now);
                twin.check(&store, now);
            }
            1 => {
                let is_on = twin.stopped.is_none();
                twin.stopped = is_on.then(BTreeMap::new);
                store.remember_stopped(is_on);
            }
            _ => {}
        }
    }
    assert!(all.peers > 500 && all.gone > 50 && all.old > 100, "{all:?}");
    now += 3 * LIFETIME_S;
    sweep_all(&store, now);
    sweep_all(&store, now);
    twin.sweep(now);
    twin.check(&store, now);
    let totals = store.totals();
    assert_eq!(totals.torrents, 0);
    assert!(totals.memory_used < 200_000, "{totals:?}");
}

#[test]
fn agrees_with_the_twin_on_small_torrents() {
    for seed in 1..=3 {
        compare_merges(seed, &Scale { torrents: 200, peers: 12, rounds: 150 });
    }
}

#[test]
fn agrees_with_the_twin_on_dense_and_paged_torrents() {
    for seed in 1..=2 {
        compare_merges(seed, &Scale { torrents: 12, peers: 150, rounds: 50 });
        compare_merges(seed, &Scale { torrents: 4, peers: 2000, rounds: 10 });
    }
}

fn peers(torrent: u8, peers: &[(PeerKey, Word)]) -> PlainGroup {
    let reported =
        |(peer, word): &(PeerKey, Word)| Reported { peer: *peer, word: *word, id: PeerId([9; 20]) };
    PlainGroup {
        torrent: InfoHash([torrent; 20]),
        head: None,
        peers: peers.iter().map(reported).collect(),
    }
}

fn leecher(age: u32) -> Word {
    Word::present(age, Role::Leecher, false)
}

#[test]
fn peers_that_stopped_stay_away_while_that_is_remembered() {
    let store = store(1);
    let stop = |peer| StoreAnnounce { action: Action::Stop, ..update(1, peer, Role::Leecher) };
    let older = |age| peers(1, &[(v4(1), leecher(age)), (v6(1), leecher(age))]);
    // Off: a stop of an unknown peer leaves no trace.
    announce(&store, 100, &[stop(v4(1))]);
    assert_eq!(merge(&store, 100, 0, &[older(0)], false).peers, 2);
    store.remember_stopped(true);
    announce(&store, 200, &[stop(v4(1)), stop(v6(1)), stop(v4(2))]);
    assert_eq!(merge(&store, 230, 0, &[older(2), older(5)], false), Merged::default());
    assert_eq!(counts(&store, 1).leechers(), 0);
    // It is as old as the stop, or younger.
    assert_eq!(merge(&store, 200, 0, &[older(0)], false).peers, 0);
    assert_eq!(merge(&store, 230, 0, &[older(1)], false).peers, 2);
    // Turning it on again forgets nothing, and turning it off everything.
    store.remember_stopped(true);
    let second = peers(1, &[(v4(2), leecher(9))]);
    assert_eq!(merge(&store, 230, 0, std::slice::from_ref(&second), false).peers, 0);
    store.remember_stopped(false);
    assert_eq!(merge(&store, 230, 0, &[second], false).peers, 1);
}

#[test]
fn merged_peers_are_no_changes_and_no_downloads_but_new_torrents_are_events() {
    let store = store(1);
    store.listen(true);
    store.keep_changes(100);
    let completed = Word::completed(Role::Seeder);
    let groups =
        [peers(1, &[(v4(1), completed), (v4(2), leecher(3))]), peers(1, &[(v4(2), Word::gone())])];
    let merged = merge(&store, 50, 0, &groups, false);
    assert_eq!((merged.peers, merged.torrents, merged.gone), (2, 1, 1));
    assert_eq!((counts(&store, 1).downloads, store.totals().downloads), (1, 0));
    // The same again: its download is counted.
    assert_eq!(merge(&store, 60, 10, &groups, false).peers, 2);
    assert_eq!(counts(&store, 1).downloads, 1);
    let mut events = Vec::new();
    assert_eq!(store.take_events(&mut events), 0);
    assert_eq!(events, [crate::TorrentEvent::Added(InfoHash([1; 20]))]);
    let (mut changes, mut ids) = (Vec::new(), Vec::new());
    assert_eq!((store.take_changes(0, &mut changes, &mut ids), changes.len()), (0, 0));
}

/// Found by the long run of the twin of changes and walks.
#[test]
fn downloads_of_peers_that_left_within_the_block_are_kept() {
    let store = store(1);
    let (completed, gone) = (Word::completed(Role::Seeder), Word::gone());
    merge(&store, 50, 0, &[peers(1, &[(v4(1), completed), (v4(1), gone)])], false);
    merge(&store, 50, 0, &[peers(1, &[(v4(2), leecher(0))])], false);
    assert_eq!((counts(&store, 1).downloads, counts(&store, 1).leechers()), (1, 1));
    // Others that left are no reason to make a torrent.
    merge(&store, 50, 0, &[peers(2, &[(v4(1), leecher(0)), (v4(1), gone)])], false);
    assert_eq!(store.totals().torrents, 1);
    sweep_all(&store, 50 + 9 * LIFETIME_S);
    assert_eq!(store.totals().torrents, 0);
}

/// Checks that everything that a store reports adds up.
fn check_sums(store: &Store) {
    let (mut torrents, mut all, mut public) = (0, [0; 5], 0);
    let mut hashes = Vec::new();
    store.each_torrent(|stats| {
        torrents += 1;
        let SwarmCounts { v4, v6, partial_seeds, .. } = stats.counts;
        let these = [v4.seeders, v4.leechers, v6.seeders, v6.leechers, partial_seeds];
        all.iter_mut().zip(these).for_each(|(sum, count)| *sum += u64::from(count));
        hashes.push((stats.info_hash, v4.seeders + v4.leechers + v6.seeders + v6.leechers));
    });
    let Totals { v4, v6, partial_seeds, .. } = store.totals();
    assert_eq!(store.totals().torrents, torrents);
    assert_eq!([v4.seeders, v4.leechers, v6.seeders, v6.leechers, partial_seeds], all);
    let dump = store.dump();
    for (info_hash, count) in hashes {
        let range = (info_hash, PeerKey::V4([0; 6]))..=(info_hash, PeerKey::V6([255; 18]));
        assert_eq!(dump.range(range).count() as u32, count);
    }
    if store.keeps_peer_ids() {
        assert_eq!(store.kept_ids(), dump.len());
    }
    for (_, peer) in dump.keys() {
        let is_public = match *peer {
            PeerKey::V4(key) => <PackedV4 as crate::entry::Entry>::network(key).is_some(),
            PeerKey::V6(key) => <PackedV6 as crate::entry::Entry>::network(key).is_some(),
        };
        public += u64::from(is_public);
    }
    if store.memory_budget().is_some() {
        assert_eq!(store.counted_peers(), public);
    }
}

/// A group of one network: `peers` ports and addresses of a /24 or /48.
fn crowd(torrent: u8, count: u32) -> PlainGroup {
    let peer = |number: u32| {
        let [_, host, high, low] = number.to_be_bytes();
        PeerKey::V4([20, 0, 0, host, high, low])
    };
    let peers_v6 = |number: u32| {
        let [_, host, high, low] = number.to_be_bytes();
        PeerKey::new(
            Ipv6Addr::new(0x2400, 1, 2, host.into(), 0, 0, 0, 1).into(),
            u16::from_be_bytes([high, low]),
        )
    };
    let mut all: Vec<_> = (0..count).map(|number| (peer(number), leecher(0))).collect();
    all.extend((0..count).map(|number| (peers_v6(number), leecher(0))));
    peers(torrent, &all)
}

/// A page holds all peers of a network, so their number has a limit, whatever a block says.
#[test]
fn a_network_has_no_more_peers_than_a_page_may_hold() {
    let store = store(1);
    let merged = merge(&store, 9, 0, &[crowd(1, 6000), crowd(1, 6000)], false);
    let counts = counts(&store, 1);
    assert_eq!((counts.v4.leechers, counts.v6.leechers), (4096, 4096));
    // Of the same age, those with the highest keys go: the last ones of the group.
    assert_eq!((merged.peers, merged.full, store.totals().replaced), (4 * 4096, 0, 0));
    check_sums(&store);
}

/// Checks which peers caps leave of a torrent in a network of each family: the youngest of each host, and of these
/// as many of each customer, the youngest. Of the same age those with the lowest keys.
fn check_capped(
    store: &Store,
    all: &BTreeMap<PeerKey, u32>,
    caps: PeerCaps,
    is_exempt: &dyn Fn(IpAddr) -> bool,
) {
    type Peers = Vec<(u32, PeerKey)>;
    let customer_of = |ip| match ip {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(ip) => Err(ip.segments()[3] >> 8),
    };
    let mut expected = BTreeSet::new();
    let mut hosts = BTreeMap::<IpAddr, Peers>::new();
    for (peer, age) in all {
        hosts.entry(peer.socket_addr().ip()).or_default().push((*age, *peer));
    }
    let mut customers = BTreeMap::<_, Peers>::new();
    for (ip, mut peers) in hosts {
        peers.sort_unstable();
        if is_exempt(ip) {
            expected.extend(peers.into_iter().map(|(_, peer)| peer));
            continue;
        }
        peers.truncate(caps.per_address.into());
        customers.entry(customer_of(ip)).or_default().extend(peers);
    }
    let mut networks = BTreeMap::<bool, Vec<(usize, u32, PeerKey)>>::new();
    for (customer, mut peers) in customers {
        peers.sort_unstable();
        let ranked = peers.into_iter().enumerate().map(|(rank, (age, peer))| (rank, age, peer));
        networks.entry(customer.is_ok()).or_default().extend(ranked);
    }
    for mut peers in networks.into_values() {
        peers.sort_unstable();
        expected.extend(peers.into_iter().take(caps.per_network.into()).map(|(.., peer)| peer));
    }
    let held: BTreeSet<_> = store.dump().into_keys().map(|(_, peer)| peer).collect();
    assert_eq!(held, expected);
}

/// Blocks bring peers in any order, to torrents that are new or known, small or large: the same peers stay.
#[test]
fn of_merged_peers_the_same_stay_in_any_order() {
    let is_exempt = |ip: IpAddr| ip == IpAddr::from([20, 0, 0, 7]);
    let mut random = Random::new(11);
    let mut replaced = 0;
    for (hosts, ports) in [(1, 6), (2, 5), (12, 12), (60, 20)] {
        for round in 0..8 {
            let store = Store::new(&Options { memory_budget: Some(64 << 20), ..options(1) });
            let caps = PeerCaps { per_address: 3, per_network: [4096, 40, 7, 3][round % 4] };
            store.set_merge_caps(caps);
            store.set_exempt(is_exempt);
            let mut all = BTreeMap::new();
            for _ in 0..hosts * ports {
                let (host, port) = (random.below(hosts) as u8, 1 + random.below(ports) as u16);
                let peer = match random.below(3) {
                    0 => PeerKey::new(
                        Ipv6Addr::new(
                            0x2400,
                            0,
                            0,
                            u16::from(host % 5) << 8 | u16::from(host),
                            0,
                            0,
                            0,
                            1,
                        )
                        .into(),
                        port,
                    ),
                    _ => PeerKey::new(Ipv4Addr::new(20, 0, 0, host).into(), port),
                };
                all.insert(peer, random.below(50));
            }
            let mut order: Vec<_> = all.iter().collect();
            for end in (1..order.len()).rev() {
                order.swap(end, random.below(end as u32 + 1) as usize);
            }
            // In one block, or in several.
            for part in order.chunks(1 + random.below(order.len() as u32) as usize) {
                let reported: Vec<_> =
                    part.iter().map(|(peer, age)| (**peer, leecher(**age))).collect();
                merge(&store, 1000, 0, &[peers(1, &reported)], true);
            }
            check_capped(&store, &all, caps, &is_exempt);
            check_sums(&store);
            assert_eq!(store.kept_ids(), store.dump().len());
            replaced += store.totals().replaced;
        }
    }
    assert!(replaced > 1000, "{replaced}");
}

#[test]
fn nothing_is_stored_above_the_budget() {
    let budget = 3 << 20;
    let options = Options { memory_budget: Some(budget), ..options(2) };
    let store = Store::new(&options);
    let group = |number: u32, len: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        let mut hash = [7; 20];
        hash[..4].copy_from_slice(&[a, b, c, d]);
        let peer = |at: u32| (v4(number * 7 + at), leecher(at % 3));
        let group = peers(1, &(0..len).map(peer).collect::<Vec<_>>());
        PlainGroup { torrent: InfoHash(hash), ..group }
    };
    let mut all = Merged::default();
    for round in 0..40 {
        let groups: Vec<_> = (0..1000).map(|at| group(round * 1000 + at, 1 + at % 7)).collect();
        let merged = merge(&store, 9, 0, &groups, true);
        (all.peers, all.full) = (all.peers + merged.peers, all.full + merged.full);
        if round % 13 == 0 {
            check_sums(&store);
        }
    }
    assert!(all.full > 10_000 && all.peers > 5000, "{all:?}");
    assert!(store.totals().memory_used < budget + (64 << 10), "{:?}", store.totals());
    // Known peers are renewed, and can go.
    let known = group(0, 1);
    assert_eq!(merge(&store, 40, 0, std::slice::from_ref(&known), true).peers, 1);
    let gone =
        PlainGroup { peers: vec![Reported { word: Word::gone(), ..known.peers[0] }], ..known };
    assert_eq!(merge(&store, 60, 0, &[gone], true).gone, 1);
    check_sums(&store);
}

/// When memory is short, the largest networks get none of the rest.
#[test]
fn large_networks_have_a_share_of_short_memory_only() {
    let options = Options { memory_budget: Some(4 << 20), keep_peer_ids: false, ..options(1) };
    let store = Store::new(&options);
    let torrent = |kind: u8, number: u32, peer: PeerKey| {
        let mut hash = [kind; 20];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        PlainGroup { torrent: InfoHash(hash), ..peers(1, &[(peer, leecher(0))]) }
    };
    let one_network = |number: u32| {
        let [_, _, high, low] = number.to_be_bytes();
        torrent(1, number, PeerKey::V4([20, 1, 1, high, 1, low]))
    };
    let crowd: Vec<_> = (0..60_000).map(one_network).collect();
    let merged = crowd.chunks(10_000).map(|part| merge(&store, 9, 0, part, false));
    let (full, peers) = merged.fold((0, 0), |sum, one| (sum.0 + one.full, sum.1 + one.peers));
    assert!(full > 1000 && peers > 10_000, "{full} {peers}");
    let others: Vec<_> = (0..1000)
        .map(|number| {
            torrent(2, number, PeerKey::V4([30, (number >> 8) as u8, number as u8, 1, 1, 1]))
        })
        .collect();
    assert_eq!(merge(&store, 9, 0, &others, false).peers, 1000);
    check_sums(&store);
}
