//! Tests of the journal's content, and of the time at which it is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use primitives::Random;
use replication::block::{Block, Kind};
use replication::{MergeTime, Now};
use swarm::{Encoder, Feed, Store};
use types::{Role, Tick, limits};

use super::memory_disk::MemoryDisk;
use super::tracker::{
    PACE, START_MS, TestClock, TestWriter, announce, announce_random, peers_of, restore, store,
};
use crate::disk::Disk;
use crate::log::SegmentLog;
use crate::{Failure, Journal, Pace, Status};

/// A journal that is read at any time has what the last turn wrote.
#[test]
fn everything_comes_back() {
    let mut random = Random::new(1);
    for threads in [1, 3] {
        let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
        let clock = TestClock::at(START_MS, 100);
        let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
        for turn in 0..25 {
            for _ in 0..random.below(200) {
                announce_random(&store, clock.now().tick, &mut random);
                if random.below(20) == 0 {
                    // Now and then so long that ages differ.
                    clock.advance(Duration::from_millis(random.below(10_000).into()));
                }
            }
            writer.turn().unwrap();
            let now = clock.now();
            let restored = restore(&disk, now.unix_ms, threads);
            assert_eq!(restored.peers, peers_of(&store, now.tick), "turn {turn}");
            assert_eq!(restored.figures.skipped, [0; 3]);
        }
        assert!(writer.status.figures().round_began_ms.is_some());
    }
}

/// Peers of an earlier process come back with those of the later one, until a round is complete; then the
/// earlier segments are deleted.
#[test]
fn segments_stay_until_a_round_is_complete() {
    let disk = MemoryDisk::default();
    let clock = TestClock::at(START_MS, 0);
    let first = store(false);
    let feed = Feed::default();
    let mut writer = TestWriter::begin(&feed, &first, &disk, &clock, PACE).unwrap();
    announce(&first, Tick(0), 1, 1, Some(Role::Seeder));
    writer.turns(1);
    drop(writer);
    let second = store(false);
    let feed = Feed::default();
    let mut writer = TestWriter::begin(&feed, &second, &disk, &clock, PACE).unwrap();
    announce(&second, Tick(0), 2, 2, Some(Role::Leecher));
    writer.turns(1);
    assert_eq!(disk.files().len(), 2);
    assert_eq!(restore(&disk, clock.now().unix_ms, 2).peers.len(), 2);
    writer.turns(3);
    assert!(!disk.files().contains_key(&1));
    assert_eq!(restore(&disk, clock.now().unix_ms, 2).peers, peers_of(&second, clock.now().tick));
}

/// A process that serves before it has restored the journal does not know the peers yet that stop. The next process,
/// which reads what both have written, must not bring them back.
#[test]
fn stops_of_peers_that_are_yet_to_be_restored_are_written() {
    let disk = MemoryDisk::default();
    let clock = TestClock::at(START_MS, 100);
    let (feed, first) = (Feed::default(), store(false));
    let mut writer = TestWriter::begin(&feed, &first, &disk, &clock, PACE).unwrap();
    (0..8).for_each(|peer| announce(&first, clock.now().tick, 1, peer, Some(Role::Leecher)));
    writer.turns(1);
    writer.finish();
    let (feed, second) = (Feed::default(), store(false));
    feed.prime(&second);
    second.remember_stopped(true);
    // One of each family.
    (2..4).for_each(|peer| announce(&second, clock.now().tick, 1, peer, None));
    let journal = Journal::open_on(Arc::new(disk.clone()), clock.now().unix_ms).unwrap();
    let (status, stop) = (Status::default(), AtomicBool::new(false));
    journal.unwrap().behind_announces().restore(&second, &clock.clocks(), 2, &status, &stop);
    let expected = peers_of(&second, clock.now().tick);
    assert_eq!(expected.len(), 6);
    let mut writer = TestWriter::begin(&feed, &second, &disk, &clock, PACE).unwrap();
    writer.turns(1);
    assert_eq!(restore(&disk, clock.now().unix_ms, 2).peers, expected);
}

/// However long the journal is written, there are two rounds on the disk.
#[test]
fn two_rounds_are_kept() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 0);
    let mut random = Random::new(2);
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    for _ in 0..200 {
        announce_random(&store, clock.now().tick, &mut random);
        writer.turn().unwrap();
        assert!(disk.files().len() <= 3, "{:?}", disk.files().keys());
    }
    let figures = writer.status.figures();
    assert!(figures.round_began_ms.unwrap() + 2000 > clock.now().unix_ms);
    let [changes, walk, _, rounds] = figures.blocks;
    assert!(changes > 100 && walk > 30 && rounds > 100, "{figures:?}");
    let lengths: Vec<_> = disk.files().into_values().map(|bytes| bytes.len() as u64).collect();
    assert_eq!(figures.segments, lengths.len() as u64);
    assert_eq!(figures.disk_bytes, lengths.iter().sum::<u64>());
}

