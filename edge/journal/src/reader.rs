//! Reads a journal back into a store.
//!
//! One thread reads ahead and checks the blocks; others apply them, each the groups of its own shards, in
//! the order of the journal. So the order is kept for each torrent, and no two threads wait for a lock.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use primitives::Random;
use replication::block::Kind;
use replication::{AGE_UNIT_S, Clocks, Merged, ReplayClock};
use swarm::Store;
use tracing::warn;

use crate::disk::{Directory, Disk};
use crate::plan::{FORGIVEN_MS, Plan, PlannedSegment, plan};
use crate::scan::{Chunk, Scanner, read_header};
use crate::segment::file_name;
use crate::{SessionSink, Status};

/// Chunks of a MiB that wait for each thread. Reading must not stop while a thread is at a large torrent.
const WAITING: usize = 2;

/// A journal to read.
pub struct Journal {
    disk: Arc<dyn Disk>,
    plan: Plan,
    epoch_ms: u64,
    /// Seconds added to all ages.
    older_s: u32,
    /// True if ages are whole seconds of unix time, as nodes of a cluster count them.
    in_whole_seconds: bool,
    sessions: Option<Box<SessionSink>>,
}

impl Journal {
    /// Opens the journal in `directory` at the unix time `unix_ms`: reads the headers of its segments.
    /// Returns `None` if there is nothing to restore. A journal of a later version is renamed, and the log
    /// says so.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read, or segments of a later version cannot be renamed. Unreadable segments are
    /// skipped with a warning.
    pub fn open(directory: &Path, unix_ms: u64) -> io::Result<Option<Self>> {
        Self::open_on(Arc::new(Directory::new(directory)), unix_ms)
    }

    /// Opens the journal of a node of a cluster, as [`Journal::open`] does. Downtime ages its peers: other
    /// nodes were there, and all compare how old an announce is.
    ///
    /// # Errors
    ///
    /// As [`Journal::open`].
    pub fn open_of_node(directory: &Path, unix_ms: u64) -> io::Result<Option<Self>> {
        Self::open_forgiving(Arc::new(Directory::new(directory)), unix_ms, 0)
    }

    /// Opens the journal on `disk`, as [`Journal::open`] does.
    ///
    /// # Errors
    ///
    /// As [`Journal::open`].
    pub fn open_on(disk: Arc<dyn Disk>, unix_ms: u64) -> io::Result<Option<Self>> {
        Self::open_forgiving(disk, unix_ms, FORGIVEN_MS)
    }

    /// Opens the journal. Of each downtime, up to `forgiven_ms` do not count as age.
    pub(crate) fn open_forgiving(
        disk: Arc<dyn Disk>,
        unix_ms: u64,
        forgiven_ms: i64,
    ) -> io::Result<Option<Self>> {
        let plan = plan(&*disk, unix_ms, forgiven_ms)?;
        let Some(newest) = plan.segments.last() else { return Ok(None) };
        // The time forgiven does not pass on the clock. So the last peers are as old as they were, and not up to
        // a unit of age older or younger.
        let epoch_ms = newest.header.epoch_ms.saturating_add_signed(newest.shift_ms);
        let in_whole_seconds = forgiven_ms == 0;
        Ok(Some(Self { disk, plan, epoch_ms, older_s: 0, in_whole_seconds, sessions: None }))
    }

    /// Makes all ages one unit older, so that later events in the store win over the journal's entries of the
    /// same unit of time. For a store that has served before all of the journal is restored.
    pub fn behind_announces(self) -> Self {
        Self { older_s: AGE_UNIT_S, ..self }
    }

    /// Returns the unix time at tick 0 of a clock that continues that of the tracker which wrote it, in
    /// milliseconds. Downtime that does not count as age has not passed on it.
    pub fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// Returns when the newest complete round began, unix milliseconds by the wall clock of its writer. What
    /// was merged into the store since then may be missing in the journal, which has no changes of it:
    /// nodes of a cluster read their log from there on. If no round is complete, that is since the journal
    /// began. Returns `None` if there is nothing to read.
    pub fn newest_round_ms(&self) -> Option<u64> {
        let first = self.plan.segments.last()?.header.round_segment;
        let first = self.plan.segments.iter().find(|segment| segment.header.number == first);
        let first = first.or_else(|| self.plan.segments.first())?;
        // A complete round begins another segment, and in it the next round.
        Some(first.header.created_ms)
    }

    /// Makes [`Self::restore`] pass sessions to `sink`, in the order of the journal, from one thread.
    #[must_use]
    pub fn with_sessions(mut self, sink: Box<SessionSink>) -> Self {
        self.sessions = Some(sink);
        self
    }

