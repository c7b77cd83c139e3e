//! Applies blocks to the store, in the order in which they come, by threads of their own: a large block would
//! otherwise keep the connection waiting.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Instant;
use std::{io, thread};

use bytes::Bytes;
use primitives::Random;
use replication::block::{Block, Kind};
use replication::{MergeTime, Merged, Now, ReplayClock};
use tokio::sync::mpsc;

use super::inputs::Report;
use crate::host::Host;

/// Blocks that wait to be applied, at most 16 MiB of changes.
pub(super) const QUEUE: usize = 256;
/// Threads that merge peers. More would wait for the one that reads the connection.
const THREADS: usize = 2;

/// What the thread does next.
#[derive(Debug)]
pub(super) enum Work {
    Block(BlockWork),
    /// Removes the WebTorrent peers of a node.
    PurgeWeb(u8),
    /// Reports that everything before is applied, when no thread has it any more.
    #[expect(dead_code, reason = "it reports when it is dropped")]
    Settle(Settling),
}

/// Reports [`Report::Settled`] when it is dropped.
#[derive(Debug)]
pub(super) struct Settling(pub(super) mpsc::UnboundedSender<Report>);

impl Drop for Settling {
    fn drop(&mut self) {
        // Fails only while the thread ends.
        let _ = self.0.send(Report::Settled);
    }
}

/// A block to apply.
#[derive(Debug)]
pub(super) struct BlockWork {
    pub(super) block: Bytes,
    pub(super) kind: Kind,
    /// When it was cut, by this node's clock: unix time, milliseconds.
    pub(super) cut_ms: u64,
    /// Whether it adds no peers.
    pub(super) is_late: bool,
}

/// What was applied since the start.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) blocks: AtomicU64,
    /// How long that took all threads.
    pub(super) ns: AtomicU64,
    /// Peers that there was no memory for.
    pub(super) full: AtomicU64,
    /// Blocks that did not add up.
    pub(super) damaged: AtomicU64,
}

impl Applied {
    fn add_time(&self, since: Instant) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// Applies what comes until the sender is gone.
///
/// Plain form: one thread. [`THREADS`] merge peers, each into its own shards, so the blocks of a torrent stay in
/// order; the calling one does everything else.
///
/// # Errors
///
/// If a thread cannot be started.
pub(super) fn run(
    host: &Arc<dyn Host>,
    mut queue: mpsc::Receiver<Work>,
    applied: &Applied,
    lower_priority: fn(),
) -> io::Result<()> {
    let shards = host.store().shards();
    let threads = THREADS.min(shards).min(thread::available_parallelism().map_or(1, usize::from));
    let part = |number| shards * number / threads..shards * (number + 1) / threads;
    thread::scope(|scope| {
        let mut others = Vec::new();
        for number in 1..threads {
            let (sender, queue) = std::sync::mpsc::sync_channel(QUEUE);
            let mut merger = BlockMerger::new(&**host, applied, part(number));
            thread::Builder::new().name("cluster-merge".into()).spawn_scoped(scope, move || {
                lower_priority();
                for work in queue {
                    let work: Arc<Work> = work;
                    let started = Instant::now();
                    if let Work::Block(block) = &*work {
                        merger.merge_peers(block);
                    }
                    applied.add_time(started);
                }
            })?;
            others.push(sender);
        }
        let mut merger = BlockMerger::new(&**host, applied, part(0));
        while let Some(work) = queue.blocking_recv() {
            let started = Instant::now();
            let work = Arc::new(work);
            let is_for_all = match &*work {
                Work::Block(block) => matches!(block.kind, Kind::CHANGES | Kind::WALK),
                Work::PurgeWeb(_) => false,
                Work::Settle(_) => true,
            };
            let is_sent = |other: &SyncSender<_>| other.send(Arc::clone(&work)).is_ok();
            if is_for_all && !others.iter().all(is_sent) {
                // A thread has panicked, which ends the scope in the same way.
                break;
            }
            match &*work {
                Work::Block(block) => merger.apply(block),
                Work::PurgeWeb(node) => drop(host.store().purge_web_node(*node)),
                Work::Settle(_) => {}
            }
            applied.add_time(started);
        }
        Ok(())
    })
}

/// Applies blocks to some shards.
struct BlockMerger<'a> {
    host: &'a dyn Host,
    applied: &'a Applied,
    shards: Range<usize>,
    random: Random,
}

impl<'a> BlockMerger<'a> {
    fn new(host: &'a dyn Host, applied: &'a Applied, shards: Range<usize>) -> Self {
        Self { host, applied, shards, random: Random::new(RandomState::new().hash_one(0)) }
    }

    /// Applies a block: its peers to these shards, and all the rest of it.
    fn apply(&mut self, work: &BlockWork) {
        if !self.apply_block(work) {
            self.applied.damaged.fetch_add(1, Ordering::Relaxed);
        }
        self.applied.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns false if the block does not add up.
    fn apply_block(&mut self, work: &BlockWork) -> bool {
        let Ok((block, _)) = Block::read(&work.block) else { return false };
        match work.kind {
            Kind::SESSIONS => {
                let (now, time) = self.times(work);
                self.host.import_sessions(now, time.cut_ago_s, block.body);
            }
            Kind::CHANGES | Kind::WALK => {
                if block.groups().is_err() {
                    return false;
                }
                self.merge_peers(work);
            }
            Kind::WEB => {
                let Ok(groups) = block.web_groups() else { return false };
                let ((_, time), store) = (self.times(work), self.host.store());
                let all = 0..store.shards();
                self.add(store.merge_web(time, groups, all));
            }
            _ => return false,
        }
        true
    }

    /// Merges the peers of a block that go to these shards, if it adds up.
    fn merge_peers(&mut self, work: &BlockWork) {
        let Ok((block, _)) = Block::read(&work.block) else { return };
        let Ok(groups) = block.groups() else { return };
        let ((_, time), shards) = (self.times(work), self.shards.clone());
        let (store, random) = (self.host.store(), &mut self.random);
        let merged = if work.is_late {
            store.merge_late(time, random, groups, shards)
        } else {
            store.merge(time, random, groups, shards)
        };
        self.add(merged);
    }

    /// Returns the time, and when a block was cut on the store's clock.
    fn times(&self, work: &BlockWork) -> (Now, MergeTime) {
        let now = self.host.now();
        (now, ReplayClock::new(now).in_whole_seconds().time(now, work.cut_ms))
    }

    fn add(&self, merged: Merged) {
        self.applied.full.fetch_add(merged.full, Ordering::Relaxed);
    }
}
