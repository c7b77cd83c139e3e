//! The sweep: removes peers that have not announced for a lifetime, a few lines at a time.

use std::cell::Cell;

use primitives::memory::{HUGE_LINES, Region};
use types::{PackedV4, PackedV6, PeerKey, Tick, WebPeer};

use super::announce::take_inline;
use super::memory::Networks;
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::entry::Entry;
use crate::meta::{PeerMeta, age_max};
use crate::record::INLINE_MAX;
use crate::web::WebEntry;

/// The progress of a pass over all torrents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    record: u32,
    /// v4 seeders, v4 leechers, v6 seeders, v6 leechers, WebTorrent seeders, WebTorrent leechers.
    set: usize,
    /// The page of the set; for WebTorrent peers, the index of the next peer.
    page: u32,
}

impl Cursor {
    fn is_at_start(self) -> bool {
        (self.record, self.set, self.page) == (0, 0, 0)
    }
}

/// Ticks at which passes began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    /// The current pass.
    began: Tick,
    /// The last complete pass.
    last: Tick,
}

impl Pass {
    /// Returns the seconds since the last moment after which every peer has been visited.
    pub(crate) fn lag_s(self, now: Tick) -> u32 {
        now.since(self.last)
    }
}

/// Slots of the index that are migrated in a step, and free blocks that leave draining memory.
const INDEX_SLOTS: usize = 512;
const DRAIN_BLOCKS: u32 = 32;

/// The result of visiting a part of a set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visited {
    /// The next part, if there is one.
    pub(super) next: Option<u32>,
    /// Lines visited, approximately.
    pub(super) lines: u32,
    /// Peers removed.
    pub(super) gone: u64,
}

/// Lifetimes of peers, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) plain_s: u32,
    /// WebTorrent peers of this node.
    pub(crate) web_s: u32,
    /// WebTorrent peers of other nodes.
    pub(crate) web_remote_s: u32,
    /// This node.
    pub(crate) node: u8,
}

/// The first of the sets that hold WebTorrent peers, and the end of all sets.
const WEB_SETS: usize = 4;
const SETS_END: usize = 6;

/// Returns true if a peer has expired, or its network has too many peers for the memory left.
#[inline]
fn is_gone<E: Entry>(
    peer: &E,
    networks: &Networks,
    is_expired: impl Fn(PeerMeta) -> bool,
    is_over: &dyn Fn(u32, PeerKey) -> bool,
) -> bool {
    is_expired(peer.meta()) || {
        let count = networks.count::<E>(peer.key());
        count > 0 && is_over(count, peer.peer_key())
    }
}

impl Shard {
    /// Returns about how many lines a whole pass visits.
    pub(crate) fn pass_lines(&self) -> u64 {
        let web = self.totals.web.seeders + self.totals.web.leechers;
        // For each torrent of theirs two visits, and the end of each role.
        let web = web + 4 * self.web.len() as u64;
        u64::from(self.records.len()) + self.arena.used() + web
    }

