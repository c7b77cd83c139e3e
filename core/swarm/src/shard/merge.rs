//! Merging: blocks bring torrents and peers into a shard.
//!
//! Of a peer's last announce here and the one that a block reports, the younger one wins, and of equally old ones the
//! one that comes later.

mod web;

use std::collections::BTreeMap;

use primitives::Random;
use replication::block::{Change, Group, GroupPeer, Head, Peers, Word};
use replication::{MergeClock, MergeTime, Merged, PeerMeta, Report, Verdict, removal_hash};
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey, Tick};

use super::Shard;
use super::caps::Newcomer;
use super::torrent::{FamilyPeers, Known, peer_hash};
use crate::entry::Entry;
use crate::record::Sets;

/// Work under one lock, in peers: some tens of microseconds.
const LOCK_PEERS: u32 = 256;
/// The cost of a group beside its peers: its torrent is looked up or created.
const GROUP_PEERS: u32 = 2;
/// Peers of a torrent whose pages are prefetched together.
const AHEAD: usize = 16;
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
    clock: MergeClock,
    /// True if the current group is a walk's.
    is_walk: bool,
    /// True if no removal is contradicted.
    is_behind: bool,
    random: Random,
    pub(crate) merged: Merged,
    /// The most peers that a network may have, if memory is short.
    network_max: Option<u32>,
}

impl Merger {
    pub(crate) fn new(time: MergeTime, lifetime_s: u32, is_behind: bool, seed: u64) -> Self {
        Self {
            clock: MergeClock::new(time, lifetime_s),
            is_walk: false,
            is_behind,
            random: Random::new(seed),
            merged: Merged::default(),
            network_max: None,
        }
    }
}

/// The outcome of a report for its peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is gone, and was not there.
    Unknown,
    /// There is no memory for it.
    Full,
    /// Its host or network has as many younger peers as a cap allows.
    Crowded,
    Removed,
    /// It is as it was. `was_counted`: its download was counted before.
    Kept {
        was_counted: bool,
    },
    Stored {
        was_counted: bool,
    },
}

impl Outcome {
    /// Returns true if the peer is there and its download was not counted before.
    #[inline]
    fn is_uncounted(self) -> bool {
        matches!(self, Self::Kept { was_counted: false } | Self::Stored { was_counted: false })
    }
}

/// The torrent of a group that is being merged.
struct MergedTorrent {
    info_hash: InfoHash,
    hash: u64,
    head: Option<Head>,
    /// `None` until the torrent has something to hold.
    number: Option<u32>,
    /// True if the torrent stays even if none of its peers does: it was there before, or has downloads to count.
    stays: bool,
}

#[derive(Default)]
pub(crate) struct Stopped {
    // A tree, because it grows without ever being rebuilt.
    peers: BTreeMap<(InfoHash, PeerKey), PeerMeta>,
}

impl Stopped {
    fn at(&self, info_hash: InfoHash, peer: PeerKey) -> Option<PeerMeta> {
        self.peers.get(&(info_hash, peer)).copied()
    }

    // Apart, because stops are remembered only while blocks are merged.
    #[cold]
    pub(super) fn add(&mut self, info_hash: InfoHash, peer: PeerKey, now: Tick) {
        if self.peers.len() < STOPPED_MAX || self.peers.contains_key(&(info_hash, peer)) {
            self.peers.insert((info_hash, peer), PeerMeta::new(now, false, false));
        }
    }
}

