//! Inspecting torrents and peers, and removing them on request, in steps between which the caller
//! can unlock.

use std::net::IpAddr;

use primitives::memory::LINE;
use replication::{AGE_UNIT_S, PeerMeta};
use types::{Family, InfoHash, PackedV4, PackedV6, PeerKey, Tick};

use super::Shard;
use super::torrent::FamilyPeers;
use super::walk::Walk;
use crate::entry::Entry;
use crate::role::SetRole;
use crate::set::PeerSet;
use crate::{PeerInfo, TorrentDetails, TorrentStats};

impl Shard {
    /// Appends the stats of those of up to `count` torrents before number `end` that `is_wanted` to
    /// `rows`. Returns the `end` of the next step; 0 after the last.
    pub(crate) fn stats(
        &self,
        end: u32,
        count: u32,
        is_wanted: impl Fn(&InfoHash) -> bool,
        rows: &mut Vec<TorrentStats>,
    ) -> u32 {
        let end = end.min(self.records.len());
        let start = end.saturating_sub(count);
        let wanted = |number: &u32| is_wanted(&self.records.at(*number).info_hash);
        rows.extend((start..end).rev().filter(wanted).map(|number| self.stats_at(number)));
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
            for role in SetRole::BOTH {
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
                peers.push(self.peer(now, info_hash, entry, record.inline_role(at)));
            }
        }
        if let Some(swarm) = self.web.get(info_hash).filter(|_| record.has_web()) {
            for role in SetRole::BOTH {
                let all = swarm.peers(role);
                let share = share(all.len());
                peers.extend(all.take(share).map(|(peer, meta)| PeerInfo {
                    address: None,
                    id: Some(peer.peer_id),
                    ..seen(now, role, meta)
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

    fn peer<E: Entry>(
        &self,
        now: Tick,
        info_hash: &InfoHash,
        entry: &E,
        role: SetRole,
    ) -> PeerInfo {
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
        while left > 0
            && let Some(number) = walk.torrent(&self.records)
        {
            let info_hash = self.records.at(number).info_hash;
            let visited = self.visit_address(walk, number, ip, |role, meta, key| {
                let address = Some(key.socket_addr());
                visit(&info_hash, PeerInfo { address, ..seen(now, role, meta) })
            });
            left = left.saturating_sub(1 + visited);
        }
        walk.has_more()
    }

    /// Appends the addresses of the peers in about the next `lines` lines of a walk to `addresses`. Returns
    /// false at the end of the walk.
    pub(crate) fn addresses(
        &self,
        walk: &mut Walk,
        lines: u32,
        addresses: &mut Vec<IpAddr>,
    ) -> bool {
        let mut left = lines;
        while left > 0
            && let Some(number) = walk.torrent(&self.records)
        {
            let (record, before) = (self.records.at(number), addresses.len());
            if record.is_spilled() {
                let (family, role) = walk.set();
                let next = match family {
                    Family::V4 => self.addresses_in(walk, &record.sets().v4[role], addresses),
                    Family::V6 => self.addresses_in(walk, &record.sets().v6[role], addresses),
                };
                walk.advance(record.info_hash, next);
            } else {
                addresses.extend(record.inline_peers().iter().map(address));
                walk.leave();
            }
            let lines = (addresses.len() - before) * size_of::<PackedV4>() / LINE;
            left = left.saturating_sub(1 + lines as u32);
        }
        walk.has_more()
    }

    /// Appends the addresses in the next page of a set. Returns the place behind it.
    fn addresses_in<E: Entry>(
        &self,
        walk: &Walk,
        set: &PeerSet<E>,
        addresses: &mut Vec<IpAddr>,
    ) -> Option<u64> {
        if set.len() == 0 {
            return None;
        }
        let (page, next) = walk.page(set, &self.arena);
        addresses.extend(set.entries(&self.arena, page).iter().map(address));
        next
    }

    /// Calls `visit` with the peers at `ip` in the current part of the walk, and removes those for
    /// which it returns true. Returns the lines visited.
    fn visit_address(
        &mut self,
        walk: &mut Walk,
        number: u32,
        ip: IpAddr,
        mut visit: impl FnMut(SetRole, PeerMeta, PeerKey) -> bool,
    ) -> u32 {
        let record = self.records.at(number);
        let info_hash = record.info_hash;
        let (v4, v6);
        let octets = match ip {
            IpAddr::V4(ip) => (v4 = ip.octets(), v4.as_slice()).1,
            IpAddr::V6(ip) => (v6 = ip.octets(), v6.as_slice()).1,
        };
        let mut gone = Vec::new();
        let mut is_gone = |role, meta, key: &[u8], peer| {
            let is_gone = key.starts_with(octets) && visit(role, meta, peer);
            gone.extend(is_gone.then_some(peer));
            is_gone
        };
        let mut lines = 0;
        if !record.is_spilled() {
            self.torrent(number).retain_inline(|role, entry, _| {
                is_gone(role, entry.meta(), &entry.wire(), entry.peer_key())
            });
            walk.leave();
        } else if walk.skip_to(Family::of(ip)) {
            lines = match ip {
                IpAddr::V4(_) => self.visit_part::<PackedV4>(walk, number, is_gone),
                IpAddr::V6(_) => self.visit_part::<PackedV6>(walk, number, is_gone),
            };
        }
        gone.into_iter().for_each(|peer| self.changes.push_gone(&info_hash, &peer));
        lines
    }

    /// Removes the peers for which `is_gone` returns true from the current part of the walk. Returns
    /// the lines visited.
    fn visit_part<E: FamilyPeers>(
        &mut self,
        walk: &mut Walk,
        number: u32,
        mut is_gone: impl FnMut(SetRole, PeerMeta, &[u8], PeerKey) -> bool,
    ) -> u32 {
        let (_, role) = walk.set();
        let record = self.records.at(number);
        let (page, next) = walk.page(&E::sets(record.sets())[role], &self.arena);
        // First, because pages merge when peers are removed.
        walk.advance(record.info_hash, next);
        let is_gone =
            |entry: &E, _: &_| is_gone(role, entry.meta(), entry.key().as_ref(), entry.peer_key());
        self.torrent(number).retain_page(role, page, is_gone).lines
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
                SetRole::BOTH.map(|role| self.visit_web(number, role, 0, |_, _, _| true).lines);
            return lines.into_iter().sum();
        }
        if !record.is_spilled() {
            let info_hash = record.info_hash;
            for peer in record.inline_peers() {
                self.changes.push_gone(&info_hash, &peer.peer_key());
            }
            return u32::from(self.torrent(number).retain_inline(|_, _, _| true) > 0);
        }
        for role in SetRole::BOTH {
            let cost = self.pop_page_of::<PackedV4>(number, role)
                + self.pop_page_of::<PackedV6>(number, role);
            if cost > 0 {
                return cost;
            }
        }
        0
    }

    fn pop_page_of<E: FamilyPeers>(&mut self, number: u32, role: SetRole) -> u32 {
        let info_hash = self.records.at(number).info_hash;
        let mut gone = Vec::new();
        let visit = |peer: &E| gone.push(peer.peer_key());
        let lines = self.torrent(number).pop_page(role, visit);
        gone.iter().for_each(|peer| self.changes.push_gone(&info_hash, peer));
        lines
    }
}

fn address<E: Entry>(entry: &E) -> IpAddr {
    entry.peer_key().socket_addr().ip()
}

fn seen(now: Tick, role: SetRole, meta: PeerMeta) -> PeerInfo {
    let role = role.of_peer(meta);
    PeerInfo { address: None, role, age_s: meta.age(now) * AGE_UNIT_S, id: None }
}
