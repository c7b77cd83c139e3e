//! Torrent records: a cache line each, in a dense slab.
//!
//! A record holds up to four v4 peers itself, which is most torrents; else it points to four sets.

use types::{FamilyCounts, InfoHash, PackedV4, PackedV6, SwarmCounts};

use crate::memory::{HUGE_LINES, LINE, Region, cast, cast_mut, prefetch, values, values_mut};
use crate::set::PeerSet;

/// v4 peers that a record holds itself.
pub(crate) const FEW_MAX: usize = 4;
/// From so many chunks on, new ones ask for huge pages at once: an unused rest matters less.
const HUGE_FROM: usize = 3;

/// A torrent.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) info_hash: InfoHash,
    pub(crate) downloads: u32,
    kind: u8,
    /// Peers in `body` when few, and how many of them, the first ones, are seeders.
    few_len: u8,
    few_seeders: u8,
    /// Room for what is to come; 0.
    flags: u8,
    pub(crate) partial_seeds: u32,
    body: Sets,
}

/// The four sets of a torrent with many peers: seeders, then leechers, of each family.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Sets {
    pub(crate) v4: [PeerSet<PackedV4>; 2],
    pub(crate) v6: [PeerSet<PackedV6>; 2],
}

const FEW: u8 = 0;
const MANY: u8 = 1;

const _: () = assert!(size_of::<Record>() == LINE);
const _: () = assert!(size_of::<Sets>() == 32);
const _: () = assert!(size_of::<Sets>() == size_of::<[PackedV4; FEW_MAX]>());
// Fields fill the record: no padding between them.
const _: () = assert!(20 + 4 + 4 + 4 + size_of::<Sets>() == LINE);

impl Record {
    pub(crate) fn new(info_hash: InfoHash) -> Self {
        Self {
            info_hash,
            downloads: 0,
            kind: FEW,
            few_len: 0,
            few_seeders: 0,
            flags: 0,
            partial_seeds: 0,
            body: Sets::default(),
        }
    }

    /// The peers, seeders first, and how many are seeders, when the record holds them itself.
    #[inline(always)]
    pub(crate) fn few(&self) -> Option<(&[PackedV4], usize)> {
        let peers: &[PackedV4; FEW_MAX] = cast(&self.body);
        let len = usize::from(self.few_len);
        (self.kind == FEW).then(|| (&peers[..len], usize::from(self.few_seeders)))
    }

    /// All four places for peers that the record holds itself; meaningful when it does.
    pub(crate) fn few_places(&mut self) -> &mut [PackedV4; FEW_MAX] {
        debug_assert!(self.kind == FEW);
        cast_mut(&mut self.body)
    }

    /// Says how many of the places count.
    pub(crate) fn set_few(&mut self, len: usize, seeders: usize) {
        debug_assert!(len <= FEW_MAX);
        debug_assert!(seeders <= len);
        self.few_len = len as u8;
        self.few_seeders = seeders as u8;
    }

    /// The sets, when peers are in sets.
    #[inline(always)]
    pub(crate) fn sets(&self) -> Option<&Sets> {
        (self.kind == MANY).then_some(&self.body)
    }

    /// The sets, to be changed.
    #[inline(always)]
    pub(crate) fn sets_mut(&mut self) -> Option<&mut Sets> {
        (self.kind == MANY).then_some(&mut self.body)
    }

    /// Turns to empty sets. What the record held itself is the caller's to move.
    pub(crate) fn make_many(&mut self) {
        self.set_few(0, 0);
        self.kind = MANY;
        self.body = Sets::default();
    }

    /// Turns to no peers at all. The sets must be empty.
    pub(crate) fn make_few(&mut self) {
        debug_assert!(self.is_empty());
        self.kind = FEW;
        self.body = Sets::default();
    }

