//! A torrent's peers, wherever they are: inline in the record or in sets, v4 or v6.
//!
//! [`TorrentMut`] is the one way by which peers come into a torrent and leave it. It keeps every count of them: the
//! shard's totals, the torrent's partial seeds, the peers of networks, and the ids. What may be stored, and what is
//! reported to whom, is the business of those who use it.

use std::collections::BTreeMap;

use primitives::Random;
use primitives::siphash::siphash;
use replication::PeerMeta;
use types::{InfoHash, PackedV4, PackedV6, PeerId, PeerKey};

use super::Shard;
use super::memory::{Networks, network_hash};
use crate::arena::Arena;
use crate::entry::Entry;
use crate::record::{INLINE_MAX, Record, Sets};
use crate::role::{ByRole, SetRole};
use crate::set::{PeerSet, Position};
use crate::totals::FamilyTotals;
use crate::{PeerCaps, Totals};

/// Peer ids by torrent and peer. A tree, because it grows without ever being rebuilt.
pub(super) type PeerIds = BTreeMap<(InfoHash, PeerKey), PeerId>;

/// A family's peers: their sets in a torrent, their places in a record, and their totals in the shard.
pub(crate) trait FamilyPeers: Entry {
    fn sets(sets: &Sets) -> &ByRole<PeerSet<Self>>;
    fn sets_mut(sets: &mut Sets) -> &mut ByRole<PeerSet<Self>>;
    fn totals(totals: &mut Totals) -> &mut FamilyTotals;
    /// Returns the family's peers in a record that is not spilled, seeders first.
    fn inline(record: &Record) -> &[Self];
    /// Does what [`Record::put_inline`] does; `None` if there is no room for the peer.
    fn put_inline(record: &mut Record, role: SetRole, peer: Self) -> Option<usize>;
    /// Does what [`Record::take_inline`] does.
    fn take_inline(record: &mut Record, at: usize) -> Self;
}

impl FamilyPeers for PackedV4 {
    #[inline]
    fn sets(sets: &Sets) -> &ByRole<PeerSet<Self>> {
        &sets.v4
    }

    #[inline]
    fn sets_mut(sets: &mut Sets) -> &mut ByRole<PeerSet<Self>> {
        &mut sets.v4
    }

    #[inline]
    fn totals(totals: &mut Totals) -> &mut FamilyTotals {
        &mut totals.v4
    }

    #[inline]
    fn inline(record: &Record) -> &[Self] {
        record.inline_peers()
    }

    #[inline]
    fn put_inline(record: &mut Record, role: SetRole, peer: Self) -> Option<usize> {
        (usize::from(record.inline_len) < INLINE_MAX).then(|| record.put_inline(role, peer))
    }

    #[inline]
    fn take_inline(record: &mut Record, at: usize) -> Self {
        record.take_inline(at)
    }
}

impl FamilyPeers for PackedV6 {
    #[inline]
    fn sets(sets: &Sets) -> &ByRole<PeerSet<Self>> {
        &sets.v6
    }

    #[inline]
    fn sets_mut(sets: &mut Sets) -> &mut ByRole<PeerSet<Self>> {
        &mut sets.v6
    }

    #[inline]
    fn totals(totals: &mut Totals) -> &mut FamilyTotals {
        &mut totals.v6
    }

    #[inline]
    fn inline(_: &Record) -> &[Self] {
        &[]
    }

    #[inline]
    fn put_inline(_: &mut Record, _: SetRole, _: Self) -> Option<usize> {
        None
    }

    fn take_inline(_: &mut Record, _: usize) -> Self {
        unreachable!("records have no v6 peers")
    }
}

/// The place of a peer in its torrent. Good until another peer comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) role: SetRole,
    /// In the set of that role. For inline peers, page 0 and the index among those of both roles.
    pub(super) position: Position,
}

/// A stored peer.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) place: Place,
    pub(super) meta: PeerMeta,
}

/// The result of visiting a part of a torrent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visited {
    /// The next part, if there is one.
    pub(super) next: Option<u32>,
    /// Lines visited, approximately.
    pub(super) lines: u32,
    /// Peers removed.
    pub(super) gone: u64,
}

/// A cursor for the peers of one torrent.
pub(super) struct TorrentMut<'a> {
    record: &'a mut Record,
    arena: &'a mut Arena,
    key: &'a [u8; 16],
    networks: &'a mut Networks,
    totals: &'a mut Totals,
    ids: &'a mut Option<PeerIds>,
}

impl Shard {
    #[inline(always)]
    pub(super) fn torrent(&mut self, number: u32) -> TorrentMut<'_> {
        TorrentMut {
            record: self.records.at_mut(number),
            arena: &mut self.arena,
            key: &self.key,
            networks: &mut self.networks,
            totals: &mut self.totals,
            ids: &mut self.ids,
        }
    }
}

