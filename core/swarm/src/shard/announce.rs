//! Announces: the swarm changes, and peers are chosen.

use primitives::Random;
use types::{
    AnnounceSummary, Families, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Role, StoreSink,
    Tick, TooSoon,
};

use super::{LEECHERS, Of, SEEDERS, Shard, peer_hash};
use crate::entry::Entry;
use crate::index::tag;
use crate::mark::{Mark, UNIT_S, age_min};
use crate::record::{FEW, Record};
use crate::set::{PeerSet, Place};
use crate::{Action, StoreAnnounce, TorrentEvent};

/// A job on its way through the stages of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    /// Its number in the batch.
    pub(crate) at: usize,
    pub(crate) job: &'a StoreAnnounce,
    /// Of the torrent, under the store's key.
    pub(crate) hash: u64,
    /// Decides which peers are chosen; drawn early, so that they can be fetched early.
    pub(crate) sample_seed: u64,
    /// The record that it probably means. Other jobs of the batch may move it.
    pub(crate) guess: Option<u32>,
}

impl<'a> Draft<'a> {
    /// Job number `at` of its batch.
    #[inline]
    pub(crate) fn new(at: usize, job: &'a StoreAnnounce, hash: u64, sample_seed: u64) -> Self {
        Self { at, job, hash, sample_seed, guess: None }
    }
}

/// What an announce makes of its peer's mark.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) now: Tick,
    /// The peer has just ended its download.
    pub(super) completed: bool,
    pub(super) partial: bool,
    /// As in [`StoreAnnounce`].
    pub(super) min_interval_s: u32,
}

impl Stamp {
    /// The mark of a peer whose download was counted, or not.
    #[inline]
    pub(super) fn mark(self, counted: bool) -> Mark {
        Mark::new(self.now, counted | self.completed, self.partial)
    }

    /// The mark that comes after `old`, for a peer whose role stays. If it is too soon, that is said.
    #[inline]
    pub(super) fn renew(self, old: Mark) -> Result<Mark, TooSoon> {
        if self.min_interval_s > 0 {
            self.check(old)?;
        }
        Ok(self.mark(old.is_counted()))
    }

    /// Apart, because most trackers ask for no spacing.
    #[cold]
    fn check(self, old: Mark) -> Result<(), TooSoon> {
        let age = old.age(self.now);
        if age < age_min(self.min_interval_s) && old.is_partial() == self.partial {
            return Err(TooSoon { age_s: age * UNIT_S });
        }
        Ok(())
    }
}

/// Where the asker is after its announce.
#[derive(Clone, Copy)]
enum Spot {
    /// In no set: it has left, or was not stored.
    Nowhere,
    /// At that place in the record.
    Few(usize),
    /// At that place of the set of that role.
    Set(usize, Place),
}

