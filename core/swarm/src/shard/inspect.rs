//! Inspecting torrents and peers, and removing them on request, in steps between which the caller
//! can unlock.

use std::net::IpAddr;

use types::{InfoHash, PackedV4, PackedV6, PeerKey, Role, Tick};

use super::sweep::Visited;
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard};
use crate::entry::Entry;
use crate::meta::{AGE_UNIT_S, PeerMeta};
use crate::set::PeerSet;
use crate::{PeerInfo, TorrentDetails, TorrentStats};

/// The progress of a walk over all peers. Torrents go from the last to the first: one that is moved
/// meanwhile moves to a lower number, so it is not missed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Torrents left, including the current one.
    left: u32,
    /// Seeders or leechers.
    set: usize,
    page: u32,
}

impl Walk {
    pub(crate) const START: Self = Self { left: u32::MAX, set: SEEDERS, page: 0 };
}

impl Shard {
    /// Appends the stats of up to `count` torrents before number `end` to `rows`. Returns the `end`
    /// of the next step; 0 after the last.
    pub(crate) fn stats(&self, end: u32, count: u32, rows: &mut Vec<TorrentStats>) -> u32 {
        let end = end.min(self.records.len());
        let start = end.saturating_sub(count);
        rows.extend((start..end).rev().map(|number| self.stats_at(number)));
        start
    }

    fn stats_at(&self, number: u32) -> TorrentStats {
        let record = self.records.at(number);
        let (info_hash, first_seen) = (record.info_hash, record.first_seen());
        TorrentStats { info_hash, counts: self.counts_at(number), first_seen }
    }

    /// Returns a torrent with at most `peers_max` of its peers.
    pub(crate) fn inspect(
        &self,
        now: Tick,
        info_hash: &InfoHash,
        hash: u64,
        peers_max: usize,
    ) -> Option<TorrentDetails> {
        let number = self.find(info_hash, hash)?;
        let stats = self.stats_at(number);
        let total = u64::from(stats.counts.seeders()) + u64::from(stats.counts.leechers());
        let wanted = total.min(peers_max as u64);
        // Each kind's share is proportional: the share of all peers up to its last one, less the
        // share of those before its first.
        let (mut sum, mut before) = (0, 0);
        let mut share = |len: usize| {
            sum += len as u64;
            let until = wanted * sum / total.max(1);
            (until - std::mem::replace(&mut before, until)) as usize
        };
        let mut peers = Vec::with_capacity(wanted as usize);
        let record = self.records.at(number);
        if record.is_spilled() {
            let sets = record.sets();
            for role in [SEEDERS, LEECHERS] {
                self.inspect_set(&sets.v4[role], &mut share, |entry| {
                    peers.push(self.peer(now, info_hash, entry, role));
                });
                self.inspect_set(&sets.v6[role], &mut share, |entry| {
                    peers.push(self.peer(now, info_hash, entry, role));
                });
            }
        } else {
            let inline = record.inline_peers();
            for (at, entry) in inline.iter().take(share(inline.len())).enumerate() {
                let role = usize::from(at >= usize::from(record.inline_seeders));
                peers.push(self.peer(now, info_hash, entry, role));
            }
        }
        if let Some(swarm) = self.web.get(info_hash).filter(|_| record.has_web()) {
            for role in [SEEDERS, LEECHERS] {
                let all = &swarm.peers[role];
                peers.extend(all.iter().take(share(all.len())).map(|(peer, meta)| PeerInfo {
                    address: None,
                    id: Some(peer.peer_id),
                    ..seen(now, role, *meta)
                }));
            }
        }
        Some(TorrentDetails { stats, peers })
    }

    fn inspect_set<E: Entry>(
        &self,
        set: &PeerSet<E>,
        mut share: impl FnMut(usize) -> usize,
        visit: impl FnMut(&E),
    ) {
        let pages = 0..set.pages(&self.arena);
        let entries = pages.flat_map(|page| set.entries(&self.arena, page));
        entries.take(share(set.len() as usize)).for_each(visit);
    }

    fn peer<E: Entry>(&self, now: Tick, info_hash: &InfoHash, entry: &E, role: usize) -> PeerInfo {
        let key = entry.peer_key();
        let id = self.ids.as_ref().and_then(|ids| ids.get(&(*info_hash, key)).copied());
        PeerInfo { address: Some(key.socket_addr()), id, ..seen(now, role, entry.meta()) }
    }