    /// Restores all into `store`, by `threads` threads, until `stop` is set. Returns the sums of all
    /// merges. The store may serve meanwhile.
    pub fn restore(
        self,
        store: &Store,
        clocks: &Clocks,
        threads: usize,
        status: &Status,
        stop: &AtomicBool,
    ) -> Merged {
        let started = Instant::now();
        status.damaged(self.plan.damaged);
        let mut replay_clock = ReplayClock::new(clocks()).older_by(self.older_s);
        if self.in_whole_seconds {
            replay_clock = replay_clock.in_whole_seconds();
        }
        let sessions = self.sessions.as_deref();
        let context = RestoreContext {
            store,
            clocks,
            replay_clock,
            status,
            stop,
            sessions,
            older_s: self.older_s,
        };
        // The store forgets peers that stop; older blocks must not bring them back.
        store.remember_stopped(true);
        let merged = thread::scope(|scope| {
            let shards = split(store.shards(), threads);
            let start = |shards: Range<usize>| {
                let (sender, receiver) = sync_channel(WAITING);
                let context = &context;
                (sender, scope.spawn(move || context.apply(&receiver, &shards)))
            };
            let (senders, appliers): (Vec<_>, Vec<_>) = shards.into_iter().map(start).unzip();
            for segment in &self.plan.segments {
                self.read(segment, &senders, &context);
            }
            drop(senders);
            let results = appliers.into_iter().map(|applier| match applier.join() {
                Ok(merged) => merged,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.fold(Merged::default(), Merged::plus)
        });
        store.remember_stopped(false);
        let restore_time = started.elapsed().max(Duration::from_micros(1));
        status.update(|figures| figures.restore_time = restore_time);
        merged
    }

    /// Reads a segment and passes its blocks to all threads.
    fn read(
        &self,
        segment: &PlannedSegment,
        senders: &[SyncSender<Arc<Work>>],
        context: &RestoreContext<'_>,
    ) {
        let number = segment.header.number;
        let is_newest = self.plan.segments.last().is_some_and(|it| it.header.number == number);
        let report = |offset: u64, error: Option<&io::Error>| {
            let error = error.map(tracing::field::display);
            warn!(file = file_name(number), offset, error, "skipped a damaged part of the journal");
            context.status.damaged(1);
        };
        let file = self.disk.open(number).and_then(|mut file| {
            let is_same = matches!(read_header(&mut file), Ok(header) if header == segment.header);
            is_same.then_some(file).ok_or_else(|| io::ErrorKind::InvalidData.into())
        });
        let mut scanner = match file {
            Ok(file) => Scanner::new(file, &segment.header),
            Err(error) => return report(0, Some(&error)),
        };
        while !context.is_stopped() {
            match scanner.next_chunk() {
                Ok(Some(chunk)) => {
                    chunk.damage.iter().for_each(|offset| report(*offset, None));
                    let shift_ms = segment.shift_ms;
                    let work = Arc::new(Work { chunk, shift_ms, is_newest });
                    for sender in senders {
                        // A thread that ended has panicked, which is reported when it is joined.
                        let _ = sender.send(Arc::clone(&work));
                    }
                }
                Ok(None) => break,
                Err(error) => return report(scanner.offset(), Some(&error)),
            }
        }
        // A writer that was killed was in the middle of a block.
        if let Some(offset) = scanner.tail().filter(|_| !segment.is_last) {
            report(offset, None);
        }
    }
}

/// Blocks to apply.
struct Work {
    chunk: Chunk,
    shift_ms: i64,
    /// True if the blocks are of the newest segment.
    is_newest: bool,
}

/// The state that the threads share.
struct RestoreContext<'a> {
    store: &'a Store,
    clocks: &'a Clocks,
    replay_clock: ReplayClock,
    older_s: u32,
    status: &'a Status,
    stop: &'a AtomicBool,
    sessions: Option<&'a SessionSink>,
}

impl RestoreContext<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Applies the blocks' groups of torrents in `shards`. The thread of shard 0 also passes sessions on.
    fn apply(&self, receiver: &Receiver<Arc<Work>>, shards: &Range<usize>) -> Merged {
        let mut random = Random::new(RandomState::new().hash_one(shards.start));
        let mut sum = Merged::default();
        for work in receiver {
            for block in work.chunk.blocks() {
                if self.is_stopped() {
                    break;
                }
                let replay_clock = self.replay_clock.shifted(work.shift_ms);
                let time = replay_clock.time((self.clocks)(), block.header.cut_ms);
                if block.header.kind == Kind::SESSIONS
                    && shards.start == 0
                    && let Some(sessions) = self.sessions
                {
                    let ago_s = time.cut_ago_s.saturating_sub(self.older_s);
                    sessions(ago_s, work.is_newest, block.body);
                }
                let Ok(groups) = block.groups() else { continue };
                let merged = self.store.merge(time, &mut random, groups, shards.clone());
                self.status.restored(&merged);
                sum = sum.plus(merged);
            }
        }
        sum
    }
}

/// Splits `0..shards` into `parts` parts, or fewer.
fn split(shards: usize, parts: usize) -> Vec<Range<usize>> {
    let parts = parts.clamp(1, shards.max(1));
    (0..parts).map(|part| shards * part / parts..shards * (part + 1) / parts).collect()
}
