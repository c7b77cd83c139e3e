//! Announces: updating the swarm and choosing peers.

use primitives::Random;
use types::{
    AnnounceSummary, Families, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, PeerSink, Role,
    StoreSink, Tick, TooSoon,
};

use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::entry::Entry;
use crate::index::tag;
use crate::meta::{AGE_UNIT_S, PeerMeta, age_min};
use crate::record::{INLINE_MAX, Record};
use crate::set::{PeerSet, Position};
use crate::{Action, PeerCaps, StoreAnnounce, TorrentEvent};

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

/// How an announce changes its peer's metadata.
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

/// How an announce changes its torrent.
#[derive(Clone, Copy)]
pub(super) struct PeerUpdate<'a> {
    /// The set that the peer belongs to.
    pub(super) own: usize,
    pub(super) meta: MetaUpdate,
    /// As in [`StoreAnnounce`].
    pub(super) caps: PeerCaps,
    /// Whether the peer's network is exempt from caps.
    pub(super) is_exempt: &'a dyn Fn() -> bool,
}

/// Where the announcing peer is after its announce.
#[derive(Clone, Copy)]
enum PeerLocation {
    /// In no set: it was not stored.
    Nowhere,
    /// Inline in the record, at that index.
    Inline(usize),
    /// In the set of that role, at that position.
    Set(usize, Position),
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
                Action::Stop => self.stop(staged, sink),
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

    fn stop(&mut self, staged: &StagedAnnounce<'_>, sink: &mut impl StoreSink) {
        let announce = staged.announce;
        let Some(number) = self.locate(staged) else {
            return sink.accept(staged.announce.slot, &AnnounceSummary::default());
        };
        match announce.peer {
            PeerKey::V4(key) if !self.records.at(number).is_spilled() => {
                self.stop_inline(number, key)
            }
            PeerKey::V4(key) => self.stop_spilled::<PackedV4>(number, key),
            PeerKey::V6(key) if self.records.at(number).is_spilled() => {
                self.stop_spilled::<PackedV6>(number, key);
            }
            PeerKey::V6(_) => {}
        }
        self.remove_id(announce.info_hash, announce.peer);
        let counts = self.counts_at(number);
        sink.accept(staged.announce.slot, &AnnounceSummary { counts, v4: 0, v6: 0 });
    }

    fn stop_inline(&mut self, number: u32, key: [u8; 6]) {
        let record = self.records.at_mut(number);
        if let Some(at) = record.inline_peers().iter().position(|peer| peer.wire() == key) {
            let (meta, role) = take_inline(record, at);
            self.count_removed::<PackedV4>(number, role, meta);
        }
    }

