//! What is kept of a torrent: one cache line for up to four v4 peers, which most torrents are.

use bytemuck::{Pod, Zeroable, cast_mut, cast_ref};
use primitives::memory::{HUGE_LINES, LINE, Region, values, values_mut};
use primitives::prefetch;
use types::{FamilyCounts, InfoHash, PackedV4, PackedV6, SwarmCounts, Tick};

use crate::set::PeerSet;

/// A torrent.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) info_hash: InfoHash,
    /// Downloads completed.
    pub(crate) downloads: u32,
    /// Peers in the body, at most [`FEW`], seeders first; or [`MANY`], when the body is [`Sets`].
    pub(crate) few: u8,
    pub(crate) few_seeders: u8,
    /// When it came, in units of [`BORN_UNIT_S`]; and [`HAS_WEB`].
    first_seen: u16,
    /// Leechers that are partial seeds.
    pub(crate) partial_seeds: u32,
    body: [u64; 4],
}

const _: () = assert!(size_of::<Record>() == LINE);

/// v4 peers that fit the record.
pub(crate) const FEW: usize = 4;
/// Says that the peers are in sets.
const MANY: u8 = u8::MAX;
/// Whether a torrent has WebTorrent peers too, which are kept beside (see `web`).
const HAS_WEB: u16 = 1 << 15;
/// Seconds in a unit of birth: 15 bits of them are more than a year.
const BORN_UNIT_S: u32 = 1024;

/// The peers of a larger torrent, or one with v6 peers.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Sets {
    /// Seeders, leechers.
    pub(crate) v4: [PeerSet<PackedV4>; 2],
    /// Seeders, leechers.
    pub(crate) v6: [PeerSet<PackedV6>; 2],
}

const _: () = assert!(size_of::<Sets>() == size_of::<[u64; 4]>());
const _: () = assert!(size_of::<[PackedV4; FEW]>() == size_of::<[u64; 4]>());

impl Record {
    /// A torrent that nobody has announced before `now`.
    pub(crate) fn new(info_hash: InfoHash, now: Tick) -> Self {
        // One that comes after a year counts as a year's: nothing but its place in a list depends on it.
        let first_seen = (now.0 / BORN_UNIT_S).min(u32::from(HAS_WEB) - 1) as u16;
        Self { info_hash, first_seen, ..Self::default() }
    }

    /// When it came, less up to 17 minutes.
    pub(crate) fn first_seen(&self) -> Tick {
        Tick(u32::from(self.first_seen & !HAS_WEB) * BORN_UNIT_S)
    }

    /// Whether the body is [`Sets`].
    #[inline]
    pub(crate) fn is_many(&self) -> bool {
        self.few == MANY
    }

    /// Whether it has WebTorrent peers.
    #[inline]
    pub(crate) fn has_web(&self) -> bool {
        self.first_seen & HAS_WEB != 0
    }

    pub(crate) fn set_has_web(&mut self, has_web: bool) {
        self.first_seen =
            if has_web { self.first_seen | HAS_WEB } else { self.first_seen & !HAS_WEB };
    }

    /// The peers of a record that has them in itself.
    #[inline]
    pub(crate) fn few(&self) -> &[PackedV4] {
        debug_assert!(!self.is_many());
        let all: &[PackedV4; FEW] = cast_ref(&self.body);
        &all[..usize::from(self.few)]
    }

    /// All places for peers in the record.
    #[inline]
    pub(crate) fn few_mut(&mut self) -> &mut [PackedV4; FEW] {
        cast_mut(&mut self.body)
    }

    /// The sets of a record that has them.
    #[inline]
    pub(crate) fn sets(&self) -> &Sets {
        debug_assert!(self.is_many());
        cast_ref(&self.body)
    }

    /// The sets, to be changed.
    #[inline]
    pub(crate) fn sets_mut(&mut self) -> &mut Sets {
        debug_assert!(self.is_many());
        cast_mut(&mut self.body)
    }

    /// Turns to sets; the caller enters the peers that were here.
    pub(crate) fn become_many(&mut self) {
        (self.few, self.few_seeders) = (MANY, 0);
        *self.sets_mut() = Sets::default();
    }

    /// Turns back; the caller enters the peers.
    pub(crate) fn become_few(&mut self) {
        self.few = 0;
        self.body = [0; 4];
    }

    /// Its figures, WebTorrent peers apart.
    #[inline]
    pub(crate) fn counts(&self) -> SwarmCounts {
        let (v4, v6) = if self.is_many() {
            let sets = self.sets();
            (
                FamilyCounts { seeders: sets.v4[0].len(), leechers: sets.v4[1].len() },
                FamilyCounts { seeders: sets.v6[0].len(), leechers: sets.v6[1].len() },
            )
        } else {
            let seeders = u32::from(self.few_seeders);
            let leechers = u32::from(self.few) - seeders;
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

    /// Whether it has no peers.
    pub(crate) fn is_empty(&self) -> bool {
        let counts = self.counts();
        !self.has_web() && counts.seeders() == 0 && counts.leechers() == 0
    }
}

/// The torrents of a shard, without gaps, in chunks of memory that never move.
#[derive(Default)]
pub(crate) struct Records {
    chunks: Vec<Region>,
    len: u32,
    /// The most there have been since a chunk was last let go: what the system had to give.
    touched: usize,
    released: Vec<Region>,
}

impl Records {
    /// How many there are; they are numbered from 0.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn at(&self, number: u32) -> &Record {
        let number = number as usize;
        let lines = self.chunks[number / HUGE_LINES].lines();
        &values::<Record>(&lines[number % HUGE_LINES..][..1])[0]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, number: u32) -> &mut Record {
        let number = number as usize;
        let lines = self.chunks[number / HUGE_LINES].lines_mut();
        &mut values_mut::<Record>(&mut lines[number % HUGE_LINES..][..1])[0]
    }

    /// Fetches one ahead of its use.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        prefetch(self.at(number));
    }

    /// Adds one at the end, and gives its number.
    pub(crate) fn push(&mut self, record: Record) -> u32 {
        let number = self.len;
        if number as usize == self.chunks.len() * HUGE_LINES {
            self.chunks.push(Region::new(HUGE_LINES));
        }
        self.len += 1;
        self.touched = self.touched.max(self.len as usize);
        *self.at_mut(number) = record;
        number
    }

    /// Takes one out. The last one gets its number, which is said if it was another.
    pub(crate) fn swap_remove(&mut self, number: u32) -> Option<u32> {
        let last = self.len - 1;
        let moved = *self.at(last);
        *self.at_mut(number) = moved;
        self.len = last;
        // One empty chunk is kept, so that a number that goes up and down costs nothing.
        let needed = (last as usize).div_ceil(HUGE_LINES) + 1;
        self.released.extend(self.chunks.drain(needed.min(self.chunks.len())..));
        self.touched = self.touched.min(self.chunks.len() * HUGE_LINES);
        (last != number).then_some(last)
    }

    /// Bytes taken from the system, but for what was never touched.
    pub(crate) fn reserved(&self) -> u64 {
        (self.touched * LINE) as u64
    }

    /// A full chunk that is to be moved to a huge page.
    pub(crate) fn small_chunk(&mut self) -> Option<&mut Region> {
        let full = self.len as usize / HUGE_LINES;
        self.chunks.iter_mut().take(full).find(|chunk| chunk.is_small())
    }

    /// Memory to be dropped where nobody waits for it.
    pub(crate) fn released(&mut self) -> Vec<Region> {
        std::mem::take(&mut self.released)
    }
}