impl Shard {
    /// Does a batch. Each stage asks for the memory that the next needs, for all jobs, so that they
    /// wait for it together and not one after the other.
    pub(crate) fn announce(
        &mut self,
        now: Tick,
        drafts: &mut [Draft<'_>],
        sink: &mut impl StoreSink,
    ) {
        if drafts.len() > 1 {
            for draft in drafts.iter() {
                self.index.prefetch(tag(draft.hash));
            }
            for draft in drafts.iter_mut() {
                draft.guess = self.index.find(tag(draft.hash), |_| true);
                draft.guess.into_iter().for_each(|number| self.records.prefetch(number));
            }
            drafts.iter().for_each(|draft| self.prefetch_sets(draft));
            drafts.iter().for_each(|draft| self.prefetch_pages(draft));
        }
        for draft in drafts {
            // Not the stream that chooses peers: where one is put must say nothing of who is chosen.
            let mut random = Random::new(!draft.sample_seed);
            match draft.job.action {
                Action::Stop => self.stop(draft, sink),
                Action::Update { completed } => {
                    self.update(now, &mut random, draft, completed, sink);
                }
            }
        }
    }

    /// Asks for the lines of small sets, and the heads of directories.
    fn prefetch_sets(&self, draft: &Draft<'_>) {
        let Some(record) = self.guessed(draft) else { return };
        let sets = record.sets();
        match draft.job.peer {
            PeerKey::V4(_) => self.prefetch_heads(draft.job, &sets.v4),
            PeerKey::V6(_) => self.prefetch_heads(draft.job, &sets.v6),
        }
    }

    fn prefetch_heads<E: Entry>(&self, job: &StoreAnnounce, sets: &[PeerSet<E>; 2]) {
        let (own, wanted) = interest(job);
        for role in [SEEDERS, LEECHERS] {
            if own == role || (wanted[role] && job.want > 0) {
                sets[role].prefetch(&self.arena);
            }
        }
    }

    /// Asks for the pages of large sets, now that their directories are here.
    fn prefetch_pages(&self, draft: &Draft<'_>) {
        let Some(record) = self.guessed(draft) else { return };
        let sets = record.sets();
        match draft.job.peer {
            PeerKey::V4(key) => self.prefetch_family(draft, &sets.v4, key),
            PeerKey::V6(key) => self.prefetch_family(draft, &sets.v6, key),
        }
    }

    fn prefetch_family<E: Entry>(&self, draft: &Draft<'_>, sets: &[PeerSet<E>; 2], key: E::Key) {
        let (own, wanted) = interest(draft.job);
        sets[own].prefetch_own(&self.arena, || peer_hash(&self.key)(key));
        let lens = [SEEDERS, LEECHERS].map(|role| if wanted[role] { sets[role].len() } else { 0 });
        let total = (lens[SEEDERS] + lens[LEECHERS]).max(1);
        for role in [SEEDERS, LEECHERS] {
            if sets[role].is_paged() {
                let share = u64::from(draft.job.want) * u64::from(lens[role]) / u64::from(total);
                let count = (share as u32 + 1).min(lens[role]);
                sets[role].prefetch_sample(&self.arena, draft.sample_seed, count);
            }
        }
    }

    /// The record that a draft probably means, if its peers are in sets.
    fn guessed(&self, draft: &Draft<'_>) -> Option<&Record> {
        let record = self.records.at(draft.guess?);
        record.is_many().then_some(record)
    }

    /// The record that a draft means.
    #[inline]
    fn locate(&self, draft: &Draft<'_>) -> Option<u32> {
        let info_hash = &draft.job.info_hash;
        let is_it = |number: &u32| {
            *number < self.records.len() && self.records.at(*number).info_hash == *info_hash
        };
        draft.guess.filter(is_it).or_else(|| self.find(info_hash, draft.hash))
    }

    fn stop(&mut self, draft: &Draft<'_>, sink: &mut impl StoreSink) {
        let job = draft.job;
        let Some(number) = self.locate(draft) else {
            return sink.chosen(draft.at, &AnnounceSummary::default());
        };
        match job.peer {
            PeerKey::V4(key) if !self.records.at(number).is_many() => self.stop_few(number, key),
            PeerKey::V4(key) => self.stop_many::<PackedV4>(number, key),
            PeerKey::V6(key) if self.records.at(number).is_many() => {
                self.stop_many::<PackedV6>(number, key);
            }
            PeerKey::V6(_) => {}
        }
        self.forget_id(job.info_hash, job.peer);
        let counts = self.counts_at(number);
        sink.chosen(draft.at, &AnnounceSummary { counts, v4: 0, v6: 0 });
    }

    fn stop_few(&mut self, number: u32, key: [u8; 6]) {
        let record = self.records.at_mut(number);
        if let Some(at) = record.few().iter().position(|peer| peer.wire() == key) {
            let (mark, role) = take_few(record, at);
            self.count_gone::<PackedV4>(number, role, mark);
        }
    }

    fn stop_many<E: Of>(&mut self, number: u32, key: E::Key) {
        let hash = peer_hash(&self.key);
        for role in [SEEDERS, LEECHERS] {
            let mut set = E::sets(self.records.at(number).sets())[role];
            if let Some(place) = set.find(&self.arena, key, hash) {
                let gone = set.remove(&mut self.arena, place, hash);
                E::sets_mut(self.records.at_mut(number).sets_mut())[role] = set;
                return self.count_gone::<E>(number, role, gone.mark());
            }
        }
    }

    /// Keeps the figures right when a peer leaves.
    pub(super) fn count_gone<E: Of>(&mut self, number: u32, role: usize, mark: Mark) {
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= 1;
        if mark.is_partial() {
            self.records.at_mut(number).partial_seeds -= 1;
            self.totals.partial_seeds -= 1;
        }
    }

    fn count_come<E: Of>(&mut self, number: u32, role: usize, mark: Mark) {
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } += 1;
        if mark.is_partial() {
            self.records.at_mut(number).partial_seeds += 1;
            self.totals.partial_seeds += 1;
        }
    }

