//! Announces: updating the swarm and choosing peers.

use primitives::Random;
use types::{AnnounceSummary, PackedV4, PackedV6, PeerId, PeerKey, Role, StoreSink, Tick, TooSoon};

use super::caps::Newcomer;
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::block::Word;
use crate::entry::Entry;
use crate::index::tag;
use crate::meta::{AGE_UNIT_S, PeerMeta, age_min};
use crate::record::{INLINE_MAX, Record};
use crate::set::{PeerSet, Position};
use crate::{Action, StoreAnnounce, TorrentEvent, refresh};

/// An announce on its way through the stages of a batch.
#[derive(Clone, Copy)]
pub(crate) struct StagedAnnounce<'a> {
    pub(crate) announce: &'a StoreAnnounce,
    /// The info hash's hash under the store's key.
    pub(crate) hash: u64,
    /// Decides which peers are chosen. Drawn early, so that they can be prefetched.
    pub(crate) sample_seed: u64,
    /// The torrent's probable number. Other announces of the batch may move it.
    pub(crate) guess: Option<u32>,
}

impl<'a> StagedAnnounce<'a> {
    #[inline]
    pub(crate) fn new(announce: &'a StoreAnnounce, hash: u64, sample_seed: u64) -> Self {
        Self { announce, hash, sample_seed, guess: None }
    }
}

/// The change that an announce makes to its peer's metadata.
#[derive(Clone, Copy)]
pub(super) struct MetaUpdate {
    pub(super) now: Tick,
    /// The peer has just completed its download.
    pub(super) completed: bool,
    pub(super) partial: bool,
    /// As in [`StoreAnnounce`].
    pub(super) min_interval_s: u32,
}

impl MetaUpdate {
    /// Returns the new metadata of a peer whose download was counted before or not.
    #[inline]
    pub(super) fn meta(self, counted: bool) -> PeerMeta {
        PeerMeta::new(self.now, counted | self.completed, self.partial)
    }

    /// Returns the metadata that follows `old` for a peer whose role stays, or an error if the
    /// announce comes too soon.
    #[inline]
    pub(super) fn renew(self, old: PeerMeta) -> Result<PeerMeta, TooSoon> {
        if self.min_interval_s > 0 {
            self.check(old)?;
        }
        Ok(self.meta(old.is_counted()))
    }

    /// Apart, because most trackers enforce no minimal interval.
    #[cold]
    fn check(self, old: PeerMeta) -> Result<(), TooSoon> {
        let age = old.age(self.now);
        if age < age_min(self.min_interval_s) && old.is_partial() == self.partial {
            return Err(TooSoon { age_s: age * AGE_UNIT_S });
        }
        Ok(())
    }
}

/// The change that an announce makes to its torrent.
#[derive(Clone, Copy)]
pub(super) struct PeerUpdate<'a> {
    /// The set that the peer belongs to.
    pub(super) own: usize,
    pub(super) meta: MetaUpdate,
    pub(super) announce: &'a StoreAnnounce,
    /// Returns true if the peer's network is exempt from caps.
    pub(super) is_exempt: &'a dyn Fn() -> bool,
    /// If the peer is new: memory was checked.
    pub(super) is_admitted: bool,
}

/// The place of the announcing peer after its announce.
#[derive(Clone, Copy)]
pub(super) enum PeerLocation {
    /// In no set: it was not stored.
    Nowhere,
    /// Inline in the record, at that index.
    Inline(usize),
    /// In the set of that role, at that position.
    Set(usize, Position),
}

impl PeerUpdate<'_> {
    /// Returns what caps need to know of the peer, which is new.
    pub(super) fn newcomer<E: Entry>(&self, key: E::Key) -> Newcomer<E> {
        let is_exempt = (self.is_exempt)();
        let (now, caps) = (self.meta.now, self.announce.caps);
        Newcomer { key, now, caps, is_exempt, merged_age: None }
    }
}

