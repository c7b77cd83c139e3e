//! Inspecting torrents and peers, and removing them on request, in steps between which the caller
//! can unlock.

use std::net::IpAddr;

use replication::{AGE_UNIT_S, PeerMeta};
use types::{Family, InfoHash, PackedV4, PackedV6, PeerKey, Tick};

use super::Shard;
use super::torrent::FamilyPeers;
use super::walk::{Part, Walk};
use crate::entry::Entry;
use crate::role::SetRole;
use crate::{PeerInfo, TorrentDetails, TorrentStats};

/// A peer that a walk has found.
pub(crate) struct Found {
    pub(crate) info_hash: InfoHash,
    pub(crate) role: SetRole,
    pub(crate) peer: PeerKey,
    pub(crate) meta: PeerMeta,
}

impl Found {
    /// Returns what operators see of the peer.
    pub(crate) fn info(&self, now: Tick) -> PeerInfo {
        PeerInfo { address: Some(self.peer.socket_addr()), ..seen(now, self.role, self.meta) }
    }
}

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
        let mut share = |len: u32| {
            sum += u64::from(len);
            let until = wanted * sum / total.max(1);
            (until - std::mem::replace(&mut before, until)) as usize
        };
        let mut peers = Vec::with_capacity(wanted as usize);
        let record = self.records.at(number);
        if record.is_spilled() {
            let sets = record.sets();
            for role in SetRole::BOTH {
                let v4 = sets.v4[role].iter(&self.arena).take(share(sets.v4[role].len()));
                peers.extend(v4.map(|entry| self.peer(now, info_hash, entry, role)));
                let v6 = sets.v6[role].iter(&self.arena).take(share(sets.v6[role].len()));
                peers.extend(v6.map(|entry| self.peer(now, info_hash, entry, role)));
            }
        } else {
            let inline = record.inline_peers();
            for (at, entry) in inline.iter().take(share(record.inline_len.into())).enumerate() {
                peers.push(self.peer(now, info_hash, entry, record.inline_role(at)));
            }
        }
        if let Some(swarm) = self.web.get(info_hash).filter(|_| record.has_web()) {
            for role in SetRole::BOTH {
                let all = swarm.peers(role);
                let share = share(all.len() as u32);
                peers.extend(all.take(share).map(|(peer, meta)| PeerInfo {
                    address: None,
                    id: Some(peer.peer_id),
                    ..seen(now, role, meta)
                }));
            }
        }
        Some(TorrentDetails { stats, peers })
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

    /// Visits the peers at `ip`, or all, in about the next `lines` lines of a walk, and removes those for which
    /// `is_gone` returns true.
    pub(crate) fn retain_peers(
        &mut self,
        walk: &mut Walk,
        lines: u32,
        ip: Option<IpAddr>,
        mut is_gone: impl FnMut(Found) -> bool,
    ) {
        let mut left = lines;
        while left > 0
            && let Some(number) = walk.torrent(&self.records)
        {
            let info_hash = self.records.at(number).info_hash;
            let part = match ip {
                Some(ip) => walk.part.of_family(Family::of(ip)),
                None => Some(walk.part),
            };
            let mut visited = 0;
            let mut next = None;
            if let Some(part) = part {
                (visited, next) = self.retain_part(number, part, |found| {
                    ip.is_none_or(|ip| found.peer.socket_addr().ip() == ip) && is_gone(found)
                });
            }
            walk.advance(info_hash, next);
            left = left.saturating_sub(1 + visited);
        }
    }

    /// Removes the peers for which `is_gone` returns true from a part of a torrent. Returns the lines visited,
    /// and the next part.
    fn retain_part(
        &mut self,
        number: u32,
        part: Part,
        mut is_gone: impl FnMut(Found) -> bool,
    ) -> (u32, Option<Part>) {
        let record = self.records.at(number);
        let info_hash = record.info_hash;
        let mut gone = Vec::new();
        let mut is_gone = |role, peer, meta| {
            let is_gone = is_gone(Found { info_hash, role, peer, meta });
            gone.extend(is_gone.then_some(peer));
            is_gone
        };
        let visited = if record.is_spilled() {
            match part.family {
                Family::V4 => self.retain_in_set::<PackedV4>(number, part, is_gone),
                Family::V6 => self.retain_in_set::<PackedV6>(number, part, is_gone),
            }
        } else {
            self.torrent(number)
                .retain_inline(|role, entry, _| is_gone(role, entry.peer_key(), entry.meta()));
            (0, None)
        };
        gone.into_iter().for_each(|peer| self.keep_removal(info_hash, peer, false));
        visited
    }

    fn retain_in_set<E: FamilyPeers>(
        &mut self,
        number: u32,
        part: Part,
        mut is_gone: impl FnMut(SetRole, PeerKey, PeerMeta) -> bool,
    ) -> (u32, Option<Part>) {
        let role = part.role;
        let set = &E::sets(self.records.at(number).sets())[role];
        // First, because pages merge when peers are removed.
        let (page, place) = part.page(set, &self.arena);
        let is_gone = |entry: &E, _: &_| is_gone(role, entry.peer_key(), entry.meta());
        let visited = self.torrent(number).retain_page(role, page, is_gone);
        (visited.lines, part.next(place))
    }

    /// Removes about `lines` lines of a torrent's peers from `part` on, and finally the torrent. Returns whether
    /// it is gone; `None` if there is no such torrent.
    pub(crate) fn remove_some(
        &mut self,
        info_hash: &InfoHash,
        hash: u64,
        part: &mut Part,
        lines: u32,
    ) -> Option<bool> {
        let number = self.find(info_hash, hash)?;
        let mut left = lines;
        while left > 0 {
            let record = self.records.at(number);
            if record.is_empty() {
                self.delete(number);
                return Some(true);
            }
            let visited = if record.has_web() {
                let lines =
                    SetRole::BOTH.map(|role| self.visit_web(number, role, 0, |_, _, _| true).lines);
                lines.into_iter().sum()
            } else {
                let (lines, next) = self.retain_part(number, *part, |_| true);
                // Others may have come to the parts before.
                *part = next.unwrap_or_default();
                lines
            };
            left = left.saturating_sub(1 + visited);
        }
        Some(false)
    }
}

fn seen(now: Tick, role: SetRole, meta: PeerMeta) -> PeerInfo {
    let role = role.of_peer(meta);
    PeerInfo { address: None, role, age_s: meta.age(now) * AGE_UNIT_S, id: None }
}
