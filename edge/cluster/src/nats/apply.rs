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
use replication::{Counting, MergeTime, Merged, Now, ReplayClock};
use tokio::sync::mpsc;

use crate::host::{Host, Position};
use crate::node::Count;

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
}

/// A block to apply.
#[derive(Debug)]
pub(super) struct BlockWork {
    pub(super) block: Bytes,
    pub(super) kind: Kind,
    /// When it was cut, by this node's clock: unix time, milliseconds.
    pub(super) cut_ms: u64,
    pub(super) count: Count,
    pub(super) is_durable: bool,
    /// Whether it is merged, or its downloads count at most.
    pub(super) is_merged: bool,
    /// Whether it adds no peers.
    pub(super) is_late: bool,
    /// Its place, if it came by the log.
    pub(super) position: Option<Position>,
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
            let (sender, blocks) = std::sync::mpsc::sync_channel(QUEUE);
            let mut merger = BlockMerger::new(&**host, applied, part(number));
            thread::Builder::new().name("cluster-merge".into()).spawn_scoped(scope, move || {
                lower_priority();
                for block in blocks {
                    let (started, block): (_, Arc<BlockWork>) = (Instant::now(), block);
                    merger.merge_peers(&block);
                    applied.add_time(started);
                }
            })?;
            others.push(sender);
        }
        let mut merger = BlockMerger::new(&**host, applied, part(0));
        while let Some(work) = queue.blocking_recv() {
            let started = Instant::now();
            match work {
                Work::Block(block) => {
                    let block = Arc::new(block);
                    let has_peers = matches!(block.kind, Kind::CHANGES | Kind::WALK);
                    let is_sent = |other: &SyncSender<_>| other.send(Arc::clone(&block)).is_ok();
                    if has_peers && !others.iter().all(is_sent) {
                        // A thread has panicked, which ends the scope in the same way.
                        break;
                    }
                    merger.apply(&block);
                }
                Work::PurgeWeb(node) => drop(host.store().purge_web_node(node)),
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
        let is_uncounted = work.position.is_some_and(|position| self.host.is_uncounted(position));
        let (host, applied) = (self.host, self.applied);
        let mut apply = || {
            if !self.apply_block(work, is_uncounted && work.is_durable) {
                applied.damaged.fetch_add(1, Ordering::Relaxed);
            }
        };
        match work.position {
            Some(position) => host.at(position, &mut apply),
            None => apply(),
        }
        applied.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns false if the block does not add up.
    fn apply_block(&mut self, work: &BlockWork, counts_durably: bool) -> bool {
        let Ok((block, _)) = Block::read(&work.block) else { return false };
        match work.kind {
            Kind::SESSIONS => {
                let (now, time) = self.times(work);
                self.host.import_sessions(now, time.cut_ago_s, block.body);
            }
            Kind::CHANGES | Kind::WALK => {
                let Ok(groups) = block.groups() else { return false };
                if counts_durably {
                    for (info_hash, peer) in groups.completed() {
                        self.host.count_download(&info_hash, peer.socket_addr().ip());
                    }
                }
                self.merge_peers(work);
            }
            Kind::WEB => {
                let Ok(groups) = block.web_groups() else { return false };
                if counts_durably {
                    for (info_hash, address) in groups.completed() {
                        self.host.count_download(&info_hash, address);
                    }
                }
                if work.is_merged {
                    let ((_, time), store) = (self.times(work), self.host.store());
                    let all = 0..store.shards();
                    self.add(store.merge_web(time, counting(work.count), groups, all));
                }
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
        let counting = counting(work.count);
        let merged = if work.is_late {
            store.merge_late(time, counting, random, groups, shards)
        } else {
            store.merge(time, counting, random, groups, shards)
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

fn counting(count: Count) -> Counting {
    match count {
        Count::Nothing => Counting::None,
        Count::ByPeer => Counting::ByPeer,
        Count::Each => Counting::Each,
    }
}
