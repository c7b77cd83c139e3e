//! Clocks that are set, and trackers that were down.

use std::sync::Arc;
use std::time::Duration;

use swarm::Feed;
use types::Role;

use super::memory_disk::MemoryDisk;
use super::tracker::{
    LIFETIME_S, PACE, Restored, START_MS, TestClock, TestWriter, announce, restore, store,
};
use crate::{Journal, Pace};

const MINUTE_S: u32 = 60;
const DAY_MS: i64 = 86_400_000;
/// Ages are in units of 16 s, in the store and in blocks, and times of blocks in seconds.
const EXACT_S: u32 = 33;

/// Returns the journal of a tracker in which peer n last announced n minutes before the end, for n up to
/// 44, and when it ended, in unix ms.
fn journal(turns_before_end: u32) -> (MemoryDisk, u64) {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 10_000);
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    for number in (0..45).rev() {
        announce(&store, clock.now().tick, number % 5, number, Some(Role::Leecher));
        if number > 0 {
            clock.advance(Duration::from_secs(MINUTE_S.into()));
        }
        // Some peers are in a walk only, and some in changes only.
        if number % 10 == 0 {
            writer.turns(4);
        }
    }
    writer.turns(turns_before_end);
    writer.finish();
    (disk, clock.now().unix_ms)
}

/// Returns the age of a peer that came back.
fn age_of(restored: &Restored, torrent: u32, number: u32) -> Option<u32> {
    let info_hash = super::tracker::torrent(torrent);
    let details = restored.store.inspect(restored.now, &info_hash, 1000)?;
    let address = Some(super::tracker::peer(number).socket_addr());
    details.peers.into_iter().find(|peer| peer.address == address).map(|peer| peer.age_s)
}

/// Returns the numbers and ages of the peers that came back, in order.
fn ages(restored: &Restored) -> Vec<(u32, u32)> {
    (0..45).filter_map(|number| Some((number, age_of(restored, number % 5, number)?))).collect()
}

/// After being down for so long, the peers are there whose age is below the lifetime, when ten minutes of
/// it do not count.
fn check_downtime(down_s: u32) {
    for turns in [1, 5] {
        let (disk, end_ms) = journal(turns);
        let now_ms = end_ms + u64::from(down_s) * 1000;
        let restored = restore(&disk, now_ms, 2);
        let aged_s = down_s.saturating_sub(600);
        let found = ages(&restored);
        for number in 0..45 {
            let age_s = number * MINUTE_S + aged_s;
            let found = found.iter().find(|(other, _)| *other == number);
            if age_s + EXACT_S < LIFETIME_S {
                let (_, found_s) = found.unwrap_or_else(|| panic!("peer {number} is not there"));
                assert!(found_s.abs_diff(age_s) <= EXACT_S, "{number}: {found_s} for {age_s}");
            } else if age_s > LIFETIME_S + EXACT_S {
                assert_eq!(found, None, "down for {down_s} s");
            }
        }
        assert_eq!(restored.figures.skipped[0] > 0, aged_s > 0, "down for {down_s} s");
    }
}

#[test]
fn downtime_ages_peers_but_for_ten_minutes_of_it() {
    for minutes in [5, 20, 120] {
        check_downtime(minutes * MINUTE_S);
    }
}

/// Nodes of a cluster compare ages: a peer that stopped at another node while this one was down must not look
/// younger than its stop.
#[test]
fn downtime_of_a_node_ages_its_peers() {
    let (disk, end_ms) = journal(1);
    let epoch_ms = |down_ms: u64, forgiven_ms: i64| {
        let disk = Arc::new(disk.clone());
        Journal::open_forgiving(disk, end_ms + down_ms, forgiven_ms).unwrap().unwrap().epoch_ms()
    };
    assert_eq!(epoch_ms(300_000, 600_000), epoch_ms(0, 600_000) + 300_000);
    assert_eq!(epoch_ms(300_000, 0), epoch_ms(0, 0));
}

