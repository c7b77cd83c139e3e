//! Announces in batches of 64 on a store alone, by one thread: ns per announce, or instructions
//! under callgrind. Instruction counts repeat from run to run, so they show a change of 1 %.
//!
//! `cargo bench -p tidegate-swarm --bench announce [-- ROUNDS [WORD...]]`, or:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null BINARY ROUNDS WORD...
//! ```
//!
//! with 1 and with 2 rounds. The difference is what one round (262,144 announces of known and new
//! peers) takes. Words are:
//! - `churn`: one in six announces says that the peer stops, so three in ten are changes, as with
//!   sessions of three hours;
//! - `kept`: changes are kept, and taken after each round (some 80 ms).
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use primitives::Random;
use replication::ReplicatedStore;
use tidegate_swarm::{Action, Options, PeerCaps, Store, StoreAnnounce};
use types::{Families, InfoHash, PeerId, PeerKey, Role, Tick};

/// Announces in a round.
const ROUND: u32 = 1 << 18;

/// Returns the announce of one of 2^18 peers: a quarter each in torrents of 1, 3, 60 and 1000
/// peers, one in five over v6. Almost all are in networks of their own.
fn announce(random: &mut Random, slot: usize, stops: bool) -> StoreAnnounce {
    let number = random.below(ROUND);
    let (class, number) = (number % 4, number / 4);
    let torrent = number / [1, 3, 60, 1000][class as usize];
    let mut info_hash = [class as u8; 20];
    info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
    // Scatters public addresses over 32.0.0.0/3 and 2400::/16.
    let [a, b, c, d] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let peer = match number % 5 {
        0 => PeerKey::V6([0x24, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]),
        _ => PeerKey::V4([0x20 | a & 0x1f, b, c, d, 1, 2]),
    };
    StoreAnnounce {
        slot: slot as u8,
        info_hash: InfoHash(info_hash),
        peer,
        peer_id: PeerId([number as u8; 20]),
        role: if number % 3 == 0 { Role::Seeder } else { Role::Leecher },
        action: if stops { Action::Stop } else { Action::Update { completed: false } },
        min_interval_s: 0,
        caps: PeerCaps { per_address: 8, per_network: 64 },
        want: 50,
        families: Families::Own,
    }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(8);
    let says = |word: &str| std::env::args().any(|text| text == word);
    let (churns, keeps) = (says("churn"), says("kept"));
    let store = Store::new(&Options {
        shards: 16,
        hash_key: [3; 16],
        peer_lifetime_s: 1000,
        web_lifetime_s: 240,
        keep_peer_ids: false,
        memory_budget: None,
    });
    if keeps {
        // Room for a round in which most announces are of a few torrents.
        store.keep_changes(4 * ROUND as usize);
    }
    let (mut changes, mut ids, mut changed) = (Vec::new(), Vec::new(), 0);
    let (mut random, mut answers, mut peers) = (Random::new(1), 0, 0);
    for round in 1..=rounds {
        let started = Instant::now();
        for _ in 0..ROUND / 64 {
            let batch: [StoreAnnounce; 64] = std::array::from_fn(|slot| {
                let stops = churns && random.below(6) == 0;
                announce(&mut random, slot, stops)
            });
            store.announce(Tick(round), &mut random, &batch, &mut |_, answer| {
                let Ok(answer) = answer else { return };
                answers += 1;
                answer.each_v4(|run| peers += black_box(run).len());
                answer.each_v6(|run| peers += black_box(run).len());
            });
        }
        for shard in 0..if keeps { store.shards() } else { 0 } {
            changes.clear();
            assert_eq!(store.take_changes(shard, &mut changes, &mut ids), 0);
            changed += changes.len();
        }
        let ns = started.elapsed().as_nanos() / u128::from(ROUND);
        println!("round {round}: {ns} ns per announce, {peers} peers given, {changed} changes");
    }
    assert_eq!(answers, rounds as usize * ROUND as usize);
}
