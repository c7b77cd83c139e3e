//! Announces: updating the swarm and choosing peers.

use primitives::Random;
use replication::block::{Change, Word};
use replication::{AGE_UNIT_S, PeerMeta};
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Role, SwarmCounts, Tick, TooSoon};

use super::Shard;
use super::answer::Answer;
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

    /// Returns true if the announce says that the peer has just completed its download.
    #[inline]
    fn completes(&self) -> bool {
        self.announce.action == Action::Update { completed: true }
    }

    /// Returns the new metadata of a peer whose download was counted before or not.
    #[inline]
    fn meta(&self, now: Tick, was_counted: bool) -> PeerMeta {
        let is_partial = self.announce.role == Role::PartialSeed;
        PeerMeta::new(now, was_counted | self.completes(), is_partial)
    }
}

/// A torrent after an announce.
pub(super) struct Updated {
    pub(super) number: u32,
    /// The place of the announcing peer; `None` if it was not stored.
    pub(super) place: Option<Place>,
    /// True if the announce was counted as a download.
    pub(super) downloaded: bool,
}

impl Shard {
    /// Does a batch. Each stage prefetches what the next one reads, for all announces, so that
    /// their cache misses overlap.
    pub(crate) fn announce(
        &mut self,
        now: Tick,
        batch: &mut [StagedAnnounce<'_>],
        answer: &mut impl FnMut(u8, Result<Answer<'_>, TooSoon>),
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
                Action::Stop => {
                    let counts = self.stop(now, staged);
                    answer(staged.announce.slot, Ok(Answer::without_peers(counts)));
                }
                Action::Update { .. } => {
                    answer(staged.announce.slot, self.update(now, &mut random, staged));
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
        if !sets.iter().any(PeerSet::is_paged) {
            return;
        }
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

    /// Removes the announcing peer. Returns the counts of its torrent.
    fn stop(&mut self, now: Tick, staged: &StagedAnnounce<'_>) -> SwarmCounts {
        let announce = staged.announce;
        if let Some(stopped) = &mut self.stopped {
            stopped.add(announce.info_hash, announce.peer, now);
        }
        let Some(number) = self.locate(staged.guess, &announce.info_hash, staged.hash) else {
            self.keep_stop(announce, false);
            return SwarmCounts::default();
        };
        let was_there = match announce.peer {
            PeerKey::V4(key) => self.remove_peer::<PackedV4>(number, key, announce.role),
            PeerKey::V6(key) => self.remove_peer::<PackedV6>(number, key, announce.role),
        };
        self.keep_stop(announce, was_there);
        let counts = self.counts_at(number);
        // The sweep removes it, too. But until then, announcing and stopping in one torrent after
        // another would fill the memory with torrents whose peers no network has.
        if self.is_short() && self.records.at(number).is_empty() {
            self.delete(number);
        }
        counts
    }

    /// Records that a peer has stopped, even if it was not here. While this store is being restored, older blocks have
    /// the peer, and the next process reads them, too. Other nodes may have it, because this one has just started, or
    /// because the peer began elsewhere a moment ago.
    fn keep_stop(&mut self, announce: &StoreAnnounce, was_there: bool) {
        let is_change = was_there || self.stopped.is_some();
        if is_change || self.refresh_period != 0 {
            self.keep_removal(announce.info_hash, announce.peer, !is_change);
        }
    }

    /// Keeps the removal of a peer as a change, or as a refresh.
    pub(super) fn keep_removal(&mut self, info_hash: InfoHash, peer: PeerKey, is_refresh: bool) {
        let change = || Change { info_hash, peer, word: Word::gone(), is_refresh };
        self.changes.push(&PeerId::default(), change);
    }

    /// Removes a peer. Returns whether it was there.
    fn remove_peer<E: FamilyPeers>(&mut self, number: u32, key: E::Key, likely: Role) -> bool {
        let mut torrent = self.torrent(number);
        let Some(known) = torrent.find::<E>(key, likely.into()) else { return false };
        torrent.remove::<E>(known.place);
        true
    }

    /// Adds or refreshes the announcing peer, and chooses others for the answer.
    #[inline]
    fn update(
        &mut self,
        now: Tick,
        random: &mut Random,
        staged: &StagedAnnounce<'_>,
    ) -> Result<Answer<'_>, TooSoon> {
        let announce = staged.announce;
        let updated = match announce.peer {
            PeerKey::V4(key) => self.update_peer::<PackedV4>(now, key, staged, random)?,
            PeerKey::V6(key) => self.update_peer::<PackedV6>(now, key, staged, random)?,
        };
        let Some(updated) = updated else {
            return Ok(Answer::without_peers(SwarmCounts::default()));
        };
        //= bep3#announce-completed-once
        if updated.downloaded {
            self.count_download(updated.number, announce.info_hash);
            self.keep(announce, Word::completed(announce.role), false);
        }
        if let Some(ids) = &mut self.ids
            && updated.place.is_some()
        {
            ids.insert((announce.info_hash, announce.peer), announce.peer_id);
        }
        Ok(self.answer(staged, &updated, random))
    }

    /// Counts a download that an announce has completed.
    // Not inline: most announces complete none.
    #[inline(never)]
    pub(super) fn count_download(&mut self, number: u32, info_hash: InfoHash) {
        self.records.at_mut(number).count_download();
        self.totals.downloads += 1;
        self.events.push(|| TorrentEvent::Completed(info_hash));
    }

    /// Adds or refreshes the announcing peer. Returns `None` if its torrent is not stored, and an error if the
    /// announce comes too soon.
    // There is one caller for each family. Without the hint the compiler's choice takes 50 instructions more an
    // announce.
    #[inline(always)]
    fn update_peer<E: FamilyPeers>(
        &mut self,
        now: Tick,
        key: E::Key,
        staged: &StagedAnnounce<'_>,
        random: &mut Random,
    ) -> Result<Option<Updated>, TooSoon> {
        let announce = staged.announce;
        let located = self.locate(staged.guess, &announce.info_hash, staged.hash);
        let role = announce.role.into();
        let Some(number) = located else {
            return Ok(self.add_peer::<E>(now, None, key, staged, random));
        };
        let mut torrent = self.torrent(number);
        let Some(known) = torrent.find::<E>(key, role) else {
            return Ok(self.add_peer::<E>(now, located, key, staged, random));
        };
        let old = known.meta;
        let new = staged.meta(now, old.is_counted());
        let is_same = known.place.role == role && old.is_partial() == new.is_partial();
        if is_same {
            old.check_interval(now, announce.min_interval_s)?;
        }
        let place = torrent.set_meta::<E>(known, role, new, random);
        if is_same {
            self.keep_refresh(now, staged, old);
        } else {
            self.keep_change(staged, old.is_counted());
        }
        let downloaded = staged.completes() && !old.is_counted();
        Ok(Some(Updated { number, place: Some(place), downloaded }))
    }

    /// Adds a peer that is new, and its torrent, if there is none. Returns `None` if there is none afterwards.
    // Not inline: most peers are known.
    #[inline(never)]
    fn add_peer<E: FamilyPeers>(
        &mut self,
        now: Tick,
        located: Option<u32>,
        key: E::Key,
        staged: &StagedAnnounce<'_>,
        random: &mut Random,
    ) -> Option<Updated> {
        let announce = staged.announce;
        // Before anything is allocated.
        if !self.admits::<E>(key) {
            return Some(Updated { number: located?, place: None, downloaded: false });
        }
        let number = located.unwrap_or_else(|| self.create(now, announce.info_hash, staged.hash));
        let newcomer = Newcomer { key, now, caps: announce.caps, merged_age: None };
        self.make_room::<E>(number, &newcomer);
        let peer = E::new(key, staged.meta(now, false));
        let place = self.torrent(number).insert(peer, announce.role.into(), random);
        self.keep_change(staged, false);
        Some(Updated { number, place: Some(place), downloaded: staged.completes() })
    }

    /// Keeps the refresh of a peer whose metadata was `old`, if it must be sent.
    #[inline(always)]
    fn keep_refresh(&mut self, now: Tick, staged: &StagedAnnounce<'_>, old: PeerMeta) {
        if self.refresh_period != 0 {
            self.keep_refresh_if_due(now, staged, old);
        }
    }

    // Not inline: without a cluster there is none.
    #[inline(never)]
    fn keep_refresh_if_due(&mut self, now: Tick, staged: &StagedAnnounce<'_>, old: PeerMeta) {
        let announce = staged.announce;
        let phase = || replication::phase(&announce.peer);
        let (age, unit) = (old.age(now), now.0 / AGE_UNIT_S);
        // A completed download is kept when it is counted.
        if replication::is_due(age, unit, phase, self.refresh_period)
            && (old.is_counted() || !staged.completes())
        {
            let word = Word::present(0, announce.role, old.is_counted());
            self.keep(announce, word, true);
        }
    }

    /// Keeps the change of a peer that is new or has changed its role. `was_counted` is true if its download was
    /// counted before this announce.
    #[inline]
    fn keep_change(&mut self, staged: &StagedAnnounce<'_>, was_counted: bool) {
        // A download that this announce completes is kept when it is counted.
        let is_counted_now = staged.completes() && !was_counted;
        if self.changes.is_on() && !is_counted_now {
            let announce = staged.announce;
            self.keep(announce, Word::present(0, announce.role, was_counted), false);
        }
    }

    /// Keeps a change, or a refresh, of the announcing peer.
    #[inline]
    fn keep(&mut self, announce: &StoreAnnounce, word: Word, is_refresh: bool) {
        let StoreAnnounce { info_hash, peer, .. } = *announce;
        self.changes.push(&announce.peer_id, || Change { info_hash, peer, word, is_refresh });
    }
}

/// Returns whether the peers of a role are useful to the announcing one. Seeders need no seeders, and neither do
/// partial seeds (BEP 21), which download nothing.
#[inline]
pub(super) fn is_wanted(announce: &StoreAnnounce, role: SetRole) -> bool {
    role == SetRole::Leechers || announce.role == Role::Leecher
}
