//! The store's figures: `cargo bench -p tidegate-swarm --bench store -- SCENARIO...`
//!
//! * `realistic`: 1 M torrents, 5 M v4 peers, sizes skewed as in the field (86 % of torrents have up
//!   to 4 peers, few have thousands); re-announces, with torrents or peers equally likely, with and
//!   without up to 50 peers in the answer, in batches of 1 to 64.
//! * `torrust`: the four scenarios of Torrust's repository benchmark, 1 and 2 threads.
//! * `memory`: growth of the process for each peer and torrent.
//! * `latency`: how long single announces take while tables grow from nothing to 5 M torrents, while
//!   5 M peers expire, and while 1 M torrents vanish; and, to tell the machine's part in it, while
//!   nothing happens at all.
//!
//! Times of one thread are its CPU time as the kernel counts it. Pin it with `taskset -c 0`.
#![allow(clippy::print_stdout, missing_docs)]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use tidegate_swarm::{Action, Job, Options, Random, Store};
use types::{
    AnnounceSink, Chosen, Families, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Role, Tick,
    TooSoon,
};

fn main() {
    let named: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|word| word == name);
    let scenarios: [(&str, fn()); 4] =
        [("realistic", realistic), ("torrust", torrust), ("memory", memory), ("latency", latency)];
    for (name, run) in scenarios {
        if wanted(name) {
            println!("# {name}");
            run();
        }
    }
}

/// Copies what it is given, as the UDP encoder does.
struct Encoder {
    bytes: Box<[u8]>,
    len: usize,
    peers: u64,
}

impl AnnounceSink for Encoder {
    fn too_soon(&mut self, _: usize, _: TooSoon) {}
    fn chosen(&mut self, _: usize, _: &Chosen) {
        self.len = 0;
    }
    fn peers_v4(&mut self, _: usize, peers: &[PackedV4]) {
        self.peers += peers.len() as u64;
        let (fours, rest) = peers.as_chunks::<4>();
        let (rooms, _) = self.bytes[self.len..].as_chunks_mut::<24>();
        for (four, room) in fours.iter().zip(rooms) {
            let [a, b, c, d] = four.map(|peer| u64::from_be_bytes(peer.0) >> 16);
            let words = [a << 16 | b >> 32, b << 32 | c >> 16, c << 48 | d];
            for (room, word) in room.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *room = word.to_be_bytes();
            }
        }
        let (rooms, _) = self.bytes[self.len + fours.len() * 24..].as_chunks_mut::<6>();
        for (peer, room) in rest.iter().zip(rooms) {
            *room = peer.wire();
        }
        self.len += peers.len() * 6;
    }
    fn peers_v6(&mut self, _: usize, _: &[PackedV6]) {}
    fn peer_with_id(&mut self, _: usize, _: PeerKey, _: PeerId) {}
}

fn encoder() -> Encoder {
    Encoder { bytes: vec![0; 4096].into(), len: 0, peers: 0 }
}

fn store(shards: usize) -> Store {
    Store::new(&Options {
        shards,
        hash_key: *b"a key of 16 byte",
        peer_lifetime_s: 1000,
        web_lifetime_s: 240,
        keep_peer_ids: false,
        memory_budget: None,
    })
}

/// CPU time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Memory of the process in huge pages, MiB.
fn huge_mib() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// A torrent's hash by its number, without a pattern.
fn hash(number: u32) -> InfoHash {
    let mut random = Random::new(u64::from(number) << 20);
    let mut bytes = [0; 20];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
    }
    InfoHash(bytes)
}

fn job(torrent: u32, peer: u64, want: u16) -> Job {
    let [a, b, c, d, high, low, ..] = peer.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    Job {
        info_hash: hash(torrent),
        peer: PeerKey::V4([a, b, c, d, high, low]),
        peer_id: PeerId::default(),
        // A quarter seeds, always the same ones.
        role: if peer.is_multiple_of(4) { Role::Seeder } else { Role::Leecher },
        action: Action::Update { completed: false },
        spacing_s: 0,
        want,
        families: Families::Own,
        with_ids: false,
    }
}

/// (torrent, peer) pairs in random order, torrents' sizes skewed, about `peers` in all.
fn skewed(torrents: u32, peers: u32) -> Vec<(u32, u64)> {
    let size = |scale: f64, rank: u32| (scale / f64::from(rank + 1).powf(0.85)).clamp(1.0, 5000.0);
    let (mut low, mut high) = (0.0, 1e7);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let total: f64 = (0..torrents).map(|rank| size(middle, rank)).sum();
        if total > f64::from(peers) { high = middle } else { low = middle }
    }
    let mut pairs = Vec::new();
    for torrent in 0..torrents {
        for _ in 0..size(low, torrent) as u32 {
            pairs.push((torrent, pairs.len() as u64));
        }
    }
    shuffle(&mut pairs);
    pairs
}

