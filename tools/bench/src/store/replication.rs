//! What a journal asks of the store while it serves: walks, and keeping changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::load::Latencies;
use primitives::Random;
use replication::block::Change;
use replication::{AGE_UNIT_S, ReplicatedStore, WalkTime};
use swarm::{Action, Store, StoreAnnounce, StoreWalk};
use types::{PeerId, Tick, limits};

use super::case::Size;
use super::contender::{Answer, store};
use super::work::{job, skewed};
use crate::record::Figures;

/// Announces of a batch, as UDP workers collect them.
pub(super) const BATCH: usize = 32;
/// Interleaved pairs of measurements with and without changes.
pub(super) const PAIRS: usize = 20;
/// Walks over the whole store.
const WALKS: u32 = 8;
/// Steps of a walk between two times that all changes are taken: some milliseconds.
const STEPS: u32 = 256;
const NOW: Tick = Tick(1);

/// Takes changes, with the same vectors each time, as a journal does.
#[derive(Default)]
struct Taker {
    changes: Vec<Change>,
    ids: Vec<PeerId>,
    taken: usize,
}

impl Taker {
    /// Takes the changes of a shard and drops them.
    fn take(&mut self, store: &Store, shard: usize) {
        let missed = store.take_changes(shard, &mut self.changes, &mut self.ids);
        assert_eq!(missed, 0, "there is room for all changes");
        self.clear();
    }

    fn take_all(&mut self, store: &Store) {
        (0..store.shards()).for_each(|shard| self.take(store, shard));
    }

    fn clear(&mut self) {
        self.taken += self.changes.len();
        self.changes.clear();
        self.ids.clear();
    }
}

/// Fills a store with peers in torrents of realistic sizes. Returns announces for up to 50 peers. In the
/// first half three in ten peers stop, and in the second they come again: three in ten are changes, as
/// with sessions of three hours.
pub(super) fn fill(store: &Store, size: Size) -> Vec<StoreAnnounce> {
    let pairs = skewed(size.torrents);
    let (mut random, mut answer) = (Random::new(1), Answer::new());
    for part in pairs.chunks(BATCH) {
        let jobs: Vec<_> = part.iter().map(|(torrent, peer)| job(*torrent, *peer, 0)).collect();
        store.announce(NOW, &mut random, &jobs, &mut |_, chosen| answer.copy(chosen));
        // A tracker maintains its tables all the time.
        if random.below(512) == 0 {
            store.sweep(NOW, 600);
        }
    }
    let draw = |_| pairs.get(random.below(pairs.len() as u32) as usize);
    let drawn: Vec<_> = (0..size.operations / 2).filter_map(draw).collect();
    let come = drawn.iter().map(|(torrent, peer)| job(*torrent, *peer, 50));
    let leave = come.clone().map(|job| {
        let action = if random.below(10) < 3 { Action::Stop } else { job.action };
        StoreAnnounce { action, ..job }
    });
    leave.chain(come).collect()
}

/// What a store keeps for others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Changes,
    /// No announce is the first of its period.
    Refreshes,
    /// Every announce is.
    RefreshesDue,
}

impl Kept {
    /// Returns the period of refreshes in units of age. Times of the benchmark are in the first one of the
    /// longest.
    fn period_units(self) -> u32 {
        match self {
            Self::Changes => 0,
            Self::Refreshes => 1 << 20,
            Self::RefreshesDue => 1,
        }
    }
}

