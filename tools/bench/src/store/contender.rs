//! The compared stores: tidegate's, and DashMap, the most common concurrent map of a package. The map supports only IPv4,
//! keeps peers in the order of arrival, and returns the first ones (to a seeder, the first that are not seeders). So it
//! does less than tidegate's store, which picks at random, bounds its memory, and never holds a table for long.

use std::collections::HashMap;

use dashmap::DashMap;
use primitives::Random;
use swarm::{Action, Options, Store, StoreAnnounce};
use types::{InfoHash, PackedV4, PeerKey, Role, Tick, TooSoon};

/// Peers that have not announced for this long expire.
pub(super) const LIFETIME_S: u32 = 1000;

/// Collects responses as the bytes of a datagram.
pub(super) struct Answer {
    bytes: Vec<u8>,
    /// Peers in all responses.
    pub(super) peers: u64,
}

impl Answer {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::with_capacity(4096), peers: 0 }
    }

    /// Copies the peers that tidegate's store has chosen.
    pub(super) fn copy(&mut self, chosen: Result<swarm::Answer<'_>, TooSoon>) {
        self.bytes.clear();
        let Ok(chosen) = chosen else { return };
        chosen.each_v4(|peers| {
            self.bytes.extend(peers.iter().flat_map(PackedV4::wire));
            self.peers += peers.len() as u64;
        });
    }

    fn push(&mut self, peer: [u8; 6]) {
        self.bytes.extend_from_slice(&peer);
        self.peers += 1;
    }
}

/// A store under comparison.
pub(super) trait Contender: Sync {
    /// Processes announces in order.
    fn announce(&self, now: Tick, random: &mut Random, jobs: &[StoreAnnounce], answer: &mut Answer);
    /// Returns the number of announces per call.
    fn batch(&self) -> usize {
        1
    }
    /// Maintains the tables, as a tracker does many times a second.
    fn tend(&self, _: Tick) {}
    /// Runs one expiry pass. Returns true once no aged peers are left.
    fn expire(&self, now: Tick) -> bool;
    /// Returns the number of peers.
    fn peers(&self) -> u64;
    /// Returns the bytes it has taken from the system by its own count, if it counts.
    fn reserved(&self) -> Option<u64> {
        None
    }
}

/// Names on the command line and in tables.
pub(super) const NAMES: [&str; 3] = [OURS, "DashMap", BATCHES];
/// tidegate's store.
pub(super) const OURS: &str = "tidegate";
/// tidegate's store as UDP workers use it.
pub(super) const BATCHES: &str = "tidegate, batches of 32";

/// Returns the store with that name.
pub(super) fn contender(name: &str) -> Option<Box<dyn Contender>> {
    Some(match NAMES.iter().position(|known| *known == name)? {
        0 => Box::new(Ours { store: store(*b"a key of 16 byte"), batch: 1 }),
        1 => Box::new(Dash::default()),
        _ => Box::new(Ours { store: store(*b"a key of 16 byte"), batch: 32 }),
    })
}

struct Ours {
    store: Store,
    batch: usize,
}

/// Configured as the server does for a few cores.
fn store(hash_key: [u8; 16]) -> Store {
    Store::new(&Options {
        shards: 8,
        hash_key,
        peer_lifetime_s: LIFETIME_S,
        web_lifetime_s: 240,
        keep_peer_ids: false,
        memory_budget: None,
    })
}

/// As in the server: a sweep round takes a minute, in ten parts a second.
const SWEEP_PARTS: u32 = 600;

