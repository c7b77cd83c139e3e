//! Merging: blocks bring torrents and peers into a shard.
//!
//! A new torrent is made of all its peers at once, a known one peer by peer. Both compare marks: of a
//! peer's mark here and the block's, the younger one wins, and of equal ones the one that comes later.

mod gather;
mod removals;
mod report;
mod web;

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use primitives::Random;
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Tick};

use super::announce::{put_inline, take_inline};
use super::caps::Newcomer;
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash, role_of};
use crate::block::{Group, GroupPeer, Peers, Word};
use crate::entry::Entry;
use crate::index::tag;
use crate::meta::PeerMeta;
use crate::record::{INLINE_MAX, Sets};
use crate::set::PeerSet;
use crate::{Counting, MergeTime, Merged};
use gather::Gathered;
pub(crate) use removals::Removals;
use report::{Clock, Outcome, Report, Verdict};
pub(crate) use web::{WebMerger, WebPurge};

/// Work under one lock, in peers of new torrents: some tens of microseconds.
const LOCK_PEERS: u32 = 512;
/// The cost of a group beside its peers: its torrent is looked up or made.
const GROUP_PEERS: u32 = 4;
/// The cost of a peer of a known torrent: it is searched for.
const KNOWN_PEERS: u32 = 2;
/// Peers of a torrent whose pages are prefetched together.
const AHEAD: usize = 16;
/// Peers whose networks are counted together.
const UNCOUNTED_MAX: usize = 32;
/// Most stopped peers that a shard remembers, of about 100 bytes each. A merge takes seconds, and in each
/// a hundred thousand peers may stop, in dozens of shards. A peer that is not remembered may come back
/// until its lifetime ends.
const STOPPED_MAX: usize = 1 << 16;

/// A group on its way through the stages of a batch. Its peers are taken from it as they are merged.
#[derive(Clone, Copy)]
pub(crate) struct StagedGroup<'a> {
    group: Group<'a>,
    /// The info hash's hash under the store's key.
    pub(crate) hash: u64,
    /// The torrent's probable number.
    guess: Option<u32>,
}

impl<'a> StagedGroup<'a> {
    #[inline]
    pub(crate) fn new(group: Group<'a>, hash: u64) -> Self {
        Self { group, hash, guess: None }
    }

    fn peers(&self) -> u32 {
        (self.group.v4.len() + self.group.v6.len()) as u32
    }
}

/// A call of [`crate::Store::merge`]: its time, and its results so far.
pub(crate) struct Merger {
    clock: Clock,
    counting: Counting,
    /// True if the current group is a walk's.
    is_walk: bool,
    random: Random,
    pub(crate) merged: Merged,
    /// The most peers that a network may have, if memory is short.
    network_max: Option<u32>,
    /// Networks of stored peers that are not counted yet: their counters are being prefetched.
    uncounted: ArrayVec<u64, UNCOUNTED_MAX>,
    /// The peers of a new torrent.
    v4: Gathered<PackedV4>,
    v6: Gathered<PackedV6>,
}

impl Merger {
    pub(crate) fn new(time: MergeTime, counting: Counting, lifetime_s: u32, seed: u64) -> Self {
        Self {
            clock: Clock::new(time, lifetime_s),
            counting,
            is_walk: false,
            random: Random::new(seed),
            merged: Merged::default(),
            network_max: None,
            uncounted: ArrayVec::new(),
            v4: Gathered::new(),
            v6: Gathered::new(),
        }
    }
}

/// Peers that stopped, and when.
#[derive(Default)]
pub(crate) struct Stopped {
    // A tree, because it grows without ever being rebuilt.
    peers: BTreeMap<(InfoHash, PeerKey), PeerMeta>,
}

impl Stopped {
    /// Returns when the peer stopped, if it did.
    fn at(&self, info_hash: InfoHash, peer: PeerKey) -> Option<PeerMeta> {
        self.peers.get(&(info_hash, peer)).copied()
    }

    /// Apart, because it is empty except while blocks are merged.
    #[cold]
    pub(super) fn add(&mut self, info_hash: InfoHash, peer: PeerKey, now: Tick) {
        if self.peers.len() < STOPPED_MAX || self.peers.contains_key(&(info_hash, peer)) {
            self.peers.insert((info_hash, peer), PeerMeta::new(now, false, false));
        }
    }
}

impl Shard {
    /// Begins or ends remembering which peers stop. Returns what is forgotten, to be dropped after
    /// unlocking.
    pub(crate) fn remember_stopped(&mut self, is_on: bool) -> Option<Stopped> {
        if is_on {
            self.stopped.get_or_insert_default();
            return None;
        }
        self.stopped.take()
    }

