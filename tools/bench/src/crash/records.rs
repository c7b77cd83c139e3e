//! Records: kills a tracker repeatedly while it records changes. Changes that the API has acknowledged must not be
//! lost; counts may be lost for the last moments only.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};
use harness::{Directory, Tracker, http};
use serde_json::{Value, json};

use crate::lab::TOKEN_VARIABLES;
use crate::program::ProgramArgs;
use crate::session::print_line;

/// Parameters of kills while records are written.
#[derive(Args)]
pub(super) struct RecordCrash {
    /// Kills.
    #[arg(default_value_t = 50, value_parser = value_parser!(u64).range(1..=100_000))]
    times: u64,
    #[command(flatten)]
    program: ProgramArgs,
}

/// The flush interval under test.
const FLUSH_S: u64 = 1;
/// The most that counts may be lost for: a flush interval, and the time that a flush takes.
const LOSS_S_MAX: f64 = FLUSH_S as f64 + 0.5;
/// Threads that create keys at the same time, so that commits are grouped.
const LANES: u64 = 4;

/// What kills have lost.
#[derive(Default)]
struct Loss {
    keys: usize,
    keys_lost: usize,
    counts: usize,
    counts_lost: usize,
    /// Seconds between the oldest lost count and its kill.
    oldest_s: f64,
}

impl RecordCrash {
    /// Kills it and prints what each kill has lost.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let (times, folder) = (self.times, Directory::new()?);
        let (mut known, mut total) = (HashSet::new(), Loss::default());
        for round in 0..times {
            // The kills are spread over several flush intervals.
            let after = Duration::from_millis(600 + (round * 737) % 2400);
            let loss = self.kill_once(folder.root(), round, after, &mut known)?;
            print_line(&format!("kill {} after {} ms: {loss}", round + 1, after.as_millis()));
            total.keys += loss.keys;
            total.keys_lost += loss.keys_lost;
            total.counts += loss.counts;
            total.counts_lost += loss.counts_lost;
            total.oldest_s = total.oldest_s.max(loss.oldest_s);
        }
        print_line(&format!("{times} kills: {total} ([state] flush_s = {FLUSH_S})"));
        ensure!(total.keys_lost == 0, "acknowledged keys were lost");
        let is_recent = total.oldest_s <= LOSS_S_MAX;
        ensure!(is_recent, "counts were lost that were older than a flush interval");
        Ok(ExitCode::SUCCESS)
    }

    fn start(&self, folder: &Path) -> Result<Tracker> {
        let state = folder.join("state");
        let configuration = format!(
            "[udp]\nlisten = []\n[http]\nlisten = [\"127.0.0.1:0\"]\n\
             [admin]\nlisten = [\"127.0.0.1:0\"]\nrequests_per_s = 0\n\
             [state]\ndir = {state:?}\nflush_s = {FLUSH_S}\n[limits]\nexempt = [\"127.0.0.0/8\"]\n"
        );
        self.program.start(folder, &configuration)
    }

    fn kill_once(
        &self,
        folder: &Path,
        round: u64,
        after: Duration,
        known: &mut HashSet<String>,
    ) -> Result<Loss> {
        let mut tracker = self.start(folder)?;
        let (admin, announce) = (address(&tracker, "admin")?, address(&tracker, "http")?);
        // Counts of torrents on no list are durable only after downloads from several networks.
        let listed = torrent(round).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let put = format!("PUT /api/v1/lists/allow/{listed}");
        ensure!(request(admin, &put, &Value::Null)?.0 == 204, "the torrent was not listed");
        let is_over = AtomicBool::new(false);
        let (keys, counts, killed) = thread::scope(|scope| -> Result<_> {
            let is_over = &is_over;
            let lane = |lane| move || make_keys(admin, &format!("{round:04}-{lane}"), is_over);
            let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(lane(number))).collect();
            let counter = scope.spawn(move || complete(announce, round, is_over));
            thread::sleep(after);
            is_over.store(true, Ordering::Relaxed);
            let killed = Instant::now();
            tracker.kill();
            let keys = lanes.into_iter().map(|lane| lane.join().ok()).collect::<Option<Vec<_>>>();
            let keys = keys.context("a lane panicked")?.concat();
            Ok((keys, counter.join().ok().context("the counter panicked")?, killed))
        })?;
        ensure!(!keys.is_empty() && !counts.is_empty(), "no keys or counts before the kill");
        known.extend(keys.iter().cloned());
        let tracker = self.start(folder)?;
        let kept = read_keys(address(&tracker, "admin")?)?;
        let counted = downloads(address(&tracker, "http")?, &torrent(round))?;
        // Counts are made in order: the lost ones are the last.
        let lost = counts.get(counted..).unwrap_or_default();
        let oldest = lost.first().map(|at| killed.saturating_duration_since(*at));
        Ok(Loss {
            keys: keys.len(),
            keys_lost: known.iter().filter(|key| !kept.contains(*key)).count(),
            counts: counts.len(),
            counts_lost: lost.len(),
            oldest_s: oldest.unwrap_or_default().as_secs_f64(),
        })
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { keys, keys_lost, counts, counts_lost, oldest_s } = self;
        write!(
            f,
            "of {keys} acknowledged keys {keys_lost} lost; of {counts} counts {counts_lost}"
        )?;
        write!(f, ", none older than {oldest_s:.2} s")
    }
}