impl Shard {
    /// Does a batch. Each stage prefetches what the next one reads, for all announces, so that
    /// their cache misses overlap.
    pub(crate) fn announce(
        &mut self,
        now: Tick,
        batch: &mut [StagedAnnounce<'_>],
        sink: &mut impl StoreSink,
    ) {
        if batch.len() > 1 {
            for staged in batch.iter() {
                self.index.prefetch(tag(staged.hash));
            }
            for staged in batch.iter_mut() {
                staged.guess = self.index.find(tag(staged.hash), |_| true);
                staged.guess.into_iter().for_each(|number| self.records.prefetch(number));
            }
            batch.iter().for_each(|staged| self.prefetch_sets(staged));
            batch.iter().for_each(|staged| self.prefetch_pages(staged));
        }
        for staged in batch {
            // Not the stream that chooses peers: a peer's place must reveal nothing about the peers
            // chosen.
            let mut random = Random::new(!staged.sample_seed);
            match staged.announce.action {
                Action::Stop => self.stop(now, staged, sink),
                Action::Update { completed } => {
                    self.update(now, &mut random, staged, completed, sink);
                }
            }
        }
    }

    /// Prefetches the lines of dense sets and the headers of directories.
    fn prefetch_sets(&self, staged: &StagedAnnounce<'_>) {
        let Some(record) = self.guessed(staged) else { return };
        let sets = record.sets();
        match staged.announce.peer {
            PeerKey::V4(_) => self.prefetch_heads(staged.announce, &sets.v4),
            PeerKey::V6(_) => self.prefetch_heads(staged.announce, &sets.v6),
        }
    }

    fn prefetch_heads<E: Entry>(&self, announce: &StoreAnnounce, sets: &[PeerSet<E>; 2]) {
        let (own, wanted) = interest(announce);
        for role in [SEEDERS, LEECHERS] {
            if own == role || (wanted[role] && announce.want > 0) {
                sets[role].prefetch(&self.arena);
            }
        }
    }

    /// Prefetches the pages of paged sets, whose directories are cached now.
    fn prefetch_pages(&self, staged: &StagedAnnounce<'_>) {
        let Some(record) = self.guessed(staged) else { return };
        let sets = record.sets();
        match staged.announce.peer {
            PeerKey::V4(key) => self.prefetch_family(staged, &sets.v4, key),
            PeerKey::V6(key) => self.prefetch_family(staged, &sets.v6, key),
        }
    }

    fn prefetch_family<E: Entry>(
        &self,
        staged: &StagedAnnounce<'_>,
        sets: &[PeerSet<E>; 2],
        key: E::Key,
    ) {
        let (own, wanted) = interest(staged.announce);
        sets[own].prefetch_page_of(&self.arena, || peer_hash::<E>(&self.key)(key));
        let lens = [SEEDERS, LEECHERS].map(|role| if wanted[role] { sets[role].len() } else { 0 });
        let total = (lens[SEEDERS] + lens[LEECHERS]).max(1);
        for role in [SEEDERS, LEECHERS] {
            if sets[role].is_paged() {
                let share =
                    u64::from(staged.announce.want) * u64::from(lens[role]) / u64::from(total);
                let count = (share as u32 + 1).min(lens[role]);
                sets[role].prefetch_sample(&self.arena, staged.sample_seed, count);
            }
        }
    }

    /// Returns the record at the guessed number, if its peers are in sets.
    fn guessed(&self, staged: &StagedAnnounce<'_>) -> Option<&Record> {
        let record = self.records.at(staged.guess?);
        record.is_spilled().then_some(record)
    }

    /// Returns the number of the torrent.
    #[inline]
    fn locate(&self, staged: &StagedAnnounce<'_>) -> Option<u32> {
        let info_hash = &staged.announce.info_hash;
        let is_it = |number: &u32| {
            *number < self.records.len() && self.records.at(*number).info_hash == *info_hash
        };
        staged.guess.filter(is_it).or_else(|| self.find(info_hash, staged.hash))
    }

    fn stop(&mut self, now: Tick, staged: &StagedAnnounce<'_>, sink: &mut impl StoreSink) {
        let announce = staged.announce;
        if let Some(stopped) = &mut self.stopped {
            stopped.add(announce.info_hash, announce.peer, now);
        }
        let Some(number) = self.locate(staged) else {
            self.keep_stop(announce, false);
            return sink.accept(staged.announce.slot, &AnnounceSummary::default());
        };
        let was_there = match announce.peer {
            PeerKey::V4(key) if !self.records.at(number).is_spilled() => {
                self.stop_inline(number, key)
            }
            PeerKey::V4(key) => self.stop_spilled::<PackedV4>(number, key),
            PeerKey::V6(key) if self.records.at(number).is_spilled() => {
                self.stop_spilled::<PackedV6>(number, key)
            }
            PeerKey::V6(_) => false,
        };
        self.keep_stop(announce, was_there);
        self.remove_id(announce.info_hash, announce.peer);
        let counts = self.counts_at(number);
        sink.accept(staged.announce.slot, &AnnounceSummary { counts, v4: 0, v6: 0 });
        // The sweep removes it, too. But until then, announcing and stopping in one torrent after
        // another would fill the memory with torrents whose peers no network has.
        if self.is_short() && self.records.at(number).is_empty() {
            self.delete(number);
        }
    }

    /// Records that a peer has stopped. Other nodes may have one that was not here: this one has just
    /// started, or the peer began elsewhere a moment ago.
    fn keep_stop(&mut self, announce: &StoreAnnounce, was_there: bool) {
        if was_there {
            self.changes.push_gone(&announce.info_hash, &announce.peer);
        } else if self.refresh_period != 0 {
            let peer = (announce.info_hash, announce.peer);
            self.changes.push_contradiction(&peer, Word::gone(), &PeerId([0; 20]));
        }
    }

    /// Removes an inline peer. Returns whether it was there.
    fn stop_inline(&mut self, number: u32, key: [u8; 6]) -> bool {
        let record = self.records.at_mut(number);
        let found = record.inline_peers().iter().position(|peer| peer.wire() == key);
        if let Some(at) = found {
            let (meta, role) = take_inline(record, at);
            self.count_removed::<PackedV4>(number, role, meta);
            self.networks.remove::<PackedV4>(key);
        }
        found.is_some()
    }

    /// Does what [`Shard::stop_inline`] does for a torrent with sets.
    fn stop_spilled<E: FamilyPeers>(&mut self, number: u32, key: E::Key) -> bool {
        let hash = peer_hash::<E>(&self.key);
        for role in [SEEDERS, LEECHERS] {
            let mut set = E::sets(self.records.at(number).sets())[role];
            if let Some(position) = set.find(&self.arena, key, hash) {
                let gone = set.remove(&mut self.arena, position, hash);
                E::sets_mut(self.records.at_mut(number).sets_mut())[role] = set;
                self.networks.remove::<E>(key);
                self.count_removed::<E>(number, role, gone.meta());
                return true;
            }
        }
        false
    }

    /// Updates the counts after a peer was removed.
    pub(super) fn count_removed<E: FamilyPeers>(
        &mut self,
        number: u32,
        role: usize,
        meta: PeerMeta,
    ) {
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= 1;
        if meta.is_partial() {
            self.records.at_mut(number).partial_seeds -= 1;
            self.totals.partial_seeds -= 1;
        }
    }

    pub(super) fn count_added<E: FamilyPeers>(&mut self, number: u32, role: usize, meta: PeerMeta) {
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } += 1;
        if meta.is_partial() {
            self.records.at_mut(number).partial_seeds += 1;
            self.totals.partial_seeds += 1;
        }
    }

