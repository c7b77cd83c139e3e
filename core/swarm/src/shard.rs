//! A part of the store behind a lock of its own: some of the torrents, with all that belongs to them.

mod announce;
mod inspect;
mod sweep;
mod web;

use std::collections::BTreeMap;

use primitives::memory::{LINE, Region};
use primitives::siphash::siphash;
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, SwarmCounts, Tick};

use crate::arena::Arena;
use crate::entry::Entry;
use crate::events::Ear;
use crate::index::{Index, tag};
use crate::record::{Record, Records, Sets};
use crate::totals::FamilyTotals;
use crate::web::WebSwarm;
use crate::{Options, TorrentEvent, Totals};

pub(crate) use announce::Draft;
pub(crate) use inspect::Walk;
pub(crate) use sweep::Lifetimes;

/// Torrents and peers.
pub(crate) struct Shard {
    key: [u8; 16],
    index: Index,
    records: Records,
    arena: Arena,
    /// Peer ids, if they are kept: a tree, because it grows without ever being rebuilt.
    ids: Option<BTreeMap<(InfoHash, PeerKey), PeerId>>,
    /// WebTorrent peers, of those torrents that have any; a tree for the same reason.
    web: BTreeMap<InfoHash, WebSwarm>,
    budget: Option<u64>,
    totals: Totals,
    cursor: sweep::Cursor,
    pass: sweep::Pass,
    /// Hears of torrents that come and go, if anybody listens.
    pub(crate) ear: Ear,
}

/// A family's peers: which sets of a torrent they are in, and where the shard counts them.
pub(crate) trait Of: Entry {
    fn sets(sets: &Sets) -> &[crate::set::PeerSet<Self>; 2];
    fn sets_mut(sets: &mut Sets) -> &mut [crate::set::PeerSet<Self>; 2];
    fn totals(totals: &mut Totals) -> &mut FamilyTotals;
}

impl Of for PackedV4 {
    #[inline]
    fn sets(sets: &Sets) -> &[crate::set::PeerSet<Self>; 2] {
        &sets.v4
    }
    #[inline]
    fn sets_mut(sets: &mut Sets) -> &mut [crate::set::PeerSet<Self>; 2] {
        &mut sets.v4
    }
    fn totals(totals: &mut Totals) -> &mut FamilyTotals {
        &mut totals.v4
    }
}

impl Of for PackedV6 {
    #[inline]
    fn sets(sets: &Sets) -> &[crate::set::PeerSet<Self>; 2] {
        &sets.v6
    }
    #[inline]
    fn sets_mut(sets: &mut Sets) -> &mut [crate::set::PeerSet<Self>; 2] {
        &mut sets.v6
    }
    fn totals(totals: &mut Totals) -> &mut FamilyTotals {
        &mut totals.v6
    }
}

/// The place of seeders in pairs of sets.
const SEEDERS: usize = 0;
/// The place of leechers.
const LEECHERS: usize = 1;

impl Shard {
    pub(crate) fn new(options: &Options, budget: Option<u64>) -> Self {
        Self {
            key: options.hash_key,
            index: Index::new(),
            records: Records::default(),
            arena: Arena::default(),
            ids: options.keep_peer_ids.then(BTreeMap::new),
            web: BTreeMap::new(),
            budget,
            totals: Totals::default(),
            cursor: sweep::Cursor::default(),
            pass: sweep::Pass::default(),
            ear: Ear::default(),
        }
    }

    /// The figures of a torrent, whose hash under the store's key is `hash`.
    pub(crate) fn counts(&self, info_hash: &InfoHash, hash: u64) -> SwarmCounts {
        self.find(info_hash, hash).map(|number| self.counts_at(number)).unwrap_or_default()
    }

    /// The figures of a torrent.
    #[inline]
    fn counts_at(&self, number: u32) -> SwarmCounts {
        let record = self.records.at(number);
        let mut counts = record.counts();
        if record.has_web() {
            counts.web = self.web.get(&record.info_hash).map(WebSwarm::counts).unwrap_or_default();
        }
        counts
    }

