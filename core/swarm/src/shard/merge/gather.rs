//! New torrents: their peers are gathered, and then stored all at once.
//!
//! Plain form: a new torrent gets its peers one by one, as a known one does. Departures:
//! 1. Memory is allocated once, and pages are never split.
//! 2. A filter shows that a peer is new, without a search among those before.
//!
//! With both, and one hash for each known peer, a restore takes 1,015 instructions a peer instead of
//! 1,298 (callgrind, 30,000 torrents of realistic sizes).

use primitives::Random;
use types::{InfoHash, PackedV4, PackedV6};

use super::report::{Clock, Outcome, Report, Verdict};
use super::{LOCK_PEERS, Merger, StagedGroup};
use crate::block::Peers;
use crate::entry::Entry;
use crate::record::{INLINE_MAX, Sets};
use crate::set::PeerSet;
use crate::shard::caps::{Newcomer, Room};
use crate::shard::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::{Counting, PeerCaps};

/// The most peers of a role and family that are gathered: as many as are merged under one lock.
const GATHERED_MAX: usize = LOCK_PEERS as usize;
/// Bits of the filter: sixteen for each of as many peers, so that few are searched for in vain.
const FILTER_BITS: usize = 16 * GATHERED_MAX;
/// Up to this many peers are removed from the filter one by one.
const FEW: usize = 64;

const _: () = assert!(GATHERED_MAX.is_multiple_of(8) && FILTER_BITS.is_power_of_two());

/// The distinct peers of a new torrent, by role.
pub(super) struct Gathered<E> {
    /// Whole lines, as a search reads them, with leftovers at the end.
    peers: [[E; GATHERED_MAX]; 2],
    lens: [usize; 2],
    /// A bit for each peer that was added, by hash. Most groups have no peer twice, and this shows it
    /// without a search.
    filter: [u64; FILTER_BITS / 64],
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
    pub(super) fn new() -> Self {
        let filter = [0; FILTER_BITS / 64];
        Self { peers: [[E::default(); GATHERED_MAX]; 2], lens: [0; 2], filter }
    }

    fn clear(&mut self) {
        if self.len() <= FEW {
            for (peers, len) in self.peers.iter().zip(self.lens) {
                peers[..len].iter().for_each(|peer| self.filter[filter_bit(peer.key()).0] = 0);
            }
        } else {
            self.filter.fill(0);
        }
        self.lens = [0; 2];
    }

    /// Adds a peer to the filter. Returns whether the peer may be there already.
    #[inline]
    fn may_hold(&mut self, key: E::Key) -> bool {
        let (word, bit) = filter_bit(key);
        let was_set = self.filter[word] & bit != 0;
        self.filter[word] |= bit;
        was_set
    }

    fn peers(&self, role: usize) -> &[E] {
        &self.peers[role][..self.lens[role]]
    }

    fn len(&self) -> usize {
        self.lens[SEEDERS] + self.lens[LEECHERS]
    }

