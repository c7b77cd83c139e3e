//! Merging beside a naive twin.

use super::*;
use crate::block::{Block, Groups, Head, Header, Kind, Word, write};
use crate::{MergeTime, Merged};

const UNIT_S: i64 = 16;
const EPOCH_MIN: u32 = 29_000_000;

/// What a block says of a peer.
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
        let mut writer = crate::block::GroupWriter::new(&mut body, group.torrent, group.head);
        for Reported { peer, word, id } in &group.peers {
            writer.push(*peer, *word, has_ids.then_some(*id));
        }
    }
    let is_walk = groups.iter().any(|group| group.head.is_some());
    let kind = if is_walk { Kind::WALK } else { Kind::CHANGES };
    let header = Header { kind, has_ids, node: 0, boot: 1, number: 1, cut_ms: 1 };
    let mut bytes = Vec::new();
    write(&header, &body, &mut bytes);
    bytes
}

fn merge_groups(store: &Store, now: u32, cut_ago_s: u32, groups: Groups<'_>) -> Merged {
    let time = MergeTime { now: Tick(now), cut_ago_s, epoch_min: EPOCH_MIN };
    let mut random = Random::new(u64::from(now));
    // In halves, as two threads do it.
    let half = store.shards() / 2;
    let first = store.merge(time, &mut random, groups, 0..half);
    let second = store.merge(time, &mut random, groups, half..store.shards());
    Merged {
        peers: first.peers + second.peers,
        torrents: first.torrents + second.torrents,
        gone: first.gone + second.gone,
        old: first.old + second.old,
        full: first.full + second.full,
    }
}

fn merge(store: &Store, now: u32, cut_ago_s: u32, groups: &[PlainGroup], has_ids: bool) -> Merged {
    let bytes = bytes_of(groups, has_ids);
    let (block, _) = Block::read(&bytes).unwrap();
    merge_groups(store, now, cut_ago_s, block.groups().unwrap())
}

#[derive(Clone, Debug)]
struct MergedPeer {
    role: Role,
    counted: bool,
    /// When it announced last, in units of age.
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
    /// When peers stopped, in units, if that is remembered.
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

    fn merge(&mut self, now: u32, cut_ago_s: u32, group: &PlainGroup, has_ids: bool) -> Merged {
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
        for reported in &group.peers {
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
                torrent.merge(reported, unit, has_ids, &mut merged);
            }
        }
        if was_there || !torrent.peers.is_empty() {
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
        let mut sums = [0_u64; 5];
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
            let counts = twin.counts();
            let [a, b, c, d, e] = &mut sums;
            *a += u64::from(counts.v4.seeders);
            *b += u64::from(counts.v4.leechers);
            *c += u64::from(counts.v6.seeders);
            *d += u64::from(counts.v6.leechers);
            *e += u64::from(counts.partial_seeds);
        }
        let Totals { v4, v6, partial_seeds, .. } = store.totals();
        assert_eq!([v4.seeders, v4.leechers, v6.seeders, v6.leechers, partial_seeds], sums);
    }
}

impl MergedTorrent {
    fn merge(&mut self, reported: &Reported, unit: i64, has_ids: bool, merged: &mut Merged) {
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
                let old_id = known.map_or(PeerId::default(), |known| known.id);
                let id = if has_ids { id } else { old_id };
                let counted = was_counted || word.is_counted();
                self.peers.insert(peer, MergedPeer { role: word.role(), counted, unit, id });
                true
            }
        };
        self.downloads += u32::from(is_stored && word.is_completed() && !was_counted);
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

fn random_word(random: &mut Random) -> Word {
    let role = [Role::Seeder, Role::Leecher, Role::PartialSeed][random.below(3) as usize];
    match random.below(12) {
        0 => Word::gone(),
        1 => Word(Word::gone().0 | random.below(70) as u16),
        2 => Word::completed(role),
        3 => Word(random.next() as u16),
        _ => Word::present(random.below(60), role, random.below(4) == 0),
    }
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
        let cut_ago_s = [0, 1, 15, 100, 400, 5000, u32::MAX][random.below(7) as usize];
        let merged = merge(&store, now, cut_ago_s, &groups, has_ids);
        let expected = groups.iter().map(|group| twin.merge(now, cut_ago_s, group, has_ids));
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
    for seed in 1..=6 {
        compare_merges(seed, &Scale { torrents: 200, peers: 12, rounds: 150 });
    }
}

#[test]
fn agrees_with_the_twin_on_dense_and_paged_torrents() {
    for seed in 1..=3 {
        compare_merges(seed, &Scale { torrents: 12, peers: 150, rounds: 50 });
        compare_merges(seed, &Scale { torrents: 4, peers: 2000, rounds: 10 });
    }
}