/// The walk takes as long as the round does, and is even.
#[test]
fn walks_are_even() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 0);
    for number in 0..20_000 {
        announce(&store, Tick(0), number, number % 7, Some(Role::Leecher));
    }
    let pace = Pace { round: Duration::from_secs(20), ..PACE };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
    let mut written = Vec::new();
    for _ in 0..100 {
        writer.turn().unwrap();
        written.push(writer.status.figures().bytes[1]);
    }
    let all = store.walk_bytes();
    let (half, end) = (written[49], written[99]);
    assert!(half.abs_diff(all / 2) < all / 10, "{half} of {all} after half of the time");
    assert!(end.abs_diff(all) < all / 50, "{end} of {all} at the end");
    let most = written.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(most < all / 50 + 16_000, "{most} of {all} in one turn");
}

/// Segments end before they are longer than 64 MiB, and the journal stops at its bound.
#[test]
fn segments_and_the_journal_have_a_longest_length() {
    let (disk, status) = (MemoryDisk::default(), Arc::new(Status::default()));
    let clock = TestClock::at(START_MS, 0);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut log = SegmentLog::begin(shared, Arc::clone(&status), 1, clock.now()).unwrap();
    let block = vec![0; 100_000];
    for _ in 0..700 {
        log.append(clock.now(), Kind::WALK, &block).unwrap();
    }
    log.write().unwrap();
    let lengths: Vec<_> = disk.files().into_values().map(|bytes| bytes.len()).collect();
    assert_eq!(lengths, [64 + 671 * block.len(), 64 + 29 * block.len()]);
    log.bytes_max = log.bytes() + 150_000;
    log.append(clock.now(), Kind::WALK, &block).unwrap();
    let error = log.append(clock.now(), Kind::WALK, &block).unwrap_err();
    assert_eq!(Failure::of(&error), Failure::Bound);
}

/// Where one shard's share of the room fills up, the next turn must be soon.
#[test]
fn a_popular_torrent_presses() {
    let (feed, store) = (Feed::default(), store(false));
    let clock = TestClock::at(START_MS, 0);
    let mut encoder = Encoder::new(&feed, &store, 1);
    let mut drain = |changes: u32| {
        for number in 0..changes {
            let role = (number % 2 == 0).then_some(Role::Leecher);
            announce(&store, Tick(0), 1, 1, role);
        }
        assert_eq!(encoder.changes(clock.now(), &mut |_, _| Ok(())).unwrap(), 0);
        encoder.is_pressed()
    };
    assert!(!drain(1000));
    assert!(drain(limits::CHANGES_MAX as u32 / 4 / 4 + 1));
    assert!(!drain(1000));
}

/// Stops a writer, also if the test fails.
pub(super) struct StopOnDrop<'a>(pub(super) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for a condition, up to a minute.
pub(super) fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "the condition was not met");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Steps of walks and announces in any order, by two encoders: the blocks of each say what happened.
#[test]
fn blocks_are_in_the_order_of_what_happened() {
    for seed in 0..30 {
        let (feed, store) = (Feed::default(), store(false));
        let clock = TestClock::at(START_MS, 100);
        let mut random = Random::new(seed);
        let mut encoders = [1, 2].map(|boot| (Encoder::new(&feed, &store, boot), Vec::new()));
        for _ in 0..400 {
            for _ in 0..random.below(6) {
                announce_random(&store, clock.now().tick, &mut random);
            }
            if random.below(4) == 0 {
                clock.advance(Duration::from_secs(random.below(20).into()));
            }
            let (encoder, stream) = &mut encoders[random.below(2) as usize];
            let sink = &mut |_, block: &[u8]| {
                stream.extend_from_slice(block);
                Ok(())
            };
            let missed = match random.below(9) {
                0 => encoder.changes(clock.now(), sink).unwrap(),
                _ => encoder.step(clock.now(), sink).unwrap().missed,
            };
            assert_eq!(missed, 0);
        }
        let now = clock.now();
        for (encoder, stream) in &mut encoders {
            let sink = &mut |_, block: &[u8]| {
                stream.extend_from_slice(block);
                Ok(())
            };
            encoder.changes(now, sink).unwrap();
            let replayed = replay(stream, now);
            assert_eq!(peers_of(&replayed, now.tick), peers_of(&store, now.tick), "seed {seed}");
        }
    }
}

/// Returns a store into which the blocks of `stream` are merged.
fn replay(mut stream: &[u8], now: Now) -> Store {
    let store = store(false);
    while !stream.is_empty() {
        let (block, len) = Block::read(stream).unwrap();
        let cut_ago_s = ((now.unix_ms - block.header.cut_ms) / 1000) as u32;
        let time = MergeTime { now: now.tick, cut_ago_s, epoch_min: now.epoch_min() };
        let groups = block.groups().unwrap();
        store.merge(time, &mut Random::new(1), groups, 0..store.shards());
        stream = &stream[len..];
    }
    store
}
