//! What the nodes of a cluster do with each other's changes: merging them as they come, and reading the log
//! of a peer's lifetime at the start.

use std::ops::Range;
use std::time::Instant;

use primitives::Random;
use replication::block::{self, Block, Change, Header, Kind, Word};
use replication::{AGE_UNIT_S, MergeTime, Merged, ReplicatedStore};
use swarm::{Store, StoreAnnounce};
use types::{PeerId, Role, Tick, limits};

use super::case::{Size, worked};
use super::contender::{Answer, Contender, store};
use super::replication::{BATCH, PAIRS, cpu_time, fill, median};
use super::work::{job, skewed};
use crate::record::Figures;

/// Records of a block: what nodes with 10 million peers tell in 50 ms.
const RECORDS: usize = 400;
/// Seconds that peers are kept, and between their announces.
const LIFETIME_S: u32 = 2700;
const INTERVAL_S: u32 = 1800;
const EPOCH_MIN: u32 = 29_000_000;

/// Blocks of changes, as a node cuts them.
#[derive(Default)]
struct Blocks {
    bytes: Vec<u8>,
    body: Vec<u8>,
    records: u64,
}

impl Blocks {
    /// Appends the block of changes that were cut at second `at`.
    fn push(&mut self, at: u32, changes: &[Change]) {
        self.body.clear();
        block::encode_changes(changes, &[], &mut self.body);
        let (kind, cut_ms) = (Kind::CHANGES, u64::from(at) * 1000);
        let header = Header { kind, has_ids: false, node: 1, boot: 1, number: 1, cut_ms };
        block::write(&header, &self.body, &mut self.bytes);
        self.records += changes.len() as u64;
    }

    /// Merges all blocks at `now` into the torrents of some shards.
    fn merge(&self, into: &Store, now: u32, shards: Range<usize>) -> Merged {
        let mut random = Random::new(shards.start as u64);
        let mut all = Merged::default();
        let mut bytes = self.bytes.as_slice();
        while let Ok((block, len)) = Block::read(bytes) {
            let cut_ago_s = now - (block.header.cut_ms / 1000) as u32;
            let time = MergeTime { now: Tick(now), cut_ago_s, epoch_min: EPOCH_MIN };
            let Ok(groups) = block.groups() else { break };
            all = all.plus(into.merge(time, &mut random, groups, shards.clone()));
            bytes = &bytes[len..];
        }
        assert!(bytes.is_empty(), "blocks that were written can be read");
        all
    }
}

/// Announces at one store, each of them sent, and merges that into another one with the same peers, in
/// turn. Measures CPU time; `relative` is a merged record to an announce in batches without changes.
pub(super) fn changes(size: Size) -> Figures {
    let (from, into) = (&store(*b"a key of 16 byte"), &store(*b"16 other letters"));
    let jobs = fill(from, size);
    fill(into, size);
    // As nodes do.
    into.remember_removals(true);
    let (mut random, mut answer) = (Random::new(2), Answer::new());
    let mut now = AGE_UNIT_S;
    let mut announce = |now: u32, jobs: &[StoreAnnounce]| {
        let before = cpu_time();
        for batch in jobs.chunks(BATCH) {
            from.announce(Tick(now), &mut random, batch, &mut |_, chosen| answer.copy(chosen));
        }
        cpu_time().saturating_sub(before).as_nanos() as f64 / jobs.len() as f64
    };
    let (mut ratios, mut each, mut records) = (Vec::new(), Vec::new(), 0);
    for _ in 0..PAIRS {
        from.keep_changes(0);
        from.keep_refreshes(0);
        // What the last turn left in the caches is of the other store.
        announce(now, &jobs);
        let announced_ns = announce(now, &jobs);
        from.keep_changes(limits::CHANGES_MAX);
        from.keep_refreshes(1);
        let mut blocks = Blocks::default();
        // As often as in 50 ms, so that a peer that comes and goes is sent in order.
        for part in jobs.chunks(RECORDS) {
            now += AGE_UNIT_S;
            announce(now, part);
            blocks.push(now, &taken(from));
        }
        let before = cpu_time();
        blocks.merge(into, now, 0..into.shards());
        let ns = cpu_time().saturating_sub(before).as_nanos() as f64 / blocks.records as f64;
        records += blocks.records;
        each.push(ns);
        ratios.push(ns / announced_ns);
    }
    let ns_each = median(each);
    Figures::default()
        .with("ns_each", ns_each)
        .with("per_s", 1e9 / ns_each)
        .with("relative", median(ratios))
        .with("changes_percent", 100.0 * records as f64 / (PAIRS * jobs.len()) as f64)
}

