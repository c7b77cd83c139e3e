//! Disks that fail and stall: the store is not affected, and the journal recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use primitives::Random;
use swarm::Feed;
use types::{Role, Tick, limits};

use super::memory_disk::{Faults, MemoryDisk};
use super::tracker::{
    PACE, START_MS, TestClock, TestWriter, announce, announce_random, peers_of, restore, store,
};
use super::writing::{StopOnDrop, wait_until};
use crate::{Lock, Pace, State, Status, Writer};

/// Returns a writer whose retries come soon.
fn writer(folder: &std::path::Path, disk: &MemoryDisk, status: &Arc<Status>) -> Writer {
    let lock = Lock::acquire(folder, Duration::ZERO).unwrap().unwrap();
    let clocks = TestClock::at(START_MS, 0).clocks();
    let (feed, status) = (Arc::new(Feed::default()), Arc::clone(status));
    let writer = Writer::new(folder.to_owned(), lock, feed, clocks, status);
    writer
        .on_disk(Arc::new(disk.clone()))
        .with_times(Duration::from_millis(1), Duration::from_millis(3))
}

const FAST: Pace =
    Pace { round: Duration::from_millis(5), sync: Duration::from_millis(2), bytes_max: 0 };

/// Whatever calls fail: nothing of the last complete round is lost, and when no more fail, all is written.
#[test]
fn errors_lose_nothing_but_what_comes_meanwhile() {
    let mut failures = [0; 4];
    for seed in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let (store, stop, disk) = (store(false), AtomicBool::new(false), MemoryDisk::default());
        let status = Arc::new(Status::default());
        let writer = writer(folder.path(), &disk, &status);
        let mut random = Random::new(seed);
        thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            scope.spawn(|| writer.run(&store, || FAST, &stop));
            // Peers that are in a complete round stay there.
            for number in 0..50 {
                announce(&store, Tick(0), 1000 + number, number, Some(Role::Seeder));
            }
            wait_for_round(&status);
            let faults = Faults { random: Random::new(seed), one_in: 2 + random.below(30) };
            disk.set_faults(Some(faults));
            for _ in 0..20 {
                announce_random(&store, Tick(0), &mut random);
                // As a process that is killed now leaves it.
                let restored = restore(&MemoryDisk::of(disk.files()), START_MS, 1);
                let kept = (0..50).filter(|number| {
                    let address = super::tracker::peer(*number).socket_addr();
                    let peer = (super::tracker::torrent(1000 + number), address);
                    restored.peers.contains_key(&peer)
                });
                assert_eq!(kept.count(), 50, "seed {seed}");
            }
            wait_until(|| status.figures().failures.iter().sum::<u64>() > 3);
            disk.set_faults(None);
            wait_until(|| status.figures().state == State::Writing);
            wait_for_round(&status);
        });
        let restored = restore(&disk, START_MS, 1);
        assert_eq!(restored.peers, peers_of(&store, Tick(0)), "seed {seed}");
        for (sum, count) in failures.iter_mut().zip(status.figures().failures) {
            *sum += count;
        }
    }
    let [no_space, read_only, io, bound] = failures;
    assert!(no_space > 0 && read_only > 0 && io > 0 && bound == 0, "{failures:?}");
}

/// Waits until a round that has not begun yet is complete: the second mark from now.
fn wait_for_round(status: &Status) {
    for _ in 0..2 {
        let rounds = status.figures().blocks[3];
        wait_until(|| status.figures().blocks[3] >= rounds + 2);
    }
}

/// Failed attempts leave no files behind.
#[test]
fn attempts_that_fail_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, stop, disk) = (store(false), AtomicBool::new(false), MemoryDisk::default());
    let status = Arc::new(Status::default());
    let writer = writer(folder.path(), &disk, &status);
    disk.fail_syncs(true);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| writer.run(&store, || FAST, &stop));
        wait_until(|| status.figures().failures.iter().sum::<u64>() > 20);
    });
    assert!(disk.files().is_empty(), "{:?}", disk.files().keys());
}

/// While the disk stalls, announces are done; changes that do not fit are missed, which voids the round.
#[test]
fn a_stalled_disk_stalls_the_journal_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, stop, disk) = (store(false), AtomicBool::new(false), MemoryDisk::default());
    let status = Arc::new(Status::default());
    let writer = writer(folder.path(), &disk, &status);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| writer.run(&store, || FAST, &stop));
        wait_until(|| status.figures().state == State::Writing);
        disk.set_stalled(true);
        disk.wait_for_stall();
        // One torrent is in one shard, whose share of the changes it fills.
        for number in 0..limits::CHANGES_MAX as u32 / 4 / 2 + 1000 {
            announce(&store, Tick(0), 1, number % 3, Some(Role::Seeder));
            announce(&store, Tick(0), 1, number % 3, None);
        }
        announce(&store, Tick(0), 1, 7, Some(Role::Leecher));
        assert_eq!(status.figures().missed, 0);
        disk.set_stalled(false);
        wait_until(|| status.figures().missed > 0);
        wait_for_round(&status);
    });
    let figures = status.figures();
    assert_eq!((figures.voided_rounds, figures.failures), (1, [0; 4]));
    assert_eq!(restore(&disk, START_MS, 1).peers, peers_of(&store, Tick(0)));
}

