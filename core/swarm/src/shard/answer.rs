//! Answers to announces: the peers that they hold.
//!
//! An [`Answer`] borrows its locked shard. Peers are visited as runs of packed entries where these are stored, so
//! nothing is copied or allocated before the protocol's encoder copies them.

use std::net::IpAddr;

use primitives::Random;
use types::{Families, Family, InfoHash, PackedV4, PackedV6, PeerId, PeerKey, SwarmCounts};

use super::Shard;
use super::announce::{StagedAnnounce, Updated, is_wanted};
use super::torrent::{FamilyPeers, Place};
use crate::entry::Entry;
use crate::record::Record;
use crate::role::{ByRole, SetRole};

/// The answer to an announce.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// The torrent's counts after the announce.
    pub counts: SwarmCounts,
    /// True if the announce was counted as a download.
    pub downloaded: bool,
    chosen: Option<Chosen<'a>>,
    changes: Option<&'a AnswerChanges>,
}

/// Peers in place of those that an answer has chosen.
#[derive(Clone, Debug, Default)]
pub struct AnswerChanges {
    /// False if the chosen peers stay.
    is_changed: bool,
    v4: Vec<PackedV4>,
    v6: Vec<PackedV6>,
    /// The number of near peers among them.
    near_len: usize,
}

impl AnswerChanges {
    /// Returns how many near peers take the place of others.
    pub fn near_len(&self) -> usize {
        self.near_len
    }
}

/// The choice of a torrent's peers for an answer.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) shard: &'a Shard,
    pub(super) record: &'a Record,
    /// The numbers of peers to take of each family and role.
    pub(super) v4: ByRole<u32>,
    pub(super) v6: ByRole<u32>,
    /// The announcing peer, which is not chosen.
    pub(super) own: Option<(Family, Place)>,
    /// Decides which peers are taken.
    pub(super) sample_seed: u64,
}

impl<'a> Answer<'a> {
    /// Returns an answer without peers.
    pub fn without_peers(counts: SwarmCounts) -> Self {
        Self { counts, downloaded: false, chosen: None, changes: None }
    }

    /// Returns the same answer without any peers.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self { chosen: None, changes: None, ..self }
    }

    /// Returns the changes that leave out `peers`, of which there are a few: the answer has fewer then than were wanted.
    pub fn leaving_out(&self, peers: &[PeerKey]) -> AnswerChanges {
        let mut changes = AnswerChanges::default();
        if !peers.is_empty() {
            let mut count = 0;
            self.each_v4(|run| count += run.iter().filter(|it| is_among(*it, peers)).count());
            self.each_v6(|run| count += run.iter().filter(|it| is_among(*it, peers)).count());
            changes.is_changed = count > 0;
        }
        if changes.is_changed {
            let AnswerChanges { v4, v6, .. } = &mut changes;
            self.each_v4(|run| v4.extend(run.iter().filter(|it| !is_among(*it, peers))));
            self.each_v6(|run| v6.extend(run.iter().filter(|it| !is_among(*it, peers))));
        }
        changes
    }

    /// Returns the changes that put near peers in the place of others: at most `percent` of the chosen peers of each
    /// family and role. They are found by a bounded search.
    pub fn near(&self, percent: u8, mut is_near: impl FnMut(IpAddr) -> bool) -> AnswerChanges {
        let Some(chosen) = &self.chosen else { return AnswerChanges::default() };
        let (v4, of_v4) = chosen.with_near(Family::V4, chosen.v4, percent, &mut is_near);
        let (v6, of_v6) = chosen.with_near(Family::V6, chosen.v6, percent, &mut is_near);
        let near_len = of_v4 + of_v6;
        AnswerChanges { is_changed: near_len > 0, v4, v6, near_len }
    }

    /// Returns the answer with these changes, which were made of it.
    #[must_use]
    pub fn with(self, changes: &'a AnswerChanges) -> Self {
        Self { changes: Some(changes).filter(|it| it.is_changed), ..self }
    }

    /// Returns the number of v4 peers.
    #[inline]
    pub fn v4_len(&self) -> u16 {
        match self.changes {
            None => self.chosen.map_or(0, |chosen| chosen.v4.iter().sum::<u32>() as u16),
            Some(it) => it.v4.len() as u16,
        }
    }

    /// Returns the number of v6 peers.
    #[inline]
    pub fn v6_len(&self) -> u16 {
        match self.changes {
            None => self.chosen.map_or(0, |chosen| chosen.v6.iter().sum::<u32>() as u16),
            Some(it) => it.v6.len() as u16,
        }
    }

    /// Calls `visit` with the v4 peers in runs, [`Self::v4_len`] in all. Each call visits the same peers.
    #[inline]
    pub fn each_v4(&self, mut visit: impl FnMut(&[PackedV4])) {
        match (self.chosen, self.changes) {
            (Some(chosen), None) => chosen.each(Family::V4, chosen.v4, visit),
            (Some(_), Some(it)) => visit(&it.v4),
            (None, _) => {}
        }
    }

    /// Calls `visit` with the v6 peers in runs, [`Self::v6_len`] in all. Each call visits the same peers.
    #[inline]
    pub fn each_v6(&self, mut visit: impl FnMut(&[PackedV6])) {
        match (self.chosen, self.changes) {
            (Some(chosen), None) => chosen.each(Family::V6, chosen.v6, visit),
            (Some(_), Some(it)) => visit(&it.v6),
            (None, _) => {}
        }
    }

    /// Calls `visit` with each peer and its id, v4 before v6. Peers whose ids are not kept have an id of zeros.
    pub fn each_with_id(&self, mut visit: impl FnMut(PeerKey, PeerId)) {
        let Some(Chosen { shard, record, .. }) = self.chosen else { return };
        let mut visit = |peer| visit(peer, shard.id(record.info_hash, peer));
        self.each_v4(|peers| peers.iter().for_each(|peer| visit(peer.peer_key())));
        self.each_v6(|peers| peers.iter().for_each(|peer| visit(peer.peer_key())));
    }
}

