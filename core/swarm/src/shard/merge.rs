//! Merging: what blocks say of torrents and peers comes into a shard.
//!
//! A new torrent is made of all its peers at once, a known one peer by peer. Both compare marks: of what a
//! peer is here and what a block says of it, the younger one wins, and of equal ones what comes later.

use std::collections::BTreeMap;

use primitives::Random;
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Role, Tick, limits};

use super::announce::{put_inline, take_inline};
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::block::{Group, GroupPeer, Head, Peers, Word};
use crate::entry::Entry;
use crate::index::tag;
use crate::meta::{AGE_UNIT_S, PeerMeta, age_max};
use crate::record::{INLINE_MAX, Sets};
use crate::set::PeerSet;
use crate::{MergeTime, Merged};

/// Work under one lock, in peers: some tens of microseconds.
const LOCK_PEERS: u32 = 256;
/// What a group costs beside its peers: its torrent is looked up or made.
const GROUP_PEERS: u32 = 4;
/// Peers of a torrent whose pages are prefetched together.
const AHEAD: u32 = 16;
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

/// A call of [`crate::Store::merge`]: its time, and what it has done so far.
pub(crate) struct Merger {
    clock: Clock,
    random: Random,
    pub(crate) merged: Merged,
    /// The most peers that a network may have, if memory is short.
    network_max: Option<u32>,
    /// The peers of a new torrent.
    v4: Gathered<PackedV4>,
    v6: Gathered<PackedV6>,
}

/// Marks of a block on the store's clock.
#[derive(Clone, Copy)]
struct Clock {
    now: Tick,
    /// Units of age between the cut and now.
    cut_age: u32,
    /// The age past which a peer is not stored.
    age_max: u32,
    /// Unix minutes at tick 0.
    epoch_min: u32,
}

/// What a block says of a peer, on the store's clock.
#[derive(Clone, Copy)]
struct Report {
    meta: PeerMeta,
    /// Its age.
    age: u32,
    /// The set that the peer belongs to.
    own: usize,
    is_gone: bool,
    is_completed: bool,
}

/// What follows from a report of a peer that is known.
enum Verdict {
    /// Its mark is younger than the report.
    Keep(PeerMeta),
    Replace(PeerMeta),
    Remove,
}

/// What became of a reported peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is gone, and was not there.
    Unknown,
    /// There is no memory for it.
    Full,
    Removed,
    /// It is as it was; whether its download was counted before.
    Kept {
        was_counted: bool,
    },
    Stored {
        was_counted: bool,
    },
}

impl Merger {
    pub(crate) fn new(time: MergeTime, lifetime_s: u32, random: Random) -> Self {
        Self {
            clock: Clock::new(time, lifetime_s),
            random,
            merged: Merged::default(),
            network_max: None,
            v4: Gathered::new(),
            v6: Gathered::new(),
        }
    }
}

impl Clock {
    fn new(time: MergeTime, lifetime_s: u32) -> Self {
        let MergeTime { now, cut_ago_s, epoch_min } = time;
        // The cut may be before tick 0.
        let cut_unit = (i64::from(now.0) - i64::from(cut_ago_s)).div_euclid(AGE_UNIT_S.into());
        let cut_age = i64::from(now.0 / AGE_UNIT_S) - cut_unit;
        let cut_age = u32::try_from(cut_age).unwrap_or(u32::MAX);
        Self { now, cut_age, age_max: age_max(lifetime_s), epoch_min }
    }

    /// Returns what a word says; `None` if its peer's lifetime has passed.
    #[inline]
    fn report(self, word: Word) -> Option<Report> {
        let age = self.cut_age.saturating_add(word.age());
        let role = word.role();
        let is_partial = role == Role::PartialSeed;
        (age <= self.age_max).then(|| Report {
            meta: PeerMeta::aged(self.now, age, word.is_counted(), is_partial),
            age,
            own: if role == Role::Seeder { SEEDERS } else { LEECHERS },
            is_gone: word.is_gone(),
            is_completed: word.is_completed(),
        })
    }