fn shuffle<T>(items: &mut [T]) {
    let mut random = Random::new(3);
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u32 + 1) as usize);
    }
}

const BATCHES: [usize; 4] = [1, 8, 32, 64];
/// How often each batch size is measured.
const TURNS: usize = 9;

fn realistic() {
    let torrents = 1_000_000;
    let pairs = skewed(torrents, 5_000_000);
    let mut first = vec![None; torrents as usize];
    pairs.iter().for_each(|(torrent, peer)| first[*torrent as usize] = Some((*torrent, *peer)));
    let store = store(4);
    let mut random = Random::new(1);
    let mut sink = encoder();
    for part in pairs.chunks(64) {
        let jobs: Vec<Job> = part.iter().map(|(torrent, peer)| job(*torrent, *peer, 0)).collect();
        store.announce(Tick(1), &mut random, &jobs, &mut sink);
        // As a tracker does all the time: it ages peers, and sees to the memory.
        if random.below(512) == 0 {
            store.sweep(Tick(1), 100);
        }
    }
    println!("{} torrents, {} peers: {:?}", torrents, pairs.len(), store.totals());
    println!("{} MiB in huge pages", huge_mib());
    println!("mix,want,batch,ns_per_request,best,peers_per_answer");
    for mix in ["torrent", "peer"] {
        let requests: Vec<(u32, u64)> = (0..2_000_000)
            .filter_map(|_| match mix {
                "torrent" => first[random.below(torrents) as usize],
                _ => Some(pairs[random.below(pairs.len() as u32) as usize]),
            })
            .collect();
        for want in [0, 50] {
            let jobs: Vec<Job> = requests.iter().map(|(t, p)| job(*t, *p, want)).collect();
            sink.peers = 0;
            // Batch sizes take turns, so that a neighbour's noise falls on all alike.
            let mut times = [(); 4].map(|()| Vec::new());
            for jobs in jobs.chunks(jobs.len().div_ceil(TURNS)) {
                for (batch, times) in BATCHES.iter().zip(&mut times) {
                    let start = cpu_ns();
                    for part in jobs.chunks(*batch) {
                        store.announce(Tick(2), &mut random, part, &mut sink);
                    }
                    times.push((cpu_ns() - start) as f64 / jobs.len() as f64);
                }
            }
            let peers = sink.peers as f64 / (jobs.len() * BATCHES.len()) as f64;
            for (batch, times) in BATCHES.iter().zip(&mut times) {
                times.sort_unstable_by(f64::total_cmp);
                let (median, best) = (times[times.len() / 2], times[0]);
                println!("{mix},{want},{batch},{median:.0},{best:.0},{peers:.1}");
            }
        }
    }
}

fn torrust() {
    println!("scenario,threads,ns_per_operation");
    for threads in [1, 2] {
        let each = timed(threads, |_, number| job(number, u64::from(number), 0));
        let name = if threads == 1 { "add one" } else { "add many in parallel" };
        println!("{name},{threads},{each:.0}");
        let each = timed(threads, |thread, _| job(7, u64::from(thread), 0));
        println!("update one in parallel,{threads},{each:.0}");
        let each = timed(threads, |_, number| job(number % 1000, u64::from(number % 1000), 0));
        println!("update many in parallel,{threads},{each:.0}");
    }
}

/// Wall time of an announce and a scrape of the same torrent, as Torrust's benchmark does them.
fn timed(threads: u32, make: impl Fn(u32, u32) -> Job + Sync) -> f64 {
    let count = 300_000;
    let store = store(8);
    let jobs: Vec<Vec<Job>> = (0..threads)
        .map(|thread| (0..count).map(|number| make(thread, thread * count + number)).collect())
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for jobs in &jobs {
            let store = &store;
            scope.spawn(move || {
                let (mut random, mut sink) = (Random::new(1), encoder());
                let mut counts = [Default::default()];
                for job in jobs {
                    store.announce(Tick(1), &mut random, std::slice::from_ref(job), &mut sink);
                    store.scrape(&[job.info_hash], &mut counts);
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / f64::from(threads * count)
}

fn memory() {
    println!("peers_per_torrent,torrents,peers,bytes_per_torrent,bytes_per_peer,reserved_per_peer");
    let plans: [(u64, u32); 4] = [(1, 1_000_000), (1, 5_000_000), (1000, 1000), (1000, 5000)];
    for (size, torrents) in plans {
        let before = resident();
        let store = store(4);
        let (mut random, mut sink) = (Random::new(1), encoder());
        let peers = u64::from(torrents) * size;
        for peer in 0..peers {
            let torrent = (peer % u64::from(torrents)) as u32;
            store.announce(Tick(1), &mut random, &[job(torrent, peer, 0)], &mut sink);
            // The binary does so ten times a second: outgrown tables go back to the system.
            if peer % (1 << 16) == 0 {
                store.sweep(Tick(1), 600);
            }
        }
        store.sweep(Tick(1), 600);
        let grown = resident().saturating_sub(before) as f64;
        let reserved = store.totals().memory_reserved as f64;
        println!(
            "{size},{torrents},{peers},{:.1},{:.2},{:.2}",
            grown / f64::from(torrents),
            grown / peers as f64,
            reserved / peers as f64
        );
    }
}

/// How long an announce took, and why.
#[derive(Clone, Copy)]
struct Wait {
    wall_ns: u64,
    /// It worked for more than a millisecond, or slept on a lock: what is left of a long wait is the
    /// machine's, which ran something else.
    is_ours: bool,
}

const LONG_NS: u64 = 1_000_000;

/// CPU time of this thread, and how often it went to sleep by itself.
fn work() -> (i64, i64) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the kernel counts threads");
    let micros = |time: TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    let cpu_us = micros(usage.user_time()) + micros(usage.system_time());
    (cpu_us * 1000, usage.voluntary_context_switches())
}

fn run_on(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores)).expect("two cores");
}

/// What the machine does of its own accord to two threads that share nothing.
fn beside_nothing(announces: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(1);
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        run_on(0);
        announces();
        done.store(true, Ordering::Relaxed);
    });
}

