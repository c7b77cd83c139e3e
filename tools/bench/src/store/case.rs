//! One case: a scenario with one store and a number of threads, measured in its own process, so
//! that no case inherits another's memory.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::load::{Latencies, Usage};
use primitives::Random;
use swarm::StoreAnnounce;
use types::Tick;

use super::contender::{Answer, Contender, LIFETIME_S};
use super::work::{job, skewed};
use crate::record::Figures;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scenario {
    /// Re-announce for up to 50 peers; torrents of realistic sizes are equally likely.
    Torrents,
    /// Re-announce for up to 50 peers; peers are equally likely, so that most are in large
    /// torrents.
    Peers,
    /// Announce new torrents while tables grow and are swept.
    Grow,
    /// Four of five peers expire while the others announce.
    Expire,
    /// Memory of torrents with one peer.
    Small,
    /// Memory of torrents with a thousand peers.
    Large,
}

/// The size of cases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Torrents in the larger scenarios.
    pub(super) torrents: u32,
    /// Operations per thread.
    pub(super) operations: u32,
}

/// Creates a new store.
type Make<'a> = &'a dyn Fn() -> Box<dyn Contender>;

/// Measures one case.
pub(super) fn measure(scenario: Scenario, make: Make<'_>, threads: u32, size: Size) -> Figures {
    let torrents = size.torrents;
    match scenario {
        Scenario::Torrents | Scenario::Peers => realistic(&*make(), scenario, threads, size),
        Scenario::Grow => grow(&*make(), threads, torrents),
        Scenario::Expire => expire(&*make(), threads, torrents),
        Scenario::Small => memory(&*make(), torrents, 1),
        Scenario::Large => memory(&*make(), torrents.div_ceil(1000), 1000),
    }
}

fn measured(jobs: &[Vec<StoreAnnounce>], wall_s: f64, waits: &Waits) -> Figures {
    let all: usize = jobs.iter().map(Vec::len).sum();
    let per_s = all as f64 / wall_s;
    waits.figures().with("ns_each", jobs.len() as f64 / per_s * 1e9).with("per_s", per_s)
}

/// Returns the seconds in which every thread has done its jobs. Reads the clock only twice.
fn throughput(store: &dyn Contender, jobs: &[Vec<StoreAnnounce>]) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (seed, jobs) in (1..).zip(jobs) {
            scope.spawn(move || {
                let (mut random, mut answer) = (Random::new(seed), Answer::new());
                for batch in jobs.chunks(store.batch()) {
                    store.announce(Tick(1), &mut random, batch, &mut answer);
                }
            });
        }
    });
    start.elapsed().as_secs_f64()
}

/// A thread that announces, and its latencies.
struct Worker<'a> {
    store: &'a dyn Contender,
    random: Random,
    answer: Answer,
    waits: Waits,
}

impl<'a> Worker<'a> {
    fn new(store: &'a dyn Contender, seed: u64) -> Self {
        let (random, answer) = (Random::new(seed), Answer::new());
        Self { store, random, answer, waits: Waits::default() }
    }

    /// Announces, and for a long wait determines its cause.
    fn announce(&mut self, now: Tick, jobs: &[StoreAnnounce]) {
        let before = worked();
        let start = Instant::now();
        self.store.announce(now, &mut self.random, jobs, &mut self.answer);
        let wall = start.elapsed();
        let is_own = wall > LONG && {
            let after = worked();
            after.0 - before.0 > LONG.as_micros() as i64 || after.1 > before.1
        };
        self.waits.add(wall, is_own);
    }
}

/// Returns this thread's CPU time in microseconds and its voluntary context switches; zeros where
/// the system does not report them per thread.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub(super) fn worked() -> (i64, i64) {
    (0, 0)
}

/// See above.
#[cfg(not(any(target_os = "macos", target_os = "ios")))]
pub(super) fn worked() -> (i64, i64) {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return (0, 0) };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    (micros, usage.voluntary_context_switches())
}