    fn update(
        &mut self,
        now: Tick,
        random: &mut Random,
        staged: &StagedAnnounce<'_>,
        completed: bool,
        sink: &mut impl StoreSink,
    ) {
        let announce = staged.announce;
        let partial = announce.role == Role::PartialSeed;
        let mut update = PeerUpdate {
            own: interest(announce).0,
            meta: MetaUpdate { now, completed, partial, min_interval_s: announce.min_interval_s },
            announce,
            is_exempt: &|| sink.is_exempt(announce.slot),
            is_admitted: false,
        };
        let found = match self.locate(staged) {
            None => {
                update.is_admitted = true;
                self.create_for(staged, &update)
            }
            found => found,
        };
        let Some(number) = found else {
            return sink.accept(staged.announce.slot, &AnnounceSummary::default());
        };
        let updated = match announce.peer {
            PeerKey::V4(key) if !self.records.at(number).is_spilled() => {
                self.update_inline(number, key, &update, random)
            }
            PeerKey::V4(key) => self.update_spilled::<PackedV4>(number, key, &update, random),
            PeerKey::V6(key) if !self.records.at(number).is_spilled() => {
                self.add_first_v6(number, key, update, random)
            }
            PeerKey::V6(key) => self.update_spilled::<PackedV6>(number, key, &update, random),
        };
        let (location, was_counted) = match updated {
            Ok(updated) => updated,
            Err(too_soon) => return sink.too_soon(staged.announce.slot, too_soon),
        };
        //= bep3#announce-completed-once
        if completed && !was_counted {
            self.count_download(number, announce);
            sink.downloaded(staged.announce.slot);
        }
        if let Some(ids) = &mut self.ids
            && !matches!(location, PeerLocation::Nowhere)
        {
            ids.insert((announce.info_hash, announce.peer), announce.peer_id);
        }
        self.answer(staged, number, location, random, sink);
    }