    /// Visits about `lines` lines and removes expired peers.
    pub(crate) fn sweep(&mut self, now: Tick, lifetimes: Lifetimes, lines: u32) {
        self.index.migrate(INDEX_SLOTS);
        self.arena.drain(DRAIN_BLOCKS);
        if self.cursor.is_at_start() {
            self.pass.began = now;
        }
        let expired_after = |seconds: u32| {
            let oldest = age_max(self.lifetime_under_pressure(seconds));
            move |meta: PeerMeta| meta.age(now) > oldest
        };
        let is_expired = expired_after(lifetimes.plain_s);
        let (is_own_expired, is_remote_expired) =
            (expired_after(lifetimes.web_s), expired_after(lifetimes.web_remote_s));
        let is_web_expired = |peer: &WebPeer, meta| match peer.connection.node() == lifetimes.node {
            true => is_own_expired(meta),
            false => is_remote_expired(meta),
        };
        let evicts_web_above = self.evicts_web_above().unwrap_or(u32::MAX);
        let evicts_above = self.evicts_above().unwrap_or(u32::MAX);
        let exempt = self.exempt.clone();
        let is_exempt = |ip| exempt.as_deref().is_some_and(|exempt| exempt(ip));
        let evicted = Cell::new(0);
        let is_over = |count: u32, peer: PeerKey| {
            let is_over = count > evicts_above && !is_exempt(peer.socket_addr().ip());
            evicted.set(evicted.get() + u64::from(is_over));
            is_over
        };
        let is_web_gone = |peer: &WebPeer, entry: WebEntry, networks: &Networks| {
            is_web_expired(peer, entry.meta) || {
                let count = entry.host.map_or(0, |host| networks.count_of(host));
                evicted.set(evicted.get() + u64::from(count > evicts_web_above));
                count > evicts_web_above
            }
        };
        let mut left = lines;
        while left > 0 {
            if self.cursor.record >= self.records.len() {
                self.cursor = Cursor::default();
                self.pass.last = self.pass.began;
                self.arena.plan_drain();
                return;
            }
            left = left.saturating_sub(self.visit(is_expired, is_web_gone, &is_over));
            let evicted = evicted.take();
            self.totals.expired -= evicted;
            self.totals.evicted += evicted;
        }
    }

