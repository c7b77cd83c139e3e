//! Restoring a store: merging the blocks of a walk over another one.

use std::time::Instant;

use primitives::Random;
use replication::block::{Block, Header, Kind, write};
use replication::{MergeTime, Merged, ReplicatedStore, WalkTime};
use swarm::{Store, StoreWalk};
use types::Tick;

use super::case::worked;
use super::contender::{Answer, Contender, LIFETIME_S, store};
use super::work::{job, skewed};
use crate::record::Figures;

/// Bytes after which a walk's block ends, as in the journal.
const BODY: usize = 64 * 1024;
/// When the walk ends: its peers announced at any time within the last interval.
const WALKED: Tick = Tick(LIFETIME_S / 3 * 2);
const EPOCH_MIN: u32 = 29_000_000;

/// Merges the blocks of a population of `torrents` into `into`. Each thread reads all blocks and merges
/// the torrents of its own shards, as the journal does.
pub(super) fn restore(into: &dyn Contender, threads: u32, torrents: u32) -> Figures {
    let Some(into) = into.merging() else { return Figures::default() };
    let blocks = blocks_of(torrents);
    let start = Instant::now();
    let parts: Vec<(Merged, i64)> = std::thread::scope(|scope| {
        let blocks = blocks.as_slice();
        let run = |thread: u32| scope.spawn(move || merge_part(into, blocks, thread, threads));
        let running: Vec<_> = (0..threads).map(run).collect();
        // A panic has already printed its message.
        running.into_iter().filter_map(|one| one.join().ok()).collect()
    });
    let wall_s = start.elapsed().as_secs_f64();
    let peers = parts.iter().map(|(merged, _)| merged.peers).sum::<u64>() as f64;
    let cpu_us = parts.iter().map(|(_, cpu_us)| cpu_us).sum::<i64>() as f64;
    Figures::default()
        .with("ns_each", wall_s * f64::from(threads) / peers * 1e9)
        .with("cpu_ns_each", cpu_us / peers * 1e3)
        .with("per_s", peers / wall_s)
        .with("peers", peers)
        .with("wall_s", wall_s)
}

/// Merges the torrents of a thread's shards. Returns what it did, and the CPU time in microseconds.
fn merge_part(into: &Store, mut blocks: &[u8], thread: u32, threads: u32) -> (Merged, i64) {
    let (before, _) = worked();
    let at = |thread: u32| into.shards() * thread as usize / threads as usize;
    let time = MergeTime { now: WALKED, cut_ago_s: 0, epoch_min: EPOCH_MIN };
    let mut random = Random::new(thread.into());
    let mut all = Merged::default();
    while let Ok((block, len)) = Block::read(blocks) {
        let Ok(groups) = block.groups() else { break };
        let merged = into.merge(time, &mut random, groups, at(thread)..at(thread + 1));
        all.peers += merged.peers;
        blocks = &blocks[len..];
    }
    assert!(blocks.is_empty(), "a walk's blocks can be read");
    (all, worked().0 - before)
}

/// Returns the blocks of a walk over torrents of realistic sizes.
fn blocks_of(torrents: u32) -> Vec<u8> {
    // Of another process, which has another key.
    let from = store(*b"16 other letters");
    let (mut random, mut answer) = (Random::new(1), Answer::new());
    let pairs = skewed(torrents);
    for (part, number) in pairs.chunks(64).zip(0_u64..) {
        let jobs: Vec<_> = part.iter().map(|(torrent, peer)| job(*torrent, *peer, 0)).collect();
        let now = number * 64 * u64::from(WALKED.0) / pairs.len() as u64;
        from.announce(Tick(now as u32), &mut random, &jobs, &mut |_, chosen| answer.copy(chosen));
    }
    drop(pairs);
    let (mut blocks, mut body, mut number) = (Vec::new(), Vec::new(), 0);
    let (mut changes, mut ids, mut walk) = (Vec::new(), Vec::new(), StoreWalk::default());
    let time = WalkTime { now: WALKED, epoch_min: EPOCH_MIN };
    loop {
        let walked = from.walk(time, &mut walk, &mut changes, &mut ids, &mut body);
        if body.len() >= BODY || walked.is_complete {
            number += 1;
            let kind = Kind::WALK;
            let header = Header { kind, has_ids: false, node: 0, boot: 1, number, cut_ms: 1 };
            write(&header, &body, &mut blocks);
            body.clear();
        }
        if walked.is_complete {
            return blocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::{OURS, contender};
    use super::*;

    #[test]
    fn everything_is_restored() {
        let into = contender(OURS).unwrap();
        let figures = restore(&*into, 3, 2000);
        let peers = figures.get("peers").unwrap().median;
        assert_eq!(into.peers() as f64, peers);
        assert_eq!(skewed(2000).len() as f64, peers);
    }
}
