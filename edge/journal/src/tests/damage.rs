//! Journals that are cut, changed, mixed up: what is whole comes back, and nothing else does.

use primitives::Random;
use swarm::Feed;
use types::{Role, Tick};

use super::memory_disk::MemoryDisk;
use super::tracker::{
    PACE, Peers, START_MS, TestClock, TestWriter, announce, announce_random, peers_of, restore,
    store,
};
use crate::inspect::inspect_on;
use crate::scan::Scanner;
use crate::segment::{HEADER_LEN, SegmentHeader};

/// A journal of some segments, and what was in the store: at the end, and ever.
struct Sample {
    disk: MemoryDisk,
    now_ms: u64,
    last: Peers,
    ever: Peers,
}

/// Returns a journal of some thousand bytes in two segments or more.
fn sample(seed: u64) -> Sample {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 50);
    let mut random = Random::new(seed);
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    let mut ever = Peers::new();
    for _ in 0..7 {
        for _ in 0..12 {
            let (peer, role) = announce_random(&store, clock.now().tick, &mut random);
            ever.extend(role.map(|role| (peer, role)));
        }
        writer.turn().unwrap();
    }
    let now_ms = clock.now().unix_ms;
    let last = peers_of(&store, clock.now().tick);
    writer.finish();
    assert!(disk.files().len() >= 2);
    Sample { disk, now_ms, last, ever }
}

/// All peers were in the store at some time. Their roles may be older.
fn assert_known(sample: &Sample, peers: &Peers, what: &str) {
    let unknown = peers.keys().find(|peer| !sample.ever.contains_key(*peer));
    assert_eq!(unknown, None, "{what}");
}

/// Where blocks begin in a segment, and its end.
fn boundaries(segment: &[u8]) -> Vec<usize> {
    let header = SegmentHeader::decode(segment).unwrap();
    let mut scanner = Scanner::new(&segment[HEADER_LEN..], &header);
    let mut ends = vec![HEADER_LEN];
    while let Some(chunk) = scanner.next_chunk().unwrap() {
        assert_eq!(chunk.damage, [0; 0]);
        ends.extend(chunk.blocks.iter().map(|block| HEADER_LEN + block.body.end));
    }
    assert_eq!((scanner.tail(), ends.last()), (None, Some(&segment.len())));
    ends
}

#[test]
fn a_tail_may_be_cut_anywhere() {
    let sample = sample(1);
    let files = sample.disk.files();
    let (newest, bytes) = files.last_key_value().unwrap();
    let boundaries = boundaries(bytes);
    let mut whole = Peers::new();
    for cut in 0..=bytes.len() {
        let mut files = files.clone();
        files.insert(*newest, bytes[..cut].to_vec());
        let restored = restore(&MemoryDisk::of(files), sample.now_ms, 1);
        assert_known(&sample, &restored.peers, "cut");
        // Its header names the begin of the round. Without it, that segment seems to be missing.
        let damaged = u64::from(cut < HEADER_LEN);
        assert_eq!(restored.figures.skipped, [0, damaged, 0], "cut at {cut}");
        if boundaries.contains(&cut) || cut == 0 {
            whole = restored.peers;
        } else {
            assert_eq!(restored.peers, whole, "{cut}: not what the whole blocks say");
        }
    }
    assert_eq!(whole, sample.last);
}

#[test]
fn a_damaged_byte_costs_its_block() {
    let sample = sample(3);
    let files = sample.disk.files();
    let mut random = Random::new(3);
    for (number, bytes) in &files {
        let ends = boundaries(bytes);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << random.below(8);
            let mut others = files.clone();
            others.insert(*number, bytes.clone());
            let disk = MemoryDisk::of(others);
            let restored = restore(&disk, sample.now_ms, 1);
            // The command that inspects files finds the same damage.
            let damaged = inspect_on(&disk).unwrap().damaged();
            assert_eq!(damaged > 0, restored.figures.skipped[1] > 0, "byte {at} of {number}");
            assert_known(&sample, &restored.peers, &format!("byte {at} of {number}"));
            let is_newest = Some(number) == files.keys().last();
            let is_tail = is_newest && at >= ends[ends.len() - 2];
            assert_eq!(
                restored.figures.skipped[1] == 0,
                is_tail,
                "byte {at} of {number}: {ends:?}"
            );
            if at < HEADER_LEN {
                continue;
            }
            // All other blocks are there.
            let header = SegmentHeader::decode(&bytes).unwrap();
            let mut scanner = Scanner::new(&bytes[HEADER_LEN..], &header);
            let mut blocks = 0;
            while let Some(chunk) = scanner.next_chunk().unwrap() {
                blocks += chunk.blocks.len();
            }
            assert_eq!(blocks, ends.len() - 2, "byte {at} of {number}");
        }
    }
}

