//! Announces: updating the swarm and choosing peers.

use primitives::Random;
use replication::block::Word;
use replication::{AGE_UNIT_S, PeerMeta, age_min};
use types::{AnnounceSummary, PackedV4, PackedV6, PeerId, PeerKey, Role, StoreSink, Tick, TooSoon};

use super::Shard;
use super::caps::Newcomer;
use super::torrent::{FamilyPeers, Place, peer_hash};
use crate::entry::Entry;
use crate::record::Record;
use crate::role::{ByRole, SetRole};
use crate::set::PeerSet;
use crate::{Action, StoreAnnounce, TorrentEvent};

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

    /// Returns an error if the announce of a peer whose role stays comes too soon.
    #[inline]
    pub(super) fn check(self, old: PeerMeta) -> Result<(), TooSoon> {
        if self.min_interval_s > 0 { self.check_age(old) } else { Ok(()) }
    }

    /// Apart, because most trackers enforce no minimal interval.
    #[cold]
    fn check_age(self, old: PeerMeta) -> Result<(), TooSoon> {
        let age = old.age(self.now);
        if age < age_min(self.min_interval_s) && old.is_partial() == self.partial {
            return Err(TooSoon { age_s: age * AGE_UNIT_S });
        }
        Ok(())
    }
}

/// The change that an announce makes to its torrent.
#[derive(Clone, Copy)]
struct PeerUpdate<'a> {
    staged: &'a StagedAnnounce<'a>,
    /// The set that the peer belongs to.
    role: SetRole,
    meta: MetaUpdate,
}