/// Takes all changes of a store.
fn taken(store: &Store) -> Vec<Change> {
    let mut all = Vec::new();
    for shard in 0..store.shards() {
        let (mut changes, mut ids) = (Vec::new(), Vec::<PeerId>::new());
        assert_eq!(store.take_changes(shard, &mut changes, &mut ids), 0, "there is room");
        all.append(&mut changes);
    }
    all
}

/// Merges the log of a lifetime into an empty store. Each thread reads all blocks, and merges the torrents of
/// its own shards.
pub(super) fn replay(into: &dyn Contender, threads: u32, torrents: u32) -> Figures {
    let Some(into) = into.merging() else { return Figures::default() };
    into.set_lifetimes(LIFETIME_S, LIFETIME_S);
    into.remember_removals(true);
    let blocks = &log_of(torrents);
    let at = |thread: u32| into.shards() * thread as usize / threads as usize;
    let start = Instant::now();
    let cpu_us: i64 = std::thread::scope(|scope| {
        let run = |thread: u32| {
            scope.spawn(move || {
                let (before, _) = worked();
                blocks.merge(into, LIFETIME_S, at(thread)..at(thread + 1));
                worked().0 - before
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        // A panic has already printed its message.
        running.into_iter().filter_map(|one| one.join().ok()).sum()
    });
    let (wall_s, records) = (start.elapsed().as_secs_f64(), blocks.records as f64);
    let totals = into.totals();
    Figures::default()
        .with("ns_each", wall_s * f64::from(threads) / records * 1e9)
        .with("cpu_ns_each", cpu_us as f64 / records * 1e3)
        .with("per_s", records / wall_s)
        .with("records", records)
        .with("peers", (totals.v4.seeders + totals.v4.leechers) as f64)
        .with("wall_s", wall_s)
}

/// What happens to a peer.
#[derive(Clone, Copy)]
struct Event {
    at: u32,
    pair: u32,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Announced,
    Completed,
    Gone,
}

/// Returns the log of a lifetime of torrents of realistic sizes: every peer announces once an interval, one in
/// twelve completes its download, and one in five leaves.
fn log_of(torrents: u32) -> Blocks {
    let pairs = skewed(torrents);
    let mut random = Random::new(4);
    let mut events = Vec::with_capacity(pairs.len() * 2);
    for pair in 0..pairs.len() as u32 {
        let first = random.below(INTERVAL_S);
        let left =
            if random.below(5) == 0 { first + 1 + random.below(LIFETIME_S) } else { u32::MAX };
        let mut push = |at, what| {
            if at < LIFETIME_S.min(left.saturating_add(1)) {
                events.push(Event { at, pair, what });
            }
        };
        push(first, What::Announced);
        if random.below(12) == 0 {
            push(first + 1 + random.below(600), What::Completed);
        }
        push(first + INTERVAL_S, What::Announced);
        push(left, What::Gone);
    }
    events.sort_unstable_by_key(|event| (event.at, event.pair, event.what));
    let mut blocks = Blocks::default();
    for events in events.chunks(RECORDS) {
        let changes: Vec<_> = events.iter().map(|event| change(*event, &pairs)).collect();
        blocks.push(events.last().map_or(0, |event| event.at), &changes);
    }
    blocks
}

fn change(event: Event, pairs: &[(u32, u64)]) -> Change {
    let (torrent, peer) = pairs[event.pair as usize];
    let StoreAnnounce { info_hash, peer, role, .. } = job(torrent, peer, 0);
    let word = match event.what {
        What::Announced => Word::present(0, role, false),
        What::Completed => Word::completed(Role::Seeder),
        What::Gone => Word::gone(),
    };
    Change { info_hash, peer, word, is_refresh: false }
}

#[cfg(test)]
mod tests {
    use super::super::contender::{OURS, contender};
    use super::*;

    #[test]
    fn the_log_of_a_lifetime_says_who_is_there() {
        let into = contender(OURS).unwrap();
        let figures = replay(&*into, 2, 2000);
        let [peers, records] =
            ["peers", "records"].map(|figure| figures.get(figure).unwrap().median);
        assert_eq!(into.peers() as f64, peers);
        let all = skewed(2000).len() as f64;
        assert!(peers < all * 0.95 && peers > all * 0.8, "{peers} of {all}");
        assert!((1.6..2.4).contains(&(records / peers)), "{records} of {peers}");
    }

    #[test]
    fn changes_are_merged() {
        let figures = changes(Size { torrents: 1000, operations: 2000 });
        // A peer that is announced twice within a unit of age is sent once.
        let percent = figures.get("changes_percent").unwrap().median;
        assert!((50.0..=100.0).contains(&percent), "{percent}");
    }
}
