//! Records of torrents: one cache line, with room for four v4 peers, which suffices for most
//! torrents.
//!
//! Plain form: a struct with a list of peers. A torrent with one peer takes 75 bytes, index
//! included, against 266 in a `DashMap` of maps (`bench/record/2026-11-21-store-memory.txt`,
//! `2026-11-21-bench-store.txt`).

use std::ops::Range;

use bytemuck::{Pod, Zeroable, cast_mut, cast_ref};
use primitives::memory::{HUGE_LINES, LINE, Region};
use primitives::prefetch;
use types::{FamilyCounts, InfoHash, PackedV4, PackedV6, SwarmCounts, Tick};

use crate::entry::Entry;
use crate::role::{ByRole, SetRole};
use crate::set::PeerSet;

#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) info_hash: InfoHash,
    /// Completed downloads.
    pub(crate) downloads: u32,
    /// Number of peers inline in the body, seeders first, at most [`INLINE_MAX`]; or [`SPILLED`]
    /// if the body is [`Sets`].
    pub(crate) inline_len: u8,
    pub(crate) inline_seeders: u8,
    /// When the torrent's first peer came, in units of [`FIRST_SEEN_UNIT_S`]; and the flag
    /// [`HAS_WEB`].
    first_seen: u16,
    /// Leechers that are partial seeds.
    pub(crate) partial_seeds: u32,
    body: [u64; 4],
}

const _: () = assert!(size_of::<Record>() == LINE);

/// Most v4 peers inline in a record.
pub(crate) const INLINE_MAX: usize = 4;
/// Marks a record whose peers are in sets.
const SPILLED: u8 = u8::MAX;
/// Flag: the torrent has WebTorrent peers, too, which are kept apart (see `web`).
const HAS_WEB: u16 = 1 << 15;
/// Seconds in a unit of `first_seen`: 15 bits of them are more than a year.
const FIRST_SEEN_UNIT_S: u32 = 1024;

/// The peers of a torrent with more than four of them, or with v6 peers.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Sets {
    pub(crate) v4: ByRole<PeerSet<PackedV4>>,
    pub(crate) v6: ByRole<PeerSet<PackedV6>>,
}

const _: () = assert!(size_of::<Sets>() == size_of::<[u64; 4]>());
const _: () = assert!(size_of::<[PackedV4; INLINE_MAX]>() == size_of::<[u64; 4]>());

impl Record {
    pub(crate) fn new(info_hash: InfoHash, now: Tick) -> Self {
        // Torrents that come after a year saturate: only their place in a list depends on it.
        let first_seen = (now.0 / FIRST_SEEN_UNIT_S).min(u32::from(HAS_WEB) - 1) as u16;
        Self { info_hash, first_seen, ..Self::default() }
    }

    /// Notes that the torrent's first peer came at `tick`, if that is earlier than known.
    pub(crate) fn was_seen(&mut self, tick: Tick) {
        let seen = Self::new(self.info_hash, tick).first_seen;
        let web = self.first_seen & HAS_WEB;
        self.first_seen = seen.min(self.first_seen & !HAS_WEB) | web;
    }

    /// Returns when the torrent's first peer came, up to 17 minutes early.
    pub(crate) fn first_seen(&self) -> Tick {
        Tick(u32::from(self.first_seen & !HAS_WEB) * FIRST_SEEN_UNIT_S)
    }

    /// Returns true if the peers are in sets.
    #[inline]
    pub(crate) fn is_spilled(&self) -> bool {
        self.inline_len == SPILLED
    }

    /// Returns true if the torrent has WebTorrent peers.
    #[inline]
    pub(crate) fn has_web(&self) -> bool {
        self.first_seen & HAS_WEB != 0
    }

    pub(crate) fn set_has_web(&mut self, has_web: bool) {
        self.first_seen =
            if has_web { self.first_seen | HAS_WEB } else { self.first_seen & !HAS_WEB };
    }

    /// Returns the inline peers. The record must not be spilled.
    #[inline]
    pub(crate) fn inline_peers(&self) -> &[PackedV4] {
        debug_assert!(!self.is_spilled());
        let all: &[PackedV4; INLINE_MAX] = cast_ref(&self.body);
        &all[..usize::from(self.inline_len)]
    }

    /// Returns room for all inline peers, of which the record may have fewer.
    #[inline]
    pub(crate) fn inline_room(&mut self) -> &mut [PackedV4; INLINE_MAX] {
        cast_mut(&mut self.body)
    }

    /// Returns the role of the inline peer at that index.
    #[inline]
    pub(crate) fn inline_role(&self, at: usize) -> SetRole {
        if at < usize::from(self.inline_seeders) { SetRole::Seeders } else { SetRole::Leechers }
    }

    /// Returns the indices of the inline peers of a role. The record must not be spilled.
    #[inline]
    pub(crate) fn inline_range(&self, role: SetRole) -> Range<usize> {
        let (len, seeders) = (usize::from(self.inline_len), usize::from(self.inline_seeders));
        match role {
            SetRole::Seeders => 0..seeders,
            SetRole::Leechers => seeders..len,
        }
    }