/// A torrent after an announce.
struct Updated {
    number: u32,
    /// The place of the announcing peer; `None` if it was not stored.
    place: Option<Place>,
    /// True if the announce was counted as a download.
    downloaded: bool,
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
            for staged in batch.iter_mut() {
                staged.guess = self.index.find(staged.hash, |_| true);
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

    fn prefetch_heads<E: Entry>(&self, announce: &StoreAnnounce, sets: &ByRole<PeerSet<E>>) {
        let own = SetRole::from(announce.role);
        for role in SetRole::BOTH {
            if own == role || (is_wanted(announce, role) && announce.want > 0) {
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
        sets: &ByRole<PeerSet<E>>,
        key: E::Key,
    ) {
        let announce = staged.announce;
        let own = &sets[announce.role.into()];
        own.prefetch_page_of(&self.arena, || peer_hash::<E>(&self.key)(key));
        let wanted_len = |role| if is_wanted(announce, role) { sets[role].len() } else { 0 };
        let lens = SetRole::BOTH.map(wanted_len);
        let total = lens.iter().sum::<u32>().max(1);
        for (set, len) in sets.iter().zip(lens) {
            if set.is_paged() {
                let share = u64::from(announce.want) * u64::from(len) / u64::from(total);
                let count = (share as u32 + 1).min(len);
                set.prefetch_sample(&self.arena, staged.sample_seed, count);
            }
        }
    }

    /// Returns the record at the guessed number, if its peers are in sets.
    fn guessed(&self, staged: &StagedAnnounce<'_>) -> Option<&Record> {
        let record = self.records.at(staged.guess?);
        record.is_spilled().then_some(record)
    }

    fn stop(&mut self, now: Tick, staged: &StagedAnnounce<'_>, sink: &mut impl StoreSink) {
        let announce = staged.announce;
        if let Some(stopped) = &mut self.stopped {
            stopped.add(announce.info_hash, announce.peer, now);
        }
        let Some(number) = self.locate(staged.guess, &announce.info_hash, staged.hash) else {
            self.keep_stop(announce, false);
            return sink.accept(staged.announce.slot, &AnnounceSummary::default());
        };
        let was_there = match announce.peer {
            PeerKey::V4(key) => self.remove_peer::<PackedV4>(number, key, announce.role),
            PeerKey::V6(key) => self.remove_peer::<PackedV6>(number, key, announce.role),
        };
        self.keep_stop(announce, was_there);
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

    /// Removes a peer. Returns whether it was there.
    fn remove_peer<E: FamilyPeers>(&mut self, number: u32, key: E::Key, likely: Role) -> bool {
        let mut torrent = self.torrent(number);
        let Some(known) = torrent.find::<E>(key, likely.into()) else { return false };
        torrent.remove::<E>(known.place);
        true
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
        let min_interval_s = announce.min_interval_s;
        let meta = MetaUpdate { now, completed, partial, min_interval_s };
        let update = PeerUpdate { staged, role: announce.role.into(), meta };
        let updated = match announce.peer {
            PeerKey::V4(key) => self.update_peer::<PackedV4>(key, &update, random),
            PeerKey::V6(key) => self.update_peer::<PackedV6>(key, &update, random),
        };
        let Updated { number, place, downloaded } = match updated {
            Ok(Some(updated)) => updated,
            Ok(None) => return sink.accept(announce.slot, &AnnounceSummary::default()),
            Err(too_soon) => return sink.too_soon(announce.slot, too_soon),
        };
        //= bep3#announce-completed-once
        if downloaded {
            self.count_download(number, announce);
            sink.downloaded(announce.slot);
        }
        if let Some(ids) = &mut self.ids
            && place.is_some()
        {
            ids.insert((announce.info_hash, announce.peer), announce.peer_id);
        }
        self.answer(staged, number, place, random, sink);
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

    /// Adds or refreshes the announcing peer. Returns `None` if its torrent is not stored, and an error if the
    /// announce comes too soon.
    // There is one caller for each family. Without the hint the compiler's choice takes 50 instructions more an
    // announce.
    #[inline(always)]
    fn update_peer<E: FamilyPeers>(
        &mut self,
        key: E::Key,
        update: &PeerUpdate<'_>,
        random: &mut Random,
    ) -> Result<Option<Updated>, TooSoon> {
        let PeerUpdate { staged, role, meta } = *update;
        let located = self.locate(staged.guess, &staged.announce.info_hash, staged.hash);
        let Some(number) = located else {
            return Ok(self.add_peer::<E>(None, key, update, random));
        };
        let mut torrent = self.torrent(number);
        let Some(known) = torrent.find::<E>(key, role) else {
            return Ok(self.add_peer::<E>(located, key, update, random));
        };
        let old = known.meta;
        let is_same = known.place.role == role && old.is_partial() == meta.partial;
        if is_same {
            meta.check(old)?;
        }
        let place = torrent.set_meta::<E>(known, role, meta.meta(old.is_counted()), random);
        if is_same {
            self.keep_refresh(update, old);
        } else {
            self.keep_change(update, old.is_counted());
        }
        let downloaded = meta.completed && !old.is_counted();
        Ok(Some(Updated { number, place: Some(place), downloaded }))
    }

    /// Adds a peer that is new, and its torrent, if there is none. Returns `None` if there is none afterwards.
    // Not inline: most peers are known.
    #[inline(never)]
    fn add_peer<E: FamilyPeers>(
        &mut self,
        located: Option<u32>,
        key: E::Key,
        update: &PeerUpdate<'_>,
        random: &mut Random,
    ) -> Option<Updated> {
        let PeerUpdate { staged: StagedAnnounce { announce, hash, .. }, role, meta } = *update;
        // Before anything is allocated.
        if !self.admits::<E>(key) {
            return Some(Updated { number: located?, place: None, downloaded: false });
        }
        let number = located.unwrap_or_else(|| self.create(meta.now, announce.info_hash, *hash));
        let newcomer = Newcomer { key, now: meta.now, caps: announce.caps, merged_age: None };
        self.make_room::<E>(number, &newcomer);
        let place = self.torrent(number).insert(E::new(key, meta.meta(false)), role, random);
        self.keep_change(update, false);
        Some(Updated { number, place: Some(place), downloaded: meta.completed })
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
        let PeerUpdate { staged: StagedAnnounce { announce, .. }, meta, .. } = update;
        let phase = || replication::phase(&announce.peer);
        let (age, unit) = (old.age(meta.now), meta.now.0 / AGE_UNIT_S);
        // A completed download is kept when it is counted.
        if replication::is_due(age, unit, phase, self.refresh_period)
            && (old.is_counted() || !meta.completed)
        {
            let word = Word::present(0, announce.role, old.is_counted());
            self.changes.push_refresh(announce, word);
        }
    }

    /// Keeps the change of a peer that is new or has changed its role. `was_counted` is true if its download was
    /// counted before this announce.
    #[inline]
    fn keep_change(&mut self, update: &PeerUpdate<'_>, was_counted: bool) {
        // A download that this announce completes is kept when it is counted.
        let completes = update.meta.completed && !was_counted;
        if self.changes.is_on() && !completes {
            let announce = update.staged.announce;
            self.changes.push(announce, Word::present(0, announce.role, was_counted));
        }
    }
}

/// Returns whether the peers of a role are useful to the announcing one. Seeders need no seeders, and neither do
/// partial seeds (BEP 21), which download nothing.
#[inline]
pub(super) fn is_wanted(announce: &StoreAnnounce, role: SetRole) -> bool {
    role == SetRole::Leechers || announce.role == Role::Leecher
}