/// Runs each list of jobs in its own thread, a batch at a time.
fn join(
    jobs: &[Vec<StoreAnnounce>],
    each: &(dyn Fn(&mut Worker<'_>, &[StoreAnnounce]) + Sync),
    store: &dyn Contender,
) -> Waits {
    std::thread::scope(|scope| {
        let run = |(seed, jobs): (u64, &Vec<StoreAnnounce>)| {
            let mut worker = Worker::new(store, seed);
            jobs.chunks(store.batch()).for_each(|batch| each(&mut worker, batch));
            worker.waits
        };
        let threads: Vec<_> = (1..).zip(jobs).map(|part| scope.spawn(move || run(part))).collect();
        let mut all = Waits::default();
        // A panic has already printed its message.
        threads.into_iter().filter_map(|thread| thread.join().ok()).for_each(|one| all.merge(&one));
        all
    })
}

/// Re-announces to a full store.
fn realistic(store: &dyn Contender, scenario: Scenario, threads: u32, size: Size) -> Figures {
    let pairs = skewed(size.torrents);
    let mut first = vec![(0, 0); size.torrents as usize];
    for (torrent, peer) in &pairs {
        if let Some(place) = first.get_mut(*torrent as usize) {
            *place = (*torrent, *peer);
        }
    }
    let from = if scenario == Scenario::Torrents { &first } else { &pairs };
    let (mut random, mut answer) = (Random::new(1), Answer::new());
    for part in pairs.chunks(64) {
        let jobs: Vec<StoreAnnounce> =
            part.iter().map(|(torrent, peer)| job(*torrent, *peer, 0)).collect();
        store.announce(Tick(1), &mut random, &jobs, &mut answer);
        // A tracker maintains its tables all the time.
        if random.below(512) == 0 {
            store.tend(Tick(1));
        }
    }
    let mut draw = || {
        let drawn = from.get(random.below(from.len() as u32) as usize);
        drawn.map(|(torrent, peer)| job(*torrent, *peer, 50))
    };
    let mut of_thread = |_| (0..size.operations).filter_map(|_| draw()).collect();
    let jobs: Vec<Vec<StoreAnnounce>> = (0..threads).map(&mut of_thread).collect();
    let wall_s = throughput(store, &jobs);
    let waits = join(&jobs, &|worker, batch| worker.announce(Tick(1), batch), store);
    measured(&jobs, wall_s, &waits)
}

/// Announces new torrents while the store is maintained.
fn grow(store: &dyn Contender, threads: u32, torrents: u32) -> Figures {
    let of = |thread| (thread..torrents).step_by(threads as usize);
    let jobs: Vec<Vec<StoreAnnounce>> = (0..threads)
        .map(|thread| of(thread).map(|number| job(number, u64::from(number), 50)).collect())
        .collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                store.tend(Tick(1));
                // As often as the server does.
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let waits = join(&jobs, &|worker, batch| worker.announce(Tick(1), batch), store);
        is_done.store(true, Ordering::Relaxed);
        waits.figures()
    })
}

/// Four of five peers expire while the others announce.
fn expire(store: &dyn Contender, threads: u32, torrents: u32) -> Figures {
    let (mut random, mut answer) = (Random::new(1), Answer::new());
    let late = Tick(LIFETIME_S + 900);
    for number in 0..torrents {
        let job = job(number, u64::from(number), 0);
        store.announce(Tick(1), &mut random, &[job], &mut answer);
    }
    let stay: Vec<StoreAnnounce> =
        (0..torrents.div_ceil(5)).map(|number| job(number, u64::from(number), 50)).collect();
    for job in &stay {
        store.announce(late, &mut random, std::slice::from_ref(job), &mut answer);
    }
    let is_done = AtomicBool::new(false);
    let all_go = Barrier::new(threads as usize + 1);
    let announce = |seed: u64| {
        let mut worker = Worker::new(store, seed);
        all_go.wait();
        for job in stay.iter().cycle() {
            worker.announce(late, std::slice::from_ref(job));
            if is_done.load(Ordering::Relaxed) {
                break;
            }
        }
        worker.waits
    };
    let announce = &announce;
    std::thread::scope(|scope| {
        let workers = (1..=u64::from(threads)).map(|seed| scope.spawn(move || announce(seed)));
        let workers: Vec<_> = workers.collect();
        all_go.wait();
        let start = Instant::now();
        while !store.expire(late) {}
        let expiry_s = start.elapsed().as_secs_f64();
        is_done.store(true, Ordering::Relaxed);
        let mut all = Waits::default();
        workers.into_iter().filter_map(|one| one.join().ok()).for_each(|one| all.merge(&one));
        all.figures().with("expiry_s", expiry_s)
    })
}

