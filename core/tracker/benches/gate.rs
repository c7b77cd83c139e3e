//! The cost of admission: announces with bans, lists, keys and quotas.
//!
//! `cargo bench -p tidegate-tracker --bench gate [-- PEERS LEN|limits|lists|sessions COUNT [bounded]]`. One thread; the
//! median of slices that take a fraction of a millisecond, since the machine may be busy. Pin it with `taskset -c 0`.
//! `limits` measures the rate limits alone, `lists` a million networks, and `sessions` memory instead of time.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

#[path = "build/tracker.rs"]
mod build;

use std::fs;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use tidegate_tracker::access::{AccessLists, Mode};
use tidegate_tracker::{
    Access, AnnouncePolicy, AnnounceRequest, IpPrefix, KeyId, KeyRules, Limits, ListenerPolicy,
    ListenerPolicyId, NetworkAction, NetworkTable, Networks, Policy, Random, Rate, RequestKind,
    Tracker, UserKey,
};
use types::{Announce, Event, Families, InfoHash, NumWant, PeerId, Tick};

const BANS: u32 = 100_000;
const ENTRIES: u32 = 1_000_000;
const KEYS: u32 = 10_000;
const PEERS: u32 = 1_000_000;
const NETWORKS: u32 = 1_000_000;
const SESSIONS: u32 = 16_000_000;
const BATCH: u32 = 64;
/// Calls of [`Tracker::sweep`] in a pass.
const PARTS: u32 = 256;
const LISTENER: ListenerPolicyId = ListenerPolicyId(0);
const POLICY: AnnouncePolicy =
    AnnouncePolicy { peers_max: 50, families: Families::Own, with_downloads: false };

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |name: &str| named.iter().any(|word| word == name);
    match () {
        () if is_named("sessions") => sessions(is_named("bounded")),
        () if is_named("limits") => limits(),
        () if is_named("lists") => network_lists(),
        () => announces(),
    }
}

/// An operator's settings.
#[derive(Clone, Copy)]
struct Gate {
    name: &'static str,
    /// True if a million torrents are denied, and 100,000 networks banned.
    is_listed: bool,
    /// The rules of each key, if the listener is private.
    rules: Option<KeyRules>,
}

/// Announces of a million peers in batches of 64, or as the command line says: peers, batch length.
fn announces() {
    let mut numbers = std::env::args().filter_map(|word| word.parse().ok());
    let peers = numbers.next().unwrap_or(PEERS);
    let len = numbers.next().unwrap_or(64);
    let none = KeyRules::default();
    let quotas = KeyRules { torrents: 100_000, addresses: 1000, ..none };
    for gate in [
        Gate { name: "open listener", is_listed: false, rules: None },
        Gate { name: "with lists and bans", is_listed: true, rules: None },
        Gate { name: "with keys", is_listed: false, rules: Some(none) },
        Gate { name: "with keys, lists and bans", is_listed: true, rules: Some(none) },
        Gate { name: "with keys and quotas", is_listed: false, rules: Some(quotas) },
    ] {
        let what = format!("announce of {peers} peers, {}", gate.name);
        report(&what, announce_ns(gate, peers, len as usize), "ns");
    }
}