impl TorrentMut<'_> {
    /// Returns what is stored of a peer. It is looked for among those of `likely` first.
    // There is one caller on the path of an announce, and the place of an inline peer stays in registers.
    #[inline(always)]
    pub(super) fn find<E: FamilyPeers>(&self, key: E::Key, likely: SetRole) -> Option<Known> {
        if self.record.is_spilled() {
            return self.find_in_sets::<E>(key, likely);
        }
        let peers = E::inline(self.record);
        let at = peers.iter().position(|peer| peer.key() == key)?;
        let position = Position { page: 0, at: at as u32 };
        let place = Place { role: self.record.inline_role(at), position };
        Some(Known { place, meta: peers[at].meta() })
    }

    #[inline]
    fn find_in_sets<E: FamilyPeers>(&self, key: E::Key, likely: SetRole) -> Option<Known> {
        let sets = E::sets(self.record.sets());
        [likely, likely.other()].into_iter().find_map(|role| {
            let position = sets[role].find(self.arena, key, peer_hash::<E>(self.key))?;
            let page = sets[role].entries(self.arena, position.page);
            let meta = page[position.at as usize].meta();
            Some(Known { place: Place { role, position }, meta })
        })
    }

    /// Stores a peer that is not in the torrent. Returns its place.
    pub(super) fn insert<E: FamilyPeers>(
        &mut self,
        peer: E,
        role: SetRole,
        random: &mut Random,
    ) -> Place {
        self.networks.add::<E>(peer.key());
        self.put(peer, role, random)
    }

    /// Replaces the metadata of a stored peer, and moves it to the set of `role` if it is in the other one. Returns its
    /// place, which is a new one: peers of large torrents change places when they announce.
    #[inline(always)]
    pub(super) fn set_meta<E: FamilyPeers>(
        &mut self,
        known: Known,
        role: SetRole,
        meta: PeerMeta,
        random: &mut Random,
    ) -> Place {
        let Known { place, meta: old } = known;
        if place.role != role || old.is_partial() != meta.is_partial() {
            let mut peer = self.take::<E>(place);
            peer.set_meta(meta);
            return self.put(peer, role, random);
        }
        if !self.record.is_spilled() {
            self.record.inline_room()[place.position.at as usize].set_meta(meta);
            return place;
        }
        let set = E::sets(self.record.sets())[role];
        Place { role, position: set.set_meta(self.arena, place.position, meta, random) }
    }

    /// Removes and returns a stored peer, and drops its id.
    pub(super) fn remove<E: FamilyPeers>(&mut self, place: Place) -> E {
        let gone = self.take::<E>(place);
        self.networks.remove::<E>(gone.key());
        if let Some(ids) = self.ids {
            ids.remove(&(self.record.info_hash, gone.peer_key()));
        }
        gone
    }

    /// Stores and counts a peer, but not for its network.
    fn put<E: FamilyPeers>(&mut self, peer: E, role: SetRole, random: &mut Random) -> Place {
        *E::totals(self.totals).of_mut(role) += 1;
        if peer.meta().is_partial() {
            self.record.partial_seeds += 1;
            self.totals.partial_seeds += 1;
        }
        if !self.record.is_spilled() {
            if let Some(at) = E::put_inline(self.record, role, peer) {
                return Place { role, position: Position { page: 0, at: at as u32 } };
            }
            self.spill(random);
        }
        let set = &mut E::sets_mut(self.record.sets_mut())[role];
        let position = set.insert(self.arena, peer, peer_hash::<E>(self.key), random);
        Place { role, position }
    }

    /// Does the reverse of [`Self::put`].
    fn take<E: FamilyPeers>(&mut self, Place { role, position }: Place) -> E {
        let gone = if self.record.is_spilled() {
            let set = &mut E::sets_mut(self.record.sets_mut())[role];
            set.remove(self.arena, position, peer_hash::<E>(self.key))
        } else {
            E::take_inline(self.record, position.at as usize)
        };
        *E::totals(self.totals).of_mut(role) -= 1;
        if gone.meta().is_partial() {
            self.record.partial_seeds -= 1;
            self.totals.partial_seeds -= 1;
        }
        gone
    }

    /// Moves inline peers into sets.
    fn spill(&mut self, random: &mut Random) {
        let peers = *self.record.inline_room();
        let roles = std::array::from_fn::<_, INLINE_MAX, _>(|at| self.record.inline_role(at));
        let len = usize::from(self.record.inline_len);
        self.record.become_spilled();
        let sets = &mut self.record.sets_mut().v4;
        for (peer, role) in peers.into_iter().zip(roles).take(len) {
            sets[role].insert(self.arena, peer, peer_hash::<PackedV4>(self.key), random);
        }
    }

    /// Moves the last peers of a torrent from sets back into its record.
    pub(super) fn unspill(&mut self) {
        let counts = self.record.counts();
        let v4 = counts.v4.seeders + counts.v4.leechers;
        // One below the maximum, so that a peer that comes and goes does not switch back and forth.
        if counts.v6.seeders + counts.v6.leechers > 0 || v4 as usize >= INLINE_MAX {
            return;
        }
        let mut peers = [PackedV4::default(); INLINE_MAX];
        let mut places = peers.iter_mut();
        for role in SetRole::BOTH {
            let set = &mut self.record.sets_mut().v4[role];
            for place in places.by_ref().take(set.len() as usize) {
                let hash = peer_hash::<PackedV4>(self.key);
                *place = set.remove(self.arena, set.first_position(), hash);
            }
        }
        self.record.set_inline(peers, v4 as u8, counts.v4.seeders as u8);
    }

    /// Removes the inline peers for which `is_gone` returns true. Returns how many.
    pub(super) fn retain_inline(
        &mut self,
        mut is_gone: impl FnMut(SetRole, &PackedV4, &Networks) -> bool,
    ) -> u64 {
        let (mut at, mut gone) = (0, 0);
        while at < usize::from(self.record.inline_len) {
            let role = self.record.inline_role(at);
            if is_gone(role, &self.record.inline_peers()[at], self.networks) {
                let position = Position { page: 0, at: at as u32 };
                self.remove::<PackedV4>(Place { role, position });
                gone += 1;
            } else {
                at += 1;
            }
        }
        gone
    }

    /// Removes the peers of a page for which `is_gone` returns true.
    pub(super) fn retain_page<E: FamilyPeers>(
        &mut self,
        role: SetRole,
        page: u32,
        mut is_gone: impl FnMut(&E, &Networks) -> bool,
    ) -> Visited {
        let Self { record, arena, key, networks, totals, ids } = self;
        let (info_hash, mut gone, mut partial) = (record.info_hash, 0, 0);
        let set = &mut E::sets_mut(record.sets_mut())[role];
        if page >= set.pages(arena) {
            return Visited::default();
        }
        let keep = |peer: &E| {
            let is_gone = is_gone(peer, networks);
            if is_gone {
                gone += 1;
                partial += u32::from(peer.meta().is_partial());
                networks.remove::<E>(peer.key());
                ids.as_mut().and_then(|ids| ids.remove(&(info_hash, peer.peer_key())));
            }
            !is_gone
        };
        let lines = set.retain(arena, page, keep, peer_hash::<E>(key));
        let pages = set.pages(arena);
        record.partial_seeds -= partial;
        totals.partial_seeds -= u64::from(partial);
        *E::totals(totals).of_mut(role) -= gone;
        Visited { next: (page + 1 < pages).then_some(page + 1), lines, gone }
    }

    /// Returns the peers that share pages with `key`, and the places where these begin.
    pub(super) fn near<E: FamilyPeers>(&self, key: E::Key) -> [(Place, &[E]); 2] {
        if !self.record.is_spilled() {
            let peers = E::inline(self.record);
            return SetRole::BOTH.map(|role| {
                let range = self.record.inline_range(role);
                let position = Position { page: 0, at: range.start as u32 };
                (Place { role, position }, peers.get(range).unwrap_or_default())
            });
        }
        let sets = E::sets(self.record.sets());
        SetRole::BOTH.map(|role| {
            let (page, peers) = sets[role].page_with(self.arena, key, peer_hash::<E>(self.key));
            (Place { role, position: Position { page, at: 0 } }, peers)
        })
    }

    /// Returns true if a new peer may exceed a cap.
    #[inline]
    pub(super) fn is_crowded<E: FamilyPeers>(&self, key: E::Key, caps: PeerCaps) -> bool {
        let least = usize::from(caps.least());
        let peers = match self.record.is_spilled() {
            true => E::sets(self.record.sets()).iter().map(|set| set.len() as usize).sum(),
            false => E::inline(self.record).len(),
        };
        if peers < least || E::network(key).is_none() {
            return false;
        }
        let near = self.near::<E>(key).into_iter().flat_map(|(_, peers)| peers);
        near.filter(|peer| peer.shares_network(key)).count() >= least
    }
}

/// Returns the hash that assigns peers to the pages of large sets: all of a public network to the
/// same page, so that one scan counts them. Others by address and port, because thousands may share
/// a network.
#[inline]
pub(super) fn peer_hash<E: Entry>(key: &[u8; 16]) -> impl Fn(E::Key) -> u32 + Copy + use<E> {
    let key = *key;
    move |peer| {
        let hash = network_hash::<E>(&key, peer);
        hash.unwrap_or_else(|| siphash::<1, 3>(&key, peer.as_ref())) as u32
    }
}
