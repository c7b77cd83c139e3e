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
use replication::{MergeTime, Now, ReplayClock};
use tokio::sync::mpsc;

use super::inputs::Report;
use crate::host::Host;

/// Messages that wait to be applied, at most 16 MiB of changes.
pub(super) const QUEUE: usize = 256;
/// Threads that merge peers. More would wait for the one that reads the connection.
const THREADS: usize = 2;

/// Task for the thread that applies blocks.
#[derive(Debug)]
pub(super) enum Work {
    Blocks(Blocks),
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

/// The blocks of a message, which the node has read.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) message: Bytes,
    /// Milliseconds to add to the times of their cuts, so that they are by this node's wall clock.
    pub(super) shift_ms: i64,
    /// True if WebTorrent peers are taken.
    pub(super) takes_web: bool,
    pub(super) takes_sessions: bool,
}

impl Blocks {
    fn iter(&self) -> impl Iterator<Item = Block<'_>> {
        let mut rest = &*self.message;
        std::iter::from_fn(move || {
            let (block, len) = Block::read(rest).ok()?;
            rest = &rest[len..];
            Some(block)
        })
    }
}

/// Totals of applying since the start.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) blocks: AtomicU64,
    /// Nanoseconds that applying took, summed over all threads.
    pub(super) ns: AtomicU64,
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
                    if let Work::Blocks(blocks) = &*work {
                        let merge = |block| merger.merge_peers(&block, blocks.shift_ms);
                        blocks.iter().for_each(merge);
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
                Work::Blocks(_) | Work::Settle(_) => true,
                Work::PurgeWeb(_) => false,
            };
            let is_sent = |other: &SyncSender<_>| other.send(Arc::clone(&work)).is_ok();
            if is_for_all && !others.iter().all(is_sent) {
                // A thread has panicked, which ends the scope in the same way.
                break;
            }
            match &*work {
                Work::Blocks(blocks) => {
                    blocks.iter().for_each(|block| merger.apply(&block, blocks))
                }
                Work::PurgeWeb(node) => drop(host.store().purge_web_node(*node)),
                Work::Settle(_) => {}
            }
            applied.add_time(started);
        }
        Ok(())
    })
}

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
    fn apply(&mut self, block: &Block<'_>, blocks: &Blocks) {
        match block.header.kind {
            Kind::SESSIONS if blocks.takes_sessions => {
                let (now, time) = self.times(block, blocks.shift_ms);
                self.host.import_sessions(now, time.cut_ago_s, block.body);
            }
            Kind::ACCOUNTS if blocks.takes_sessions => {
                self.host.accounts().inspect(|accounts| accounts.learn(block.body));
            }
            Kind::CHANGES | Kind::WALK => self.merge_peers(block, blocks.shift_ms),
            Kind::WEB if blocks.takes_web => self.merge_web(block, blocks.shift_ms),
            _ => {}
        }
        self.applied.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Merges the peers of a block that go to these shards. A block that does not add up is left out.
    fn merge_peers(&mut self, block: &Block<'_>, shift_ms: i64) {
        if !matches!(block.header.kind, Kind::CHANGES | Kind::WALK) {
            return;
        }
        let Ok(groups) = block.groups() else { return };
        let ((_, time), shards) = (self.times(block, shift_ms), self.shards.clone());
        let (store, random) = (self.host.store(), &mut self.random);
        store.merge(time, random, groups, shards);
    }

    fn merge_web(&self, block: &Block<'_>, shift_ms: i64) {
        let Ok(groups) = block.web_groups() else { return };
        let (_, time) = self.times(block, shift_ms);
        let store = self.host.store();
        store.merge_web(time, groups, 0..store.shards());
    }

    /// Returns the time, and when a block was cut on the store's clock.
    fn times(&self, block: &Block<'_>, shift_ms: i64) -> (Now, MergeTime) {
        let now = self.host.now();
        let clock = ReplayClock::new(now).in_whole_seconds().shifted(shift_ms);
        (now, clock.time(now, block.header.cut_ms))
    }
}