    // Not inline: most announces complete no download.
    #[inline(never)]
    fn count_download(&mut self, number: u32, announce: &StoreAnnounce) {
        let record = self.records.at_mut(number);
        record.downloads = record.downloads.saturating_add(1);
        self.totals.downloads += 1;
        self.event_queue.push(|| TorrentEvent::Completed(announce.info_hash));
        self.changes.push(announce, Word::completed(announce.role));
    }

    /// Creates the torrent of a new peer and returns its number; `None` if the peer may not be
    /// stored.
    fn create_for(&mut self, staged: &StagedAnnounce<'_>, update: &PeerUpdate<'_>) -> Option<u32> {
        let is_admitted = match staged.announce.peer {
            PeerKey::V4(key) => self.admits::<PackedV4>(key, update),
            PeerKey::V6(key) => self.admits::<PackedV6>(key, update),
        };
        if !is_admitted {
            return None;
        }
        let created = self.create(update.meta.now, staged.announce.info_hash, staged.hash);
        self.totals.refused_for_memory += u64::from(created.is_none());
        created
    }

    /// Adds the first v6 peer of a torrent with inline peers.
    fn add_first_v6(
        &mut self,
        number: u32,
        key: [u8; 18],
        mut update: PeerUpdate<'_>,
        random: &mut Random,
    ) -> Result<(PeerLocation, bool), TooSoon> {
        // Before anything is allocated.
        if !update.is_admitted && !self.admits::<PackedV6>(key, &update) {
            return Ok((PeerLocation::Nowhere, true));
        }
        update.is_admitted = true;
        self.spill(number, random);
        self.update_spilled::<PackedV6>(number, key, &update, random)
    }

