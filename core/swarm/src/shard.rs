//! A shard: a part of the store behind a lock of its own, with some of the torrents and all that
//! belongs to them.

mod announce;
mod answer;
mod caps;
mod inspect;
mod memory;
mod merge;
mod near;
mod sweep;
mod torrent;
mod walk;
mod web;
mod web_torrent;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use primitives::memory::{LINE, Region};
use primitives::siphash::siphash;
use replication::Removals;
use replication::block::WebChange;
use types::{InfoHash, SwarmCounts, Tick};

use crate::arena::Arena;
use crate::changes::ChangeQueue;
use crate::index::Index;
use crate::queue::BoundedQueue;
use crate::record::{Record, Records};
use crate::web::WebSwarm;
use crate::{Options, PeerCaps, TorrentEvent, Totals};

use merge::Stopped;
use torrent::PeerIds;

pub(crate) use announce::StagedAnnounce;
pub use answer::{Answer, AnswerChanges};
pub(crate) use inspect::Found;
pub(crate) use merge::{Merger, StagedGroup};
pub(crate) use sweep::Lifetimes;
pub(crate) use walk::{Part, Walk, WalkOutput};

/// Tells whether an address is exempt from caps.
pub(crate) type Exempt = dyn Fn(IpAddr) -> bool + Send + Sync;

/// Torrents and peers.
pub(crate) struct Shard {
    key: [u8; 16],
    index: Index,
    records: Records,
    arena: Arena,
    /// Peer ids, if they are kept.
    ids: Option<PeerIds>,
    /// WebTorrent peers of the torrents that have any. A tree, because it grows without ever being rebuilt.
    web: BTreeMap<InfoHash, WebSwarm>,
    /// Peers that stop while blocks are merged, if they are remembered.
    pub(crate) stopped: Option<Stopped>,
    /// Removals that other nodes have reported, in a cluster.
    pub(crate) removals: Option<Removals>,
    budget: Option<u64>,
    /// Applied to peers that blocks bring. Announces have their own.
    pub(crate) merge_caps: PeerCaps,
    /// Tells whether an address is exempt from caps.
    pub(crate) exempt: Option<Arc<Exempt>>,
    pub(crate) networks: memory::Networks,
    totals: Totals,
    cursor: sweep::Cursor,
    pass: sweep::Pass,
    /// Events of torrents, if they are listened to.
    pub(crate) events: BoundedQueue<TorrentEvent>,
    /// Changes of peers, if they are kept.
    pub(crate) changes: ChangeQueue,
    /// The period of refreshes, in units of age; 0 = they are not kept.
    pub(crate) refresh_period: u32,
    /// Changes of this node's WebTorrent peers, if they are kept.
    pub(crate) web_changes: BoundedQueue<WebChange>,
}

impl Shard {
    pub(crate) fn new(options: &Options, budget: Option<u64>) -> Self {
        Self {
            key: options.hash_key,
            index: Index::new(),
            records: Records::default(),
            arena: Arena::default(),
            ids: options.keep_peer_ids.then(PeerIds::new),
            web: BTreeMap::new(),
            stopped: None,
            removals: None,
            budget,
            merge_caps: PeerCaps::default(),
            exempt: None,
            networks: memory::Networks::new(options.hash_key, budget.is_some()),
            totals: Totals::default(),
            cursor: sweep::Cursor::default(),
            pass: sweep::Pass::default(),
            events: BoundedQueue::default(),
            changes: ChangeQueue::default(),
            refresh_period: 0,
            web_changes: BoundedQueue::default(),
        }
    }

    /// Returns the counts of a torrent; `hash` is the info hash's under the store's key.
    pub(crate) fn counts(&self, info_hash: &InfoHash, hash: u64) -> SwarmCounts {
        self.find(info_hash, hash).map(|number| self.counts_at(number)).unwrap_or_default()
    }

