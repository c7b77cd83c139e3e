//! The store as its callers see it. (First version, one map behind one lock: to build against.)

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::{
    AnnounceSink, Chosen, Families, Family, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Role,
};
use types::{SwarmCounts, Tick};

use crate::{Action, Job, Options, Random, Totals};

/// Torrents and their peers, for any number of threads.
pub struct Store {
    state: Mutex<State>,
}

struct State {
    lifetime_s: u32,
    torrents: BTreeMap<InfoHash, Torrent>,
    totals: Totals,
}

#[derive(Default)]
struct Torrent {
    peers: BTreeMap<PeerKey, Peer>,
    downloads: u32,
}

struct Peer {
    role: Role,
    counted: bool,
    seen: Tick,
    id: PeerId,
}

impl Store {
    /// An empty store.
    pub fn new(options: &Options) -> Self {
        let lifetime_s = options.peer_lifetime_s;
        Self {
            state: Mutex::new(State {
                lifetime_s,
                torrents: BTreeMap::new(),
                totals: Totals::default(),
            }),
        }
    }

    /// Does every job and answers it; at most [`types::limits::BATCH_MAX`] jobs go through together,
    /// longer slices in turns.
    pub fn announce(
        &self,
        now: Tick,
        random: &mut Random,
        jobs: &[Job],
        sink: &mut impl AnnounceSink,
    ) {
        let mut state = self.lock();
        for (at, job) in jobs.iter().enumerate() {
            state.announce(now, random, at, job, sink);
        }
    }

    /// Writes the figures of each torrent to the same place of `counts`; zeros for an unknown one.
    pub fn scrape(&self, info_hashes: &[InfoHash], counts: &mut [SwarmCounts]) {
        let state = self.lock();
        for (info_hash, counts) in info_hashes.iter().zip(counts) {
            *counts = state
                .torrents
                .get(info_hash)
                .map(Torrent::counts)
                .unwrap_or_default();
        }
    }

    /// Does one of `parts` parts of a pass over everything, in which aged peers go.
    pub fn sweep(&self, now: Tick, parts: u32) {
        let _ = parts;
        let mut state = self.lock();
        let lifetime_s = state.lifetime_s;
        for torrent in state.torrents.values_mut() {
            torrent
                .peers
                .retain(|_, peer| now.since(peer.seen) <= lifetime_s);
        }
        state
            .torrents
            .retain(|_, torrent| !torrent.peers.is_empty() || torrent.downloads > 0);
    }

    /// Peers are kept so many seconds from now on.
    pub fn set_peer_lifetime(&self, seconds: u32) {
        self.lock().lifetime_s = seconds;
    }

    /// What the store holds.
    pub fn totals(&self) -> Totals {
        let state = self.lock();
        let mut totals = state.totals;
        totals.torrents = state.torrents.len() as u64;
        for counts in state.torrents.values().map(Torrent::counts) {
            totals.v4.seeders += u64::from(counts.v4.seeders);
            totals.v4.leechers += u64::from(counts.v4.leechers);
            totals.v6.seeders += u64::from(counts.v6.seeders);
            totals.v6.leechers += u64::from(counts.v6.leechers);
            totals.partial_seeds += u64::from(counts.partial_seeds);
        }
        totals
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn announce(
        &mut self,
        now: Tick,
        random: &mut Random,
        at: usize,
        job: &Job,
        sink: &mut impl AnnounceSink,
    ) {
        let Action::Update { completed } = job.action else {
            let torrent = self.torrents.get_mut(&job.info_hash);
            let counts = torrent.map(|torrent| {
                torrent.peers.remove(&job.peer);
                torrent.counts()
            });
            sink.chosen(
                at,
                &Chosen {
                    counts: counts.unwrap_or_default(),
                    v4: 0,
                    v6: 0,
                },
            );
            return;
        };
        let torrent = self.torrents.entry(job.info_hash).or_default();
        let (role, id) = (job.role, job.peer_id);
        let peer = torrent.peers.entry(job.peer).or_insert(Peer {
            role,
            counted: false,
            seen: now,
            id,
        });
        if completed && !peer.counted {
            torrent.downloads = torrent.downloads.saturating_add(1);
            self.totals.downloads += 1;
        }
        *peer = Peer {
            role,
            counted: peer.counted | completed,
            seen: now,
            id,
        };
        let mut others: Vec<_> = (torrent.peers.iter())
            .filter(|(key, peer)| {
                let family = job.families == Families::Both || key.family() == job.peer.family();
                let role = job.role == Role::Leecher || peer.role != Role::Seeder;
                family && role && **key != job.peer
            })
            .map(|(key, peer)| (*key, peer.id))
            .collect();
        while others.len() > usize::from(job.want) {
            others.swap_remove(random.below(others.len() as u32) as usize);
        }
        others.sort_by_key(|(key, _)| key.family().index());
        let v4 = others
            .iter()
            .filter(|(key, _)| key.family() == Family::V4)
            .count() as u16;
        let v6 = others.len() as u16 - v4;
        sink.chosen(
            at,
            &Chosen {
                counts: torrent.counts(),
                v4,
                v6,
            },
        );
        for (key, id) in others {
            match key {
                _ if job.with_ids => sink.peer_with_id(at, key, id),
                PeerKey::V4([a, b, c, d, e, f]) => {
                    sink.peers_v4(at, &[PackedV4([a, b, c, d, e, f, 0, 0])])
                }
                PeerKey::V6(key) => {
                    let mut packed = PackedV6::default();
                    packed.0.split_at_mut(18).0.copy_from_slice(&key);
                    sink.peers_v6(at, &[packed]);
                }
            }
        }
    }
}

impl Torrent {
    fn counts(&self) -> SwarmCounts {
        let mut counts = SwarmCounts {
            downloads: self.downloads,
            ..SwarmCounts::default()
        };
        for (key, peer) in &self.peers {
            let family = match key.family() {
                Family::V4 => &mut counts.v4,
                Family::V6 => &mut counts.v6,
            };
            match peer.role {
                Role::Seeder => family.seeders += 1,
                Role::Leecher | Role::PartialSeed => family.leechers += 1,
            }
            counts.partial_seeds += u32::from(peer.role == Role::PartialSeed);
        }
        counts
    }
}
