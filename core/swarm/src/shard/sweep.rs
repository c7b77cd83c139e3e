//! Forgetting peers that have not announced for a lifetime, a few lines at a time.

use primitives::memory::{HUGE_LINES, Region};
use types::{PackedV4, PackedV6, Tick};

use super::announce::take_few;
use super::{LEECHERS, Of, SEEDERS, Shard, peer_hash};
use crate::entry::Entry;
use crate::mark::{Mark, age_max};
use crate::record::FEW;

/// Where a pass over all torrents stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    record: u32,
    /// v4 seeders, v4 leechers, v6 seeders, v6 leechers, WebTorrent seeders, WebTorrent leechers.
    set: usize,
    /// In its pages; of WebTorrent peers, the number of the next.
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
    /// The one that goes on.
    began: Tick,
    /// The last one that has ended.
    last: Tick,
}

impl Pass {
    /// Seconds since the last time of which it is sure that every peer has been looked at after it.
    pub(crate) fn lag_s(self, now: Tick) -> u32 {
        now.since(self.last)
    }
}

/// Slots of the index that move with each step, and free blocks that leave draining memory.
const INDEX_SLOTS: usize = 512;
const DRAIN_BLOCKS: u32 = 32;

/// What came of looking at a part of a set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visited {
    /// The next part, if there is one.
    pub(super) next: Option<u32>,
    /// Lines that were looked at, about.
    pub(super) lines: u32,
    /// Peers that were dropped.
    pub(super) gone: u64,
}

/// How long peers may live, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) plain_s: u32,
    /// WebTorrent peers.
    pub(crate) web_s: u32,
}

/// The first of the sets that hold WebTorrent peers, and the end of all.
const WEB_SETS: usize = 4;
const SETS_END: usize = 6;

impl Shard {
    /// Lines that a whole pass looks at, about.
    pub(crate) fn pass_lines(&self) -> u64 {
        let web = self.totals.web.seeders + self.totals.web.leechers;
        u64::from(self.records.len()) + self.arena.used() + web
    }

    /// Looks at about `lines` lines, and forgets peers that are older than their lifetime.
    pub(crate) fn sweep(&mut self, now: Tick, lifetimes: Lifetimes, lines: u32) {
        self.index.step(INDEX_SLOTS);
        self.arena.drain(DRAIN_BLOCKS);
        if self.cursor.is_at_start() {
            self.pass.began = now;
        }
        let lived = |seconds: u32| {
            let oldest = age_max(self.pressed(seconds));
            move |mark: Mark| mark.age(now) > oldest
        };
        let (is_dead, is_web_dead) = (lived(lifetimes.plain_s), lived(lifetimes.web_s));
        let mut left = lines;
        while left > 0 {
            if self.cursor.record >= self.records.len() {
                self.cursor = Cursor::default();
                self.pass.last = self.pass.began;
                self.arena.plan_drain();
                return;
            }
            left = left.saturating_sub(self.visit(is_dead, is_web_dead));
        }
    }