impl Contender for Ours {
    fn announce(
        &self,
        now: Tick,
        random: &mut Random,
        jobs: &[StoreAnnounce],
        answer: &mut Answer,
    ) {
        self.store.announce(now, random, jobs, &mut |_, chosen| answer.copy(chosen));
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn tend(&self, now: Tick) {
        self.store.sweep(now, SWEEP_PARTS);
    }

    /// The sweep runs in rounds; nothing is left once a round has found nothing.
    fn expire(&self, now: Tick) -> bool {
        let before = self.store.totals().expired;
        (0..SWEEP_PARTS).for_each(|_| self.store.sweep(now, SWEEP_PARTS));
        self.store.totals().expired == before
    }

    fn peers(&self) -> u64 {
        let totals = self.store.totals();
        totals.v4.seeders + totals.v4.leechers
    }

    fn reserved(&self) -> Option<u64> {
        Some(self.store.totals().memory_reserved)
    }
}

/// A torrent in a map.
#[derive(Default)]
struct Swarm {
    peers: HashMap<[u8; 6], Member>,
}

struct Member {
    role: Role,
    seen: Tick,
}

impl Swarm {
    fn announce(&mut self, now: Tick, job: &StoreAnnounce, answer: &mut Answer) {
        answer.bytes.clear();
        let PeerKey::V4(asker) = job.peer else { return };
        if job.action == Action::Stop {
            self.peers.remove(&asker);
            return;
        }
        self.peers.insert(asker, Member { role: job.role, seen: now });
        let is_useful = |(peer, member): &(&[u8; 6], &Member)| {
            **peer != asker && (job.role != Role::Seeder || member.role != Role::Seeder)
        };
        let chosen = self.peers.iter().filter(is_useful).take(usize::from(job.want));
        chosen.for_each(|(peer, _)| answer.push(*peer));
    }

    /// Removes aged peers. Returns whether any peer is left.
    fn expire(&mut self, now: Tick) -> bool {
        self.peers.retain(|_, member| now.since(member.seen) <= LIFETIME_S);
        !self.peers.is_empty()
    }
}

/// The map of the package dashmap.
#[derive(Default)]
struct Dash(DashMap<InfoHash, Swarm>);

impl Contender for Dash {
    fn announce(&self, now: Tick, _: &mut Random, jobs: &[StoreAnnounce], answer: &mut Answer) {
        for job in jobs {
            self.0.entry(job.info_hash).or_default().announce(now, job, answer);
        }
    }

    fn expire(&self, now: Tick) -> bool {
        self.0.retain(|_, swarm| swarm.expire(now));
        true
    }

    fn peers(&self) -> u64 {
        self.0.iter().map(|entry| entry.value().peers.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::job;
    use super::*;

    /// All stores agree on the contents of a torrent, whatever the operations.
    #[test]
    fn all_stores_behave_the_same() {
        let all: Vec<_> = NAMES.iter().map(|name| contender(name).unwrap()).collect();
        let (mut random, mut answer) = (Random::new(1), Answer::new());
        for step in 0..5000_u32 {
            let (torrent, peer) = (random.below(5), u64::from(random.below(40)));
            let mut job = job(torrent, peer, 50);
            if random.below(4) == 0 {
                job.role = Role::Seeder;
            }
            if random.below(8) == 0 {
                job.action = Action::Stop;
            }
            let now = Tick(step);
            let found: Vec<_> = all
                .iter()
                .map(|store| {
                    answer.peers = 0;
                    store.announce(now, &mut random, &[job], &mut answer);
                    (answer.peers, store.peers())
                })
                .collect();
            assert!(found.windows(2).all(|two| two[0] == two[1]), "step {step}: {found:?}");
        }
        assert!(all[0].peers() > 50);
        for store in &all {
            while !store.expire(Tick(20_000)) {}
            assert_eq!(store.peers(), 0);
        }
    }

    #[test]
    fn seeders_receive_no_seeders() {
        for name in NAMES {
            let store = contender(name).unwrap();
            let (mut random, mut answer) = (Random::new(1), Answer::new());
            for peer in 0..40 {
                // Every fourth peer seeds.
                store.announce(Tick(1), &mut random, &[job(1, peer, 0)], &mut answer);
            }
            for (peer, expected) in [(0, 30), (1, 39)] {
                answer.peers = 0;
                store.announce(Tick(1), &mut random, &[job(1, peer, 50)], &mut answer);
                assert_eq!(answer.peers, expected, "{name}");
            }
        }
        assert!(contender("no such").is_none());
    }
}
