//! Power failures: what was synced comes back.

use std::time::Duration;

use primitives::Random;

use super::memory_disk::MemoryDisk;
use super::tracker::{
    PACE, Peers, START_MS, TestClock, TestWriter, announce_random, peers_of, restore, store,
};
use crate::Pace;
use swarm::Feed;

/// Whatever the disk loses of what was not synced, all peers of the last sync come back that did not stop
/// since then, and no peer that was never there.
#[test]
fn all_that_was_synced_comes_back() {
    for seed in 0..40 {
        survive(seed, Duration::from_secs(1));
    }
}

/// Without periodic syncs, what was there when the last round ended comes back.
#[test]
fn complete_rounds_come_back_without_syncs() {
    for seed in 100..130 {
        survive(seed, Duration::ZERO);
    }
}

/// Writes with power failures in between. After each, another tracker restores what is left and continues
/// with the journal.
fn survive(seed: u64, sync: Duration) {
    let mut random = Random::new(seed);
    let pace = Pace { sync, ..PACE };
    let mut disk = MemoryDisk::default();
    let clock = TestClock::at(START_MS, 10);
    let mut tracker = store(false);
    for failure in 0..4 {
        let feed = Feed::default();
        let mut writer = TestWriter::begin(&feed, &tracker, &disk, &clock, pace).unwrap();
        // Peers at the last sync, less those that stopped since, and all that were there since.
        let mut certain = Peers::new();
        let mut possible = peers_of(&tracker, clock.now().tick);
        let mut is_known = failure == 0;
        for _ in 0..random.below(30) {
            for _ in 0..random.below(60) {
                match announce_random(&tracker, clock.now().tick, &mut random) {
                    (peer, None) => drop(certain.remove(&peer)),
                    (peer, Some(role)) => drop(possible.insert(peer, role)),
                }
            }
            writer.turn().unwrap();
            if disk.is_synced() {
                certain = peers_of(&tracker, clock.now().tick);
                possible = certain.clone();
                is_known = true;
            }
        }
        drop(writer);
        disk = disk.after_power_failure(&mut random);
        let restored = restore(&disk, clock.now().unix_ms, 2);
        let what = format!("seed {seed}, failure {failure}");
        let lost = certain.keys().find(|peer| !restored.peers.contains_key(*peer));
        assert_eq!(lost, None, "{what}");
        if is_known {
            let unknown = restored.peers.keys().find(|peer| !possible.contains_key(*peer));
            assert_eq!(unknown, None, "{what}");
        }
        assert_eq!(restored.figures.skipped[1], 0, "{what}: a power failure is no damage");
        tracker = restored.store;
    }
}