/// Measures the memory of `torrents` with `peers_each`.
fn memory(store: &dyn Contender, torrents: u32, peers_each: u32) -> Figures {
    let (mut random, mut answer) = (Random::new(1), Answer::new());
    let before = resident_bytes();
    let peers = u64::from(torrents) * u64::from(peers_each);
    for peer in 0..peers {
        let torrent = (peer % u64::from(torrents)) as u32;
        store.announce(Tick(1), &mut random, &[job(torrent, peer, 0)], &mut answer);
        // Outgrown tables are returned to the system.
        if peer % (1 << 16) == 0 {
            store.tend(Tick(1));
        }
    }
    store.tend(Tick(1));
    let per_peer = |bytes: u64| bytes as f64 / store.peers() as f64;
    Figures::default()
        .with("bytes_per_peer", per_peer(resident_bytes().saturating_sub(before)))
        .with("own_bytes_per_peer", store.reserved().map_or(f64::NAN, per_peer))
}

fn resident_bytes() -> u64 {
    Usage::of(std::process::id()).map_or(0, |usage| usage.resident_bytes)
}

/// Latencies of announces.
#[derive(Default)]
struct Waits {
    all: Latencies,
    long: u64,
    long_own: u64,
}

/// The cause of longer waits is determined.
const LONG: Duration = Duration::from_millis(1);

impl Waits {
    fn add(&mut self, wait: Duration, is_own: bool) {
        self.all.record(wait);
        self.long += u64::from(wait > LONG);
        self.long_own += u64::from(is_own);
    }

    fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        self.long += other.long;
        self.long_own += other.long_own;
    }

    /// Returns the percentiles, and the number of long waits. `long_own` counts those during which the
    /// store worked or waited for a lock; during the others the thread had been preempted.
    fn figures(&self) -> Figures {
        let at = |part| self.all.quantile(part).unwrap_or_default().as_nanos() as f64;
        Figures::default()
            .with("p50_ns", at(0.5))
            .with("p99_ns", at(0.99))
            .with("p99_9_ns", at(0.999))
            .with("p99_99_ns", at(0.9999))
            .with("max_ns", self.all.max().as_nanos() as f64)
            .with("long", self.long as f64)
            .with("long_own", self.long_own as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::{NAMES, contender};
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_case_returns_its_figures() {
        let size = Size { torrents: 1000, operations: 100 };
        for name in NAMES {
            let fits = |scenario: &&Scenario| scenario.fits(name);
            for scenario in Scenario::value_variants().iter().filter(fits) {
                let found = measure(*scenario, &|| contender(name).unwrap(), 2, size);
                let is_memory = matches!(scenario, Scenario::Small | Scenario::Large);
                let has = |name: &str| found.get(name).is_some();
                let figure = |name: &str| found.get(name).map_or(0.0, |figure| figure.median);
                assert_eq!(has("bytes_per_peer"), is_memory, "{name} {scenario:?}");
                let counts = is_memory && name.starts_with("tidegate");
                assert_eq!(has("own_bytes_per_peer"), counts, "{name} {scenario:?}");
                assert_eq!(has("expiry_s"), *scenario == Scenario::Expire);
                assert_eq!(figure("max_ns") > 0.0, !is_memory, "{name} {scenario:?}");
                assert!(figure("p50_ns") <= figure("p99_ns"));
                assert!(figure("p99_99_ns") <= figure("max_ns"));
                assert!(figure("long_own") <= figure("long"));
                let timed = !is_memory && !matches!(scenario, Scenario::Grow | Scenario::Expire);
                assert_eq!(has("ns_each") && has("per_s"), timed);
            }
        }
    }
}