    /// By how many seconds peers may be forgotten late.
    pub(crate) fn lag_s(&self, now: Tick) -> u32 {
        self.pass.lag_s(now)
    }

    /// What it holds.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            torrents: self.records.len().into(),
            memory_used: self.memory_used(),
            memory_reserved: self.records.reserved()
                + self.arena.touched() * LINE as u64
                + self.index.bytes()
                + self.index.spare_bytes()
                + self.id_bytes()
                + self.web_bytes(),
            ..self.totals
        }
    }

    /// Memory that was given up, to be returned to the system without the lock.
    pub(crate) fn released(&mut self) -> Vec<Region> {
        let mut released = self.records.released();
        released.extend(self.arena.released());
        released.extend(self.index.released());
        released
    }

    fn memory_used(&self) -> u64 {
        let lines = u64::from(self.records.len()) + self.arena.used();
        lines * LINE as u64 + self.index.bytes() + self.id_bytes() + self.web_bytes()
    }

    /// What the tree of peer ids takes, about: entries of 59 bytes in nodes two thirds full.
    fn id_bytes(&self) -> u64 {
        const ID_BYTES: u64 = 96;
        self.ids.as_ref().map_or(0, |ids| ids.len() as u64 * ID_BYTES)
    }

    /// What WebTorrent peers take, about: an entry of 40 bytes and its place in the hash table, with
    /// room to grow; and for each torrent two maps and a node of the tree.
    fn web_bytes(&self) -> u64 {
        const PEER_BYTES: u64 = 80;
        const TORRENT_BYTES: u64 = 400;
        let peers = self.totals.web.seeders + self.totals.web.leechers;
        peers * PEER_BYTES + self.web.len() as u64 * TORRENT_BYTES
    }

    /// Whether nothing more may be stored.
    fn is_full(&self) -> bool {
        self.budget.is_some_and(|budget| self.memory_used() >= budget)
    }

    #[inline]
    fn find(&self, info_hash: &InfoHash, hash: u64) -> Option<u32> {
        self.index.find(tag(hash), |number| self.records.at(number).info_hash == *info_hash)
    }

    /// A new torrent; nothing if there is no room.
    fn create(&mut self, now: Tick, info_hash: InfoHash, hash: u64) -> Option<u32> {
        let is_full = self.is_full();
        self.index.fit(!is_full);
        if is_full && !self.index.has_room() {
            return None;
        }
        let number = self.records.push(Record::new(info_hash, now));
        if !self.index.insert(tag(hash), number) {
            self.records.swap_remove(number);
            return None;
        }
        self.ear.hear(|| TorrentEvent::Added(info_hash));
        Some(number)
    }

    /// Forgets a torrent that has no peers.
    fn delete(&mut self, number: u32) {
        debug_assert!(self.records.at(number).is_empty());
        let info_hash = self.records.at(number).info_hash;
        let hash = siphash::<1, 3>(&self.key, &info_hash.0);
        self.index.remove(tag(hash), number);
        if let Some(moved) = self.records.swap_remove(number) {
            let hash = siphash::<1, 3>(&self.key, &self.records.at(number).info_hash.0);
            self.index.renumber(tag(hash), moved, number);
        }
        self.index.fit(true);
        self.ear.hear(|| TorrentEvent::Removed(info_hash));
    }

    fn forget_id(&mut self, info_hash: InfoHash, peer: PeerKey) {
        if let Some(ids) = &mut self.ids {
            ids.remove(&(info_hash, peer));
        }
    }
}

/// The hash of a peer by which large sets are paged.
#[inline]
fn peer_hash<K: AsRef<[u8]>>(key: &[u8; 16]) -> impl Fn(K) -> u32 + Copy + use<K> {
    let key = *key;
    move |peer| siphash::<1, 3>(&key, peer.as_ref()) as u32
}
