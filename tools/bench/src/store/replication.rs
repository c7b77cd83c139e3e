//! What a journal asks of the store while it serves: walks, and keeping changes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ::load::Latencies;
use primitives::Random;
use swarm::{Action, Store, StoreAnnounce, StoreWalk, WalkTime};
use types::Tick;

use super::case::Size;
use super::contender::{Answer, store};
use super::work::{job, skewed};
use crate::figures::Figure;
use crate::record::Figures;

/// Announces of a batch, as UDP workers collect them.
const BATCH: usize = 32;
/// Pairs of runs with and without changes.
const PAIRS: usize = 20;
/// Of this many announces one is of a peer that stops, and comes back with its next one.
const STOPS_EVERY: u32 = 50;
/// Changes that a store keeps for a journal.
const CAPACITY: usize = 1 << 20;
const NOW: Tick = Tick(1);

/// Walks a full store. A step is what one lock is held for.
pub(super) fn walk(size: Size) -> Figures {
    let store = filled(&skewed(size.torrents));
    let (begun, mut steps) = (Instant::now(), Latencies::default());
    let bytes = walk_all(&store, |took, _| steps.record(took));
    let (seconds, peers) = (begun.elapsed().as_secs_f64(), peers(&store));
    let at = |part| steps.quantile(part).unwrap_or_default().as_nanos() as f64;
    speed(peers, seconds)
        .with("p50_ns", at(0.5))
        .with("p99_ns", at(0.99))
        .with("p99_9_ns", at(0.999))
        .with("p99_99_ns", at(0.9999))
        .with("max_ns", steps.max().as_nanos() as f64)
        .with("bytes_per_peer", bytes as f64 / peers)
}

/// Announces with and without keeping changes, in turn. Returns the median ratio of the times, too.
pub(super) fn changes(size: Size) -> Figures {
    let pairs = skewed(size.torrents);
    let store = filled(&pairs);
    let mut random = Random::new(5);
    let mut jobs: Vec<StoreAnnounce> = Vec::new();
    while jobs.len() < size.operations as usize {
        let Some((torrent, peer)) = pairs.get(random.below(pairs.len() as u32) as usize) else {
            break;
        };
        let mut announce = job(*torrent, *peer, 50);
        if random.below(STOPS_EVERY) == 0 {
            jobs.push(StoreAnnounce { action: Action::Stop, want: 0, ..announce });
        }
        announce.action = Action::Update { completed: false };
        jobs.push(announce);
    }
    let mut run = |capacity: usize| {
        store.keep_changes(capacity);
        let mut answer = Answer::new();
        let begun = Instant::now();
        for batch in jobs.chunks(BATCH) {
            store.announce(NOW, &mut random, batch, &mut answer);
        }
        let seconds = begun.elapsed().as_secs_f64();
        black_box(answer.peers);
        seconds
    };
    // Warm up.
    run(CAPACITY);
    let mut times = [Vec::new(), Vec::new()];
    for pair in 0..PAIRS {
        // Which one comes first changes, too.
        for keeps in [pair % 2, 1 - pair % 2] {
            times[keeps].push(run(keeps * CAPACITY));
        }
    }
    let [without, with] = &times;
    let ratios = with.iter().zip(without).map(|(with, without)| with / without);
    let seconds = Figure::of(with.iter().copied()).map_or(f64::NAN, |figure| figure.median);
    let relative = Figure::of(ratios).map_or(f64::NAN, |figure| figure.median);
    speed(jobs.len() as f64, seconds).with("relative", relative)
}

fn speed(count: f64, seconds: f64) -> Figures {
    Figures::default().with("ns_each", seconds * 1e9 / count).with("per_s", count / seconds)
}

fn filled(pairs: &[(u32, u64)]) -> Store {
    let (store, mut random, mut answer) =
        (store(*b"a key of 16 byte"), Random::new(1), Answer::new());
    for part in pairs.chunks(BATCH) {
        let jobs: Vec<StoreAnnounce> =
            part.iter().map(|(torrent, peer)| job(*torrent, *peer, 0)).collect();
        store.announce(NOW, &mut random, &jobs, &mut answer);
        // A tracker maintains its tables all the time.
        if random.below(512) == 0 {
            store.sweep(NOW, 600, &|_| false);
        }
    }
    store
}

fn peers(store: &Store) -> f64 {
    let totals = store.totals();
    (totals.v4.seeders + totals.v4.leechers) as f64
}

/// Walks once around. `see` gets how long each step took, and its groups. Returns the bytes of all groups.
fn walk_all(store: &Store, mut see: impl FnMut(Duration, &[u8])) -> usize {
    let (mut walk, time) = (StoreWalk::default(), WalkTime { now: NOW, epoch_min: 0 });
    let (mut changes, mut ids, mut body) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    loop {
        let begun = Instant::now();
        let walked = store.walk(time, &mut walk, &mut changes, &mut ids, &mut body);
        see(begun.elapsed(), &body);
        bytes += body.len();
        body.clear();
        changes.clear();
        ids.clear();
        if walked.is_complete {
            return bytes;
        }
    }
}
