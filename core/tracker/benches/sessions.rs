//! The memory of key holders' sessions: what they take, and what is left once they have expired.
//!
//! `cargo bench -p tidegate-tracker --bench sessions [-- SESSIONS] [bounded]`. By default 16 million
//! sessions of 1,600 keys without bounds; with `bounded`, of keys whose torrents are bounded. The store
//! has a budget of 1 MiB, so that it refuses their peers: what grows is the keys' own. The last record
//! is `bench/record/2026-11-23-key-table.md`.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::fs;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use tidegate_tracker::{
    Access, AnnouncePolicy, AnnounceRequest, KeyId, KeyRules, ListenerPolicy, ListenerPolicyId,
    Options, Policy, Random, RequestKind, Secrets, StoreOptions, Tracker, UserKey,
};
use types::{Announce, Event, Families, InfoHash, NumWant, PeerId, Tick};

const LISTENER: ListenerPolicyId = ListenerPolicyId(0);
const SESSIONS: u32 = 16_000_000;
const KEYS: u32 = 1600;
const BATCH: u32 = 64;
/// Calls of [`Tracker::sweep`] in a pass.
const PARTS: u32 = 256;
const POLICY: AnnouncePolicy =
    AnnouncePolicy { peers_max: 50, families: Families::Own, with_downloads: false };

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let sessions = words.iter().find_map(|word| word.parse().ok()).unwrap_or(SESSIONS);
    let torrents = if words.iter().any(|word| word == "bounded") { 1 << 20 } else { 0 };
    let tracker = tracker(KeyRules { torrents, ..KeyRules::default() });
    let keys: Vec<[u8; 16]> = (0..KEYS).map(key_text).collect();
    // The store allocates its shards with the first announces.
    announce(&tracker, &keys, 0..BATCH);
    let before = resident_mib();
    report("resident before", before, "MiB");
    for start in (0..sessions).step_by(BATCH as usize) {
        announce(&tracker, &keys, start..(start + BATCH).min(sessions));
        if (start / BATCH).is_multiple_of(1 << 14) {
            (0..PARTS).for_each(|_| tracker.sweep(Tick(1), PARTS));
        }
    }
    (0..PARTS).for_each(|_| tracker.sweep(Tick(1), PARTS));
    let full = resident_mib();
    let count = tracker.passkeys().sessions();
    println!("{count} sessions");
    report("resident with them", full, "MiB");
    report("each", (full - before) * 1024.0 * 1024.0 / count as f64, "bytes");
    let policy = Policy::default();
    let late = Tick(2 + policy.peer_lifetime_s.max(policy.web_lifetime_s()));
    let mut steps: Vec<Duration> = (0..PARTS)
        .map(|_| {
            let start = Instant::now();
            tracker.sweep(late, PARTS);
            start.elapsed()
        })
        .collect();
    steps.sort_unstable();
    println!("{} sessions once they have expired", tracker.passkeys().sessions());
    report("resident then", resident_mib(), "MiB");
    let millis = |at: usize| steps[at].as_secs_f64() * 1000.0;
    report("one shard's part of the sweep, median", millis(steps.len() / 2), "ms");
    report("slowest", millis(steps.len() - 1), "ms");
}

/// Announces the peers of these numbers, in one batch.
fn announce(tracker: &Tracker, keys: &[[u8; 16]], numbers: std::ops::Range<u32>) {
    let view = tracker.view(Tick(1));
    let requests: Vec<AnnounceRequest> = numbers
        .filter_map(|number| {
            let from: IpAddr = Ipv4Addr::from_bits(0x0800_0000 + number % KEYS).into();
            let key = keys.get((number % KEYS) as usize).map(|key| &key[..]);
            let grant = view.authorize_unverified(LISTENER, from, RequestKind::Announce, key);
            let (mut info_hash, mut peer_id) = ([0; 20], *b"-XX0001-000000000000");
            info_hash[..4].copy_from_slice(&(number / KEYS).to_be_bytes());
            peer_id[8..12].copy_from_slice(&(number % KEYS).to_be_bytes());
            let announce = Announce {
                info_hash: InfoHash(info_hash),
                peer_id: PeerId(peer_id),
                port: 6881,
                event: Event::None,
                left: Some(1),
                uploaded: 1 << 20,
                downloaded: 1 << 20,
                want: NumWant::Peers(0),
            };
            let grant = grant.ok()?;
            Some(AnnounceRequest { grant, via_local_address: false, announce, policy: POLICY })
        })
        .collect();
    view.announce(&mut Random::new(1), &requests, &mut |_, answer| {
        let accepted = answer.expect("an accepted announce");
        accepted.answer.each_v4(|peers| _ = black_box(peers));
    });
}

fn key_text(number: u32) -> [u8; 16] {
    let mut text = *b"key-number-00000";
    for (at, digit) in text.iter_mut().rev().take(5).enumerate() {
        *digit += (number / 10_u32.pow(at as u32) % 10) as u8;
    }
    text
}

/// Returns a private tracker with keys of these rules.
fn tracker(rules: KeyRules) -> Tracker {
    let policy = Policy::default();
    let store = StoreOptions {
        shards: 1,
        hash_key: [1; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids: false,
        memory_budget: Some(1 << 20),
    };
    let secrets = Secrets {
        connection_ids: [2; 16],
        offers: [3; 16],
        limits: [4; 16],
        sessions: [8; 16],
        previous: None,
    };
    let tracker = Tracker::new(&Options { policy, store }, &secrets);
    let private = ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() };
    tracker.listener_policies().replace(vec![private]);
    for number in 0..KEYS {
        let text = String::from_utf8_lossy(&key_text(number)).into_owned();
        let key = UserKey::parse(text).unwrap_or_else(|error| unreachable!("{error}"));
        tracker.passkeys().put(KeyId(number), key, rules);
    }
    tracker
}

/// Returns the resident memory of this process, or 0 where the system does not say.
fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}

fn report(what: &str, figure: f64, unit: &str) {
    println!("{what:<50} {figure:>8.1} {unit}");
}