    #[inline]
    fn counts_at(&self, number: u32) -> SwarmCounts {
        let record = self.records.at(number);
        let mut counts = record.counts();
        if record.has_web() {
            let swarm = self.web.get(&record.info_hash);
            debug_assert!(swarm.is_some(), "a torrent with WebTorrent peers has a swarm of them");
            counts.web = swarm.map(WebSwarm::counts).unwrap_or_default();
        }
        counts
    }

    /// Returns by how many seconds peers may expire late.
    pub(crate) fn lag_s(&self, now: Tick) -> u32 {
        self.pass.lag_s(now)
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            torrents: self.records.len().into(),
            memory_used: self.memory_used(),
            memory_reserved: self.records.reserved()
                + self.arena.touched() * LINE as u64
                + self.index.bytes()
                + self.id_bytes()
                + self.web_bytes(),
            ..self.totals
        }
    }

    /// Returns released memory, to be dropped after unlocking.
    pub(crate) fn take_released(&mut self) -> Vec<Region> {
        let mut released = self.records.take_released();
        released.extend(self.arena.take_released());
        released
    }

    fn memory_used(&self) -> u64 {
        let lines = u64::from(self.records.len()) + self.arena.used();
        lines * LINE as u64 + self.index.bytes() + self.id_bytes() + self.web_bytes()
    }

    #[cfg(test)]
    pub(crate) fn kept_ids(&self) -> usize {
        self.ids.as_ref().map_or(0, PeerIds::len)
    }

    /// Estimates the bytes of the tree of peer ids: entries of 59 bytes in nodes that are two
    /// thirds full.
    fn id_bytes(&self) -> u64 {
        const ID_BYTES: u64 = 96;
        self.ids.as_ref().map_or(0, |ids| ids.len() as u64 * ID_BYTES)
    }

    /// Estimates the bytes of WebTorrent peers: for each an entry of 56 bytes and its bucket in the
    /// hash table, with room to grow, and 48 bytes in a tree whose nodes are two thirds full; for
    /// each torrent two maps and a tree node.
    fn web_bytes(&self) -> u64 {
        const PEER_BYTES: u64 = 160;
        const TORRENT_BYTES: u64 = 400;
        let peers = self.totals.web.seeders + self.totals.web.leechers;
        peers * PEER_BYTES + self.web.len() as u64 * TORRENT_BYTES
    }

    #[inline]
    fn find(&self, info_hash: &InfoHash, hash: u64) -> Option<u32> {
        self.index.find(hash, |number| self.records.at(number).info_hash == *info_hash)
    }

    /// Returns the number of a torrent. It is probably `guess`, unless others have come or gone since.
    #[inline]
    fn locate(&self, guess: Option<u32>, info_hash: &InfoHash, hash: u64) -> Option<u32> {
        let is_it = |number: &u32| {
            *number < self.records.len() && self.records.at(*number).info_hash == *info_hash
        };
        guess.filter(is_it).or_else(|| self.find(info_hash, hash))
    }

    fn create(&mut self, now: Tick, info_hash: InfoHash, hash: u64) -> u32 {
        let number = self.records.push(Record::new(info_hash, now));
        let Self { key, index, records, .. } = self;
        index.insert(hash, number, |number| siphash::<1, 3>(key, &records.at(number).info_hash.0));
        self.events.push(|| TorrentEvent::Added(info_hash));
        number
    }

    /// Removes a torrent, which must have no peers.
    fn delete(&mut self, number: u32) {
        debug_assert!(self.records.at(number).is_empty());
        let info_hash = self.records.at(number).info_hash;
        let Self { key, index, records, .. } = self;
        let hash_of = |number: u32| siphash::<1, 3>(key, &records.at(number).info_hash.0);
        index.remove(hash_of(number), number, hash_of);
        if let Some(moved) = self.records.swap_remove(number) {
            let hash = siphash::<1, 3>(&self.key, &self.records.at(number).info_hash.0);
            self.index.renumber(hash, moved, number);
        }
        self.events.push(|| TorrentEvent::Removed(info_hash));
    }
}