    fn update(
        &mut self,
        now: Tick,
        random: &mut Random,
        draft: &Draft<'_>,
        completed: bool,
        sink: &mut impl StoreSink,
    ) {
        let job = draft.job;
        let found = self.locate(draft);
        let found = found.or_else(|| {
            if self.is_full() { None } else { self.create(now, job.info_hash, draft.hash) }
        });
        let Some(number) = found else {
            self.totals.refused_for_memory += 1;
            return sink.chosen(draft.at, &AnnounceSummary::default());
        };
        let partial = job.role == Role::PartialSeed;
        let stamp = Stamp { now, completed, partial, min_interval_s: job.min_interval_s };
        let (own, _) = interest(job);
        let updated = match job.peer {
            PeerKey::V4(key) if !self.records.at(number).is_many() => {
                self.update_few(number, own, key, stamp, random)
            }
            PeerKey::V4(key) => self.update_many::<PackedV4>(number, own, key, stamp, random),
            PeerKey::V6(key) => {
                if !self.records.at(number).is_many() {
                    self.spread(number, random);
                }
                self.update_many::<PackedV6>(number, own, key, stamp, random)
            }
        };
        let (spot, was_counted) = match updated {
            Ok(updated) => updated,
            Err(too_soon) => return sink.too_soon(draft.at, too_soon),
        };
        //= bep3#announce-completed-once
        if completed && !was_counted {
            let record = self.records.at_mut(number);
            record.downloads = record.downloads.saturating_add(1);
            self.totals.downloads += 1;
            self.ear.hear(|| TorrentEvent::Completed(job.info_hash));
            sink.downloaded(draft.at);
        }
        if let Some(ids) = &mut self.ids
            && !matches!(spot, Spot::Nowhere)
        {
            ids.insert((job.info_hash, job.peer), job.peer_id);
        }
        self.answer(draft, number, spot, random, sink);
    }

    /// Enters or refreshes a peer of a torrent whose peers are in its record. Says where it is, and
    /// whether its download had been counted; or that it came too soon, and nothing was done.
    // There is one caller, and left to itself the compiler takes 50 instructions more for an announce.
    #[inline(always)]
    fn update_few(
        &mut self,
        number: u32,
        own: usize,
        key: [u8; 6],
        stamp: Stamp,
        random: &mut Random,
    ) -> Result<(Spot, bool), TooSoon> {
        let record = self.records.at_mut(number);
        let known = record.few().iter().position(|peer| peer.wire() == key);
        if let Some(at) = known {
            let role = if at < record.few_seeders.into() { SEEDERS } else { LEECHERS };
            let old = record.few()[at].mark();
            if role == own && old.is_partial() == stamp.partial {
                record.few_mut()[at].set_mark(stamp.renew(old)?);
                return Ok((Spot::Few(at), old.is_counted()));
            }
            let new = stamp.mark(old.is_counted());
            take_few(record, at);
            let at = put_few(record, own, PackedV4::new(key, new));
            self.count_gone::<PackedV4>(number, role, old);
            self.count_come::<PackedV4>(number, own, new);
            return Ok((Spot::Few(at), old.is_counted()));
        }
        if usize::from(record.few) == FEW {
            if self.is_full() {
                self.totals.refused_for_memory += 1;
                return Ok((Spot::Nowhere, true));
            }
            self.spread(number, random);
            return self.update_many::<PackedV4>(number, own, key, stamp, random);
        }
        let new = stamp.mark(false);
        let at = put_few(record, own, PackedV4::new(key, new));
        self.count_come::<PackedV4>(number, own, new);
        Ok((Spot::Few(at), false))
    }

    /// Moves a record's few peers into sets.
    fn spread(&mut self, number: u32, random: &mut Random) {
        let record = self.records.at_mut(number);
        let (peers, seeders) = (*record.few_mut(), usize::from(record.few_seeders));
        let len = usize::from(record.few);
        record.become_many();
        let mut sets = *record.sets();
        let hash = peer_hash(&self.key);
        for (at, peer) in peers.into_iter().take(len).enumerate() {
            let role = if at < seeders { SEEDERS } else { LEECHERS };
            sets.v4[role].insert(&mut self.arena, peer, hash, random);
        }
        *self.records.at_mut(number).sets_mut() = sets;
    }

