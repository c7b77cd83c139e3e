//! Measures how long the writer takes to write 100,000 download counts into a table of a million, and how many
//! changes per second it acknowledges: `cargo bench -p tidegate-admin --bench records`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_admin::Records;
use tidegate_admin::records::{ChangeSource, LiveState, PendingCounts, RecordOp};
use types::InfoHash;

const KNOWN: u32 = 1_000_000;
const CHANGED: u32 = 100_000;
const ROUNDS: u32 = 10;

/// Counts to be written next.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Vec<(InfoHash, u32)>>>);

impl LiveState for Waiting {
    fn collect(&mut self, pending: &mut PendingCounts) {
        let mut waiting = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        waiting.drain(..).for_each(|(torrent, added)| pending.add_downloads(torrent, added));
    }

    fn apply(&mut self, _: RecordOp, _: ChangeSource<'_>) {}
}

/// Returns a torrent by number, spread over all hashes as real ones are.
fn torrent(number: u32) -> InfoHash {
    let mut state = u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut hash = [0; 20];
    for piece in hash.chunks_mut(8) {
        state ^= state >> 30;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 27;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    InfoHash(hash)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder =
        std::env::temp_dir().join(format!("tidegate-records-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (records, writer) = Records::open(Some(&folder))?;
    let waiting = Waiting::default();
    let mut counts = waiting.clone();
    let thread = thread::spawn(move || writer.run(&mut counts, Duration::from_millis(100)));
    let flush = |numbers: &mut dyn Iterator<Item = u32>, count: u32| {
        let before = records.health().counts_written.load(Ordering::Relaxed);
        let all: Vec<_> = numbers.map(|number| (torrent(number), count)).collect();
        let expected = before + all.len() as u64;
        *waiting.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = all;
        while records.health().counts_written.load(Ordering::Relaxed) < expected {
            thread::sleep(Duration::from_millis(5));
        }
        records.health().last_flush_us.load(Ordering::Relaxed) as f64 / 1000.0
    };
    println!("{KNOWN} new counts: {:.0} ms", flush(&mut (0..KNOWN), 1));
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        // Other torrents in each round, spread over the table.
        let numbers = (0..CHANGED).map(|number| (number * (KNOWN / CHANGED) + round) % KNOWN);
        times.push(flush(&mut numbers.into_iter(), round + 2));
    }
    times.sort_by(f64::total_cmp);
    let (least, middle, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("{CHANGED} of {KNOWN} counts: {middle:.0} ms (from {least:.0} to {most:.0})");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for concurrency in [1_u32, 64] {
        let begun = Instant::now();
        let change = || records.change_all(Vec::new());
        for _ in 0..640 / concurrency {
            runtime.block_on(async {
                let all = (0..concurrency).map(|_| change());
                futures_util::future::join_all(all).await
            });
        }
        let rate = 640.0 / begun.elapsed().as_secs_f64();
        println!("changes, {concurrency} at a time: {rate:.0}/s");
    }
    drop(records.close().blocking_recv());
    thread.join().map_err(|_| "the writer panicked")?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
