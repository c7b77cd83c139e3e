//! Caps on the peers of one host or network in a torrent.
//!
//! All peers of a public network are in one page of each role's set, so counting them is a scan of
//! the two pages that the search for the new peer has just visited. Only new peers are counted.

use types::{PackedV4, Tick, limits};

use super::announce::{PeerUpdate, take_inline};
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::PeerCaps;
use crate::entry::Entry;
use crate::set::Position;

impl PeerCaps {
    /// Returns the number of peers from which on a new one of the same network may exceed a cap.
    #[inline]
    pub(super) fn least(self) -> u16 {
        let capped = |cap: u16| if cap == 0 { u16::MAX } else { cap };
        capped(self.per_address).min(capped(self.per_network)).min(limits::PEERS_PER_NETWORK_MAX)
    }
}

/// The peers of one host or network: how many there are, and the one that announced longest ago.
#[derive(Default)]
struct Group {
    count: u16,
    oldest: Option<(u32, usize, Position)>,
}

impl Group {
    fn add(&mut self, age: u32, role: usize, position: Position) {
        self.count = self.count.saturating_add(1);
        if self.oldest.is_none_or(|(oldest, ..)| age > oldest) {
            self.oldest = Some((age, role, position));
        }
    }
}

/// The peers in a torrent that count with a new one.
struct Neighbours<E: Entry> {
    key: E::Key,
    now: Tick,
    host: Group,
    network: Group,
}

impl<E: Entry> Neighbours<E> {
    fn new(key: E::Key, now: Tick) -> Self {
        Self { key, now, host: Group::default(), network: Group::default() }
    }

    fn add(&mut self, entry: &E, role: usize, position: Position) {
        if entry.shares_network(self.key) {
            let age = entry.meta().age(self.now);
            self.network.add(age, role, position);
            if entry.shares_address(self.key) {
                self.host.add(age, role, position);
            }
        }
    }

    /// Returns the role and position of the peer to replace, if a cap is reached.
    fn victim(&self, caps: PeerCaps, is_exempt: bool) -> Option<(usize, Position)> {
        let caps = if is_exempt { PeerCaps::default() } else { caps };
        let network_max = match caps.per_network {
            0 => limits::PEERS_PER_NETWORK_MAX,
            cap => cap.min(limits::PEERS_PER_NETWORK_MAX),
        };
        let is_host_full = caps.per_address > 0 && self.host.count >= caps.per_address;
        let group = match (is_host_full, self.network.count >= network_max) {
            (true, _) => &self.host,
            (false, true) => &self.network,
            (false, false) => return None,
        };
        group.oldest.map(|(_, role, position)| (role, position))
    }
}

impl Shard {
    /// Removes a peer of a torrent with sets if a new peer at `key` would exceed a cap. Returns
    /// whether it did.
    // Not inline: known peers, which are most, do not come here.
    #[inline(never)]
    pub(super) fn make_room<E: FamilyPeers>(
        &mut self,
        number: u32,
        key: E::Key,
        update: &PeerUpdate<'_>,
    ) -> bool {
        let sets = E::sets(self.records.at(number).sets());
        let least = u32::from(update.announce.caps.least());
        if sets[SEEDERS].len() + sets[LEECHERS].len() < least {
            return false;
        }
        if E::network(key).is_none() {
            return false;
        }
        let is_paged = sets[SEEDERS].is_paged() || sets[LEECHERS].is_paged();
        let hash = if is_paged { peer_hash::<E>(&self.key)(key) } else { 0 };
        let count: u32 = sets.iter().map(|set| set.count_network(&self.arena, key, |_| hash)).sum();
        count >= least && self.replace_oldest::<E>(number, key, update)
    }

    #[cold]
    fn replace_oldest<E: FamilyPeers>(
        &mut self,
        number: u32,
        key: E::Key,
        update: &PeerUpdate<'_>,
    ) -> bool {
        let hash = peer_hash::<E>(&self.key);
        let mut sets = *E::sets(self.records.at(number).sets());
        let mut neighbours = Neighbours::<E>::new(key, update.meta.now);
        for role in [SEEDERS, LEECHERS] {
            let (page, entries) = sets[role].page_with(&self.arena, key, hash);
            for (at, entry) in (0..).zip(entries) {
                neighbours.add(entry, role, Position { page, at });
            }
        }
        let victim = neighbours.victim(update.announce.caps, (update.is_exempt)());
        let Some((role, position)) = victim else { return false };
        let gone = sets[role].remove(&mut self.arena, position, hash);
        *E::sets_mut(self.records.at_mut(number).sets_mut()) = sets;
        self.count_replaced::<E>(number, role, &gone);
        true
    }

    /// Does what [`Shard::make_room`] does for a torrent with inline peers.
    #[cold]
    pub(super) fn make_room_inline(&mut self, number: u32, key: [u8; 6], update: &PeerUpdate<'_>) {
        if PackedV4::network(key).is_none() {
            return;
        }
        let record = self.records.at_mut(number);
        let seeders = usize::from(record.inline_seeders);
        let mut neighbours = Neighbours::<PackedV4>::new(key, update.meta.now);
        for (at, entry) in record.inline_peers().iter().enumerate() {
            let role = if at < seeders { SEEDERS } else { LEECHERS };
            neighbours.add(entry, role, Position { page: 0, at: at as u32 });
        }
        let victim = neighbours.victim(update.announce.caps, (update.is_exempt)());
        if let Some((role, Position { at, .. })) = victim {
            let gone = record.inline_peers()[at as usize];
            take_inline(record, at as usize);
            self.count_replaced::<PackedV4>(number, role, &gone);
        }
    }

    fn count_replaced<E: FamilyPeers>(&mut self, number: u32, role: usize, gone: &E) {
        let info_hash = self.records.at(number).info_hash;
        self.count_removed::<E>(number, role, gone.meta());
        self.remove_id(info_hash, gone.peer_key());
        self.changes.push_gone(&info_hash, &gone.peer_key());
        self.networks.remove::<E>(gone.key());
        self.totals.replaced += 1;
    }
}