    fn stop_spilled<E: FamilyPeers>(&mut self, number: u32, key: E::Key) {
        let hash = peer_hash::<E>(&self.key);
        for role in [SEEDERS, LEECHERS] {
            let mut set = E::sets(self.records.at(number).sets())[role];
            if let Some(position) = set.find(&self.arena, key, hash) {
                let gone = set.remove(&mut self.arena, position, hash);
                E::sets_mut(self.records.at_mut(number).sets_mut())[role] = set;
                return self.count_removed::<E>(number, role, gone.meta());
            }
        }
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

    fn count_added<E: FamilyPeers>(&mut self, number: u32, role: usize, meta: PeerMeta) {
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
        let found = self.locate(staged);
        let found = found.or_else(|| {
            if self.is_full() { None } else { self.create(now, announce.info_hash, staged.hash) }
        });
        let Some(number) = found else {
            self.totals.refused_for_memory += 1;
            return sink.accept(staged.announce.slot, &AnnounceSummary::default());
        };
        let partial = announce.role == Role::PartialSeed;
        let update = PeerUpdate {
            own: interest(announce).0,
            meta: MetaUpdate { now, completed, partial, min_interval_s: announce.min_interval_s },
            caps: announce.caps,
            is_exempt: &|| sink.is_exempt(announce.slot),
        };
        let updated = match announce.peer {
            PeerKey::V4(key) if !self.records.at(number).is_spilled() => {
                self.update_inline(number, key, &update, random)
            }
            PeerKey::V4(key) => self.update_spilled::<PackedV4>(number, key, &update, random),
            PeerKey::V6(key) => {
                if !self.records.at(number).is_spilled() {
                    self.spill(number, random);
                }
                self.update_spilled::<PackedV6>(number, key, &update, random)
            }
        };
        let (location, was_counted) = match updated {
            Ok(updated) => updated,
            Err(too_soon) => return sink.too_soon(staged.announce.slot, too_soon),
        };
        //= bep3#announce-completed-once
        if completed && !was_counted {
            let record = self.records.at_mut(number);
            record.downloads = record.downloads.saturating_add(1);
            self.totals.downloads += 1;
            self.event_queue.push(|| TorrentEvent::Completed(announce.info_hash));
            sink.downloaded(staged.announce.slot);
        }
        if let Some(ids) = &mut self.ids
            && !matches!(location, PeerLocation::Nowhere)
        {
            ids.insert((announce.info_hash, announce.peer), announce.peer_id);
        }
        self.answer(staged, number, location, random, sink);
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
                return Ok((PeerLocation::Inline(at), old.is_counted()));
            }
            let new = meta.meta(old.is_counted());
            take_inline(record, at);
            let at = put_inline(record, own, PackedV4::new(key, new));
            self.count_removed::<PackedV4>(number, role, old);
            self.count_added::<PackedV4>(number, own, new);
            return Ok((PeerLocation::Inline(at), old.is_counted()));
        }
        // Most caps are above what a record holds.
        if u16::from(record.inline_len) >= update.caps.least() {
            self.make_room_inline(number, key, update);
        }
        let record = self.records.at_mut(number);
        if usize::from(record.inline_len) == INLINE_MAX {
            if self.is_full() {
                self.totals.refused_for_memory += 1;
                return Ok((PeerLocation::Nowhere, true));
            }
            self.spill(number, random);
            return self.update_spilled::<PackedV4>(number, key, update, random);
        }
        let new = meta.meta(false);
        let at = put_inline(record, own, PackedV4::new(key, new));
        self.count_added::<PackedV4>(number, own, new);
        Ok((PeerLocation::Inline(at), false))
    }

    /// Moves inline peers into sets.
    fn spill(&mut self, number: u32, random: &mut Random) {
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
            }
            return Ok((PeerLocation::Set(own, position), old.is_counted()));
        }
        let mut was_counted = false;
        let other = 1 - own;
        if let Some(position) = sets[other].find(&self.arena, key, hash) {
            let old = sets[other].remove(&mut self.arena, position, hash).meta();
            was_counted = old.is_counted();
            self.count_removed::<E>(number, other, old);
        } else if self.is_full() {
            self.totals.refused_for_memory += 1;
            return Ok((PeerLocation::Nowhere, true));
        } else if self.make_room::<E>(number, key, update) {
            sets = *E::sets(self.records.at(number).sets());
        }
        let new = meta.meta(was_counted);
        let position = sets[own].insert(&mut self.arena, E::new(key, new), hash, random);
        *E::sets_mut(self.records.at_mut(number).sets_mut()) = sets;
        self.count_added::<E>(number, own, new);
        Ok((PeerLocation::Set(own, position), was_counted))
    }

    /// Chooses peers and writes the answer.
    fn answer(
        &self,
        staged: &StagedAnnounce<'_>,
        number: u32,
        location: PeerLocation,
        random: &mut Random,
        sink: &mut impl StoreSink,
    ) {
        let record = self.records.at(number);
        let announce = staged.announce;
        let counts = self.counts_at(number);
        let mut summary = AnnounceSummary { counts, v4: 0, v6: 0 };
        if announce.want == 0 {
            return sink.accept(staged.announce.slot, &summary);
        }
        let (_, wanted) = interest(announce);
        let is_v4 = matches!(announce.peer, PeerKey::V4(_));
        let both = announce.families == Families::Both;
        // How many other peers there are: v4 seeders, v4 leechers, v6 seeders, v6 leechers.
        let mut others =
            [counts.v4.seeders, counts.v4.leechers, counts.v6.seeders, counts.v6.leechers];
        let own = own_set(record, location, is_v4);
        for (set, others) in others.iter_mut().enumerate() {
            let family_fits = both || (set < 2) == is_v4;
            *others = if family_fits && wanted[set % 2] { *others } else { 0 };
            *others -= u32::from(own == Some(set) && *others > 0);
        }
        let shares = apportion(others, announce.want.into(), random);
        summary.v4 = (shares[0] + shares[1]) as u16;
        summary.v6 = (shares[2] + shares[3]) as u16;
        sink.accept(staged.announce.slot, &summary);
        if !record.is_spilled() {
            return self.push_inline(staged, record, location, shares, sink);
        }
        let sets = record.sets();
        for role in [SEEDERS, LEECHERS] {
            let skip = position_in(location, is_v4, role);
            self.push_set(staged, &sets.v4[role], shares[role], skip, sink);
        }
        for role in [SEEDERS, LEECHERS] {
            let skip = position_in(location, !is_v4, role);
            self.push_set(staged, &sets.v6[role], shares[2 + role], skip, sink);
        }
    }

    fn push_set<E: Entry>(
        &self,
        staged: &StagedAnnounce<'_>,
        set: &PeerSet<E>,
        count: u32,
        skip: Option<Position>,
        sink: &mut impl StoreSink,
    ) {
        set.sample(&self.arena, count, skip, staged.sample_seed, |peers| {
            self.push(staged, peers, sink);
        });
    }

    /// Pushes inline peers one by one: those of each role in a circle from a random start.
    fn push_inline(
        &self,
        staged: &StagedAnnounce<'_>,
        record: &Record,
        location: PeerLocation,
        shares: [u32; 4],
        sink: &mut impl StoreSink,
    ) {
        let own = if let PeerLocation::Inline(at) = location { at } else { INLINE_MAX };
        let (seeders, leechers) = record.inline_peers().split_at(record.inline_seeders.into());
        let mut random = Random::new(staged.sample_seed);
        for (peers, first, take) in
            [(seeders, 0, shares[SEEDERS]), (leechers, seeders.len(), shares[LEECHERS])]
        {
            let own = own.checked_sub(first).filter(|own| *own < peers.len());
            let others = peers.len() - usize::from(own.is_some());
            let start = random.below(others as u32) as usize;
            for step in 0..(take as usize).min(others) {
                let at = (start + step) % others;
                let at = at + usize::from(own.is_some_and(|own| at >= own));
                self.push(staged, &peers[at..=at], sink);
            }
        }
    }

    fn push<E: Entry>(&self, staged: &StagedAnnounce<'_>, peers: &[E], sink: &mut impl PeerSink) {
        if !staged.announce.with_ids {
            return E::push(sink, staged.announce.slot, peers);
        }
        for peer in peers {
            let key = peer.peer_key();
            sink.peer_with_id(staged.announce.slot, key, self.id(staged.announce.info_hash, key));
        }
    }

    fn id(&self, info_hash: InfoHash, peer: PeerKey) -> PeerId {
        let Some(ids) = &self.ids else { return PeerId::default() };
        let id = ids.get(&(info_hash, peer));
        debug_assert!(id.is_some(), "where ids are kept, every peer has one");
        id.copied().unwrap_or_default()
    }
}