    /// Adds or refreshes a peer of a torrent with inline peers. Returns where the peer is and
    /// whether its download was already counted, or an error if the announce comes too soon.
    // There is one caller. Without the hint the compiler's choice takes 50 instructions more an
    // announce.
    #[inline(always)]
    fn update_inline(
        &mut self,
        number: u32,
        key: [u8; 6],
        update: &PeerUpdate<'_>,
        random: &mut Random,
    ) -> Result<(PeerLocation, bool), TooSoon> {
        let PeerUpdate { own, meta, .. } = *update;
        let record = self.records.at_mut(number);
        let known = record.inline_peers().iter().position(|peer| peer.wire() == key);
        if let Some(at) = known {
            let role = if at < record.inline_seeders.into() { SEEDERS } else { LEECHERS };
            let old = record.inline_peers()[at].meta();
            if role == own && old.is_partial() == meta.partial {
                record.inline_slots()[at].set_meta(meta.renew(old)?);
                self.keep_refresh(update, old);
                return Ok((PeerLocation::Inline(at), old.is_counted()));
            }
            let new = meta.meta(old.is_counted());
            take_inline(record, at);
            let at = put_inline(record, own, PackedV4::new(key, new));
            self.count_removed::<PackedV4>(number, role, old);
            self.count_added::<PackedV4>(number, own, new);
            self.keep_change(update, old.is_counted());
            return Ok((PeerLocation::Inline(at), old.is_counted()));
        }
        if !update.is_admitted && !self.admits::<PackedV4>(key, update) {
            return Ok((PeerLocation::Nowhere, true));
        }
        // Most caps are above what a record holds.
        let record = self.records.at(number);
        if u16::from(record.inline_len) >= update.announce.caps.least() {
            self.make_room_inline(number, key, update);
        }
        let record = self.records.at_mut(number);
        if usize::from(record.inline_len) == INLINE_MAX {
            self.spill(number, random);
            let update = PeerUpdate { is_admitted: true, ..*update };
            return self.update_spilled::<PackedV4>(number, key, &update, random);
        }
        let new = meta.meta(false);
        self.networks.add::<PackedV4>(key);
        let record = self.records.at_mut(number);
        let at = put_inline(record, own, PackedV4::new(key, new));
        self.count_added::<PackedV4>(number, own, new);
        self.keep_change(update, false);
        Ok((PeerLocation::Inline(at), false))
    }

    /// Moves inline peers into sets.
    pub(super) fn spill(&mut self, number: u32, random: &mut Random) {
        let record = self.records.at_mut(number);
        let (peers, seeders) = (*record.inline_slots(), usize::from(record.inline_seeders));
        let len = usize::from(record.inline_len);
        record.become_spilled();
        let mut sets = *record.sets();
        let hash = peer_hash::<PackedV4>(&self.key);
        for (at, peer) in peers.into_iter().take(len).enumerate() {
            let role = if at < seeders { SEEDERS } else { LEECHERS };
            sets.v4[role].insert(&mut self.arena, peer, hash, random);
        }
        *self.records.at_mut(number).sets_mut() = sets;
    }

    /// Does what [`Shard::update_inline`] does for a torrent with sets.
    fn update_spilled<E: FamilyPeers>(
        &mut self,
        number: u32,
        key: E::Key,
        update: &PeerUpdate<'_>,
        random: &mut Random,
    ) -> Result<(PeerLocation, bool), TooSoon> {
        let PeerUpdate { own, meta, .. } = *update;
        let hash = peer_hash::<E>(&self.key);
        let mut sets = *E::sets(self.records.at(number).sets());
        if let Some(position) = sets[own].find(&self.arena, key, hash) {
            let renew = |old| meta.renew(old);
            let (old, position) = sets[own].refresh(&mut self.arena, position, renew, random)?;
            if old.is_partial() != meta.partial {
                self.count_removed::<E>(number, own, old);
                self.count_added::<E>(number, own, meta.meta(old.is_counted()));
                self.keep_change(update, old.is_counted());
            } else {
                self.keep_refresh(update, old);
            }
            return Ok((PeerLocation::Set(own, position), old.is_counted()));
        }
        let mut was_counted = false;
        let other = 1 - own;
        if let Some(position) = sets[other].find(&self.arena, key, hash) {
            let old = sets[other].remove(&mut self.arena, position, hash).meta();
            was_counted = old.is_counted();
            self.count_removed::<E>(number, other, old);
        } else {
            if !update.is_admitted && !self.admits::<E>(key, update) {
                return Ok((PeerLocation::Nowhere, true));
            }
            if self.make_room::<E>(number, key, update) {
                sets = *E::sets(self.records.at(number).sets());
            }
            self.networks.add::<E>(key);
        }
        let new = meta.meta(was_counted);
        let position = sets[own].insert(&mut self.arena, E::new(key, new), hash, random);
        *E::sets_mut(self.records.at_mut(number).sets_mut()) = sets;
        self.count_added::<E>(number, own, new);
        self.keep_change(update, was_counted);
        Ok((PeerLocation::Set(own, position), was_counted))
    }