    /// The same as [`Shard::update_few`] for a torrent with sets.
    fn update_many<E: Of>(
        &mut self,
        number: u32,
        own: usize,
        key: E::Key,
        stamp: Stamp,
        random: &mut Random,
    ) -> Result<(Spot, bool), TooSoon> {
        let hash = peer_hash(&self.key);
        let mut sets = *E::sets(self.records.at(number).sets());
        if let Some(place) = sets[own].find(&self.arena, key, hash) {
            let renew = |old| stamp.renew(old);
            let (old, place) = sets[own].refresh(&mut self.arena, place, renew, random)?;
            if old.is_partial() != stamp.partial {
                self.count_gone::<E>(number, own, old);
                self.count_come::<E>(number, own, stamp.mark(old.is_counted()));
            }
            return Ok((Spot::Set(own, place), old.is_counted()));
        }
        let mut was_counted = false;
        let other = 1 - own;
        if let Some(place) = sets[other].find(&self.arena, key, hash) {
            let old = sets[other].remove(&mut self.arena, place, hash).mark();
            was_counted = old.is_counted();
            self.count_gone::<E>(number, other, old);
        } else if self.is_full() {
            self.totals.refused_for_memory += 1;
            return Ok((Spot::Nowhere, true));
        }
        let new = stamp.mark(was_counted);
        let place = sets[own].insert(&mut self.arena, E::new(key, new), hash, random);
        *E::sets_mut(self.records.at_mut(number).sets_mut()) = sets;
        self.count_come::<E>(number, own, new);
        Ok((Spot::Set(own, place), was_counted))
    }

    /// Chooses peers, and says so.
    fn answer(
        &self,
        draft: &Draft<'_>,
        number: u32,
        spot: Spot,
        random: &mut Random,
        sink: &mut impl StoreSink,
    ) {
        let record = self.records.at(number);
        let job = draft.job;
        let counts = self.counts_at(number);
        let mut chosen = AnnounceSummary { counts, v4: 0, v6: 0 };
        if job.want == 0 {
            return sink.chosen(draft.at, &chosen);
        }
        let (_, wanted) = interest(job);
        let is_v4 = matches!(job.peer, PeerKey::V4(_));
        let both = job.families == Families::Both;
        // v4 seeders, v4 leechers, v6 seeders, v6 leechers: how many others there are of each.
        let mut others =
            [counts.v4.seeders, counts.v4.leechers, counts.v6.seeders, counts.v6.leechers];
        let own = own_set(record, spot, is_v4);
        for (set, others) in others.iter_mut().enumerate() {
            let family_fits = both || (set < 2) == is_v4;
            *others = if family_fits && wanted[set % 2] { *others } else { 0 };
            *others -= u32::from(own == Some(set) && *others > 0);
        }
        let takes = split(others, job.want.into(), random);
        chosen.v4 = (takes[0] + takes[1]) as u16;
        chosen.v6 = (takes[2] + takes[3]) as u16;
        sink.chosen(draft.at, &chosen);
        if !record.is_many() {
            return self.push_few(draft, record, spot, takes, sink);
        }
        let sets = record.sets();
        for role in [SEEDERS, LEECHERS] {
            let skip = place_in(spot, is_v4, role);
            self.push_set(draft, &sets.v4[role], takes[role], skip, sink);
        }
        for role in [SEEDERS, LEECHERS] {
            let skip = place_in(spot, !is_v4, role);
            self.push_set(draft, &sets.v6[role], takes[2 + role], skip, sink);
        }
    }

    fn push_set<E: Entry>(
        &self,
        draft: &Draft<'_>,
        set: &PeerSet<E>,
        count: u32,
        skip: Option<Place>,
        sink: &mut impl StoreSink,
    ) {
        set.sample(&self.arena, count, skip, draft.sample_seed, |peers| {
            self.push(draft, peers, sink);
        });
    }

