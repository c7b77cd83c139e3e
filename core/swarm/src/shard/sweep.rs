//! The sweep: removes peers that have not announced for a lifetime, a few lines at a time.

use primitives::memory::{HUGE_LINES, Region};
use types::{PackedV4, PackedV6, Tick};

use super::announce::take_inline;
use super::{FamilyPeers, LEECHERS, SEEDERS, Shard, peer_hash};
use crate::entry::Entry;
use crate::meta::{PeerMeta, age_max};
use crate::record::INLINE_MAX;

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

/// When passes began.
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
    /// WebTorrent peers.
    pub(crate) web_s: u32,
}

/// The first of the sets that hold WebTorrent peers, and the end of all sets.
const WEB_SETS: usize = 4;
const SETS_END: usize = 6;

impl Shard {
    /// Returns about how many lines a whole pass visits.
    pub(crate) fn pass_lines(&self) -> u64 {
        let web = self.totals.web.seeders + self.totals.web.leechers;
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
        let (is_expired, is_web_expired) =
            (expired_after(lifetimes.plain_s), expired_after(lifetimes.web_s));
        let mut left = lines;
        while left > 0 {
            if self.cursor.record >= self.records.len() {
                self.cursor = Cursor::default();
                self.pass.last = self.pass.began;
                self.arena.plan_drain();
                return;
            }
            left = left.saturating_sub(self.visit(is_expired, is_web_expired));
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

    /// Returns the lifetime that memory allows. Above 7/8 of the budget it falls in proportion to
    /// the free rest, so that the peers idle for longest go first.
    fn lifetime_under_pressure(&self, lifetime_s: u32) -> u32 {
        let Some(budget) = self.budget else { return lifetime_s };
        let left = budget.saturating_sub(self.memory_used());
        let free = budget / 8;
        if left >= free {
            return lifetime_s;
        }
        let lifetime_under_pressure =
            u128::from(lifetime_s) * u128::from(left) / u128::from(free.max(1));
        (lifetime_under_pressure as u32).max(lifetime_s / 16)
    }

    /// Visits the record, set and page at the cursor, and advances the cursor. Returns the lines
    /// visited.
    fn visit(
        &mut self,
        is_expired: impl Fn(PeerMeta) -> bool + Copy,
        is_web_expired: impl Fn(PeerMeta) -> bool,
    ) -> u32 {
        let number = self.cursor.record;
        let record = self.records.at(number);
        let (is_spilled, has_web) = (record.is_spilled(), record.has_web());
        if !is_spilled && self.cursor.set < WEB_SETS {
            self.totals.expired += self.visit_inline(number, |peer| is_expired(peer.meta()));
            self.cursor = Cursor { page: 0, set: WEB_SETS, ..self.cursor };
            if !has_web {
                self.leave(number);
            }
            return 1;
        }
        let (role, page) = (self.cursor.set % 2, self.cursor.page);
        let visited = match self.cursor.set {
            0 | 1 => self.visit_page(number, role, page, |peer: &PackedV4| is_expired(peer.meta())),
            2 | 3 => self.visit_page(number, role, page, |peer: &PackedV6| is_expired(peer.meta())),
            _ => self.visit_web(number, role, page, is_web_expired),
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

    /// Removes expired inline peers. Returns how many.
    pub(super) fn visit_inline(
        &mut self,
        number: u32,
        mut is_expired: impl FnMut(&PackedV4) -> bool,
    ) -> u64 {
        let mut gone = 0;
        let mut at = 0;
        while at < usize::from(self.records.at(number).inline_len) {
            let peer = self.records.at(number).inline_peers()[at];
            if !is_expired(&peer) {
                at += 1;
                continue;
            }
            let record = self.records.at_mut(number);
            let info_hash = record.info_hash;
            let (meta, role) = take_inline(record, at);
            self.count_removed::<PackedV4>(number, role, meta);
            self.remove_id(info_hash, peer.peer_key());
            gone += 1;
        }
        gone
    }

    /// Removes the expired peers of a page.
    pub(super) fn visit_page<E: FamilyPeers>(
        &mut self,
        number: u32,
        role: usize,
        page: u32,
        mut is_expired: impl FnMut(&E) -> bool,
    ) -> Visited {
        let mut set = E::sets(self.records.at(number).sets())[role];
        if page >= set.pages(&self.arena) {
            return Visited::default();
        }
        let info_hash = self.records.at(number).info_hash;
        let (mut gone, mut partial) = (0, 0);
        let ids = &mut self.ids;
        let keep = |peer: &E| {
            let dead = is_expired(peer);
            if dead {
                gone += 1;
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