    /// Begins or ends remembering which peers blocks say are gone. Returns what is forgotten, to be dropped
    /// after unlocking.
    pub(crate) fn remember_removals(&mut self, is_on: bool) -> Option<Removals> {
        if is_on {
            self.removals.get_or_insert_default();
            return None;
        }
        self.removals.take()
    }

    /// Forgets removals from before the last call. Returns them, to be dropped after unlocking.
    pub(crate) fn forget_removals(&mut self) -> impl Sized + use<> {
        self.removals.as_mut().map(Removals::forget)
    }

    /// Merges the first of the groups at `order`, as much as is done under one lock. Returns how many are
    /// done. Some peers of the next one may be merged, too; these were taken from it.
    pub(crate) fn merge(
        &mut self,
        merger: &mut Merger,
        batch: &mut [StagedGroup<'_>],
        order: &[usize],
    ) -> usize {
        let mut left = LOCK_PEERS;
        let mut fits = |staged: &StagedGroup<'_>| {
            let fits = left > 0;
            left = left.saturating_sub(staged.peers() + GROUP_PEERS);
            fits
        };
        let count = order.iter().take_while(|at| fits(&batch[**at])).count();
        let order = &order[..count];
        merger.network_max = self.evicts_above();
        self.prefetch_groups(batch, order);
        let mut left = LOCK_PEERS;
        let mut done = 0;
        for at in order {
            let staged = &mut batch[*at];
            left = self.merge_group(merger, staged, left).saturating_sub(GROUP_PEERS);
            if staged.peers() > 0 {
                break;
            }
            done += 1;
        }
        self.count_networks(merger);
        done
    }

    /// Counts a stored peer for its network, a few peers later, when the counters are there.
    #[inline]
    fn count_network<E: Entry>(&mut self, merger: &mut Merger, key: E::Key) {
        if let Some(hash) = self.networks.prefetch::<E>(key) {
            merger.uncounted.push(hash);
            // While memory is short, shares depend on the counters.
            if merger.uncounted.is_full() || merger.network_max.is_some() {
                self.count_networks(merger);
            }
        }
    }

    /// Counts peers for their networks that are not counted yet.
    fn count_networks(&mut self, merger: &mut Merger) {
        merger.uncounted.drain(..).for_each(|hash| self.networks.add_hash(hash));
    }

    /// Prefetches what groups read first, stage by stage.
    fn prefetch_groups(&self, batch: &mut [StagedGroup<'_>], order: &[usize]) {
        for at in order {
            self.index.prefetch(tag(batch[*at].hash));
        }
        for at in order {
            let staged = &mut batch[*at];
            staged.guess = self.index.find(tag(staged.hash), |_| true);
            staged.guess.into_iter().for_each(|number| self.records.prefetch(number));
        }
        for at in order {
            let staged = &batch[*at];
            let Some(record) = staged.guess.map(|number| self.records.at(number)) else { continue };
            if record.is_spilled() {
                let Sets { v4, v6 } = record.sets();
                if staged.group.v4.len() > 0 {
                    v4.iter().for_each(|set| set.prefetch(&self.arena));
                }
                if staged.group.v6.len() > 0 {
                    v6.iter().for_each(|set| set.prefetch(&self.arena));
                }
            }
        }
    }

    /// Merges up to `left` peers of a group. Returns how many more may be merged.
    fn merge_group(
        &mut self,
        merger: &mut Merger,
        staged: &mut StagedGroup<'_>,
        mut left: u32,
    ) -> u32 {
        let info_hash = staged.group.info_hash;
        merger.is_walk = staged.group.head.is_some();
        let is_it = |number: &u32| self.records.at(*number).info_hash == info_hash;
        let mut found = staged.guess.filter(is_it).or_else(|| self.find(&info_hash, staged.hash));
        while found.is_none() && staged.peers() > 0 && left > 0 {
            found = self.create_merged(merger, staged, &mut left);
        }
        let Some(number) = found else { return left };
        if let Some(head) = staged.group.head {
            let record = self.records.at_mut(number);
            record.downloads = record.downloads.max(head.downloads);
            record.was_seen(merger.clock.born(Some(head)));
        }
        self.merge_family::<PackedV4, 6>(merger, number, &mut staged.group.v4, &mut left);
        self.merge_family::<PackedV6, 18>(merger, number, &mut staged.group.v6, &mut left);
        left
    }

    /// Merges up to `left` peers of a known torrent, and takes them from `peers`.
    fn merge_family<E: FamilyPeers<Key = [u8; N]>, const N: usize>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        peers: &mut Peers<'_, N>,
        left: &mut u32,
    ) {
        while *left > 0 && peers.len() > 0 {
            let mut hashes = ArrayVec::<Option<u32>, AHEAD>::new();
            // A copy, which is looked at before the peers are taken.
            let ahead: Peers<'_, N> = *peers;
            for peer in ahead.take(AHEAD.min(left.div_ceil(KNOWN_PEERS) as usize)) {
                hashes.push(self.prefetch_page_of::<E>(number, peer.key));
            }
            *left = left.saturating_sub(hashes.len() as u32 * KNOWN_PEERS);
            for (hash, peer) in hashes.into_iter().zip(peers.by_ref()) {
                self.merge_peer::<E, N>(merger, number, &peer, hash);
            }
        }
    }