    /// Few peers are chosen one by one: each role's in a circle from a random start.
    fn push_few(
        &self,
        draft: &Draft<'_>,
        record: &Record,
        spot: Spot,
        takes: [u32; 4],
        sink: &mut impl StoreSink,
    ) {
        let own = if let Spot::Few(at) = spot { at } else { FEW };
        let (seeders, leechers) = record.few().split_at(record.few_seeders.into());
        let mut random = Random::new(draft.sample_seed);
        for (peers, first, take) in
            [(seeders, 0, takes[SEEDERS]), (leechers, seeders.len(), takes[LEECHERS])]
        {
            let own = own.checked_sub(first).filter(|own| *own < peers.len());
            let others = peers.len() - usize::from(own.is_some());
            let start = random.below(others as u32) as usize;
            for step in 0..(take as usize).min(others) {
                let at = (start + step) % others;
                let at = at + usize::from(own.is_some_and(|own| at >= own));
                self.push(draft, &peers[at..=at], sink);
            }
        }
    }

    fn push<E: Entry>(&self, draft: &Draft<'_>, peers: &[E], sink: &mut impl StoreSink) {
        if !draft.job.with_ids {
            return E::push(sink, draft.at, peers);
        }
        for peer in peers {
            let key = peer.peer_key();
            sink.peer_with_id(draft.at, key, self.id(draft.job.info_hash, key));
        }
    }

    fn id(&self, info_hash: InfoHash, peer: PeerKey) -> PeerId {
        let id = self.ids.as_ref().and_then(|ids| ids.get(&(info_hash, peer)));
        id.copied().unwrap_or_default()
    }
}

/// The set that the asker belongs to, and which sets are of use to it: who has everything needs no
/// seeders, and a partial seed (BEP 21) fetches nothing either.
fn interest(job: &StoreAnnounce) -> (usize, [bool; 2]) {
    match job.role {
        Role::Seeder => (SEEDERS, [false, true]),
        Role::PartialSeed => (LEECHERS, [false, true]),
        Role::Leecher => (LEECHERS, [true, true]),
    }
}

/// Which of the four sets the asker is in.
fn own_set(record: &Record, spot: Spot, is_v4: bool) -> Option<usize> {
    match spot {
        Spot::Nowhere => None,
        Spot::Few(at) => Some(usize::from(at >= usize::from(record.few_seeders))),
        Spot::Set(role, _) => Some(role + if is_v4 { 0 } else { 2 }),
    }
}

/// The asker's place in the set of `role` of a family, which is its own or not.
fn place_in(spot: Spot, is_own_family: bool, role: usize) -> Option<Place> {
    match spot {
        Spot::Set(own, place) if is_own_family && own == role => Some(place),
        _ => None,
    }
}

/// How many of `want` peers come from each set: all if there are no more, else in proportion, and
/// what is left over by chance, so that every peer's chance is the same.
pub(super) fn split(others: [u32; 4], want: u32, random: &mut Random) -> [u32; 4] {
    let total: u64 = others.iter().map(|others| u64::from(*others)).sum();
    if total <= u64::from(want) {
        return others;
    }
    let shift = u64::from(random.below(u32::try_from(total).unwrap_or(u32::MAX)));
    let mut before = 0;
    let mut sum = 0_u64;
    others.map(|others| {
        sum += u64::from(others);
        // Most torrents have two sets with peers, and the last one's share needs no division.
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

/// Takes a peer out of a record; says its mark and role.
pub(super) fn take_few(record: &mut Record, at: usize) -> (Mark, usize) {
    let (len, seeders) = (usize::from(record.few), usize::from(record.few_seeders));
    let peers = record.few_mut();
    let mark = peers[at].mark();
    if at < seeders {
        // The last seeder fills the gap, and the last peer its place.
        peers[at] = peers[seeders - 1];
        peers[seeders - 1] = peers[len - 1];
        record.few_seeders -= 1;
    } else {
        peers[at] = peers[len - 1];
    }
    record.few -= 1;
    (mark, if at < seeders { SEEDERS } else { LEECHERS })
}

/// Puts a peer where its role's are, and says where. There is room.
fn put_few(record: &mut Record, role: usize, peer: PackedV4) -> usize {
    let (len, seeders) = (usize::from(record.few), usize::from(record.few_seeders));
    record.few += 1;
    let peers = record.few_mut();
    if role == LEECHERS {
        peers[len] = peer;
        return len;
    }
    peers[len] = peers[seeders];
    peers[seeders] = peer;
    record.few_seeders += 1;
    seeders
}