/// Creates keys until the tracker has ended. Returns the acknowledged ones.
fn make_keys(admin: SocketAddr, name: &str, is_over: &AtomicBool) -> Vec<String> {
    let mut made = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("crash-key-{name}-{:08}", made.len());
        match request(admin, "POST /api/v1/keys", &json!({ "key": key })) {
            Ok((201, _)) => made.push(key),
            // The tracker was killed during this request.
            _ => break,
        }
    }
    made
}

/// Completes downloads until the tracker has ended. Returns when each was acknowledged.
fn complete(announce: SocketAddr, round: u64, is_over: &AtomicBool) -> Vec<Instant> {
    let (mut done, hash) = (Vec::new(), escaped(&torrent(round)));
    while !is_over.load(Ordering::Relaxed) {
        let port = 1024 + done.len() % 60_000;
        let peer = format!("info_hash={hash}&peer_id=-CR0001-{port:012}&port={port}&numwant=0");
        let is_acknowledged = |rest: &str| {
            let target = format!("GET /announce?{peer}&{rest}");
            request(announce, &target, &Value::Null).is_ok_and(|(status, _)| status == 200)
        };
        if !(is_acknowledged("left=1") && is_acknowledged("left=0&event=completed")) {
            break;
        }
        done.push(Instant::now());
    }
    done
}

/// Returns the info hash of a round's torrent.
fn torrent(round: u64) -> [u8; 20] {
    let mut hash = [0; 20];
    hash[..8].copy_from_slice(&round.to_be_bytes());
    hash
}

fn read_keys(admin: SocketAddr) -> Result<HashSet<String>> {
    let (mut keys, mut cursor) = (HashSet::new(), Value::from(0));
    loop {
        let target = format!("GET /api/v1/keys?limit=1000&cursor={cursor}");
        let (status, page) = request(admin, &target, &Value::Null)?;
        ensure!(status == 200, "the API answers {status}");
        let list = page["keys"].as_array().into_iter().flatten();
        keys.extend(list.filter_map(|key| key["key"].as_str()).map(String::from));
        let Some(next) = page.get("next") else { return Ok(keys) };
        cursor = next.clone();
    }
}

/// Returns the address of a listener on 127.0.0.1.
fn address(tracker: &Tracker, kind: &str) -> Result<SocketAddr> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    tracker.address(kind, loopback).with_context(|| format!("no {kind} listener"))
}

/// Sends a request (method and target) with a body of JSON, which may be null. Returns status and body.
fn request(address: SocketAddr, request: &str, body: &Value) -> Result<(u16, Value)> {
    let token = TOKEN_VARIABLES[0].1;
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let response = http::request(address, request, &headers, body.as_bytes())?;
    Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_default()))
}

/// Scrapes a torrent and returns its downloads.
fn downloads(address: SocketAddr, info_hash: &[u8; 20]) -> Result<usize> {
    let response = http::get(address, &format!("/scrape?info_hash={}", escaped(info_hash)))?;
    let text = response.text();
    let (_, rest) = text.split_once("10:downloadedi").context("no downloads in the scrape")?;
    let (digits, _) = rest.split_once('e').context("the scrape is cut short")?;
    Ok(digits.parse()?)
}

fn escaped(info_hash: &[u8; 20]) -> String {
    info_hash.iter().map(|byte| format!("%{byte:02x}")).collect()
}
