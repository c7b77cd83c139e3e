//! Kills a tracker repeatedly while it records changes, and reports what was lost. Changes that the API has
//! acknowledged must not be lost; counts may be lost for the last moments only.

use crate::clients::binary;
use crate::command::Tally;
use crate::served::{Served, request};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use harness::http;
use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The flush interval under test.
const FLUSH_S: u64 = 1;
/// The most that counts may be lost for: a flush interval, and the time that a flush takes.
const LOSS_S_MAX: f64 = FLUSH_S as f64 + 0.5;
/// Threads that create keys at the same time, so that commits are grouped.
const LANES: u64 = 4;

/// What one kill has lost.
struct Loss {
    after: Duration,
    keys: usize,
    keys_lost: usize,
    counts: usize,
    counts_lost: usize,
    /// Seconds between the oldest lost count and the kill.
    oldest_s: f64,
}

/// Kills it `times` times and prints a table.
pub(crate) fn run(times: u64) -> Result<Tally> {
    let folder = root().join(format!("target/crash-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut losses = Vec::new();
    let mut known = HashSet::new();
    println!("kill  after     keys  lost  counts  lost  oldest lost");
    for round in 0..times {
        let loss = kill_once(&folder, round, &mut known)?;
        println!(
            "{:>4}  {:>5} ms {:>5} {:>5} {:>7} {:>5}  {:>8.2} s",
            round + 1,
            loss.after.as_millis(),
            loss.keys,
            loss.keys_lost,
            loss.counts,
            loss.counts_lost,
            loss.oldest_s
        );
        losses.push(loss);
    }
    let sum = |of: fn(&Loss) -> usize| losses.iter().map(of).sum::<usize>();
    let oldest = losses.iter().map(|loss| loss.oldest_s).fold(0.0, f64::max);
    println!(
        "{times} kills: of {} acknowledged keys {} lost; of {} counts {} lost, none older than {oldest:.2} s \
         ([state] flush_s = {FLUSH_S})",
        sum(|loss| loss.keys),
        sum(|loss| loss.keys_lost),
        sum(|loss| loss.counts),
        sum(|loss| loss.counts_lost),
    );
    ensure!(sum(|loss| loss.keys_lost) == 0, "acknowledged keys were lost");
    ensure!(oldest <= LOSS_S_MAX, "counts were lost that were older than a flush interval");
    fs::remove_dir_all(folder)?;
    Ok(Tally { passed: u32::try_from(times)?, failed: 0 })
}

fn kill_once(folder: &std::path::Path, round: u64, known: &mut HashSet<String>) -> Result<Loss> {
    let more = format!("flush_s = {FLUSH_S}\n[limits]\nexempt = [\"127.0.0.0/8\"]\n");
    let mut served = Served::start(&binary(), folder, &more)?;
    // The kills are spread over several flush intervals.
    let after = Duration::from_millis(600 + (round * 737) % 2400);
    let begun = Instant::now();
    let is_over = AtomicBool::new(false);
    let (admin, announce) = (served.admin, served.announce);
    let (keys, counts) = thread::scope(|scope| -> Result<_> {
        let is_over = &is_over;
        let lane = |lane| move || make_keys(admin, &format!("{round:04}-{lane}"), is_over);
        let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(lane(number))).collect();
        let counter = scope.spawn(move || complete(announce, round, is_over));
        thread::sleep(after.saturating_sub(begun.elapsed()));
        is_over.store(true, Ordering::Relaxed);
        let killed = Instant::now();
        served.kill();
        let mut keys = Vec::new();
        for lane in lanes {
            keys.extend(lane.join().map_err(|_| anyhow::anyhow!("a lane panicked"))?);
        }
        let counts = counter.join().map_err(|_| anyhow::anyhow!("the counter panicked"))?;
        Ok((
            keys,
            counts.into_iter().map(|at| killed.saturating_duration_since(at)).collect::<Vec<_>>(),
        ))
    })?;
    ensure!(
        !keys.is_empty() && !counts.is_empty(),
        "expected keys and counts before the kill, found none"
    );
    known.extend(keys.iter().cloned());
    let served = Served::start(&binary(), folder, &more)?;
    let kept = read_keys(&served)?;
    let recorded = downloads(&served, round)?;
    let counts_lost = counts.len().saturating_sub(recorded);
    // Counts are made in order: the lost ones are the last.
    let oldest = counts.len().checked_sub(counts_lost).and_then(|at| counts.get(at));
    Ok(Loss {
        after,
        keys: keys.len(),
        keys_lost: known.iter().filter(|key| !kept.contains(*key)).count(),
        counts: counts.len(),
        counts_lost,
        oldest_s: oldest.map_or(0.0, Duration::as_secs_f64),
    })
}

/// Creates keys until the tracker has ended. Returns the acknowledged ones.
fn make_keys(admin: std::net::SocketAddr, name: &str, is_over: &AtomicBool) -> Vec<String> {
    let mut made = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("crash-key-{name}-{:08}", made.len());
        let body = format!("{{\"key\":\"{key}\"}}");
        match request(admin, "POST /api/v1/keys", &body) {
            Ok(response) if response.status == 201 => made.push(key),
            // The tracker was killed during this request.
            _ => break,
        }
    }
    made
}

/// Completes downloads until the tracker has ended. Returns when each was acknowledged.
fn complete(announce: std::net::SocketAddr, round: u64, is_over: &AtomicBool) -> Vec<Instant> {
    let mut done = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let port = 1024 + done.len() % 60_000;
        let announced = |rest: &str| {
            let id = format!("-CR0001-{port:012}");
            let hash = torrent(round);
            let target =
                format!("GET /announce?info_hash={hash}&peer_id={id}&port={port}&numwant=0&{rest}");
            request(announce, &target, "").is_ok_and(|response| response.status == 200)
        };
        if !(announced("left=1") && announced("left=0&event=completed")) {
            break;
        }
        done.push(Instant::now());
    }
    done
}

/// Returns the info hash of a round's torrent, as it is written in a query.
fn torrent(round: u64) -> String {
    let byte = |shift: u64| format!("%{:02x}", (round >> shift) & 0xff);
    (byte(8) + &byte(0)).repeat(10)
}

fn downloads(served: &Served, round: u64) -> Result<usize> {
    let target = format!("/scrape?info_hash={}", torrent(round));
    let reply = http::get(served.announce, &target)?.body;
    let key = b"10:downloadedi";
    let at = reply.windows(key.len()).position(|window| window == key).context("no count")?;
    let digits = reply[at + key.len()..].split(|byte| *byte == b'e').next().unwrap_or_default();
    Ok(std::str::from_utf8(digits)?.parse()?)
}

fn read_keys(served: &Served) -> Result<HashSet<String>> {
    let (mut keys, mut cursor) = (HashSet::new(), 0);
    loop {
        let target = format!("GET /api/v1/keys?limit=1000&cursor={cursor}");
        let response = request(served.admin, &target, "")?;
        ensure!(response.status == 200, "the API answers {}", response.status);
        let body = response.text();
        let texts = body.split("\"key\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        keys.extend(texts.map(String::from));
        let next = body.split_once("\"next\":").map(|(_, rest)| rest);
        let Some(next) = next else { return Ok(keys) };
        cursor = next.split([',', '}']).next().unwrap_or_default().parse::<u32>()?;
    }
}
