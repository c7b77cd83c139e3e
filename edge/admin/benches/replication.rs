//! Measures what repairing a million list entries takes, and merging totals of 100,000 keys, from one node's records to
//! another's, without NATS between them: `cargo bench -p tidegate-admin --bench replication`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_admin::Records;
use tidegate_admin::records::{ChangeSource, LiveState, PendingCounts, RecordOp, RowsPart};
use tracker::KeyTotals;

const ENTRIES: u32 = 1_000_000;
const ENTRIES_PER_OP: u32 = 5000;
const OPS_PER_COMMIT: usize = 10;
/// The kind of the deny list.
const DENY: u8 = 6;
const KEYS: u32 = 100_000;

type Failure = Box<dyn std::error::Error>;

/// Totals to be written next.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<BTreeMap<u32, KeyTotals>>>);

impl LiveState for Waiting {
    fn collect(&mut self, pending: &mut PendingCounts) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(|(key, totals)| pending.add(key, totals));
    }

    fn apply(&mut self, _: RecordOp, _: ChangeSource<'_>) {}
}

struct Node {
    records: Records,
    waiting: Waiting,
    thread: JoinHandle<()>,
}

impl Node {
    fn start(folder: &Path, number: u8) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder)?;
        let (records, mut writer) = Records::open(Some(folder))?;
        writer.replicate(number, || 1_700_000_000_000)?;
        let waiting = Waiting::default();
        let mut live = waiting.clone();
        let thread = thread::spawn(move || writer.run(&mut live, Duration::from_millis(100)));
        Ok(Self { records, waiting, thread })
    }

    fn end(self) -> Result<(), Failure> {
        drop(self.records.close().blocking_recv());
        self.thread.join().map_err(|_| "the writer panicked".into())
    }
}

/// Brings all rows of a kind that differ to the other node. Returns parts and bytes.
async fn pull(from: &Records, to: &Records, kind: u8) -> Result<(u64, usize), Failure> {
    let digests = from.range_digests(kind).into_iter().zip(to.range_digests(kind));
    let ranges = (0..).zip(digests).filter(|(_, (theirs, own))| theirs != own);
    let ranges: Vec<u16> = ranges.map(|(range, _)| range).collect();
    let (mut parts, mut bytes) = (0, 0);
    let mut cursor = Some(Vec::new());
    while let Some(start) = cursor {
        let RowsPart { body, next } = from.read_ranges(kind, ranges.clone(), start).await?;
        parts += 1;
        bytes += body.len();
        to.merge(1, body).await?;
        cursor = next;
    }
    Ok((parts, bytes))
}

/// Brings what one node tells to the other, until nothing waits. Returns bodies and bytes.
async fn hear(from: &Records, to: &Records) -> Result<(u64, usize), Failure> {
    let (mut bodies, mut bytes) = (0, 0);
    let patience = Duration::from_millis(100);
    while let Ok(body) = tokio::time::timeout(patience, from.next_changes()).await {
        bodies += 1;
        bytes += body.len();
        to.merge(1, body).await?;
    }
    Ok((bodies, bytes))
}

/// Returns hex digits of an info hash, spread over all hashes as real ones are.
fn torrent(number: u32) -> String {
    let mut state = u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29;
    let state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    format!("{state:016x}{number:024x}")
}

fn op(json: &str) -> Result<RecordOp, Failure> {
    Ok(serde_json::from_str(json)?)
}

fn main() -> Result<(), Failure> {
    let folder =
        std::env::temp_dir().join(format!("tidegate-replication-bench-{}", std::process::id()));
    let one = Node::start(&folder.join("1"), 1)?;
    let other = Node::start(&folder.join("2"), 2)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let list = |first: u32| {
            let hashes: String = (first..first + ENTRIES_PER_OP).map(torrent).collect();
            op(&format!(r#"{{"list_added":{{"list":"deny","hashes":"{hashes}"}}}}"#))
        };
        let firsts = (0..ENTRIES).step_by(ENTRIES_PER_OP as usize);
        let ops = firsts.map(list).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        for ops in ops.chunks(OPS_PER_COMMIT) {
            one.records.change_all(ops.to_vec()).await?;
        }
        println!("{ENTRIES} list entries, recorded: {:.1} s", begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let (parts, bytes) = pull(&one.records, &other.records, DENY).await?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("repaired: {seconds:.1} s, {parts} parts, {bytes} bytes");
        hear(&one.records, &other.records).await?;
        count_keys(&one, &other).await
    })?;
    one.end()?;
    other.end()?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

async fn count_keys(one: &Node, other: &Node) -> Result<(), Failure> {
    let key = |number: u32| {
        op(&format!(
            r#"{{"key_put":{{"id":0,"key":"key-{number:020}","name":"","created":1,"expires":null,
                "peers_per_torrent":0,"torrents":0,"addresses":0,"announces_per_minute":0}}}}"#
        ))
    };
    let ops = (0..KEYS).map(key).collect::<Result<Vec<_>, _>>()?;
    for ops in ops.chunks(1000) {
        one.records.change_all(ops.to_vec()).await?;
    }
    hear(&one.records, &other.records).await?;
    let totals = KeyTotals {
        uploaded: 1_234_567_890,
        downloaded: 123_456_789,
        seeding_s: 1800,
        announces: 3,
    };
    // The ids that node 1 has assigned.
    let ids = (1..=KEYS).map(|number| (1 << 28) + 256 * number + 1);
    let written = one.records.health().counts_written.load(Ordering::Relaxed);
    *one.waiting.0.lock().unwrap_or_else(PoisonError::into_inner) =
        ids.map(|id| (id, totals)).collect();
    while one.records.health().counts_written.load(Ordering::Relaxed) == written {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let flush_ms = one.records.health().last_flush_us.load(Ordering::Relaxed) as f64 / 1000.0;
    println!("totals of {KEYS} keys, flushed: {flush_ms:.0} ms");
    let begun = Instant::now();
    let (bodies, bytes) = hear(&one.records, &other.records).await?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("merged: {seconds:.2} s, {bodies} bodies, {bytes} bytes");
    assert_eq!(one.records.digests(), other.records.digests());
    Ok(())
}
