//! The recent requests of each prefix, in a table that no flood can grow.
//!
//! Plain form: a map from prefix to (debt, when), where a request adds 1 to the debt, a second takes
//! `per_s` from it, and a request that would make it more than `burst` is over the limit. A prefix
//! without debt needs no entry. Departures:
//!
//! 1. The table has a fixed number of buckets of 8 bytes, in sets of 8 that are a cache line. A keyed
//!    hash of the prefix gives the set and a tag of 20 bits, so clients cannot aim at another's bucket.
//! 2. A prefix without a bucket takes the one of its set with the least debt. So the prefixes that have
//!    asked the most stay known, however many others come, and a forgotten prefix is forgiven. A full
//!    table limits less; it never limits prefixes that did nothing.
//! 3. Two prefixes of the same set and tag share a bucket: one in 2^20 of the pairs of a set. With
//!    every bucket held by a flood, a client has a chance of 8 in 2^20 to be limited for somebody else's
//!    requests, until the key is drawn anew.
//! 4. A bucket is one atomic word, read and written with relaxed order, and without an exchange: that
//!    would make each request wait for the bucket's line, where now the processor continues. When two
//!    workers change a bucket within the same nanoseconds, one request is not counted. Refusing writes
//!    nothing: under a flood the bucket stays as it is, and its line in every core's cache.
//!
//! Its bound on memory decides for this form. It is also 1.7 to 2 times as fast as sharded maps
//! (`bench/record/2026-11-22-key-tables.md`).

use std::sync::atomic::{AtomicU64, Ordering};

use types::Tick;

/// The rate of requests that the clients of one prefix may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run; 0 = unlimited.
    pub per_s: u32,
    /// Requests that may come at once; less than a second's worth counts as a second's worth.
    pub burst: u32,
}

/// Buckets that share a cache line.
const WAYS: usize = 8;
const TAG_BITS: u32 = 20;
pub(super) const TIME_BITS: u32 = 24;
/// Seconds by which one worker's reading of the clock may be ahead of another's.
const AHEAD_S: u32 = 16;

const DEBT_BITS: u32 = u64::BITS - TAG_BITS - TIME_BITS;

/// The table.
pub(crate) struct Buckets {
    /// Their number is a power of two.
    sets: Box<[Set]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

const _: () = assert!(size_of::<Set>() == 64);

/// An unpacked bucket. All zeros are a free bucket: it has no debt, so it does not matter whose it is.
#[derive(Clone, Copy)]
struct Bucket {
    tag: u32,
    /// Second of the last change, modulo 2^24 (194 days).
    at: u32,
    /// Requests that are not drained yet.
    debt: u32,
}

impl Bucket {
    #[inline]
    fn unpack(word: u64) -> Self {
        Self {
            tag: (word >> (u64::BITS - TAG_BITS)) as u32,
            at: (word >> (u64::BITS - TAG_BITS - TIME_BITS)) as u32 % (1 << TIME_BITS),
            debt: word as u32 & Buckets::BURST_MAX,
        }
    }

    #[inline]
    fn pack(self) -> u64 {
        let time = u64::from(self.at) << (u64::BITS - TAG_BITS - TIME_BITS);
        u64::from(self.tag) << (u64::BITS - TAG_BITS) | time | u64::from(self.debt)
    }

    /// Returns the bucket as it is in the second `at`.
    #[inline]
    fn drained(self, at: u32, per_s: u32) -> Self {
        let passed = at.wrapping_sub(self.at) % (1 << TIME_BITS);
        if passed > (1 << TIME_BITS) - AHEAD_S {
            return self;
        }
        Self { at, debt: self.debt.saturating_sub(passed.saturating_mul(per_s)), ..self }
    }
}

impl Buckets {
    /// The largest debt that a bucket can hold.
    pub(crate) const BURST_MAX: u32 = (1 << DEBT_BITS) - 1;

    /// Returns a table of at least `count` free buckets.
    pub(crate) fn new(count: u32) -> Self {
        let sets = (count as usize).div_ceil(WAYS).next_power_of_two();
        Self { sets: (0..sets).map(|_| Set::default()).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Counts a request of the prefix with the keyed hash `hash`. Returns false, and counts nothing, if
    /// the prefix is over the limit. `rate.burst` must be from 1 to [`Buckets::BURST_MAX`].
    #[inline]
    pub(crate) fn take(&self, hash: u64, now: Tick, rate: Rate) -> bool {
        self.take_some(hash, now, rate, 1) == 1
    }

    /// Counts several requests of the prefix. Returns how many are within the limit, and counts only those.
    #[inline]
    pub(crate) fn take_some(&self, hash: u64, now: Tick, rate: Rate, requests: u32) -> u32 {
        debug_assert!((1..=Self::BURST_MAX).contains(&rate.burst), "{rate:?}");
        let Some(set) = self.sets.get(hash as usize & (self.sets.len() - 1)) else {
            return requests;
        };
        let tag = (hash >> (u64::BITS - TAG_BITS)) as u32;
        let Some((place, bucket)) = choose(set, tag, now, rate.per_s) else { return requests };
        let taken = rate.burst.saturating_sub(bucket.debt).min(requests);
        if taken > 0 {
            let debt = bucket.debt + taken;
            place.store(Bucket { debt, ..bucket }.pack(), Ordering::Relaxed);
        }
        taken
    }

    /// Returns whether a request of the prefix would be within the limit, and counts nothing.
    pub(crate) fn is_within(&self, hash: u64, now: Tick, rate: Rate) -> bool {
        let Some(set) = self.sets.get(hash as usize & (self.sets.len() - 1)) else { return true };
        let tag = (hash >> (u64::BITS - TAG_BITS)) as u32;
        choose(set, tag, now, rate.per_s).is_none_or(|(_, bucket)| bucket.debt < rate.burst)
    }

    /// Returns the number of buckets with a debt at `now`, if a second drains `per_s`.
    pub(super) fn in_use(&self, now: Tick, per_s: u32) -> usize {
        let has_debt = |word: &&AtomicU64| {
            Bucket::unpack(word.load(Ordering::Relaxed)).drained(second(now), per_s).debt > 0
        };
        self.sets.iter().flat_map(|set| &set.0).filter(has_debt).count()
    }
}

/// Returns the bucket of `tag` as it is at `now`, with its place. If there is none, the one with the
/// least debt becomes it.
#[inline]
fn choose(set: &Set, tag: u32, now: Tick, per_s: u32) -> Option<(&AtomicU64, Bucket)> {
    let at = second(now);
    // Busy prefixes have a bucket already. Comparing tags alone finds it sooner than unpacking all that
    // come before it.
    let is_own = |place: &&AtomicU64| {
        place.load(Ordering::Relaxed) >> (u64::BITS - TAG_BITS) == u64::from(tag)
    };
    if let Some(place) = set.0.iter().find(is_own) {
        let bucket = Bucket::unpack(place.load(Ordering::Relaxed)).drained(at, per_s);
        // Another worker may have given the bucket away since the comparison.
        return Some((place, Bucket { tag, ..bucket }));
    }
    let mut least: Option<(&AtomicU64, u32)> = None;
    for place in &set.0 {
        let bucket = Bucket::unpack(place.load(Ordering::Relaxed)).drained(at, per_s);
        if least.is_none_or(|(_, debt)| bucket.debt < debt) {
            least = Some((place, bucket.debt));
        }
    }
    least.map(|(place, _)| (place, Bucket { tag, at, debt: 0 }))
}

#[inline]
fn second(now: Tick) -> u32 {
    now.0 % (1 << TIME_BITS)
}
