//! Answers to announces: which peers they hold.

use primitives::Random;
use types::{AnnounceSummary, Families, InfoHash, PeerId, PeerKey, PeerSink, StoreSink};

use super::Shard;
use super::announce::{StagedAnnounce, is_wanted};
use super::torrent::Place;
use crate::entry::Entry;
use crate::record::{INLINE_MAX, Record};
use crate::role::SetRole;
use crate::set::{PeerSet, Position};

impl Shard {
    /// Chooses peers and writes the answer.
    pub(super) fn answer(
        &self,
        staged: &StagedAnnounce<'_>,
        number: u32,
        place: Option<Place>,
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
        let is_v4 = matches!(announce.peer, PeerKey::V4(_));
        let both = announce.families == Families::Both;
        // The numbers of other peers: v4 seeders, v4 leechers, v6 seeders, v6 leechers.
        let mut others =
            [counts.v4.seeders, counts.v4.leechers, counts.v6.seeders, counts.v6.leechers];
        let own = place.map(|place| place.role as usize + if is_v4 { 0 } else { 2 });
        for (set, others) in others.iter_mut().enumerate() {
            let family_fits = both || (set < 2) == is_v4;
            let is_wanted = is_wanted(announce, SetRole::BOTH[set % 2]);
            *others = if family_fits && is_wanted { *others } else { 0 };
            *others -= u32::from(own == Some(set) && *others > 0);
        }
        let shares = apportion(others, announce.want.into(), random);
        summary.v4 = (shares[0] + shares[1]) as u16;
        summary.v6 = (shares[2] + shares[3]) as u16;
        sink.accept(staged.announce.slot, &summary);
        if !record.is_spilled() {
            return self.push_inline(staged, record, place, shares, sink);
        }
        let sets = record.sets();
        let own = |role| place.filter(|place| place.role == role).map(|place| place.position);
        for role in SetRole::BOTH {
            let skip = own(role).filter(|_| is_v4);
            self.push_set(staged, &sets.v4[role], shares[role as usize], skip, sink);
        }
        for role in SetRole::BOTH {
            let skip = own(role).filter(|_| !is_v4);
            self.push_set(staged, &sets.v6[role], shares[2 + role as usize], skip, sink);
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
        place: Option<Place>,
        shares: [u32; 4],
        sink: &mut impl StoreSink,
    ) {
        let own = place.map_or(INLINE_MAX, |place| place.position.at as usize);
        let (seeders, leechers) = record.inline_peers().split_at(record.inline_seeders.into());
        let mut random = Random::new(staged.sample_seed);
        for (peers, first, take) in [(seeders, 0, shares[0]), (leechers, seeders.len(), shares[1])]
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