    /// Compares a report with what the peer is.
    #[inline]
    fn judge(self, known: PeerMeta, report: &Report) -> Verdict {
        if known.age(self.now) < report.age {
            Verdict::Keep(known.or_counted(report.meta.is_counted() && !report.is_gone))
        } else if report.is_gone {
            Verdict::Remove
        } else {
            Verdict::Replace(report.meta.or_counted(known.is_counted()))
        }
    }

    /// Returns when a torrent's first peer came.
    fn born(self, head: Option<Head>) -> Tick {
        let Some(head) = head else { return self.now };
        // The end of the minute: what is stored is rounded down, and else would be again each time.
        let minutes = head.born_min.saturating_sub(self.epoch_min);
        Tick(minutes.saturating_mul(60).saturating_add(59)).min(self.now)
    }
}

/// The most peers of a role and family that are gathered: a dense set.
const GATHERED_MAX: usize = PackedV4::DENSE_MAX as usize;

const _: () = assert!(PackedV6::DENSE_MAX as usize <= GATHERED_MAX && GATHERED_MAX % 8 == 0);

/// The distinct peers of a new torrent, by role.
struct Gathered<E> {
    /// Whole lines, as a search reads them, with leftovers at the end.
    peers: [[E; GATHERED_MAX]; 2],
    lens: [usize; 2],
}

/// A family's part of merging.
trait MergedFamily: FamilyPeers {
    fn gathered(merger: &mut Merger) -> &mut Gathered<Self>;
}

impl MergedFamily for PackedV4 {
    fn gathered(merger: &mut Merger) -> &mut Gathered<Self> {
        &mut merger.v4
    }
}

impl MergedFamily for PackedV6 {
    fn gathered(merger: &mut Merger) -> &mut Gathered<Self> {
        &mut merger.v6
    }
}

impl<E: Entry> Gathered<E> {
    fn new() -> Self {
        Self { peers: [[E::default(); GATHERED_MAX]; 2], lens: [0; 2] }
    }

    fn peers(&self, role: usize) -> &[E] {
        &self.peers[role][..self.lens[role]]
    }

    fn len(&self) -> usize {
        self.lens[SEEDERS] + self.lens[LEECHERS]
    }

    /// Whether another peer may not fit.
    fn is_full(&self) -> bool {
        self.lens.iter().any(|len| *len == E::DENSE_MAX as usize)
    }

    /// Returns the role and place of a peer.
    #[inline]
    fn find(&self, key: E::Key) -> Option<(usize, usize)> {
        let found = |role: usize| {
            let lines = &self.peers[role][..self.lens[role].next_multiple_of(8)];
            E::find(lines, self.lens[role], key).map(|at| (role, at))
        };
        found(SEEDERS).or_else(|| found(LEECHERS))
    }

    fn push(&mut self, role: usize, peer: E) {
        self.peers[role][self.lens[role]] = peer;
        self.lens[role] += 1;
    }

    fn swap_remove(&mut self, role: usize, at: usize) {
        self.lens[role] -= 1;
        self.peers[role][at] = self.peers[role][self.lens[role]];
    }

    /// Applies a report of a peer, which is stored if it is unknown and `may_store`.
    #[inline]
    fn apply(
        &mut self,
        clock: Clock,
        key: E::Key,
        report: &Report,
        may_store: impl FnOnce() -> bool,
    ) -> Outcome {
        let Some((role, at)) = self.find(key) else {
            if report.is_gone {
                return Outcome::Unknown;
            }
            if !may_store() {
                return Outcome::Full;
            }
            self.push(report.own, E::new(key, report.meta));
            return Outcome::Stored { was_counted: false };
        };
        let known = self.peers[role][at].meta();
        let was_counted = known.is_counted();
        match clock.judge(known, report) {
            Verdict::Keep(meta) => {
                self.peers[role][at].set_meta(meta);
                Outcome::Kept { was_counted }
            }
            Verdict::Replace(meta) => {
                self.swap_remove(role, at);
                self.push(report.own, E::new(key, meta));
                Outcome::Stored { was_counted }
            }
            Verdict::Remove => {
                self.swap_remove(role, at);
                Outcome::Removed
            }
        }
    }