fn announce_ns(gate: Gate, peers: u32, len: usize) -> f64 {
    let tracker = build::tracker(1, false, None);
    let mode = if gate.is_listed { Mode::Deny } else { Mode::Open };
    let lists = AccessLists { mode, ..AccessLists::default() };
    let is_private = gate.rules.is_some();
    let access = if is_private { Access::Private } else { Access::Open };
    tracker.replace_listeners(&[ListenerPolicy { access, lists, ..ListenerPolicy::default() }]);
    if gate.is_listed {
        let mut random = Random::new(6);
        let denied: Vec<InfoHash> = (0..ENTRIES).map(|_| hash(&mut random)).collect();
        tracker.denied().insert(&denied);
        tracker.bans().put(&networks());
    }
    if let Some(rules) = gate.rules {
        add_keys(&tracker, rules);
    }
    let mut random = Random::new(3);
    let mut batch = |numbers: &[u32]| serve(&tracker, &mut random, numbers, is_private);
    let mut order: Vec<u32> = (0..peers).collect();
    order.chunks(len).for_each(&mut batch);
    let mut sample_seed = Random::new(4);
    (1..order.len()).for_each(|at| order.swap(at, sample_seed.below(at as u32 + 1) as usize));
    median(order.chunks(len.max(256)).map(|part| {
        let start = Instant::now();
        part.chunks(len).for_each(&mut batch);
        start.elapsed().as_nanos() as f64 / part.len() as f64
    }))
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Requests that limits admit or refuse, from one prefix or from many in turn.
fn limits() {
    let limited = |per_s| Limits { announces: Rate { per_s, burst: per_s }, ..Limits::default() };
    let exempt = Networks::parse(["127.0.0.0/8", "172.16.0.0/12", "fc00::/7"]).unwrap_or_default();
    let on = 100_000_000;
    for (name, limits, prefixes, is_v4) in [
        ("off", Limits::default(), 1, true),
        ("on, one v4 prefix", limited(on), 1, true),
        ("on, one v6 prefix", limited(on), 1, false),
        ("on, 10,000 v4 prefixes", limited(on), 10_000, true),
        ("on, 1,000,000 v4 prefixes", limited(on), 1_000_000, true),
        ("on, 1,000,000 v6 prefixes", limited(on), 1_000_000, false),
        ("over the limit, one v4 prefix", Limits { exempt, ..limited(1) }, 1, true),
    ] {
        let mut random = Random::new(1);
        let address = |_| match is_v4 {
            true => Ipv4Addr::from_bits(random.next() as u32).into(),
            false => v6(&mut random),
        };
        let addresses: Vec<IpAddr> = (0..prefixes).map(address).collect();
        report(name, authorize_ns(limits, &addresses), "ns");
    }
}

fn authorize_ns(limits: Limits, addresses: &[IpAddr]) -> f64 {
    let tracker = build::tracker(1, false, None);
    tracker.limiter().replace(limits);
    authorize_at(&tracker, addresses)
}

fn authorize_at(tracker: &Tracker, addresses: &[IpAddr]) -> f64 {
    const SLICE: usize = 4096;
    let mut addresses = addresses.iter().cycle();
    median((0..1000).map(|number| {
        let start = Instant::now();
        let view = tracker.view(Tick(number / 100));
        for address in addresses.by_ref().take(SLICE) {
            // The compiler must not assume the outcome.
            let _ = black_box(view.authorize(LISTENER, *address, RequestKind::Announce, None));
        }
        start.elapsed().as_nanos() as f64 / SLICE as f64
    }))
}

/// Lookups in a million networks, and what these take: as text, until they are in force, and from then on.
fn network_lists() {
    for (name, is_v4) in [("IPv4", true), ("IPv6", false)] {
        let mut random = Random::new(8);
        let mut line = |_| match is_v4 {
            true => {
                format!("{}/{}\n", Ipv4Addr::from_bits(random.next() as u32), 24 + random.below(9))
            }
            false => format!("{}/{}\n", v6(&mut random), 32 + random.below(33)),
        };
        let text: String = (0..NETWORKS).map(&mut line).collect();
        let mut random = Random::new(9);
        let mut address = |_| match is_v4 {
            true => Ipv4Addr::from_bits(random.next() as u32).into(),
            false => v6(&mut random),
        };
        let addresses: Vec<IpAddr> = (0..1 << 20).map(&mut address).collect();
        let tracker = build::tracker(1, false, None);
        let without = authorize_at(&tracker, &addresses);
        report(&format!("{name}, without networks"), without, "ns");
        let (before, start) = (resident_mib(), Instant::now());
        let networks = Networks::parse_list(text.as_bytes()).expect("valid lines");
        let rules = [(NetworkAction::Numwant(5), networks)];
        tracker.bans().set_networks(NetworkTable::new(rules));
        let time = start.elapsed();
        let ranges = tracker.bans().network_ranges();
        report(
            &format!("{name}, {ranges} ranges in force after"),
            time.as_secs_f64() * 1000.0,
            "ms",
        );
        report("resident since then", resident_mib() - before, "MiB");
        report("highest so far", high_mib() - before, "MiB");
        let with = authorize_at(&tracker, &addresses);
        report(&format!("{name}, with networks"), with, "ns");
        report("each lookup", with - without, "ns");
    }
}

fn add_keys(tracker: &Tracker, rules: KeyRules) {
    (0..KEYS).for_each(|number| _ = tracker.passkeys().put(KeyId(number), user(number), rules));
}

/// Serves a batch of announces of the peers of these numbers.
fn serve(tracker: &Tracker, random: &mut Random, numbers: &[u32], is_private: bool) {
    let view = tracker.view(Tick(1));
    let requests: Vec<AnnounceRequest> = numbers
        .iter()
        .filter_map(|number| {
            let from = Ipv4Addr::from_bits(0x0100_0000 + number).into();
            let key = is_private.then(|| key_text(*number));
            let key = key.as_ref().map(|key| &key[..]);
            let grant = view.authorize_unverified(LISTENER, from, RequestKind::Announce, key);
            Some(AnnounceRequest {
                grant: grant.ok()?,
                via_local_address: false,
                announce: announce(*number),
                policy: POLICY,
            })
        })
        .collect();
    view.announce(random, &requests, &mut |_, answer| {
        let accepted = answer.expect("an accepted announce");
        accepted.answer.each_v4(|peers| _ = black_box(peers));
    });
}

/// The memory of key holders' sessions: what they take, and what is left once they have expired. The store has a
/// budget of 1 MiB, so that it keeps no peers: what grows is the keys' own.
fn sessions(is_bounded: bool) {
    let sessions = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(SESSIONS);
    let tracker = build::tracker(1, false, Some(1 << 20));
    let private = ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() };
    tracker.replace_listeners(&[private]);
    let torrents = if is_bounded { 1 << 20 } else { 0 };
    add_keys(&tracker, KeyRules { torrents, ..KeyRules::default() });
    let mut random = Random::new(1);
    let mut announce_batch = |start: u32| {
        let numbers: Vec<u32> = (start..(start + BATCH).min(sessions)).collect();
        serve(&tracker, &mut random, &numbers, true);
    };
    // The store allocates its shards with the first announces.
    announce_batch(0);
    let before = resident_mib();
    report("resident before", before, "MiB");
    (0..sessions).step_by(BATCH as usize).for_each(&mut announce_batch);
    (0..PARTS).for_each(|_| tracker.sweep(Tick(1), PARTS));
    let full = resident_mib();
    let count = tracker.passkeys().sessions();
    report(&format!("resident with {count} sessions"), full, "MiB");
    report("each", (full - before) * 1024.0 * 1024.0 / count as f64, "bytes");
    let policy = Policy::default();
    let late = Tick(2 + policy.peer_lifetime_s.max(policy.web_lifetime_s()));
    let sweep = |_| {
        let start = Instant::now();
        tracker.sweep(late, PARTS);
        start.elapsed()
    };
    let mut steps: Vec<Duration> = (0..PARTS).map(sweep).collect();
    steps.sort_unstable();
    let left = tracker.passkeys().sessions();
    report(&format!("resident once all but {left} have expired"), resident_mib(), "MiB");
    let millis = |at: usize| steps[at].as_secs_f64() * 1000.0;
    report("one shard's part of the sweep, median", millis(steps.len() / 2), "ms");
    report("slowest", millis(steps.len() - 1), "ms");
}