    /// Returns the length of a huge-page region that would be useful. The caller prepares it
    /// without the lock, because that takes long.
    pub(crate) fn wanted_huge_lines(&mut self) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let chunk = self.records.full_small_chunk().or_else(|| self.arena.full_small_chunk());
        self.index.wants_lines().or_else(|| chunk.map(|_| HUGE_LINES))
    }

    /// Uses a prepared region. Returns the memory that it replaces, or the region itself if it is
    /// no longer useful.
    pub(crate) fn supply(&mut self, prepared: Region) -> Option<Region> {
        if self.index.wants_lines() == Some(prepared.lines().len()) {
            self.index.supply(prepared);
            return None;
        }
        let chunk = self.records.full_small_chunk().or_else(|| self.arena.full_small_chunk());
        match chunk {
            Some(chunk) if prepared.lines().len() == HUGE_LINES => Some(chunk.move_to(prepared)),
            _ => Some(prepared),
        }
    }

    /// Visits the record, set and page at the cursor, and advances the cursor. Returns the lines
    /// visited.
    fn visit(
        &mut self,
        is_expired: impl Fn(PeerMeta) -> bool + Copy,
        is_web_gone: impl Fn(&WebPeer, WebEntry, &Networks) -> bool,
        is_over: &dyn Fn(u32, PeerKey) -> bool,
    ) -> u32 {
        let number = self.cursor.record;
        let record = self.records.at(number);
        let (is_spilled, has_web) = (record.is_spilled(), record.has_web());
        if !is_spilled && self.cursor.set < WEB_SETS {
            self.totals.expired += self.visit_inline(number, |peer, networks| {
                is_gone(peer, networks, is_expired, is_over)
            });
            self.cursor = Cursor { page: 0, set: WEB_SETS, ..self.cursor };
            if !has_web {
                self.leave(number);
            }
            return 1;
        }
        let (role, page) = (self.cursor.set % 2, self.cursor.page);
        let visited = match self.cursor.set {
            0 | 1 => self.visit_page(number, role, page, |peer: &PackedV4, networks| {
                is_gone(peer, networks, is_expired, is_over)
            }),
            2 | 3 => self.visit_page(number, role, page, |peer: &PackedV6, networks| {
                is_gone(peer, networks, is_expired, is_over)
            }),
            _ => self.visit_web(number, role, page, is_web_gone),
        };
        self.totals.expired += visited.gone;
        match visited.next {
            Some(next) => self.cursor.page = next,
            None => self.cursor = Cursor { page: 0, set: self.cursor.set + 1, ..self.cursor },
        }
        if self.cursor.set == WEB_SETS && is_spilled {
            self.move_inline(number);
        }
        if self.cursor.set == SETS_END || (self.cursor.set == WEB_SETS && !has_web) {
            self.leave(number);
        }
        1 + visited.lines
    }

    /// Advances to the next record. An empty record is removed, and another takes its number.
    fn leave(&mut self, number: u32) {
        self.cursor = Cursor { record: number, ..Cursor::default() };
        let record = self.records.at(number);
        // A torrent's download count is kept as long as it has peers.
        if record.is_empty() {
            self.delete(number);
        } else {
            self.cursor.record += 1;
        }
    }

    /// Removes the inline peers for which `is_gone` returns true. Returns how many.
    pub(super) fn visit_inline(
        &mut self,
        number: u32,
        mut is_gone: impl FnMut(&PackedV4, &Networks) -> bool,
    ) -> u64 {
        let mut gone = 0;
        let mut at = 0;
        while at < usize::from(self.records.at(number).inline_len) {
            let peer = self.records.at(number).inline_peers()[at];
            if !is_gone(&peer, &self.networks) {
                at += 1;
                continue;
            }
            let record = self.records.at_mut(number);
            let info_hash = record.info_hash;
            let (meta, role) = take_inline(record, at);
            self.count_removed::<PackedV4>(number, role, meta);
            self.remove_id(info_hash, peer.peer_key());
            self.networks.remove::<PackedV4>(peer.wire());
            gone += 1;
        }
        gone
    }

    /// Removes the peers of a page for which `is_gone` returns true.
    pub(super) fn visit_page<E: FamilyPeers>(
        &mut self,
        number: u32,
        role: usize,
        page: u32,
        mut is_gone: impl FnMut(&E, &Networks) -> bool,
    ) -> Visited {
        let mut set = E::sets(self.records.at(number).sets())[role];
        if page >= set.pages(&self.arena) {
            return Visited::default();
        }
        let info_hash = self.records.at(number).info_hash;
        let (mut gone, mut partial) = (0, 0);
        let (ids, networks) = (&mut self.ids, &mut self.networks);
        let keep = |peer: &E| {
            let dead = is_gone(peer, networks);
            if dead {
                gone += 1;
                networks.remove::<E>(peer.key());
                partial += u32::from(peer.meta().is_partial());
                if let Some(ids) = ids {
                    ids.remove(&(info_hash, peer.peer_key()));
                }
            }
            !dead
        };
        let lines = set.retain(&mut self.arena, page, keep, peer_hash::<E>(&self.key));
        let pages = set.pages(&self.arena);
        let record = self.records.at_mut(number);
        E::sets_mut(record.sets_mut())[role] = set;
        record.partial_seeds -= partial;
        self.totals.partial_seeds -= u64::from(partial);
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= gone;
        Visited { next: (page + 1 < pages).then_some(page + 1), lines, gone }
    }

    /// Moves the last peers of a torrent from sets back into its record.
    fn move_inline(&mut self, number: u32) {
        let sets = *self.records.at(number).sets();
        let counts = self.records.at(number).counts();
        let v4 = counts.v4.seeders + counts.v4.leechers;
        // One below the maximum, so that a peer that comes and goes does not switch back and forth.
        if counts.v6.seeders + counts.v6.leechers > 0 || v4 as usize >= INLINE_MAX {
            return;
        }
        let mut peers = [PackedV4::default(); INLINE_MAX];
        let mut len = 0;
        for role in [SEEDERS, LEECHERS] {
            let mut set = sets.v4[role];
            while set.len() > 0 {
                let first = set.first_position();
                peers[len] = set.remove(&mut self.arena, first, peer_hash::<PackedV4>(&self.key));
                len += 1;
            }
        }
        let record = self.records.at_mut(number);
        record.become_inline();
        (record.inline_len, record.inline_seeders) = (len as u8, counts.v4.seeders as u8);
        *record.inline_slots() = peers;
    }
}