    /// Puts the peers into random order: neighbours in a set are a random sample.
    fn shuffle(&mut self, random: &mut Random) {
        for (peers, len) in self.peers.iter_mut().zip(self.lens) {
            for end in (1..len).rev() {
                peers.swap(end, random.below(end as u32 + 1) as usize);
            }
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

    /// Merges the first groups, as much as is done under one lock. Returns how many it has done with. Of
    /// the next one some peers may be merged, and were taken from it.
    pub(crate) fn merge(&mut self, merger: &mut Merger, batch: &mut [StagedGroup<'_>]) -> usize {
        let mut left = LOCK_PEERS;
        let mut fits = |staged: &&StagedGroup<'_>| {
            let goes_on = left > 0;
            left = left.saturating_sub(staged.peers() + GROUP_PEERS);
            goes_on
        };
        let count = batch.iter().take_while(|staged| fits(staged)).count();
        let batch = &mut batch[..count];
        self.prefetch_groups(batch);
        let mut left = LOCK_PEERS;
        for (done, staged) in batch.iter_mut().enumerate() {
            left = self.merge_group(merger, staged, left).saturating_sub(GROUP_PEERS);
            if staged.peers() > 0 {
                return done;
            }
        }
        count
    }

    /// Prefetches what groups read first, stage by stage.
    fn prefetch_groups(&self, batch: &mut [StagedGroup<'_>]) {
        for staged in batch.iter() {
            self.index.prefetch(tag(staged.hash));
        }
        for staged in batch.iter_mut() {
            staged.guess = self.index.find(tag(staged.hash), |_| true);
            staged.guess.into_iter().for_each(|number| self.records.prefetch(number));
        }
        for staged in batch.iter() {
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

    /// Makes a new torrent of the first peers of a group, and takes them from it. Returns its number;
    /// `None` if none of them may be stored.
    fn create_merged(
        &mut self,
        merger: &mut Merger,
        staged: &mut StagedGroup<'_>,
        left: &mut u32,
    ) -> Option<u32> {
        let StagedGroup { group, hash, .. } = staged;
        let mut downloads = group.head.map_or(0, |head| head.downloads);
        (merger.v4.lens, merger.v6.lens) = ([0; 2], [0; 2]);
        let counted = self.gather::<PackedV4, 6>(merger, group.info_hash, &mut group.v4, left);
        downloads = downloads.saturating_add(counted);
        if group.v4.len() == 0 {
            let counted = self.gather::<PackedV6, 18>(merger, group.info_hash, &mut group.v6, left);
            downloads = downloads.saturating_add(counted);
        }
        let peers = (merger.v4.len() + merger.v6.len()) as u64;
        if peers == 0 {
            return None;
        }
        let Some(number) = self.create(merger.clock.born(group.head), group.info_hash, *hash)
        else {
            merger.merged.full += peers;
            self.forget_ids(group.info_hash, &merger.v4);
            self.forget_ids(group.info_hash, &merger.v6);
            return None;
        };
        merger.merged.torrents += 1;
        merger.merged.peers += peers;
        self.records.at_mut(number).downloads = downloads;
        self.store_gathered(merger, number);
        Some(number)
    }

    /// Gathers peers of a new torrent, at most a dense set. Returns how many downloads they completed.
    fn gather<E: MergedFamily<Key = [u8; N]>, const N: usize>(
        &mut self,
        merger: &mut Merger,
        info_hash: InfoHash,
        peers: &mut Peers<'_, N>,
        left: &mut u32,
    ) -> u32 {
        let mut downloads = 0;
        while *left > 0
            && !E::gathered(merger).is_full()
            && let Some(peer) = peers.next()
        {
            *left -= 1;
            let Some(report) = self.report::<E>(merger, info_hash, peer.key, peer.word) else {
                continue;
            };
            let (clock, network_max) = (merger.clock, merger.network_max);
            let may_store = || self.may_store::<E>(network_max, peer.key);
            let outcome = E::gathered(merger).apply(clock, peer.key, &report, may_store);
            match outcome {
                Outcome::Full => merger.merged.full += 1,
                Outcome::Removed => merger.merged.gone += 1,
                _ => {}
            }
            downloads += u32::from(report.is_completed && outcome.is_uncounted());
            self.merge_id::<E>(info_hash, peer.key, outcome, peer.id);
        }
        downloads
    }

    /// Stores the peers gathered for a new torrent.
    fn store_gathered(&mut self, merger: &mut Merger, number: u32) {
        let Merger { v4, v6, random, .. } = merger;
        let partial: u32 = self.count_gathered(v4) + self.count_gathered(v6);
        self.totals.partial_seeds += u64::from(partial);
        if v6.len() == 0 && v4.len() <= INLINE_MAX {
            let mut peers = [PackedV4::default(); INLINE_MAX];
            let gathered = v4.peers(SEEDERS).iter().chain(v4.peers(LEECHERS));
            peers.iter_mut().zip(gathered).for_each(|(place, peer)| *place = *peer);
            let record = self.records.at_mut(number);
            record.partial_seeds = partial;
            record.set_inline(peers, v4.len() as u8, v4.lens[SEEDERS] as u8);
            return;
        }
        v4.shuffle(random);
        v6.shuffle(random);
        let arena = &mut self.arena;
        let sets = Sets {
            v4: [SEEDERS, LEECHERS].map(|role| PeerSet::filled(arena, v4.peers(role))),
            v6: [SEEDERS, LEECHERS].map(|role| PeerSet::filled(arena, v6.peers(role))),
        };
        let record = self.records.at_mut(number);
        record.partial_seeds = partial;
        record.become_spilled();
        *record.sets_mut() = sets;
    }

    /// Adds gathered peers to the totals and to their networks. Returns how many are partial seeds.
    fn count_gathered<E: FamilyPeers>(&mut self, gathered: &Gathered<E>) -> u32 {
        let totals = E::totals(&mut self.totals);
        totals.seeders += gathered.lens[SEEDERS] as u64;
        totals.leechers += gathered.lens[LEECHERS] as u64;
        for role in [SEEDERS, LEECHERS] {
            gathered.peers(role).iter().for_each(|peer| self.networks.add::<E>(peer.key()));
        }
        gathered.peers(LEECHERS).iter().map(|peer| u32::from(peer.meta().is_partial())).sum()
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
            let count = (*left).min(AHEAD).min(peers.len() as u32);
            *left -= count;
            // A copy, which is looked at before the peers are taken.
            let ahead: Peers<'_, N> = *peers;
            self.prefetch_merged::<E, N>(number, ahead.take(count as usize));
            for peer in peers.by_ref().take(count as usize) {
                self.merge_peer::<E, N>(merger, number, &peer);
            }
        }
    }

    /// Prefetches the pages in which peers are looked for.
    fn prefetch_merged<E: FamilyPeers<Key = [u8; N]>, const N: usize>(
        &self,
        number: u32,
        peers: impl Iterator<Item = GroupPeer<N>>,
    ) {
        let record = self.records.at(number);
        if !record.is_spilled() {
            return;
        }
        let sets = E::sets(record.sets());
        if sets.iter().any(PeerSet::is_paged) {
            for peer in peers {
                let hash = peer_hash::<E>(&self.key)(peer.key);
                sets.iter().for_each(|set| set.prefetch_page_of(&self.arena, || hash));
            }
        }
    }

    fn merge_peer<E: FamilyPeers<Key = [u8; N]>, const N: usize>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        peer: &GroupPeer<N>,
    ) {
        let record = self.records.at(number);
        let (info_hash, is_spilled) = (record.info_hash, record.is_spilled());
        let Some(report) = self.report::<E>(merger, info_hash, peer.key, peer.word) else { return };
        let outcome = match E::new(peer.key, report.meta).peer_key() {
            _ if is_spilled => self.merge_spilled::<E>(merger, number, peer.key, &report),
            PeerKey::V4(key) => self.merge_inline(merger, number, key, &report),
            PeerKey::V6(_) if report.is_gone => Outcome::Unknown,
            PeerKey::V6(_) if !self.may_store::<E>(merger.network_max, peer.key) => Outcome::Full,
            PeerKey::V6(_) => {
                self.spill(number, &mut merger.random);
                self.merge_spilled::<E>(merger, number, peer.key, &report)
            }
        };
        match outcome {
            Outcome::Stored { .. } => merger.merged.peers += 1,
            Outcome::Removed => merger.merged.gone += 1,
            Outcome::Full => merger.merged.full += 1,
            Outcome::Kept { .. } | Outcome::Unknown => {}
        }
        if report.is_completed && outcome.is_uncounted() {
            let record = self.records.at_mut(number);
            record.downloads = record.downloads.saturating_add(1);
        }
        self.merge_id::<E>(info_hash, peer.key, outcome, peer.id);
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
        let Some(at) = record.inline_peers().iter().position(|peer| peer.wire() == key) else {
            if report.is_gone {
                return Outcome::Unknown;
            }
            if !self.may_store::<PackedV4>(merger.network_max, key) {
                return Outcome::Full;
            }
            if usize::from(self.records.at(number).inline_len) == INLINE_MAX {
                self.spill(number, &mut merger.random);
                return self.merge_spilled::<PackedV4>(merger, number, key, report);
            }
            self.networks.add::<PackedV4>(key);
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
                self.networks.remove::<PackedV4>(key);
                Outcome::Removed
            }
        }
    }

    /// Merges a peer into a torrent with sets.
    fn merge_spilled<E: FamilyPeers>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        key: E::Key,
        report: &Report,
    ) -> Outcome {
        let hash = peer_hash::<E>(&self.key);
        let mut sets = *E::sets(self.records.at(number).sets());
        let found = [report.own, 1 - report.own].into_iter().find_map(|role| {
            sets[role].find(&self.arena, key, hash).map(|position| (role, position))
        });
        let Some((role, position)) = found else {
            if report.is_gone {
                return Outcome::Unknown;
            }
            let may_store = self.may_store::<E>(merger.network_max, key);
            if !may_store || self.is_crowded::<E>(&sets, key) {
                return Outcome::Full;
            }
            self.networks.add::<E>(key);
            self.insert_merged(merger, number, E::new(key, report.meta), report.own);
            return Outcome::Stored { was_counted: false };
        };
        let known = sets[role].entries(&self.arena, position.page)[position.at as usize].meta();
        let was_counted = known.is_counted();
        match merger.clock.judge(known, report) {
            Verdict::Keep(meta) => {
                sets[role].set_meta(&mut self.arena, position, meta);
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
                self.networks.remove::<E>(key);
                Outcome::Removed
            }
        }
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
        &self,
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
        Some(report)
    }

    /// Whether an unknown peer may be stored: there is memory, and if it is short, its network has its
    /// share. While it is not, a merge refuses nobody for that: its peers were admitted before, and it
    /// does not know which networks are exempt.
    #[inline]
    fn may_store<E: Entry>(&self, network_max: Option<u32>, key: E::Key) -> bool {
        !self.is_full() && network_max.is_none_or(|max| self.networks.count::<E>(key) < max)
    }

    /// Whether the peer's network has as many peers in the torrent as a page can have. Other caps were
    /// applied when the peer announced.
    fn is_crowded<E: FamilyPeers>(&self, sets: &[PeerSet<E>; 2], key: E::Key) -> bool {
        let max = u32::from(limits::PEERS_PER_NETWORK_MAX);
        if sets[SEEDERS].len() + sets[LEECHERS].len() < max || E::network(key).is_none() {
            return false;
        }
        let hash = peer_hash::<E>(&self.key)(key);
        let count = sets.iter().map(|set| set.count_network(&self.arena, key, |_| hash));
        count.sum::<u32>() >= max
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

    /// Drops the ids of peers that were gathered and could not be stored.
    fn forget_ids<E: Entry>(&mut self, info_hash: InfoHash, gathered: &Gathered<E>) {
        for role in [SEEDERS, LEECHERS] {
            for peer in gathered.peers(role) {
                self.remove_id(info_hash, peer.peer_key());
            }
        }
    }
}

impl Outcome {
    /// Whether the peer is there and its download was not counted before.
    #[inline]
    fn is_uncounted(self) -> bool {
        matches!(self, Self::Kept { was_counted: false } | Self::Stored { was_counted: false })
    }
}