/// Announces with and without keeping changes, on one store, in turn. Measures CPU time, and the median
/// ratio of the pairs.
pub(super) fn changes(size: Size, kept: Kept) -> Figures {
    let store = &store(*b"a key of 16 byte");
    let jobs = fill(store, size);
    let (mut random, mut answer, mut taker) = (Random::new(2), Answer::new(), Taker::default());
    let mut now = NOW;
    let mut run = |taker: Option<&mut Taker>| {
        now = now.after(AGE_UNIT_S);
        let before = cpu_time();
        for batch in jobs.chunks(BATCH) {
            store.announce(now, &mut random, batch, &mut |_, chosen| answer.copy(chosen));
        }
        taker.into_iter().for_each(|taker| taker.take_all(store));
        cpu_time().saturating_sub(before).as_nanos() as f64 / jobs.len() as f64
    };
    let (mut pairs, mut changed) = (Vec::new(), 0);
    for pair in 0..PAIRS {
        let mut ns = [0.0; 2];
        for half in [pair % 2, 1 - pair % 2] {
            let keeps = half == 1;
            store.keep_changes(if keeps { limits::CHANGES_MAX } else { 0 });
            store.keep_refreshes(if keeps { kept.period_units() } else { 0 });
            // The first time touches the memory of the changes, and the next that of the vector that
            // goes from shard to shard.
            for _ in 0..2 {
                run(keeps.then_some(&mut taker));
            }
            let before = taker.taken;
            ns[half] = run(keeps.then_some(&mut taker));
            changed += taker.taken - before;
        }
        pairs.push(ns);
    }
    let share = changed as f64 / (PAIRS * jobs.len()) as f64;
    let ns_each = median(pairs.iter().map(|[_, kept]| *kept).collect());
    Figures::default()
        .with("ns_each", ns_each)
        .with("per_s", 1e9 / ns_each)
        .with("relative", median(pairs.iter().map(|[plain, kept]| kept / plain).collect()))
        .with("changes_percent", share * 100.0)
}

/// Returns the median.
pub(super) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Walks over a store at full speed while another thread announces. Measures the CPU time of each step,
/// which is that under the lock and some nanoseconds.
pub(super) fn walk(size: Size) -> Figures {
    let store = &store(*b"a key of 16 byte");
    let jobs = fill(store, size);
    store.keep_changes(limits::CHANGES_MAX);
    let is_done = AtomicBool::new(false);
    let announce = || {
        let (mut random, mut answer) = (Random::new(3), Answer::new());
        for batch in jobs.chunks(BATCH).cycle() {
            store.announce(NOW, &mut random, batch, &mut |_, chosen| answer.copy(chosen));
            if is_done.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(announce);
        let figures = walk_all(store);
        is_done.store(true, Ordering::Relaxed);
        figures
    })
}

fn walk_all(store: &Store) -> Figures {
    let (mut taker, mut walk, mut body) = (Taker::default(), StoreWalk::default(), Vec::new());
    let (mut steps, mut takes) = (Latencies::default(), Latencies::default());
    let (mut bytes, mut walks, mut count) = (0, 0, 0_u32);
    let time = WalkTime { now: NOW, epoch_min: 29_000_000 };
    let started = Instant::now();
    while walks < WALKS {
        let before = cpu_time();
        let walked = store.walk(time, &mut walk, &mut taker.changes, &mut taker.ids, &mut body);
        steps.record(cpu_time().saturating_sub(before));
        taker.clear();
        bytes += body.len();
        body.clear();
        walks += u32::from(walked.is_complete);
        count += 1;
        if count % STEPS == 0 {
            for shard in 0..store.shards() {
                let before = cpu_time();
                taker.take(store, shard);
                takes.record(cpu_time().saturating_sub(before));
            }
        }
    }
    let wall_s = started.elapsed().as_secs_f64();
    let at = |of: &Latencies, part| of.quantile(part).unwrap_or_default().as_nanos() as f64;
    let totals = store.totals();
    let peers = (totals.v4.seeders + totals.v4.leechers) as f64 * f64::from(WALKS);
    Figures::default()
        .with("p50_ns", at(&steps, 0.5))
        .with("p99_ns", at(&steps, 0.99))
        .with("p99_9_ns", at(&steps, 0.999))
        .with("p99_99_ns", at(&steps, 0.9999))
        .with("max_ns", steps.max().as_nanos() as f64)
        .with("take_p99_9_ns", at(&takes, 0.999))
        .with("take_max_ns", takes.max().as_nanos() as f64)
        .with("steps", f64::from(count))
        .with("per_s", peers / wall_s)
        .with("ns_each", wall_s / peers * 1e9)
        .with("bytes_per_peer", bytes as f64 / peers)
}

/// Returns this thread's CPU time; the time of day where the system does not report it.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub(super) fn cpu_time() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// See above.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub(super) fn cpu_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