/// The round that begins anew sees the state that the voided round missed because changes were lost.
#[test]
fn a_voided_round_begins_with_a_new_walk() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    for number in 0..4000 {
        announce(&store, Tick(0), number, number % 7, Some(Role::Leecher));
    }
    let clock = TestClock::at(START_MS, 0);
    let pace = Pace { round: Duration::from_secs(10), ..PACE };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
    writer.turns(30);
    // Room for one change in each shard.
    store.keep_changes(4);
    for number in 0..4000 {
        announce(&store, Tick(0), number, 100, Some(Role::Seeder));
    }
    writer.turns(75);
    let figures = writer.status.figures();
    assert!(figures.missed > 1000 && figures.voided_rounds == 1, "{figures:?}");
    assert!(figures.round_began_ms.is_some(), "the round is not complete");
    let restored = restore(&disk, clock.now().unix_ms, 1);
    assert_eq!(restored.peers, peers_of(&store, clock.now().tick));
}

/// A disk that never keeps up gets rounds with gaps, and the journal does not grow without end.
#[test]
fn rounds_end_although_changes_are_missed() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 0);
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    writer.turns(4);
    let began = writer.status.figures().round_began_ms;
    for _ in 0..30 {
        store.keep_changes(4);
        for number in 0..9 {
            announce(&store, Tick(0), 1, number, Some(Role::Leecher));
            announce(&store, Tick(0), 1, number, None);
        }
        writer.turn().unwrap();
    }
    let figures = writer.status.figures();
    assert!(figures.missed > 30 && figures.voided_rounds >= 3, "{figures:?}");
    assert!(figures.round_began_ms > began && disk.files().len() <= 4, "{figures:?}");
}

/// A round that would take more than its half of the bound hurries to its end.
#[test]
fn rounds_hurry_before_the_bound() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    for number in 0..2000 {
        announce(&store, Tick(0), number, number % 5, Some(Role::Leecher));
    }
    let clock = TestClock::at(START_MS, 0);
    // Two rounds have room, and some changes: fewer than come in the time of a round.
    let bytes_max = store.walk_bytes() * 3;
    let pace = Pace { round: Duration::from_secs(60), bytes_max, ..PACE };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
    for turn in 0..1500 {
        for number in 0..5 {
            let role = if turn % 2 == 0 { Role::Seeder } else { Role::Leecher };
            announce(&store, Tick(0), number, 100, Some(role));
        }
        writer.turn().unwrap();
    }
    let figures = writer.status.figures();
    let began_ms = figures.round_began_ms.unwrap();
    assert!(clock.now().unix_ms - began_ms < 60_000, "rounds did not hurry: {figures:?}");
    drop(writer);
    assert_eq!(restore(&disk, clock.now().unix_ms, 1).peers, peers_of(&store, Tick(0)));
}

#[test]
fn the_writer_stops_at_the_bound_and_continues_when_it_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let (store, stop, disk) = (store(false), AtomicBool::new(false), MemoryDisk::default());
    for number in 0..2000 {
        announce(&store, Tick(0), number, number % 5, Some(Role::Leecher));
    }
    let status = Arc::new(Status::default());
    let writer = writer(folder.path(), &disk, &status);
    let is_raised = AtomicBool::new(false);
    let low = Pace { bytes_max: store.walk_bytes() * 3 / 2, ..FAST };
    let pace = || if is_raised.load(Ordering::Relaxed) { FAST } else { low };
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| writer.run(&store, pace, &stop));
        wait_until(|| status.figures().failures[3] >= 3);
        assert_eq!(status.figures().state, State::Stopped);
        let bytes: usize = disk.files().values().map(Vec::len).sum();
        assert!(bytes as u64 <= low.bytes_max);
        let left = MemoryDisk::of(disk.files());
        assert_eq!(restore(&left, START_MS, 1).peers, peers_of(&store, Tick(0)));
        is_raised.store(true, Ordering::Relaxed);
        wait_until(|| status.figures().state == State::Writing);
    });
}

/// A journal that is as long as it may be is written again: what is behind its last complete round goes.
#[test]
fn the_writer_gives_up_a_round_that_reached_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    for number in 0..2000 {
        announce(&store, Tick(0), number, number % 5, Some(Role::Leecher));
    }
    let clock = TestClock::at(START_MS, 0);
    let mut before = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    while before.status.figures().round_began_ms.is_none() {
        before.turn().unwrap();
    }
    // Peers that do not stay, in the round after it.
    before.pace.round = Duration::from_secs(3600);
    for number in 0..8000 {
        announce(&store, Tick(0), number % 2000, 100, Some(Role::Seeder));
        announce(&store, Tick(0), number % 2000, 100, None);
    }
    before.turns(2);
    drop(before);
    let bytes = || disk.files().values().map(Vec::len).sum::<usize>() as u64;
    let pace = Pace { bytes_max: bytes(), ..FAST };
    assert!(store.walk_bytes() * 3 < pace.bytes_max, "two rounds have room");
    let (status, stop) = (Arc::new(Status::default()), AtomicBool::new(false));
    let writer = writer(folder.path(), &disk, &status);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| writer.run(&store, || pace, &stop));
        wait_for_round(&status);
    });
    assert!(bytes() <= pace.bytes_max, "{}", bytes());
    assert_eq!(restore(&disk, START_MS, 1).peers, peers_of(&store, Tick(0)));
}
