//! A source that fills the store with torrents of its own, beside 10,000 honest peers: how many of
//! these are stored at the end.
//!
//! ```text
//! cargo bench -p tidegate-swarm --bench hostile
//! ```
//!
//! The budget is 256 MiB. The source announces 5 M peers, each in a torrent of its own, and again
//! every 30 minutes; the same spread over 64 networks and over 1,000. Half of the honest peers are
//! there before, half come during the attack; half of them share a torrent that is seeded, the
//! others are four to a torrent. Each is in a network of its own and announces every 30 minutes.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use primitives::Random;
use tidegate_swarm::{Action, Options, PeerCaps, Store, StoreAnnounce};
use types::{Families, InfoHash, PeerId, PeerKey, Role, SwarmCounts, Tick};

const BUDGET: u64 = 256 << 20;
const JUNK: u32 = 5_000_000;
const HONEST: u32 = 10_000;
/// Steps of a minute, and announces of each peer; one pass of the sweep a step.
const STEPS: u32 = 30;
const ROUNDS: u32 = 4;

fn announce(kind: u8, torrent: u32, address: [u8; 4], port: u32) -> StoreAnnounce {
    let mut info_hash = [kind; 20];
    info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
    let ([a, b, c, d], [.., high, low]) = (address, port.to_be_bytes());
    StoreAnnounce {
        slot: 0,
        info_hash: InfoHash(info_hash),
        peer: PeerKey::V4([a, b, c, d, high, low]),
        peer_id: PeerId([1; 20]),
        role: if port == 1 { Role::Seeder } else { Role::Leecher },
        action: Action::Update { completed: false },
        min_interval_s: 0,
        caps: PeerCaps { per_address: 8, per_network: 64 },
        want: 50,
        families: Families::Own,
    }
}

/// Returns the torrent of an honest peer: the seeded one, or one of four peers.
fn honest_torrent(number: u32) -> u32 {
    if number.is_multiple_of(2) { 0 } else { 1 + number / 8 }
}

fn honest(number: u32) -> StoreAnnounce {
    let address = 0x2000_0000 | number.wrapping_mul(0x9e37_79b1) >> 3;
    let port = if number == 0 { 1 } else { 6881 };
    announce(1, honest_torrent(number), address.to_be_bytes(), port)
}

fn junk(number: u32, networks: u32) -> StoreAnnounce {
    let [.., a, b] = (number % networks).to_be_bytes();
    announce(2, number, [20, a, b, 9], 2 + number % 60_000)
}

fn serve(
    store: &Store,
    now: u32,
    random: &mut Random,
    all: &mut dyn Iterator<Item = StoreAnnounce>,
) {
    let mut batch = Vec::with_capacity(64);
    loop {
        batch.clear();
        batch.extend(all.take(64));
        if batch.is_empty() {
            return;
        }
        store.announce(Tick(now), random, &batch, &mut |_, answer| {
            let answer = answer.expect("no minimal interval");
            answer.each_v4(|peers| _ = black_box(peers));
            answer.each_v6(|peers| _ = black_box(peers));
        });
    }
}

/// Returns how many honest peers are stored.
fn honest_peers(store: &Store) -> u32 {
    let torrents = honest_torrent(HONEST - 1) + 1;
    let counts = (0..torrents).map(|torrent| {
        let mut counts = [SwarmCounts::default()];
        store.scrape(&[announce(1, torrent, [0; 4], 0).info_hash], &mut counts);
        counts[0].seeders() + counts[0].leechers()
    });
    counts.sum()
}

fn attack(networks: u32) {
    let store = Store::new(&Options {
        shards: 4,
        hash_key: [3; 16],
        peer_lifetime_s: 2700,
        web_lifetime_s: 180,
        keep_peer_ids: false,
        memory_budget: Some(BUDGET),
    });
    let (mut random, started) = (Random::new(1), Instant::now());
    serve(&store, 0, &mut random, &mut (0..HONEST / 2).map(honest));
    let mut used = 0;
    for step in 0..ROUNDS * STEPS {
        let (now, part) = (60 * step + 60, step % STEPS);
        // Half of the honest peers are new in the second round.
        let known = if step < STEPS { HONEST / 2 } else { HONEST };
        let range = |all: u32| {
            all / STEPS * part..(if part + 1 == STEPS { all } else { all / STEPS * (part + 1) })
        };
        serve(&store, now, &mut random, &mut range(JUNK).map(|number| junk(number, networks)));
        serve(&store, now, &mut random, &mut range(known).map(honest));
        store.sweep(Tick(now), 1);
        used = used.max(store.totals().memory_used);
    }
    let totals = store.totals();
    println!(
        "{networks} networks: {} of {HONEST} honest peers, {} of {JUNK} others; at most {:.1} % of the \
         budget used; {:.0} ns an announce",
        honest_peers(&store),
        totals.torrents,
        used as f64 * 100.0 / BUDGET as f64,
        started.elapsed().as_nanos() as f64 / f64::from(JUNK * ROUNDS),
    );
}

fn main() {
    for networks in [1, 64, 1000] {
        attack(networks);
    }
}