/// Returns the resident memory of this process, or 0 where the system does not say.
fn resident_mib() -> f64 {
    status_mib("VmRSS:")
}

/// Returns the highest resident memory so far.
fn high_mib() -> f64 {
    status_mib("VmHWM:")
}

fn status_mib(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}

fn announce(number: u32) -> Announce {
    let mut info_hash = [0; 20];
    info_hash[..4].copy_from_slice(&(number / 10).wrapping_mul(0x9e37_79b9).to_be_bytes());
    let mut peer_id = *b"-XX0001-000000000000";
    peer_id[8..12].copy_from_slice(&number.to_be_bytes());
    Announce {
        info_hash: InfoHash(info_hash),
        peer_id: PeerId(peer_id),
        port: 6881,
        event: Event::None,
        left: Some(u64::from(number % 3)),
        uploaded: 1 << 20,
        downloaded: 1 << 20,
        want: NumWant::Peers(50),
    }
}

/// Returns a list like real ones: single addresses and small networks, some of them nested.
fn networks() -> Vec<(IpPrefix, Option<Tick>)> {
    let mut random = Random::new(5);
    let mut one = |number: u32| {
        let until = (!number.is_multiple_of(3)).then_some(Tick(1000));
        let network = if number.is_multiple_of(2) {
            let bits = [32, 32, 24, 24, 22, 20, 16][random.below(7) as usize];
            // 128.0.0.0 and above: the peers of `announces` are below.
            IpPrefix::new(Ipv4Addr::from_bits(random.next() as u32 | 1 << 31).into(), bits)
        } else {
            IpPrefix::new(v6(&mut random), [64, 64, 48, 56, 128, 32][random.below(6) as usize])
        };
        (network, until)
    };
    (0..BANS).map(&mut one).collect()
}

fn v6(random: &mut Random) -> IpAddr {
    let address = u128::from(random.next()) << 64 | u128::from(random.next());
    Ipv6Addr::from_bits((address >> 3) | (1 << 125)).into()
}

fn hash(random: &mut Random) -> InfoHash {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&random.next().to_be_bytes());
    bytes[8..16].copy_from_slice(&random.next().to_be_bytes());
    InfoHash(bytes)
}

fn user(number: u32) -> UserKey {
    UserKey::parse(String::from_utf8_lossy(&key_text(number)).into_owned())
        .unwrap_or_else(|error| unreachable!("{error}"))
}

/// Returns the key of a peer, at no cost: in production it comes with the announce.
fn key_text(number: u32) -> [u8; 32] {
    let mut text = *b"aaaaaaaa0123456789abcdef01234567";
    for (at, letter) in text.iter_mut().take(4).enumerate() {
        *letter += ((number % KEYS) >> (4 * at)) as u8 & 15;
    }
    text
}

fn report(what: &str, figure: f64, unit: &str) {
    println!("{what:<50} {figure:>8.1} {unit}");
}
