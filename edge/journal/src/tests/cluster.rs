//! Requirements of a cluster on the encoder and on the journal.

use std::sync::Arc;

use replication::Now;
use replication::block::{Block, Kind};
use swarm::{Encoder, Feed};
use types::{Role, Tick};

use super::memory_disk::MemoryDisk;
use super::tracker::{PACE, START_MS, TestClock, TestWriter, announce, store};
use crate::Journal;

/// Collects blocks.
fn changes_of(encoder: &mut Encoder<'_>, now: Now) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let sink = &mut |_: Kind, block: &[u8]| {
        blocks.push(block.to_vec());
        Ok(())
    };
    assert_eq!(encoder.changes(now, sink).unwrap(), 0);
    blocks
}

fn peers_in(blocks: &[Vec<u8>]) -> usize {
    let groups = blocks.iter().flat_map(|bytes| Block::read(bytes).unwrap().0.groups().unwrap());
    groups.map(|group| group.v4.len() + group.v6.len()).sum()
}

#[test]
fn only_encoders_that_want_refreshes_get_them() {
    for keeps_ids in [false, true] {
        let (store, feed) = (store(keeps_ids), Feed::default());
        let clock = TestClock::at(START_MS, 1000);
        let mut journal = Encoder::new(&feed, &store, 1);
        let mut cluster = Encoder::new(&feed, &store, 2).of_node(7).with_refreshes();
        store.keep_refreshes(1);
        (0..50).for_each(|number| announce(&store, Tick(1000), 1, number, Some(Role::Leecher)));
        for encoder in [&mut journal, &mut cluster] {
            assert_eq!(peers_in(&changes_of(encoder, clock.now())), 50);
        }
        // Later, 40 of them as they were, and 10 in another role; in the middle, and taken by the other one.
        for number in 0..50 {
            let role = if number % 5 == 0 { Role::Seeder } else { Role::Leecher };
            announce(&store, Tick(1100), 1, number, Some(role));
        }
        let of_cluster = changes_of(&mut cluster, clock.now());
        assert_eq!(peers_in(&of_cluster), 50);
        let of_journal = changes_of(&mut journal, clock.now());
        assert_eq!(peers_in(&of_journal), 10);
        for (blocks, node, boot) in [(of_cluster, 7, 2), (of_journal, 0, 1)] {
            let header = Block::read(&blocks[0]).unwrap().0.header;
            assert_eq!((header.node, header.boot, header.has_ids), (node, boot, keeps_ids));
            let groups = Block::read(&blocks[0]).unwrap().0.groups().unwrap();
            let ids = groups.flat_map(|group| group.v4.map(|peer| peer.id.is_some()));
            assert!(ids.into_iter().all(|has_id| has_id == keeps_ids));
        }
    }
}

/// A node of a cluster reads the log from there on.
#[test]
fn the_journal_says_when_its_newest_complete_round_began() {
    let (feed, store, disk) = (Feed::default(), store(false), MemoryDisk::default());
    let clock = TestClock::at(START_MS, 0);
    let open = |clock: &TestClock| {
        let journal = Journal::open_on(Arc::new(disk.clone()), clock.now().unix_ms).unwrap();
        journal.unwrap().newest_round_ms()
    };
    let mut writer = TestWriter::begin(&feed, &store, &disk, &clock, PACE).unwrap();
    writer.turn().unwrap();
    // Before the first round is complete, since the journal began.
    assert!(open(&clock).is_some_and(|began_ms| began_ms < START_MS + 1000));
    for _ in 0..30 {
        writer.turn().unwrap();
        let began = writer.status.figures().round_began_ms;
        assert!(began.is_none() || open(&clock) == began, "{began:?}");
    }
    assert!(open(&clock).unwrap() > START_MS + 3000);
}