/// Ages are kept in units of 16 s. If forgiven time passed on the tracker's clock, a restart would shift each
/// of them by a unit or not, and many restarts by minutes.
#[test]
fn short_downtimes_leave_ages_as_they_were() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 10_000);
    let pace = Pace { round: Duration::from_secs(600), ..PACE };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
    for number in 0..45 {
        announce(&store, clock.now().tick, number % 5, number, Some(Role::Leecher));
        writer.turns(1);
        clock.advance(Duration::from_secs(7));
    }
    let end_ms = clock.now().unix_ms;
    let expected = ages(&restore(&disk, end_ms, 1));
    assert_eq!(expected.len(), 45);
    for down_s in 1..48 {
        let found = ages(&restore(&disk, end_ms + down_s * 1000, 1));
        assert_eq!(found, expected, "down for {down_s} s");
    }
}

/// A wall clock that went back says nothing about how long the tracker was down: no time has passed.
#[test]
fn a_clock_that_went_back_up_to_a_day_ages_no_peer() {
    for back_ms in [1000, 3_600_000, DAY_MS as u64] {
        let (disk, end_ms) = journal(3);
        let restored = restore(&disk, end_ms - back_ms, 2);
        assert_eq!((restored.peers.len(), restored.figures.skipped), (45, [0; 3]), "{back_ms}");
    }
}

#[test]
fn a_journal_from_more_than_a_day_ahead_is_refused() {
    let (disk, end_ms) = journal(3);
    let restored = restore(&disk, end_ms - DAY_MS as u64 - 1000, 2);
    assert!(restored.peers.is_empty());
}

/// While the tracker runs, its own clock tells how much time has passed.
#[test]
fn setting_the_clock_of_a_running_tracker_ages_no_peer() {
    for set_ms in [DAY_MS, -DAY_MS, 60_000, -60_000, 365 * DAY_MS] {
        let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
        let clock = TestClock::at(START_MS, 10_000);
        let pace = Pace { round: Duration::from_secs(600), ..PACE };
        let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
        announce(&store, clock.now().tick, 1, 1, Some(Role::Leecher));
        announce(&store, clock.now().tick, 1, 2, Some(Role::Leecher));
        writer.turns(1);
        clock.set(set_ms);
        clock.advance(Duration::from_secs(160));
        announce(&store, clock.now().tick, 1, 2, None);
        announce(&store, clock.now().tick, 1, 3, Some(Role::Leecher));
        writer.turns(1);
        let restored = restore(&disk, clock.now().unix_ms, 1);
        assert_eq!(restored.figures.skipped, [0; 3], "{set_ms}");
        assert_eq!(restored.peers.len(), 2, "{set_ms}");
        let found = [1, 3].map(|number| age_of(&restored, 1, number).unwrap());
        assert!(found[0].abs_diff(160) <= EXACT_S && found[1] <= EXACT_S, "{set_ms}: {found:?}");
    }
}

/// A tracker that was down twice within a round forgives both times, ten minutes each.
#[test]
fn downtimes_add_up() {
    let disk = MemoryDisk::default();
    let clock = TestClock::at(START_MS, 10_000);
    let pace = Pace { round: Duration::from_secs(600), ..PACE };
    for number in 0..3 {
        let (feed, store) = (Feed::default(), store(false));
        let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, pace).unwrap();
        announce(&store, clock.now().tick, 1, number, Some(Role::Leecher));
        writer.turns(1);
        drop(writer);
        clock.advance(Duration::from_secs(1200));
    }
    let restored = restore(&disk, clock.now().unix_ms, 1);
    let found = [0, 1, 2].map(|number| age_of(&restored, 1, number).unwrap());
    for (age_s, expected_s) in found.iter().zip([1800_u32, 1200, 600]) {
        assert!(age_s.abs_diff(expected_s) <= EXACT_S, "{found:?}");
    }
}