    /// Inserts an inline peer among those of its role. There must be room. Returns its index.
    #[inline]
    pub(crate) fn put_inline(&mut self, role: SetRole, peer: PackedV4) -> usize {
        let (len, seeders) = (usize::from(self.inline_len), usize::from(self.inline_seeders));
        self.inline_len += 1;
        let peers = self.inline_room();
        if role == SetRole::Leechers {
            peers[len] = peer;
            return len;
        }
        peers[len] = peers[seeders];
        peers[seeders] = peer;
        self.inline_seeders += 1;
        seeders
    }

    /// Removes and returns the inline peer at that index.
    #[inline]
    pub(crate) fn take_inline(&mut self, at: usize) -> PackedV4 {
        let (len, seeders) = (usize::from(self.inline_len), usize::from(self.inline_seeders));
        let peers = self.inline_room();
        let gone = peers[at];
        if at < seeders {
            // The last seeder fills the gap, and the last peer the seeder's place.
            peers[at] = peers[seeders - 1];
            peers[seeders - 1] = peers[len - 1];
            self.inline_seeders -= 1;
        } else {
            peers[at] = peers[len - 1];
        }
        self.inline_len -= 1;
        gone
    }

    /// Returns the sets. The record must be spilled.
    #[inline]
    pub(crate) fn sets(&self) -> &Sets {
        debug_assert!(self.is_spilled());
        cast_ref(&self.body)
    }

    /// Returns the sets mutably. The record must be spilled.
    #[inline]
    pub(crate) fn sets_mut(&mut self) -> &mut Sets {
        debug_assert!(self.is_spilled());
        cast_mut(&mut self.body)
    }

    /// Switches to empty sets. The caller inserts the peers that were inline.
    pub(crate) fn become_spilled(&mut self) {
        (self.inline_len, self.inline_seeders) = (SPILLED, 0);
        *self.sets_mut() = Sets::default();
    }

    /// Makes `peers`, of which the first `seeders` are seeders, the inline peers.
    pub(crate) fn set_inline(&mut self, peers: [PackedV4; INLINE_MAX], len: u8, seeders: u8) {
        (self.inline_len, self.inline_seeders) = (len, seeders);
        *self.inline_room() = peers;
    }

    /// Returns its counts without WebTorrent peers.
    #[inline]
    pub(crate) fn counts(&self) -> SwarmCounts {
        let (v4, v6) = if self.is_spilled() {
            (family_counts(&self.sets().v4), family_counts(&self.sets().v6))
        } else {
            let seeders = u32::from(self.inline_seeders);
            let leechers = u32::from(self.inline_len) - seeders;
            (FamilyCounts { seeders, leechers }, FamilyCounts::default())
        };
        SwarmCounts {
            v4,
            v6,
            web: FamilyCounts::default(),
            partial_seeds: self.partial_seeds,
            downloads: self.downloads,
        }
    }

    pub(crate) fn count_download(&mut self) {
        self.downloads = self.downloads.saturating_add(1);
    }

    /// Returns true if the torrent has no peers.
    pub(crate) fn is_empty(&self) -> bool {
        let counts = self.counts();
        !self.has_web() && counts.seeders() == 0 && counts.leechers() == 0
    }
}

fn family_counts<E: Entry>(sets: &ByRole<PeerSet<E>>) -> FamilyCounts {
    let [seeders, leechers] = SetRole::BOTH.map(|role| sets[role].len());
    FamilyCounts { seeders, leechers }
}

/// The torrents of a shard, without gaps, in chunks of memory that never move.
#[derive(Default)]
pub(crate) struct Records {
    chunks: Vec<Region>,
    len: u32,
    /// Most records since a chunk was last released; the system had to provide them.
    touched: usize,
    released: Vec<Region>,
}

impl Records {
    /// Returns how many there are; they are numbered from 0.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn at(&self, number: u32) -> &Record {
        let number = number as usize;
        cast_ref(&self.chunks[number / HUGE_LINES].lines()[number % HUGE_LINES])
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, number: u32) -> &mut Record {
        let number = number as usize;
        cast_mut(&mut self.chunks[number / HUGE_LINES].lines_mut()[number % HUGE_LINES])
    }

    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        prefetch(self.at(number));
    }

    pub(crate) fn push(&mut self, record: Record) -> u32 {
        let number = self.len;
        if number as usize == self.chunks.len() * HUGE_LINES {
            // The others are full.
            self.chunks.last().into_iter().for_each(Region::request_huge);
            self.chunks.push(Region::zeroed());
        }
        self.len += 1;
        self.touched = self.touched.max(self.len as usize);
        *self.at_mut(number) = record;
        number
    }

    /// Removes a record. The last one takes its number; returns the number that one had before, if
    /// another.
    pub(crate) fn swap_remove(&mut self, number: u32) -> Option<u32> {
        let last = self.len - 1;
        let moved = *self.at(last);
        *self.at_mut(number) = moved;
        self.len = last;
        // Keep one empty chunk, so that a count that goes up and down costs nothing.
        let needed = (last as usize).div_ceil(HUGE_LINES) + 1;
        self.released.extend(self.chunks.drain(needed.min(self.chunks.len())..));
        self.touched = self.touched.min(self.chunks.len() * HUGE_LINES);
        (last != number).then_some(last)
    }

    /// Returns the bytes that the system had to provide.
    pub(crate) fn reserved(&self) -> u64 {
        (self.touched * LINE) as u64
    }

    /// Returns released memory. Drop it after unlocking: that takes long.
    pub(crate) fn take_released(&mut self) -> Vec<Region> {
        std::mem::take(&mut self.released)
    }
}