fn is_among<E: Entry>(peer: &E, peers: &[PeerKey]) -> bool {
    peers.contains(&peer.peer_key())
}

impl Chosen<'_> {
    #[inline]
    pub(super) fn each<E: FamilyPeers>(
        &self,
        family: Family,
        counts: ByRole<u32>,
        mut visit: impl FnMut(&[E]),
    ) {
        let own = self.own.filter(|(own, _)| *own == family).map(|(_, place)| place);
        if !self.record.is_spilled() {
            return self.each_inline(counts, own, visit);
        }
        for role in SetRole::BOTH {
            let skip = own.filter(|place| place.role == role).map(|place| place.position);
            let set = E::sets(self.record.sets())[role];
            set.sample(&self.shard.arena, counts[role], skip, self.sample_seed, &mut visit);
        }
    }

    /// Visits inline peers one by one: those of each role in a circle from a random start.
    fn each_inline<E: FamilyPeers>(
        &self,
        counts: ByRole<u32>,
        own: Option<Place>,
        mut visit: impl FnMut(&[E]),
    ) {
        let inline = E::inline(self.record);
        let mut random = Random::new(self.sample_seed);
        for role in SetRole::BOTH {
            let range = self.record.inline_range(role);
            let own = own.filter(|own| own.role == role).map(|own| own.position.at as usize);
            let peers = inline.get(range.clone()).unwrap_or_default();
            let others = peers.len() - usize::from(own.is_some());
            let start = random.below(others as u32) as usize;
            for step in 0..(counts[role] as usize).min(others) {
                let at = (start + step) % others;
                let at = at + usize::from(own.is_some_and(|own| range.start + at >= own));
                visit(&peers[at..=at]);
            }
        }
    }
}

impl Shard {
    /// Chooses peers for the answer to an announce.
    #[inline]
    pub(super) fn answer(
        &self,
        staged: &StagedAnnounce<'_>,
        updated: &Updated,
        random: &mut Random,
    ) -> Answer<'_> {
        let Updated { number, place, downloaded } = *updated;
        let announce = staged.announce;
        let counts = self.counts_at(number);
        if announce.want == 0 {
            return Answer { downloaded, ..Answer::without_peers(counts) };
        }
        let own = place.map(|place| (announce.peer.family(), place));
        let others = |family, role, count: u32| {
            let family_fits =
                announce.families == Families::Both || family == announce.peer.family();
            let is_own = own.is_some_and(|(own, place)| (own, place.role) == (family, role));
            if family_fits && is_wanted(announce, role) { count - u32::from(is_own) } else { 0 }
        };
        let [v4_seeders, v4_leechers, v6_seeders, v6_leechers] = apportion(
            [
                others(Family::V4, SetRole::Seeders, counts.v4.seeders),
                others(Family::V4, SetRole::Leechers, counts.v4.leechers),
                others(Family::V6, SetRole::Seeders, counts.v6.seeders),
                others(Family::V6, SetRole::Leechers, counts.v6.leechers),
            ],
            announce.want.into(),
            random,
        );
        let chosen = Chosen {
            shard: self,
            record: self.records.at(number),
            v4: ByRole::new(v4_seeders, v4_leechers),
            v6: ByRole::new(v6_seeders, v6_leechers),
            own,
            sample_seed: staged.sample_seed,
        };
        Answer { downloaded, chosen: Some(chosen), ..Answer::without_peers(counts) }
    }

    pub(super) fn id(&self, info_hash: InfoHash, peer: PeerKey) -> PeerId {
        let Some(ids) = &self.ids else { return PeerId::default() };
        let id = ids.get(&(info_hash, peer));
        debug_assert!(id.is_some(), "where ids are kept, every peer has one");
        id.copied().unwrap_or_default()
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