    /// Returns true if another peer may not fit.
    fn is_full(&self) -> bool {
        self.lens.contains(&GATHERED_MAX)
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

    /// Returns true if a new peer may exceed a cap.
    #[inline]
    fn is_crowded(&self, key: E::Key, caps: PeerCaps) -> bool {
        let least = usize::from(caps.least());
        if self.len() < least || E::network(key).is_none() {
            return false;
        }
        let near = |role| self.peers(role).iter().filter(|peer| peer.shares_network(key)).count();
        near(SEEDERS) + near(LEECHERS) >= least
    }

    /// Applies a report of a peer, which is stored if it is unknown and `admit` returns no other outcome.
    #[inline]
    fn apply(
        &mut self,
        clock: Clock,
        key: E::Key,
        report: &Report,
        admit: impl FnOnce(&mut Self) -> Result<(), Outcome>,
    ) -> Outcome {
        let known = if self.may_hold(key) { self.find(key) } else { None };
        let Some((role, at)) = known else {
            if report.is_gone {
                return Outcome::Unknown;
            }
            if let Err(outcome) = admit(self) {
                return outcome;
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

/// Returns a peer's place in the filter: a word, and a bit of it.
#[inline]
fn filter_bit(key: impl AsRef<[u8]>) -> (usize, u64) {
    let hash = key.as_ref().chunks(8).fold(0_u64, |hash, chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        (hash.rotate_left(29) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let place = hash >> (u64::BITS - FILTER_BITS.ilog2());
    (place as usize / 64, 1 << (place % 64))
}

impl Shard {
    /// Makes a new torrent of the first peers of a group, and takes them from it. Returns its number;
    /// `None` if none of them may be stored, unless some have completed and left: the download counts.
    pub(super) fn create_merged(
        &mut self,
        merger: &mut Merger,
        staged: &mut StagedGroup<'_>,
        left: &mut u32,
    ) -> Option<u32> {
        let StagedGroup { group, hash, .. } = staged;
        merger.v4.clear();
        merger.v6.clear();
        let mut completed =
            self.gather::<PackedV4, 6>(merger, group.info_hash, &mut group.v4, left);
        if group.v4.len() == 0 {
            completed += self.gather::<PackedV6, 18>(merger, group.info_hash, &mut group.v6, left);
        }
        let peers = (merger.v4.len() + merger.v6.len()) as u64;
        if peers == 0 && completed == 0 {
            return None;
        }
        let downloads = group.head.map_or(0, |head| head.downloads);
        let Some(number) = self.create(merger.clock.born(group.head), group.info_hash, *hash)
        else {
            merger.merged.full += peers;
            self.forget_ids(group.info_hash, &merger.v4);
            self.forget_ids(group.info_hash, &merger.v6);
            return None;
        };
        merger.merged.torrents += 1;
        merger.merged.peers += peers;
        self.records.at_mut(number).downloads = downloads.saturating_add(completed);
        self.store_gathered(merger, number);
        Some(number)
    }

    /// Gathers up to `left` peers of a new torrent. Returns how many downloads they completed.
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
            let counts_each = merger.counting == Counting::Each && peer.word.is_completed();
            downloads += u32::from(counts_each);
            let Some(report) = self.report::<E>(merger, info_hash, peer.key, peer.word) else {
                continue;
            };
            if !report.is_gone && self.has_gone(merger, &info_hash, peer.key.as_ref(), &report) {
                continue;
            }
            let (clock, network_max) = (merger.clock, merger.network_max);
            let admit =
                |gathered: &mut Gathered<E>| match self.may_store::<E>(network_max, peer.key) {
                    false => Err(Outcome::Full),
                    true if !gathered.is_crowded(peer.key, self.merge_caps) => Ok(()),
                    true => {
                        let new = self.newcomer::<E>(clock, peer.key, report.age);
                        self.replace_gathered(info_hash, gathered, &new)
                    }
                };
            let outcome = E::gathered(merger).apply(clock, peer.key, &report, admit);
            match outcome {
                Outcome::Full => merger.merged.full += 1,
                Outcome::Removed => merger.merged.gone += 1,
                _ => {}
            }
            let counts_peer = merger.counting == Counting::ByPeer && report.is_completed;
            downloads += u32::from(counts_peer && outcome.is_uncounted());
            self.merge_id::<E>(info_hash, peer.key, outcome, peer.id);
        }
        downloads
    }

    /// Does for gathered peers what [`Shard::replace_oldest`] does for those of a torrent. They are not counted
    /// yet.
    #[cold]
    fn replace_gathered<E: Entry>(
        &mut self,
        info_hash: InfoHash,
        gathered: &mut Gathered<E>,
        new: &Newcomer<E>,
    ) -> Result<(), Outcome> {
        let exempt = self.exempt.clone();
        loop {
            let pages = [SEEDERS, LEECHERS].map(|role| gathered.peers(role));
            let victim = match new.room(pages, exempt.as_deref()) {
                Room::Enough => return Ok(()),
                Room::Replace(victim) => victim,
                Room::Refused => return Err(Outcome::Crowded),
            };
            let gone = gathered.peers[victim.role][victim.at];
            gathered.swap_remove(victim.role, victim.at);
            self.remove_id(info_hash, gone.peer_key());
            self.totals.replaced += 1;
        }
    }

    /// Stores the peers gathered for a new torrent.
    fn store_gathered(&mut self, merger: &mut Merger, number: u32) {
        let partial =
            self.count_gathered::<PackedV4>(merger) + self.count_gathered::<PackedV6>(merger);
        let Merger { v4, v6, random, .. } = merger;
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
        let sets = Sets { v4: self.filled_sets(v4), v6: self.filled_sets(v6) };
        let record = self.records.at_mut(number);
        record.partial_seeds = partial;
        record.become_spilled();
        *record.sets_mut() = sets;
    }

    fn filled_sets<E: FamilyPeers>(&mut self, gathered: &Gathered<E>) -> [PeerSet<E>; 2] {
        let hash = peer_hash::<E>(&self.key);
        let arena = &mut self.arena;
        [SEEDERS, LEECHERS].map(|role| PeerSet::filled(arena, gathered.peers(role), hash))
    }

    /// Adds gathered peers to the totals and to their networks. Returns how many are partial seeds.
    fn count_gathered<E: MergedFamily>(&mut self, merger: &mut Merger) -> u32 {
        let mut partial = 0;
        for role in [SEEDERS, LEECHERS] {
            let len = E::gathered(merger).lens[role];
            let totals = E::totals(&mut self.totals);
            *(if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers }) +=
                len as u64;
            for at in 0..len {
                let peer = E::gathered(merger).peers[role][at];
                partial += u32::from(peer.meta().is_partial());
                self.count_network::<E>(merger, peer.key());
            }
        }
        partial
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