    /// Keeps the refresh of a peer whose metadata was `old`, if it must be sent.
    #[inline(always)]
    fn keep_refresh(&mut self, update: &PeerUpdate<'_>, old: PeerMeta) {
        if self.refresh_period != 0 {
            self.keep_refresh_if_due(update, old);
        }
    }

    // Not inline: without a cluster there is none.
    #[inline(never)]
    fn keep_refresh_if_due(&mut self, update: &PeerUpdate<'_>, old: PeerMeta) {
        let PeerUpdate { announce, meta, .. } = update;
        let phase = || refresh::phase(&announce.peer);
        let (age, unit) = (old.age(meta.now), meta.now.0 / AGE_UNIT_S);
        // A completed download is kept when it is counted.
        if refresh::is_due(age, unit, phase, self.refresh_period)
            && (old.is_counted() || !meta.completed)
        {
            let word = Word::present(0, announce.role, old.is_counted());
            self.changes.push_refresh(announce, word);
        }
    }

    /// Keeps the change of a peer that came or changed its role.
    #[inline]
    fn keep_change(&mut self, update: &PeerUpdate<'_>, was_counted: bool) {
        if !self.changes.is_on() {
            return;
        }
        // A completed download is kept when it is counted.
        if was_counted || !update.meta.completed {
            let announce = update.announce;
            self.changes.push(announce, Word::present(0, announce.role, was_counted));
        }
    }
}

/// Returns the set that the announcing peer belongs to, and which sets are useful to it. Seeders
/// need no seeders, and neither do partial seeds (BEP 21), which download nothing.
pub(super) fn interest(announce: &StoreAnnounce) -> (usize, [bool; 2]) {
    match announce.role {
        Role::Seeder => (SEEDERS, [false, true]),
        Role::PartialSeed => (LEECHERS, [false, true]),
        Role::Leecher => (LEECHERS, [true, true]),
    }
}

/// Removes an inline peer. Returns its metadata and role.
pub(super) fn take_inline(record: &mut Record, at: usize) -> (PeerMeta, usize) {
    let (len, seeders) = (usize::from(record.inline_len), usize::from(record.inline_seeders));
    let peers = record.inline_slots();
    let meta = peers[at].meta();
    if at < seeders {
        // The last seeder fills the gap, and the last peer the seeder's slot.
        peers[at] = peers[seeders - 1];
        peers[seeders - 1] = peers[len - 1];
        record.inline_seeders -= 1;
    } else {
        peers[at] = peers[len - 1];
    }
    record.inline_len -= 1;
    (meta, if at < seeders { SEEDERS } else { LEECHERS })
}

/// Inserts an inline peer among those of its role. There must be room. Returns its index.
pub(super) fn put_inline(record: &mut Record, role: usize, peer: PackedV4) -> usize {
    let (len, seeders) = (usize::from(record.inline_len), usize::from(record.inline_seeders));
    record.inline_len += 1;
    let peers = record.inline_slots();
    if role == LEECHERS {
        peers[len] = peer;
        return len;
    }
    peers[len] = peers[seeders];
    peers[seeders] = peer;
    record.inline_seeders += 1;
    seeders
}
