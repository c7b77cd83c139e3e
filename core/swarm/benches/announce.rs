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
//! - `public`: peers with public addresses in almost as many networks (the default), or `local`:
//!   addresses that are not public;
//! - `churn`: one in six announces says that the peer stops, so three in ten are changes, as with
//!   sessions of three hours;
//! - `kept`: changes are kept, and taken after each round (some 80 ms);
//! - `refreshes`: refreshes are kept, too, and few are sent; `due`: each announce is one;
//! - `blocks`: what was taken is written into blocks, as a node of a cluster does; `merge`: and merged into
//!   another store.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use primitives::Random;
use replication::block::{self, Block, Change, Header, Kind};
use replication::{AGE_UNIT_S, MergeTime};
use tidegate_swarm::{Action, Options, PeerCaps, Store, StoreAnnounce};
use types::{Families, InfoHash, PeerId, PeerKey, Role, Tick};

/// Announces in a round.
const ROUND: u32 = 1 << 18;

/// Returns the announce of one of 2^18 peers: a quarter each in torrents of 1, 3, 60 and 1000
/// peers, one in five over v6.
fn announce(random: &mut Random, slot: usize, is_public: bool, stops: bool) -> StoreAnnounce {
    let number = random.below(ROUND);
    let (class, number) = (number % 4, number / 4);
    let torrent = number / [1, 3, 60, 1000][class as usize];
    let mut info_hash = [class as u8; 20];
    info_hash[..4].copy_from_slice(&torrent.to_be_bytes());
    // Scatters public addresses over 32.0.0.0/3 and 2400::/16.
    let scattered = number.wrapping_mul(0x9e37_79b1);
    let [a, b, c, d] = if is_public { scattered } else { number }.to_be_bytes();
    let peer = match number % 5 {
        0 if is_public => PeerKey::V6([0x24, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]),
        _ if is_public => PeerKey::V4([0x20 | a & 0x1f, b, c, d, 1, 2]),
        0 => PeerKey::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, 1, 2]),
        _ => PeerKey::V4([a, b, c, d, 1, 2]),
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

/// Another store, and blocks for it.
struct Replica {
    store: Store,
    blocks: Vec<u8>,
    body: Vec<u8>,
    random: Random,
}

impl Replica {
    fn new(options: &Options) -> Self {
        let (blocks, body, random) = (Vec::new(), Vec::new(), Random::new(2));
        Self { store: Store::new(options), blocks, body, random }
    }

    fn write(&mut self, changes: &[Change]) {
        for changes in changes.chunks(1000) {
            self.body.clear();
            block::encode_changes(changes, &[], &mut self.body);
            let kind = Kind::CHANGES;
            let header = Header { kind, has_ids: false, node: 1, boot: 1, number: 1, cut_ms: 1 };
            block::write(&header, &self.body, &mut self.blocks);
        }
    }

    fn merge(&mut self, now: Tick) {
        let time = MergeTime { now, cut_ago_s: 0, epoch_min: 29_000_000 };
        let mut blocks = self.blocks.as_slice();
        while let Ok((block, len)) = Block::read(blocks) {
            let groups = block.groups().expect("groups that were just written");
            let shards = 0..self.store.shards();
            self.store.merge(time, &mut self.random, groups, shards);
            blocks = &blocks[len..];
        }
        self.blocks.clear();
    }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(8);
    let says = |word: &str| std::env::args().any(|text| text == word);
    let (is_public, churns, is_due) = (!says("local"), says("churn"), says("due"));
    let (writes, merges) = (says("blocks") || says("merge"), says("merge"));
    let keeps = ["kept", "refreshes", "due", "blocks", "merge"].into_iter().any(says);
    let options = Options {
        shards: 16,
        hash_key: [3; 16],
        peer_lifetime_s: 1000,
        web_lifetime_s: 240,
        keep_peer_ids: false,
        memory_budget: None,
    };
    let store = Store::new(&options);
    let mut other = Replica::new(&Options { hash_key: [4; 16], ..options });
    if keeps {
        // Room for a round in which most announces are of a few torrents.
        store.keep_changes(4 * ROUND as usize);
    }
    if is_due || says("refreshes") {
        store.keep_refreshes(if is_due { 1 } else { 1 << 12 });
    }
    let (mut changes, mut ids, mut changed) = (Vec::new(), Vec::new(), 0);
    let (mut random, mut answers, mut peers) = (Random::new(1), 0, 0);
    for round in 1..=rounds {
        let now = if is_due { round * AGE_UNIT_S } else { round };
        let started = Instant::now();
        for _ in 0..ROUND / 64 {
            let batch: [StoreAnnounce; 64] = std::array::from_fn(|slot| {
                let stops = churns && random.below(6) == 0;
                announce(&mut random, slot, is_public, stops)
            });
            store.announce(Tick(now), &mut random, &batch, &mut |_, answer| {
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
            if writes {
                other.write(&changes);
            }
        }
        if merges {
            other.merge(Tick(now));
        }
        let ns = started.elapsed().as_nanos() / u128::from(ROUND);
        println!("round {round}: {ns} ns per announce, {peers} peers given, {changed} changes");
    }
    assert_eq!(answers, rounds as usize * ROUND as usize);
}