/// Announces on core 0 and sweeps on core 1, which is what needs telling apart.
fn latency() {
    println!("phase,p50_ns,p99_ns,p99.99_ns,max_ns,over_1_ms,of_these_ours");
    let count = 5_000_000;
    let store = store(4);
    let (mut random, mut sink) = (Random::new(1), encoder());
    let mut one = |tick: u32, job: &Job| {
        let (cpu_ns, sleeps) = work();
        let start = Instant::now();
        store.announce(Tick(tick), &mut random, std::slice::from_ref(job), &mut sink);
        let wall_ns = start.elapsed().as_nanos() as u64;
        if wall_ns < LONG_NS {
            return Wait { wall_ns, is_ours: false };
        }
        let (cpu_after_ns, sleeps_after) = work();
        let is_ours = cpu_after_ns - cpu_ns > LONG_NS as i64 || sleeps_after > sleeps;
        Wait { wall_ns, is_ours }
    };
    // Sweeps on core 1 for as long as `announces` lasts, or until `parts` are done.
    let beside = |tick: u32, parts: u32, announces: &mut dyn FnMut(&AtomicBool)| {
        let (done, swept) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(1);
                let mut left = parts;
                while left > 0 && !done.load(Ordering::Relaxed) {
                    // A pass of 5 s in steps of 5 ms; the server takes 60 s for one, in steps of 100 ms.
                    store.sweep(Tick(tick), 1000);
                    std::thread::sleep(Duration::from_millis(5));
                    left -= 1;
                }
                swept.store(true, Ordering::Relaxed);
            });
            run_on(0);
            announces(&swept);
            done.store(true, Ordering::Relaxed);
        });
    };
    let mut waits = Vec::new();
    beside(1, u32::MAX, &mut |_| {
        waits = (0..count).map(|number| one(1, &job(number, number.into(), 50))).collect();
    });
    report("grow to 5 M torrents", &mut waits);
    beside_nothing(|| {
        waits = (0..count).map(|number| one(1, &job(number, number.into(), 50))).collect();
    });
    report("control: nothing changes, core 1 busy with nothing", &mut waits);
    // Those of the first fifth stay; the sweep takes the others meanwhile.
    let keep: Vec<Job> = (0..count / 5).map(|number| job(number, number.into(), 50)).collect();
    for job in &keep {
        one(1900, job);
    }
    let few: Vec<Job> = keep.iter().take(1000).copied().collect();
    for (phase, tick, jobs) in
        [("4 M peers expire", 1950, &keep), ("1 M torrents vanish", 4000, &few)]
    {
        waits.clear();
        beside(tick, 4000, &mut |swept| {
            let going_on = jobs.iter().cycle().take_while(|_| !swept.load(Ordering::Relaxed));
            waits.extend(going_on.map(|job| one(tick, job)));
        });
        report(phase, &mut waits);
    }
    println!("# left: {:?}", store.totals());
}

fn report(phase: &str, waits: &mut [Wait]) {
    waits.sort_unstable_by_key(|wait| wait.wall_ns);
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].wall_ns;
    let long = waits.iter().filter(|wait| wait.wall_ns > LONG_NS);
    let ours = long.clone().filter(|wait| wait.is_ours).count();
    let (p50, p99, p9999, most) = (at(0.5), at(0.99), at(0.9999), at(1.0));
    println!("{phase},{p50},{p99},{p9999},{most},{},{ours}", long.count());
}
