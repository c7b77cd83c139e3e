//! Applies blocks to the store, in the order in which they come, by a thread of its own: a large block would
//! otherwise keep the connection waiting.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use primitives::Random;
use swarm::block::{Block, Kind};
use swarm::{Counting, MergeTime};
use tokio::sync::mpsc;

use crate::host::{Host, Position};
use crate::node::Count;

/// Blocks that wait to be applied, at most 16 MiB of changes.
pub(super) const QUEUE: usize = 256;

/// What the thread does next.
#[derive(Debug)]
pub(super) enum Work {
    Block(BlockWork),
    /// Removes the WebTorrent peers of a node.
    PurgeWeb(u8),
}

/// A block to apply.
#[derive(Debug)]
pub(super) struct BlockWork {
    pub(super) block: Bytes,
    pub(super) kind: Kind,
    /// When it was cut, by this node's clock: unix time, seconds.
    pub(super) cut_s: u64,
    pub(super) count: Count,
    pub(super) is_durable: bool,
    /// Whether it is merged, or its downloads count at most.
    pub(super) is_merged: bool,
    /// Its place, if it came by the log.
    pub(super) position: Option<Position>,
}

/// What was applied since the start.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) blocks: AtomicU64,
    /// How long that took.
    pub(super) ns: AtomicU64,
    /// Peers stored, renewed or removed.
    pub(super) peers: AtomicU64,
    /// Peers that there was no memory for.
    pub(super) full: AtomicU64,
    /// Blocks that did not add up.
    pub(super) damaged: AtomicU64,
    /// The sequence of the last message of the log that was applied.
    pub(super) sequence: AtomicU64,
}

/// Applies what comes until the sender is gone.
pub(super) fn run(host: &Arc<dyn Host>, mut work: mpsc::Receiver<Work>, applied: &Applied) {
    let mut random = Random::new(RandomState::new().hash_one(0));
    while let Some(work) = work.blocking_recv() {
        let started = Instant::now();
        match work {
            Work::Block(block) => apply(&**host, &block, &mut random, applied),
            Work::PurgeWeb(node) => drop(host.store().purge_web_node(node)),
        }
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        applied.ns.fetch_add(ns, Ordering::Relaxed);
    }
}

fn apply(host: &dyn Host, work: &BlockWork, random: &mut Random, applied: &Applied) {
    let is_uncounted = work.position.is_some_and(|position| host.is_uncounted(position));
    let mut apply = || {
        if !apply_block(host, work, is_uncounted, random, applied) {
            applied.damaged.fetch_add(1, Ordering::Relaxed);
        }
    };
    match work.position {
        Some(position) => {
            host.at(position, &mut apply);
            applied.sequence.store(position.sequence, Ordering::Relaxed);
        }
        None => apply(),
    }
    applied.blocks.fetch_add(1, Ordering::Relaxed);
}

/// Returns false if the block does not add up.
fn apply_block(
    host: &dyn Host,
    work: &BlockWork,
    is_uncounted: bool,
    random: &mut Random,
    applied: &Applied,
) -> bool {
    let Ok((block, _)) = Block::read(&work.block) else { return false };
    let now = host.now();
    // Whole seconds of unix time, as ticks are: each node computes the same mark.
    let cut_ago_s = (now.unix_ms / 1000).saturating_sub(work.cut_s);
    let cut_ago_s = u32::try_from(cut_ago_s).unwrap_or(u32::MAX);
    let time = MergeTime { now: now.tick, cut_ago_s, epoch_min: now.epoch_min() };
    let (store, counts_durably) = (host.store(), is_uncounted && work.is_durable);
    let shards = 0..store.shards();
    let counting = counting(work.count);
    let merged = match work.kind {
        Kind::SESSIONS => {
            host.import_sessions(now, cut_ago_s, block.body);
            return true;
        }
        Kind::CHANGES | Kind::WALK => {
            let Ok(groups) = block.groups() else { return false };
            if counts_durably {
                for (info_hash, peer) in groups.completed() {
                    host.count_download(&info_hash, peer.socket_addr().ip());
                }
            }
            store.merge(time, counting, random, groups, shards)
        }
        Kind::WEB => {
            let Ok(groups) = block.web_groups() else { return false };
            if counts_durably {
                for (info_hash, address) in groups.completed() {
                    host.count_download(&info_hash, address);
                }
            }
            if !work.is_merged {
                return true;
            }
            store.merge_web(time, counting, groups, shards)
        }
        _ => return false,
    };
    applied.peers.fetch_add(merged.peers + merged.gone, Ordering::Relaxed);
    applied.full.fetch_add(merged.full, Ordering::Relaxed);
    true
}

fn counting(count: Count) -> Counting {
    match count {
        Count::Nothing => Counting::None,
        Count::ByPeer => Counting::ByPeer,
        Count::Each => Counting::Each,
    }
}
