//! Blocks, and merging what they say into a store.

mod web;

use std::collections::BTreeSet;

use primitives::Random;
use replication::MergeTime;
use replication::block::{Block, BlockError, Groups, Header, Kind, write};
use swarm::{Options, Store};
use types::{SwarmCounts, Tick};

const LIFETIME_S: u32 = 2700;
/// Early enough that older marks are before tick 0.
const NOW: Tick = Tick(100);

/// A block that is read is written again as the same bytes, and a changed byte is noticed. A body is read
/// as its plain reader reads it, or refused. A store into which it is merged adds up, and loses everything when lifetimes
/// end.
///
/// The first three bytes choose the kind of block, the store, and how long ago the block was cut; the rest is the
/// body, whose whole groups are merged.
pub fn check(bytes: &[u8]) {
    read(bytes);
    let [flags, low, high, body @ ..] = bytes else { return };
    let (is_walk, has_ids) = (flags & 1 != 0, flags & 2 != 0);
    let store = Store::new(&Options {
        web_lifetime_s: LIFETIME_S / 2,
        keep_peer_ids: flags & 4 != 0,
        memory_budget: (flags & 8 != 0).then_some(64 << 10),
        ..Options::new(2, *b"sixteen bytes ..", LIFETIME_S)
    });
    let cut_ago_s = u16::from_le_bytes([*low, *high]);
    if flags >> 4 & 3 == 3 {
        return web::check(&store, cut_ago_s, *flags, body);
    }
    let kind = if is_walk { Kind::WALK } else { Kind::CHANGES };
    let header = Header { kind, has_ids, node: 1, boot: 2, number: 3, cut_ms: 4 };
    let whole = whole_groups(body, is_walk, has_ids);
    assert_eq!(Block { header, body }.groups().is_ok(), whole == body.len());
    let body = &body[..whole];
    let groups = Block { header, body }.groups().expect("it adds up");
    assert!(Block { header, body }.web_groups().is_err(), "another kind");
    write_and_damage(&header, body, usize::from(*low), *flags);
    merge(&store, cut_ago_s, groups);
}

/// A written block is read as it was, and not if a byte is another.
fn write_and_damage(header: &Header, body: &[u8], at: usize, flags: u8) {
    let mut written = Vec::new();
    write(header, body, &mut written);
    read(&written);
    let at = at % written.len();
    written[at] ^= flags | 1;
    assert!(Block::read(&written).is_err());
}

fn read(bytes: &[u8]) {
    match Block::read(bytes) {
        Ok((block, len)) => {
            let mut again = Vec::new();
            write(&block.header, block.body, &mut again);
            // Unknown flags are ignored.
            if bytes[5] <= 1 {
                assert_eq!(again, bytes[..len]);
            }
        }
        Err(error) => assert_eq!(error == BlockError::NoBlock, !begins(bytes)),
    }
}

fn begins(bytes: &[u8]) -> bool {
    bytes.iter().zip(b"TGB1").all(|(found, expected)| found == expected)
}

/// Returns how many bytes the whole groups at the beginning of a body take.
fn whole_groups(body: &[u8], is_walk: bool, has_ids: bool) -> usize {
    let mut at = 0;
    loop {
        let Some([a, b, c, d]) = body[at..].get(20..24) else { return at };
        let [v4, v6] = [[*a, *b], [*c, *d]].map(|number| usize::from(u16::from_le_bytes(number)));
        let id = if has_ids { 20 } else { 0 };
        let len = 24 + if is_walk { 8 } else { 0 } + v4 * (8 + id) + v6 * (20 + id);
        if at + len > body.len() {
            return at;
        }
        at += len;
    }
}

fn merge(store: &Store, cut_ago_s: u16, groups: Groups<'_>) {
    let mut random = Random::new(1);
    let time = MergeTime { now: NOW, cut_ago_s: cut_ago_s.into(), epoch_min: 29_000_000 };
    let first = store.merge(time, &mut random, groups, 0..2);
    check_sums(store, first.torrents);
    // Once more, an older block, in the other order of shards.
    store.remember_stopped(true);
    let time = MergeTime { cut_ago_s: time.cut_ago_s / 2, ..time };
    store.merge(time, &mut random, groups, 1..2);
    store.merge(time, &mut random, groups, 0..1);
    check_sums(store, store.totals().torrents);
    expire(store);
}

/// Everything is lost when lifetimes have ended.
fn expire(store: &Store) {
    for _ in 0..6 {
        store.sweep(Tick(NOW.0 + 2 * LIFETIME_S), 1);
    }
    check_sums(store, 0);
}

/// Asserts that the counts of a store's torrents add up to its totals, and are those of its peers.
fn check_sums(store: &Store, torrents: u64) {
    let mut all = Vec::new();
    store.each_torrent(|stats| all.push(*stats));
    let mut sum = 0;
    for stats in &all {
        let SwarmCounts { v4, v6, web, .. } = stats.counts;
        let peers: u32 = [v4, v6, web].map(|family| family.seeders + family.leechers).iter().sum();
        sum += u64::from(peers);
        let details = store.inspect(NOW, &stats.info_hash, usize::MAX).expect("it was just listed");
        let plain: Vec<_> = details.peers.iter().filter_map(|peer| peer.address).collect();
        assert_eq!(plain.iter().collect::<BTreeSet<_>>().len(), plain.len(), "a peer twice");
        assert!(details.peers.len() >= peers.min(100) as usize);
        assert!(details.peers.iter().all(|peer| peer.age_s <= LIFETIME_S + 16));
    }
    let totals = store.totals();
    assert_eq!((totals.torrents, all.len() as u64), (torrents, torrents));
    let families = [totals.v4, totals.v6, totals.web];
    assert_eq!(families.iter().map(|family| family.seeders + family.leechers).sum::<u64>(), sum);
}