impl Shard {
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
        done
    }

    /// Prefetches what groups read first, stage by stage.
    fn prefetch_groups(&self, batch: &mut [StagedGroup<'_>], order: &[usize]) {
        for at in order {
            let staged = &mut batch[*at];
            staged.guess = self.index.find(staged.hash, |_| true);
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
        let StagedGroup { group, hash, guess } = staged;
        let info_hash = group.info_hash;
        merger.is_walk = group.head.is_some();
        let found = self.locate(*guess, &info_hash, *hash);
        let mut torrent = MergedTorrent {
            info_hash,
            hash: *hash,
            head: group.head,
            number: found,
            stays: found.is_some(),
        };
        if let Some(number) = found {
            self.merge_head(merger.clock, number, group.head);
        }
        self.merge_family::<PackedV4, 6>(merger, &mut torrent, &mut group.v4, &mut left);
        self.merge_family::<PackedV6, 18>(merger, &mut torrent, &mut group.v6, &mut left);
        if let Some(number) = torrent.number.filter(|_| !torrent.stays)
            && self.records.at(number).is_empty()
        {
            merger.merged.torrents -= 1;
            self.delete(number);
        }
        left
    }

    /// Merges a torrent's downloads and age, which only walks report.
    fn merge_head(&mut self, clock: MergeClock, number: u32, head: Option<Head>) {
        if let Some(head) = head {
            let record = self.records.at_mut(number);
            record.downloads = record.downloads.max(head.downloads);
            record.was_seen(clock.born(Some(head)));
        }
    }

    /// Merges up to `left` peers of a torrent, and takes them from `peers`.
    fn merge_family<E: FamilyPeers<Key = [u8; N]>, const N: usize>(
        &mut self,
        merger: &mut Merger,
        torrent: &mut MergedTorrent,
        peers: &mut Peers<'_, N>,
        left: &mut u32,
    ) {
        while *left > 0 && peers.len() > 0 {
            let count = AHEAD.min(*left as usize).min(peers.len());
            if let Some(number) = torrent.number {
                // A copy, which is looked at before the peers are taken.
                let ahead: Peers<'_, N> = *peers;
                ahead.take(count).for_each(|peer| self.prefetch_pages_of::<E>(number, peer.key));
            }
            *left -= count as u32;
            for peer in peers.by_ref().take(count) {
                self.merge_peer::<E, N>(merger, torrent, &peer);
            }
        }
    }

    #[inline]
    fn prefetch_pages_of<E: FamilyPeers>(&self, number: u32, key: E::Key) {
        let record = self.records.at(number);
        if record.is_spilled() {
            let hash = || peer_hash::<E>(&self.key)(key);
            E::sets(record.sets()).iter().for_each(|set| set.prefetch_page_of(&self.arena, hash));
        }
    }

    fn merge_peer<E: FamilyPeers<Key = [u8; N]>, const N: usize>(
        &mut self,
        merger: &mut Merger,
        torrent: &mut MergedTorrent,
        peer: &GroupPeer<N>,
    ) {
        let info_hash = torrent.info_hash;
        let Some(report) = self.report::<E>(merger, info_hash, peer.key, peer.word) else { return };
        let known = torrent.number.and_then(|number| {
            Some((number, self.torrent(number).find::<E>(peer.key, report.word.role().into())?))
        });
        let outcome = match known {
            Some((number, known)) => {
                self.merge_known::<E>(merger, number, known, peer.key, &report)
            }
            None => self.merge_new::<E>(merger, torrent, peer.key, &report),
        };
        match outcome {
            Outcome::Stored { .. } => merger.merged.peers += 1,
            Outcome::Removed => merger.merged.gone += 1,
            Outcome::Full => merger.merged.full += 1,
            Outcome::Kept { .. } | Outcome::Unknown | Outcome::Crowded => {}
        }
        if report.word.is_completed() && outcome.is_uncounted() {
            self.count_merged(merger, torrent);
        }
        if matches!(outcome, Outcome::Stored { .. }) {
            self.keep_merged_id::<E>(info_hash, peer.key, peer.id);
        }
    }

    /// Counts a completed download. Not inline: most peers complete none.
    #[inline(never)]
    fn count_merged(&mut self, merger: &mut Merger, torrent: &mut MergedTorrent) {
        if let Some(number) = self.number_of(merger, torrent) {
            torrent.stays = true;
            self.records.at_mut(number).count_download();
        }
    }

    /// Returns the number of a torrent, which is created if there is none; `None` if there is no room.
    fn number_of(&mut self, merger: &mut Merger, torrent: &mut MergedTorrent) -> Option<u32> {
        if torrent.number.is_none() && !self.is_full() {
            let MergedTorrent { info_hash, hash, head, .. } = *torrent;
            let number = self.create(merger.clock.born(head), info_hash, hash);
            self.merge_head(merger.clock, number, head);
            merger.merged.torrents += 1;
            torrent.number = Some(number);
        }
        torrent.number
    }

    fn merge_new<E: FamilyPeers>(
        &mut self,
        merger: &mut Merger,
        torrent: &mut MergedTorrent,
        key: E::Key,
        report: &Report,
    ) -> Outcome {
        if report.word.is_gone() || self.has_gone(merger, &torrent.info_hash, key.as_ref(), report)
        {
            return Outcome::Unknown;
        }
        if !self.may_store::<E>(merger.network_max, key) {
            return Outcome::Full;
        }
        let Some(number) = self.number_of(merger, torrent) else { return Outcome::Full };
        let caps = self.merge_caps;
        let new = Newcomer { key, now: merger.clock.now, caps, merged_age: Some(report.age) };
        if !self.make_room::<E>(number, &new) {
            return Outcome::Crowded;
        }
        let peer = E::new(key, report.meta);
        self.torrent(number).insert(peer, report.word.role().into(), &mut merger.random);
        Outcome::Stored { was_counted: false }
    }

    fn merge_known<E: FamilyPeers>(
        &mut self,
        merger: &mut Merger,
        number: u32,
        known: Known,
        key: E::Key,
        report: &Report,
    ) -> Outcome {
        let Known { place, meta } = known;
        let was_counted = meta.is_counted();
        let mut torrent = self.torrent(number);
        match merger.clock.judge(meta, report) {
            Verdict::Keep(meta) => {
                torrent.set_meta::<E>(known, place.role, meta, &mut merger.random);
                self.contradict::<E>(merger, number, key, known, report);
                Outcome::Kept { was_counted }
            }
            Verdict::Replace(meta) => {
                torrent.set_meta::<E>(known, report.word.role().into(), meta, &mut merger.random);
                Outcome::Stored { was_counted }
            }
            Verdict::Remove => {
                torrent.remove::<E>(place);
                Outcome::Removed
            }
        }
    }

    /// Keeps a refresh of a peer that has announced here since the time at which a block reports it as gone:
    /// other nodes remove it, and may not know of that announce, because it changed nothing here.
    #[inline]
    fn contradict<E: FamilyPeers>(
        &mut self,
        merger: &Merger,
        number: u32,
        key: E::Key,
        known: Known,
        report: &Report,
    ) {
        if !report.word.is_gone() || self.refresh_period == 0 || merger.is_behind {
            return;
        }
        let Known { place, meta } = known;
        let (info_hash, peer) = (self.records.at(number).info_hash, E::new(key, meta).peer_key());
        let age = meta.age(merger.clock.now);
        let word = Word::present(age, place.role.of_peer(meta), meta.is_counted());
        let id = self.id(info_hash, peer);
        self.changes.push(&id, || Change { info_hash, peer, word, is_refresh: true });
    }

    /// Returns the report of a word; `None` if the peer's lifetime has passed, which is counted, or if the
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
            let peer = removal_hash(&self.key, &info_hash, key.as_ref());
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
        let peer = removal_hash(&self.key, info_hash, key);
        !removals.admits(&merger.clock, merger.is_walk, peer, report.word)
    }

    /// Returns true if an unknown peer may be stored: there is memory, and if it is short, its network has
    /// not used up its share. While memory is not short, shares do not matter here: the peers were admitted
    /// when they announced, and a merge does not know which networks are exempt.
    #[inline]
    fn may_store<E: Entry>(&self, network_max: Option<u32>, key: E::Key) -> bool {
        !self.is_full() && network_max.is_none_or(|max| self.networks.count::<E>(key) < max)
    }

    #[inline]
    fn keep_merged_id<E: Entry>(&mut self, info_hash: InfoHash, key: E::Key, id: Option<PeerId>) {
        if let Some(ids) = &mut self.ids {
            let peer = (info_hash, E::new(key, PeerMeta::default()).peer_key());
            // Every peer has one, of zeros until it announces.
            let kept = ids.entry(peer).or_default();
            *kept = id.unwrap_or(*kept);
        }
    }
}