/// Returns the set that the announcing peer belongs to, and which sets are useful to it. Seeders
/// need no seeders, and neither do partial seeds (BEP 21), which download nothing.
fn interest(announce: &StoreAnnounce) -> (usize, [bool; 2]) {
    match announce.role {
        Role::Seeder => (SEEDERS, [false, true]),
        Role::PartialSeed => (LEECHERS, [false, true]),
        Role::Leecher => (LEECHERS, [true, true]),
    }
}

/// Returns which of the four sets the announcing peer is in.
fn own_set(record: &Record, location: PeerLocation, is_v4: bool) -> Option<usize> {
    match location {
        PeerLocation::Nowhere => None,
        PeerLocation::Inline(at) => Some(usize::from(at >= usize::from(record.inline_seeders))),
        PeerLocation::Set(role, _) => Some(role + if is_v4 { 0 } else { 2 }),
    }
}

/// Returns the announcing peer's position in the set of `role`, if it is in that set.
fn position_in(location: PeerLocation, is_own_family: bool, role: usize) -> Option<Position> {
    match location {
        PeerLocation::Set(own, position) if is_own_family && own == role => Some(position),
        _ => None,
    }
}

/// Returns how many of `want` peers to take from each set: all if that is enough, else in
/// proportion, with the remainder distributed at random, so that every peer has the same
/// probability.
pub(super) fn apportion(others: [u32; 4], want: u32, random: &mut Random) -> [u32; 4] {
    let total: u64 = others.iter().map(|others| u64::from(*others)).sum();
    if total <= u64::from(want) {
        return others;
    }
    let shift = u64::from(random.below(u32::try_from(total).unwrap_or(u32::MAX)));
    let mut before = 0;
    let mut sum = 0_u64;
    others.map(|others| {
        sum += u64::from(others);
        // Most torrents have two sets with peers, and the last set's share needs no division.
        let until = match others {
            0 => before,
            _ if sum == total => want,
            _ => ((u64::from(want) * sum + shift) / total) as u32,
        };
        let take = until - before;
        before = until;
        take
    })
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
fn put_inline(record: &mut Record, role: usize, peer: PackedV4) -> usize {
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