    /// Prefetches the pages in which a peer is looked for. Returns the hash that selects them, if there
    /// are any.
    #[inline]
    fn prefetch_page_of<E: FamilyPeers>(&self, number: u32, key: E::Key) -> Option<u32> {
        let record = self.records.at(number);
        let sets = record.is_spilled().then(|| E::sets(record.sets()))?;
        if !sets.iter().any(PeerSet::is_paged) {
            return None;
        }
        let hash = peer_hash::<E>(&self.key)(key);
        sets.iter().for_each(|set| set.prefetch_page_of(&self.arena, || hash));
        Some(hash)
    }

    fn merge_peer<E: FamilyPeers<Key = [u8; N]>, const N: usize>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        peer: &GroupPeer<N>,
        hash: Option<u32>,
    ) {
        let record = self.records.at(number);
        let (info_hash, is_spilled) = (record.info_hash, record.is_spilled());
        if merger.counting == Counting::Each && peer.word.is_completed() {
            self.count_merged(number);
        }
        let Some(report) = self.report::<E>(merger, info_hash, peer.key, peer.word) else { return };
        let outcome = match E::new(peer.key, report.meta).peer_key() {
            _ if is_spilled => self.merge_spilled::<E>(merger, number, peer.key, &report, hash),
            PeerKey::V4(key) => self.merge_inline(merger, number, key, &report),
            PeerKey::V6(_) if report.is_gone => Outcome::Unknown,
            PeerKey::V6(_) if self.has_gone(merger, &info_hash, peer.key.as_ref(), &report) => {
                Outcome::Unknown
            }
            PeerKey::V6(_) if !self.may_store::<E>(merger.network_max, peer.key) => Outcome::Full,
            PeerKey::V6(_) => {
                self.spill(number, &mut merger.random);
                self.merge_spilled::<E>(merger, number, peer.key, &report, None)
            }
        };
        match outcome {
            Outcome::Stored { .. } => merger.merged.peers += 1,
            Outcome::Removed => merger.merged.gone += 1,
            Outcome::Full => merger.merged.full += 1,
            Outcome::Kept { .. } | Outcome::Unknown | Outcome::Crowded => {}
        }
        if merger.counting == Counting::ByPeer && report.is_completed && outcome.is_uncounted() {
            self.count_merged(number);
        }
        self.merge_id::<E>(info_hash, peer.key, outcome, peer.id);
    }

    /// Counts a completed download. Not inline: most peers complete none.
    #[inline(never)]
    fn count_merged(&mut self, number: u32) {
        let record = self.records.at_mut(number);
        record.downloads = record.downloads.saturating_add(1);
    }

    /// Merges a peer into a torrent with inline peers.
    fn merge_inline(
        &mut self,
        merger: &mut Merger,
        number: u32,
        key: [u8; 6],
        report: &Report,
    ) -> Outcome {
        let record = self.records.at_mut(number);
        let info_hash = record.info_hash;
        let Some(at) = record.inline_peers().iter().position(|peer| peer.wire() == key) else {
            if report.is_gone || self.has_gone(merger, &info_hash, &key, report) {
                return Outcome::Unknown;
            }
            if !self.may_store::<PackedV4>(merger.network_max, key) {
                return Outcome::Full;
            }
            // Most caps are above what a record holds.
            if u16::from(self.records.at(number).inline_len) >= self.merge_caps.least() {
                self.count_networks(merger);
                let new = self.newcomer::<PackedV4>(merger.clock, key, report.age);
                if !self.replace_oldest_inline(number, &new) {
                    return Outcome::Crowded;
                }
            }
            if usize::from(self.records.at(number).inline_len) == INLINE_MAX {
                self.spill(number, &mut merger.random);
                return self.merge_spilled::<PackedV4>(merger, number, key, report, None);
            }
            self.count_network::<PackedV4>(merger, key);
            let peer = PackedV4::new(key, report.meta);
            put_inline(self.records.at_mut(number), report.own, peer);
            self.count_added::<PackedV4>(number, report.own, report.meta);
            return Outcome::Stored { was_counted: false };
        };
        let known = record.inline_peers()[at].meta();
        let was_counted = known.is_counted();
        match merger.clock.judge(known, report) {
            Verdict::Keep(meta) => {
                record.inline_slots()[at].set_meta(meta);
                let is_leecher = at >= usize::from(record.inline_seeders);
                let role = if is_leecher { LEECHERS } else { SEEDERS };
                self.contradict::<PackedV4>(merger, number, (key, role, known), report);
                Outcome::Kept { was_counted }
            }
            Verdict::Replace(meta) => {
                let (_, role) = take_inline(record, at);
                put_inline(record, report.own, PackedV4::new(key, meta));
                self.count_removed::<PackedV4>(number, role, known);
                self.count_added::<PackedV4>(number, report.own, meta);
                Outcome::Stored { was_counted }
            }
            Verdict::Remove => {
                let (_, role) = take_inline(record, at);
                self.count_removed::<PackedV4>(number, role, known);
                self.count_networks(merger);
                self.networks.remove::<PackedV4>(key);
                Outcome::Removed
            }
        }
    }

    /// Merges a peer into a torrent with sets. `known_hash` is what selects its page, if that is known.
    fn merge_spilled<E: FamilyPeers>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        key: E::Key,
        report: &Report,
        known_hash: Option<u32>,
    ) -> Outcome {
        let hash = peer_hash::<E>(&self.key);
        let hash_of = |key| known_hash.unwrap_or_else(|| hash(key));
        let record = self.records.at(number);
        let info_hash = record.info_hash;
        let mut sets = *E::sets(record.sets());
        let found = [report.own, 1 - report.own].into_iter().find_map(|role| {
            sets[role].find(&self.arena, key, hash_of).map(|position| (role, position))
        });
        let Some((role, position)) = found else {
            if report.is_gone || self.has_gone(merger, &info_hash, key.as_ref(), report) {
                return Outcome::Unknown;
            }
            if !self.may_store::<E>(merger.network_max, key) {
                return Outcome::Full;
            }
            if self.is_crowded::<E>(number, key, self.merge_caps) {
                self.count_networks(merger);
                let new = self.newcomer::<E>(merger.clock, key, report.age);
                if !self.replace_oldest::<E>(number, &new) {
                    return Outcome::Crowded;
                }
            }
            self.count_network::<E>(merger, key);
            self.insert_merged(merger, number, E::new(key, report.meta), report.own);
            return Outcome::Stored { was_counted: false };
        };
        let known = sets[role].entries(&self.arena, position.page)[position.at as usize].meta();
        let was_counted = known.is_counted();
        match merger.clock.judge(known, report) {
            Verdict::Keep(meta) => {
                sets[role].set_meta(&mut self.arena, position, meta);
                self.contradict::<E>(merger, number, (key, role, known), report);
                Outcome::Kept { was_counted }
            }
            Verdict::Replace(meta) if role == report.own => {
                sets[role].set_meta(&mut self.arena, position, meta);
                if known.is_partial() != meta.is_partial() {
                    self.count_removed::<E>(number, role, known);
                    self.count_added::<E>(number, role, meta);
                }
                Outcome::Stored { was_counted }
            }
            verdict => {
                sets[role].remove(&mut self.arena, position, hash);
                E::sets_mut(self.records.at_mut(number).sets_mut())[role] = sets[role];
                self.count_removed::<E>(number, role, known);
                if let Verdict::Replace(meta) = verdict {
                    self.insert_merged(merger, number, E::new(key, meta), report.own);
                    return Outcome::Stored { was_counted };
                }
                self.count_networks(merger);
                self.networks.remove::<E>(key);
                Outcome::Removed
            }
        }
    }

    /// Keeps a refresh of a peer that has announced here since it went, as a block says: other nodes remove
    /// it, and may not know of that announce, because it changed nothing here.
    #[inline]
    fn contradict<E: FamilyPeers>(
        &mut self,
        merger: &Merger,
        number: u32,
        (key, role, known): (E::Key, usize, PeerMeta),
        report: &Report,
    ) {
        if !report.is_gone || self.refresh_period == 0 {
            return;
        }
        let peer = (self.records.at(number).info_hash, E::new(key, known).peer_key());
        let id = self.ids.as_ref().and_then(|ids| ids.get(&peer).copied());
        let age = known.age(merger.clock.now);
        let word = Word::present(age, role_of(role, known), known.is_counted());
        self.changes.push_contradiction(&peer, word, &id.unwrap_or_default());
    }

    /// Inserts a peer into one of the torrent's sets, and counts it.
    fn insert_merged<E: FamilyPeers>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        peer: E,
        role: usize,
    ) {
        let hash = peer_hash::<E>(&self.key);
        let mut set = E::sets(self.records.at(number).sets())[role];
        set.insert(&mut self.arena, peer, hash, &mut merger.random);
        E::sets_mut(self.records.at_mut(number).sets_mut())[role] = set;
        self.count_added::<E>(number, role, peer.meta());
    }

    /// Returns what a word says; `None` if its peer's lifetime has passed, which it counts, or if the
    /// peer has stopped since.
    #[inline]
    fn report<E: Entry>(
        &mut self,
        merger: &mut Merger,
        info_hash: InfoHash,
        key: E::Key,
        word: Word,
    ) -> Option<Report> {
        let Some(report) = merger.clock.report(word) else {
            merger.merged.old += 1;
            return None;
        };
        if let Some(stopped) = &self.stopped
            && let Some(stop) = stopped.at(info_hash, E::new(key, report.meta).peer_key())
            && stop.age(merger.clock.now) <= report.age
        {
            return None;
        }
        if let Some(removals) = &mut self.removals
            && word.is_gone()
        {
            let peer = removals::hash(&self.key, &info_hash, key.as_ref());
            removals.note(&merger.clock, peer, word);
        }
        Some(report)
    }

    /// Returns true if an unknown peer has gone since the state that a block reports.
    #[inline]
    fn has_gone(&self, merger: &Merger, info_hash: &InfoHash, key: &[u8], report: &Report) -> bool {
        let Some(removals) = self.removals.as_ref().filter(|it| !it.is_empty()) else {
            return false;
        };
        let peer = removals::hash(&self.key, info_hash, key);
        !removals.admits(&merger.clock, merger.is_walk, peer, report.word)
    }

    /// Returns true if an unknown peer may be stored: there is memory, and if it is short, its network has
    /// not used up its share. While memory is not short, shares do not matter here: the peers were admitted
    /// when they announced, and a merge does not know which networks are exempt.
    #[inline]
    fn may_store<E: Entry>(&self, network_max: Option<u32>, key: E::Key) -> bool {
        !self.is_full() && network_max.is_none_or(|max| self.networks.count::<E>(key) < max)
    }

    /// Returns what caps need to know of a peer that a block brings.
    #[cold]
    fn newcomer<E: Entry>(&self, clock: Clock, key: E::Key, age: u32) -> Newcomer<E> {
        let ip = E::new(key, PeerMeta::default()).peer_key().socket_addr().ip();
        Newcomer {
            key,
            now: clock.now,
            caps: self.merge_caps,
            is_exempt: self.is_exempt(ip),
            merged_age: Some(age),
        }
    }

    /// Keeps the id of a peer that was stored, and drops that of one that was removed.
    #[inline]
    fn merge_id<E: Entry>(
        &mut self,
        info_hash: InfoHash,
        key: E::Key,
        outcome: Outcome,
        id: Option<PeerId>,
    ) {
        let Some(ids) = &mut self.ids else { return };
        let peer = (info_hash, E::new(key, PeerMeta::default()).peer_key());
        match (outcome, id) {
            (Outcome::Stored { .. }, Some(id)) => drop(ids.insert(peer, id)),
            // Every peer has one, of zeros until it announces.
            (Outcome::Stored { .. }, None) => drop(ids.entry(peer).or_default()),
            (Outcome::Removed, _) => drop(ids.remove(&peer)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_peers_are_remembered_up_to_a_limit() {
        let mut stopped = Stopped::default();
        let info_hash = InfoHash([1; 20]);
        let peer = |number: u32| {
            let [_, b, c, d] = number.to_be_bytes();
            PeerKey::V4([1, b, c, d, 1, 1])
        };
        (0..STOPPED_MAX as u32 + 9)
            .for_each(|number| stopped.add(info_hash, peer(number), Tick(7)));
        assert_eq!(stopped.peers.len(), STOPPED_MAX);
        assert_eq!(stopped.at(info_hash, peer(STOPPED_MAX as u32)), None);
        // Those that are remembered are renewed.
        stopped.add(info_hash, peer(3), Tick(99));
        assert_eq!(stopped.at(info_hash, peer(3)).map(|meta| meta.age(Tick(99))), Some(0));
        assert_eq!(stopped.at(info_hash, peer(4)).map(|meta| meta.age(Tick(99))), Some(6));
    }
}