#[test]
fn segments_may_be_missing() {
    let sample = sample(4);
    let files = sample.disk.files();
    // A round's begin that is missing is reported, and the rest is read.
    let newest = files.last_key_value().unwrap().1;
    let first = SegmentHeader::decode(newest).unwrap().round_segment;
    let mut others = files.clone();
    others.remove(&first);
    let disk = MemoryDisk::of(others);
    let restored = restore(&disk, sample.now_ms, 2);
    assert!(restored.figures.skipped[1] > 0 && restored.merged.peers > 0);
    assert!(inspect_on(&disk).unwrap().damaged() > 0);
    // So is a gap.
    let journal = long_journal();
    let mut files = journal.disk.files();
    let middle = *files.keys().nth(1).unwrap();
    files.remove(&middle);
    let disk = MemoryDisk::of(files);
    let restored = restore(&disk, journal.now_ms, 2);
    assert_eq!((restored.figures.skipped[1], inspect_on(&disk).unwrap().damaged()), (1, 1));
}

/// Returns a journal of three segments that are all read: the wall clock was set twice.
fn long_journal() -> Sample {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 50);
    let pace = crate::Pace { round: std::time::Duration::from_secs(3600), ..PACE };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
    for number in 0..3 {
        announce(&store, Tick(50), 1, number, Some(Role::Leecher));
        writer.turn().unwrap();
        clock.set(20_000);
    }
    let last = peers_of(&store, Tick(50));
    assert_eq!(disk.files().len(), 3);
    Sample { disk: disk.clone(), now_ms: clock.now().unix_ms, ever: last.clone(), last }
}

#[test]
fn segments_with_another_name_are_skipped() {
    let sample = sample(5);
    let files = sample.disk.files();
    let (first, second) = {
        let mut numbers = files.keys();
        (*numbers.next().unwrap(), *numbers.next().unwrap())
    };
    let mut swapped = files.clone();
    swapped.insert(first, files[&second].clone());
    swapped.insert(second, files[&first].clone());
    let restored = restore(&MemoryDisk::of(swapped), sample.now_ms, 2);
    assert!(restored.figures.skipped[1] == 0 || restored.merged.peers > 0);
    assert_known(&sample, &restored.peers, "swapped");
    let mut doubled = files.clone();
    doubled.insert(999, files[&second].clone());
    let restored = restore(&MemoryDisk::of(doubled), sample.now_ms, 2);
    assert_eq!(restored.peers, sample.last);
    assert_eq!(restored.figures.skipped, [0, 1, 0]);
}

#[test]
fn a_journal_of_a_later_version_is_set_aside() {
    let sample = sample(6);
    let mut files = sample.disk.files();
    let numbers: Vec<u64> = files.keys().copied().collect();
    let newest = files.last_entry().unwrap().into_mut();
    newest[4] = 2;
    let crc = crc32c::crc32c(&newest[..60]);
    newest[60..64].copy_from_slice(&crc.to_le_bytes());
    let disk = MemoryDisk::of(files);
    let restored = restore(&disk, sample.now_ms, 2);
    assert_eq!((restored.peers.len(), disk.files().len()), (0, 0));
    assert_eq!(disk.set_aside_files(), numbers);
}

/// A segment that ends with the begin of its next block is searched to its end, in chunks of a MiB.
#[test]
fn blocks_are_found_after_garbage_of_any_length() {
    let sample = sample(7);
    let files = sample.disk.files();
    let bytes = files.values().next().unwrap();
    let header = SegmentHeader::decode(bytes).unwrap();
    let ends = boundaries(bytes);
    for garbage in [1, 39, 40, 41, 1 << 19, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20] {
        let (before, after) = bytes.split_at(ends[1]);
        let mut bytes = before.to_vec();
        bytes.extend((0..garbage).map(|at| b"TGB1TGB"[at % 7]));
        bytes.extend_from_slice(after);
        let mut scanner = Scanner::new(&bytes[HEADER_LEN..], &header);
        let (mut blocks, mut damage) = (0, Vec::new());
        while let Some(chunk) = scanner.next_chunk().unwrap() {
            blocks += chunk.blocks.len();
            damage.extend(chunk.damage);
        }
        assert_eq!((blocks, damage), (ends.len() - 1, vec![ends[1] as u64]), "{garbage}");
        assert_eq!(scanner.tail(), None);
    }
}

/// Bytes within damage that look like a block of another writer were part of a block's body.
#[test]
fn blocks_of_other_writers_are_no_blocks_within_damage() {
    let sample = sample(8);
    let files = sample.disk.files();
    let bytes = files.values().next().unwrap();
    let header = SegmentHeader::decode(bytes).unwrap();
    let other = SegmentHeader { boot: header.boot + 1, ..header };
    let mut damaged = bytes.clone();
    damaged[HEADER_LEN] ^= 1;
    let count = |header| {
        let mut scanner = Scanner::new(&damaged[HEADER_LEN..], header);
        let mut blocks = 0;
        while let Some(chunk) = scanner.next_chunk().unwrap() {
            blocks += chunk.blocks.len();
        }
        blocks
    };
    assert!(count(&header) > 0);
    assert_eq!(count(&other), 0);
}
