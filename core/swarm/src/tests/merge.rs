//! Merging: the naive twin's groups, caps and the memory budget.

use replication::block::{GroupWriter, Head, WebChange, encode_web_changes};

use super::*;

pub(super) const EPOCH_MIN: u32 = 29_000_000;

/// A peer as a block reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub(super) peer: PeerKey,
    pub(super) word: Word,
    pub(super) id: PeerId,
}

/// A group before it is written.
#[derive(Clone, Debug)]
pub(super) struct PlainGroup {
    pub(super) torrent: InfoHash,
    pub(super) head: Option<Head>,
    pub(super) peers: Vec<Reported>,
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

#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) now: u32,
    pub(crate) cut_ago_s: u32,
}

impl How {
    pub(crate) fn random(random: &mut Random, now: u32) -> Self {
        let cut_ago_s = [0, 1, 15, 100, 400, 5000, u32::MAX][random.below(7) as usize];
        Self { now, cut_ago_s }
    }

    pub(crate) fn time(self) -> MergeTime {
        MergeTime { now: Tick(self.now), cut_ago_s: self.cut_ago_s, epoch_min: EPOCH_MIN }
    }
}

fn merge(store: &Store, now: u32, cut_ago_s: u32, groups: &[PlainGroup], has_ids: bool) -> Merged {
    merge_as(store, How { now, cut_ago_s }, groups, has_ids)
}

fn merge_as(store: &Store, how: How, groups: &[PlainGroup], has_ids: bool) -> Merged {
    let bytes = bytes_of(groups, has_ids);
    let (block, _) = Block::read(&bytes).unwrap();
    let groups = block.groups().unwrap();
    let mut random = Random::new(u64::from(how.now));
    // In halves, as two threads do it.
    let half = store.shards() / 2;
    let first = store.merge(how.time(), &mut random, groups, 0..half);
    let second = store.merge(how.time(), &mut random, groups, half..store.shards());
    first.plus(second)
}

/// Merges browsers that another node reports.
pub(crate) fn merge_web(store: &Store, how: How, node: u8, changes: &[WebChange]) -> Merged {
    let mut body = Vec::new();
    encode_web_changes(changes, &mut body);
    let header = header(Kind::WEB, node.into());
    let groups = Block { header, body: &body }.web_groups().unwrap();
    // In two parts, as two threads do it.
    let first = store.merge_web(how.time(), groups, 0..1);
    first.plus(store.merge_web(how.time(), groups, 1..store.shards()))
}

fn random_group(random: &mut Random, scale: &Scale, is_walk: bool) -> PlainGroup {
    let torrent = random.below(scale.torrents) * random.below(scale.torrents) / scale.torrents;
    let len = random.below(scale.peers);
    let reported = |_| {
        let number = random.below(scale.peers) / (torrent + 1);
        let peer = random_peer(random, number);
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

/// Merges random groups into the store and its twin. Returns what changed.
pub(super) fn compare(
    store: &Store,
    twin: &mut Twin,
    random: &mut Random,
    scale: &Scale,
    now: u32,
) -> Merged {
    let (is_walk, has_ids) = (random.below(2) == 0, random.below(3) > 0);
    let groups: Vec<_> =
        (0..random.below(12)).map(|_| random_group(random, scale, is_walk)).collect();
    let how = How::random(random, now);
    let merged = merge_as(store, how, &groups, has_ids);
    let expected = groups.iter().map(|group| twin.merge(how, group, has_ids));
    let expected = expected.fold(Merged::default(), Merged::plus);
    assert_eq!(merged, expected);
    merged
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
    assert_eq!(replicate::take(&store), (vec![], vec![], 0));
}

/// A page holds all peers of a network, so their number has a limit, whatever a block reports.
#[test]
fn a_network_has_no_more_peers_than_a_page_may_hold() {
    let store = store(1);
    let peer = |number: u16| PeerKey::new(Ipv4Addr::new(20, 0, 0, 1).into(), number + 1);
    let crowd: Vec<_> = (0..6000).map(|number| (peer(number), leecher(0))).collect();
    merge(&store, 9, 0, &[peers(1, &crowd)], false);
    assert_eq!(counts(&store, 1).v4.leechers, types::limits::PEERS_PER_NETWORK_MAX.into());
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
            store.keep_changes(1 << 16);
            let caps = PeerCaps { per_address: 3, per_network: [4096, 40, 7, 3][round % 4] };
            store.set_merge_caps(caps);
            store.set_exempt(is_exempt);
            let mut all = BTreeMap::new();
            for _ in 0..hosts * ports {
                let (host, port) = (random.below(hosts) as u8, 1 + random.below(ports) as u16);
                let subnet = u16::from(host % 5) << 8 | u16::from(host);
                let ip: IpAddr = match random.below(3) {
                    0 => Ipv6Addr::new(0x2400, 0, 0, subnet, 0, 0, 0, 1).into(),
                    _ => Ipv4Addr::new(20, 0, 0, host).into(),
                };
                all.insert(PeerKey::new(ip, port), random.below(50));
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
            // Other nodes merge the same blocks, and replace the same peers by themselves.
            assert_eq!(replicate::take(&store).0, []);
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