    /// The figures of the torrent.
    #[inline]
    pub(crate) fn counts(&self) -> SwarmCounts {
        let (mut v4, mut v6) = (FamilyCounts::default(), FamilyCounts::default());
        if let Some((peers, seeders)) = self.few() {
            v4.seeders = seeders as u32;
            v4.leechers = (peers.len() - seeders) as u32;
        } else {
            [v4.seeders, v4.leechers] = [self.body.v4[0].len(), self.body.v4[1].len()];
            [v6.seeders, v6.leechers] = [self.body.v6[0].len(), self.body.v6[1].len()];
        }
        let (downloads, partial_seeds) = (self.downloads, self.partial_seeds);
        debug_assert!(partial_seeds <= v4.leechers + v6.leechers);
        SwarmCounts { v4, v6, partial_seeds, downloads }
    }

    /// Nobody is in it.
    pub(crate) fn is_empty(&self) -> bool {
        let counts = self.counts();
        counts.seeders() == 0 && counts.leechers() == 0
    }
}

/// All records of a shard, numbered without gaps.
#[derive(Default)]
pub(crate) struct Records {
    chunks: Vec<Region>,
    len: u32,
    /// Records that chunks have room for and that were touched: what the system had to give.
    touched: u32,
    released: Vec<Region>,
}

impl Records {
    /// Adds a record and returns its number.
    pub(crate) fn push(&mut self, record: Record) -> u32 {
        let number = self.len;
        if number as usize == self.chunks.len() * HUGE_LINES {
            let region = Region::new(HUGE_LINES);
            if self.chunks.len() >= HUGE_FROM {
                region.advise_huge();
            } else {
                // They are full, so that no memory is wasted when the system joins their pages.
                self.chunks.iter().for_each(Region::advise_huge);
            }
            self.chunks.push(region);
        }
        self.len += 1;
        self.touched = self.touched.max(self.len);
        *self.record_mut(number) = record;
        number
    }

    /// Removes a record. The last takes its number; it is returned unless it was the one.
    pub(crate) fn swap_remove(&mut self, number: u32) -> Option<(u32, InfoHash)> {
        let last = self.len - 1;
        let record = *self.record(last);
        *self.record_mut(number) = record;
        self.len = last;
        // One chunk more than needed stays, so that a torrent that comes and goes does not make
        // one come and go.
        if (last as usize).div_ceil(HUGE_LINES) + 1 < self.chunks.len() {
            self.released.extend(self.chunks.pop());
            self.touched = self.touched.min((self.chunks.len() * HUGE_LINES) as u32);
        }
        (last != number).then_some((last, record.info_hash))
    }

    #[inline(always)]
    pub(crate) fn record(&self, number: u32) -> &Record {
        debug_assert!(number < self.len);
        let chunk = self.chunks[number as usize / HUGE_LINES].lines();
        &values(chunk)[number as usize % HUGE_LINES]
    }

    #[inline(always)]
    pub(crate) fn record_mut(&mut self, number: u32) -> &mut Record {
        debug_assert!(number < self.len);
        let chunk = self.chunks[number as usize / HUGE_LINES].lines_mut();
        &mut values_mut(chunk)[number as usize % HUGE_LINES]
    }

    /// Fetches a record ahead of its use.
    #[inline(always)]
    pub(crate) fn prefetch(&self, number: u32) {
        prefetch(self.record(number));
    }

    /// Records.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether the next record needs no memory that the system has not given yet.
    pub(crate) fn has_room(&self) -> bool {
        self.len < self.touched
    }

    /// Bytes of the records, and bytes that the system had to give.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (u64::from(self.len) * LINE as u64, u64::from(self.touched) * LINE as u64)
    }

    /// Memory to be dropped where nobody waits for it. A slab without records lets go of all.
    pub(crate) fn released(&mut self) -> Vec<Region> {
        if self.len == 0 {
            self.released.append(&mut self.chunks);
            self.touched = 0;
        }
        std::mem::take(&mut self.released)
    }
}