    /// How many lines in huge pages would be of use: to be prepared without the lock, because that
    /// takes longer than anybody should wait.
    pub(crate) fn wanted_lines(&mut self) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let chunk = self.records.small_chunk().or_else(|| self.arena.small_chunk());
        self.index.wants_lines().or_else(|| chunk.map(|_| HUGE_LINES))
    }

    /// Takes what was prepared; gives the memory that it is of no more use for.
    pub(crate) fn supply(&mut self, prepared: Region) -> Option<Region> {
        if self.index.wants_lines() == Some(prepared.lines().len()) {
            self.index.supply(prepared);
            return None;
        }
        let chunk = self.records.small_chunk().or_else(|| self.arena.small_chunk());
        match chunk {
            Some(chunk) if prepared.lines().len() == HUGE_LINES => Some(chunk.move_to(prepared)),
            _ => Some(prepared),
        }
    }

    /// The lifetime that memory allows: from 7/8 of the budget on it falls in proportion to what is
    /// left, so that the idlest go first.
    fn pressed(&self, lifetime_s: u32) -> u32 {
        let Some(budget) = self.budget else { return lifetime_s };
        let left = budget.saturating_sub(self.memory_used());
        let free = budget / 8;
        if left >= free {
            return lifetime_s;
        }
        let pressed = u128::from(lifetime_s) * u128::from(left) / u128::from(free.max(1));
        (pressed as u32).max(lifetime_s / 16)
    }

    /// Looks at the record, set and page where the cursor is, and moves it on. Gives the lines.
    fn visit(
        &mut self,
        is_dead: impl Fn(Mark) -> bool + Copy,
        is_web_dead: impl Fn(Mark) -> bool,
    ) -> u32 {
        let number = self.cursor.record;
        let record = self.records.at(number);
        let (is_many, has_web) = (record.is_many(), record.has_web());
        if !is_many && self.cursor.set < WEB_SETS {
            self.totals.expired += self.visit_few(number, |peer| is_dead(peer.mark()));
            self.cursor = Cursor { page: 0, set: WEB_SETS, ..self.cursor };
            if !has_web {
                self.leave(number);
            }
            return 1;
        }
        let (role, page) = (self.cursor.set % 2, self.cursor.page);
        let visited = match self.cursor.set {
            0 | 1 => self.visit_page(number, role, page, |peer: &PackedV4| is_dead(peer.mark())),
            2 | 3 => self.visit_page(number, role, page, |peer: &PackedV6| is_dead(peer.mark())),
            _ => self.visit_web(number, role, page, is_web_dead),
        };
        self.totals.expired += visited.gone;
        match visited.next {
            Some(next) => self.cursor.page = next,
            None => self.cursor = Cursor { page: 0, set: self.cursor.set + 1, ..self.cursor },
        }
        if self.cursor.set == WEB_SETS && is_many {
            self.gather(number);
        }
        if self.cursor.set == SETS_END || (self.cursor.set == WEB_SETS && !has_web) {
            self.leave(number);
        }
        1 + visited.lines
    }

    /// Goes on to the next record; one that is of no more use is dropped, and another gets its
    /// number.
    fn leave(&mut self, number: u32) {
        self.cursor = Cursor { record: number, ..Cursor::default() };
        let record = self.records.at(number);
        // Downloads are remembered as long as there is anybody who might ask.
        if record.is_empty() {
            self.delete(number);
        } else {
            self.cursor.record += 1;
        }
    }

    /// Drops those of a record's own peers that are dead; says how many.
    pub(super) fn visit_few(
        &mut self,
        number: u32,
        mut is_dead: impl FnMut(&PackedV4) -> bool,
    ) -> u64 {
        let mut gone = 0;
        let mut at = 0;
        while at < usize::from(self.records.at(number).few) {
            let peer = self.records.at(number).few()[at];
            if !is_dead(&peer) {
                at += 1;
                continue;
            }
            let record = self.records.at_mut(number);
            let info_hash = record.info_hash;
            let (mark, role) = take_few(record, at);
            self.count_gone::<PackedV4>(number, role, mark);
            self.forget_id(info_hash, peer.peer_key());
            gone += 1;
        }
        gone
    }

    /// Drops those that are dead of a page of a role's peers.
    pub(super) fn visit_page<E: Of>(
        &mut self,
        number: u32,
        role: usize,
        page: u32,
        mut is_dead: impl FnMut(&E) -> bool,
    ) -> Visited {
        let mut set = E::sets(self.records.at(number).sets())[role];
        if page >= set.pages(&self.arena) {
            return Visited::default();
        }
        let info_hash = self.records.at(number).info_hash;
        let (mut gone, mut partial) = (0, 0);
        let ids = &mut self.ids;
        let keep = |peer: &E| {
            let dead = is_dead(peer);
            if dead {
                gone += 1;
                partial += u32::from(peer.mark().is_partial());
                if let Some(ids) = ids {
                    ids.remove(&(info_hash, peer.peer_key()));
                }
            }
            !dead
        };
        let lines = set.retain(&mut self.arena, page, keep, peer_hash(&self.key));
        let pages = set.pages(&self.arena);
        let record = self.records.at_mut(number);
        E::sets_mut(record.sets_mut())[role] = set;
        record.partial_seeds -= partial;
        self.totals.partial_seeds -= u64::from(partial);
        let totals = E::totals(&mut self.totals);
        *if role == SEEDERS { &mut totals.seeders } else { &mut totals.leechers } -= gone;
        Visited { next: (page + 1 < pages).then_some(page + 1), lines, gone }
    }

    /// Puts the last few peers of a torrent back into its record.
    fn gather(&mut self, number: u32) {
        let sets = *self.records.at(number).sets();
        let counts = self.records.at(number).counts();
        let v4 = counts.v4.seeders + counts.v4.leechers;
        // One less than there is room for, so that a peer that comes and goes costs nothing.
        if counts.v6.seeders + counts.v6.leechers > 0 || v4 as usize >= FEW {
            return;
        }
        let mut peers = [PackedV4::default(); FEW];
        let mut len = 0;
        for role in [SEEDERS, LEECHERS] {
            let mut set = sets.v4[role];
            while set.len() > 0 {
                let first = set.first_place();
                peers[len] = set.remove(&mut self.arena, first, peer_hash(&self.key));
                len += 1;
            }
        }
        let record = self.records.at_mut(number);
        record.become_few();
        (record.few, record.few_seeders) = (len as u8, counts.v4.seeders as u8);
        *record.few_mut() = peers;
    }
}