    /// Calls `visit` with the peers at `ip` in about the next `lines` lines of a walk, and removes
    /// those for which it returns true. Returns false at the end of the walk.
    pub(crate) fn walk_address(
        &mut self,
        now: Tick,
        walk: &mut Walk,
        lines: u32,
        ip: IpAddr,
        visit: &mut impl FnMut(&InfoHash, PeerInfo) -> bool,
    ) -> bool {
        let mut left = lines;
        walk.left = walk.left.min(self.records.len());
        while left > 0 && walk.left > 0 {
            let number = walk.left - 1;
            let info_hash = self.records.at(number).info_hash;
            let visited = self.visit_address(*walk, number, ip, |role, meta, key| {
                let address = Some(key.socket_addr());
                visit(&info_hash, PeerInfo { address, ..seen(now, role, meta) })
            });
            left = left.saturating_sub(1 + visited.lines);
            let is_last = !self.records.at(number).is_spilled() || walk.set == LEECHERS;
            *walk = match visited.next {
                Some(page) => Walk { page, ..*walk },
                None if is_last => Walk { left: number, set: SEEDERS, page: 0 },
                None => Walk { set: LEECHERS, page: 0, ..*walk },
            };
        }
        walk.left > 0
    }

    /// Calls `visit` with the peers at `ip` in the current page of the walk, and removes those for
    /// which it returns true.
    fn visit_address(
        &mut self,
        walk: Walk,
        number: u32,
        ip: IpAddr,
        mut visit: impl FnMut(usize, PeerMeta, PeerKey) -> bool,
    ) -> Visited {
        let record = self.records.at(number);
        let (is_spilled, seeders) = (record.is_spilled(), record.inline_seeders);
        let Walk { set: role, page, .. } = walk;
        match ip {
            IpAddr::V4(ip) if is_spilled => {
                self.visit_page(number, role, page, |entry: &PackedV4, _| {
                    entry.wire().starts_with(&ip.octets())
                        && visit(role, entry.meta(), entry.peer_key())
                })
            }
            IpAddr::V4(ip) => {
                let mut at = 0;
                let gone = self.visit_inline(number, |entry, _| {
                    // Each is visited once, seeders first. When one is removed, another of its role
                    // takes its place.
                    let role = usize::from(at >= seeders);
                    at += 1;
                    entry.wire().starts_with(&ip.octets())
                        && visit(role, entry.meta(), entry.peer_key())
                });
                Visited { next: None, lines: 0, gone }
            }
            IpAddr::V6(ip) if is_spilled => {
                self.visit_page(number, role, page, |entry: &PackedV6, _| {
                    entry.wire().starts_with(&ip.octets())
                        && visit(role, entry.meta(), entry.peer_key())
                })
            }
            IpAddr::V6(_) => Visited::default(),
        }
    }

    /// Removes about `lines` lines of a torrent's peers, and finally the torrent. Returns whether
    /// it is gone; `None` if there is no such torrent.
    pub(crate) fn remove_some(
        &mut self,
        info_hash: &InfoHash,
        hash: u64,
        lines: u32,
    ) -> Option<bool> {
        let number = self.find(info_hash, hash)?;
        let mut left = lines;
        while left > 0 {
            let cost = self.remove_part(number);
            if cost == 0 {
                self.delete(number);
                return Some(true);
            }
            left = left.saturating_sub(cost);
        }
        Some(false)
    }

    /// Removes some peers of a torrent. Returns the lines they took; 0 if none are left.
    fn remove_part(&mut self, number: u32) -> u32 {
        let record = self.records.at(number);
        if record.has_web() {
            let lines =
                (SEEDERS..=LEECHERS).map(|role| self.visit_web(number, role, 0, |_| true).lines);
            return lines.sum();
        }
        if !record.is_spilled() {
            return u32::from(self.visit_inline(number, |_, _| true) > 0);
        }
        for role in [SEEDERS, LEECHERS] {
            let cost = self.pop_page_of::<PackedV4>(number, role)
                + self.pop_page_of::<PackedV6>(number, role);
            if cost > 0 {
                return cost;
            }
        }
        0
    }

    fn pop_page_of<E: FamilyPeers>(&mut self, number: u32, role: usize) -> u32 {
        let mut set = E::sets(self.records.at(number).sets())[role];
        let info_hash = self.records.at(number).info_hash;
        let last = set.pages(&self.arena).saturating_sub(1);
        let mut partial = 0;
        for entry in set.entries(&self.arena, last) {
            partial += u32::from(entry.meta().is_partial());
            self.networks.remove::<E>(entry.key());
            if let Some(ids) = &mut self.ids {
                ids.remove(&(info_hash, entry.peer_key()));
            }
        }
        let before = set.len();
        let lines = set.pop_page(&mut self.arena);
        let gone = u64::from(before - set.len());
        let record = self.records.at_mut(number);
        E::sets_mut(record.sets_mut())[role] = set;
        record.partial_seeds -= partial;
        self.totals.partial_seeds -= u64::from(partial);
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= gone;
        lines
    }
}

fn seen(now: Tick, role: usize, meta: PeerMeta) -> PeerInfo {
    let role = match role {
        SEEDERS => Role::Seeder,
        _ if meta.is_partial() => Role::PartialSeed,
        _ => Role::Leecher,
    };
    PeerInfo { address: None, role, age_s: meta.age(now) * AGE_UNIT_S, id: None }
}
