//! How much each prefix has asked for of late, in a table that no flood can grow.
//!
//! Plain form: a map from prefix to (debt, when), where a request adds 1 to the debt, a second takes
//! `per_s` from it, and a request that would make it more than `burst` is over the limit. A prefix
//! without debt needs no entry. Departures:
//!
//! 1. The table has a fixed number of buckets of 8 bytes, in sets of 8 that are a cache line. A keyed
//!    hash of the prefix gives the set and a tag of 20 bits, so nobody can aim at another's bucket.
//! 2. A prefix that has no bucket takes the one of its set with the least debt. So those who have
//!    asked the most stay known, however many others come, and whoever is forgotten is forgiven. A
//!    full table limits less; it never limits those who did nothing.
//! 3. Two prefixes of the same set and tag share a bucket: one in 2^20 of the pairs of a set. With
//!    every bucket of the table held by a flood, that is a chance of 8 in 2^20 to be limited for
//!    somebody else's requests, until the key is drawn anew.
//! 4. A bucket is one atomic word, read and written without order, and not even exchanged: that would
//!    make each request wait for the bucket's line, where now the processor goes on. When two workers
//!    change a bucket within the same nanoseconds, one request is not counted. Refusing writes
//!    nothing: under a flood the bucket stays what it is, and its line in every core's cache.

use std::sync::atomic::{AtomicU64, Ordering};

use types::Tick;

/// How often clients of one prefix may ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run; 0 is no limit.
    pub per_s: u32,
    /// Requests that may come at once; fewer than a second's worth count as a second's worth.
    pub burst: u32,
}

/// Buckets that share a cache line.
const WAYS: usize = 8;
const TAG_BITS: u32 = 20;
pub(super) const TIME_BITS: u32 = 24;
/// Seconds by which one worker's look at the clock may be later than another's.
const AHEAD_S: u32 = 16;

const DEBT_BITS: u32 = u64::BITS - TAG_BITS - TIME_BITS;

/// The table.
pub(crate) struct Buckets {
    /// A power of two.
    sets: Box<[Set]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

const _: () = assert!(size_of::<Set>() == 64);

/// What a word says. All zeros is a bucket that is free: it has no debt, whoever's it is.
#[derive(Clone, Copy)]
struct Bucket {
    tag: u32,
    /// Second of the last change, modulo 2^24 (194 days).
    at: u32,
    /// Requests that are not made up for.
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

    /// The bucket in the second `at`.
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
    /// The most that a bucket can hold.
    pub(crate) const BURST_MAX: u32 = (1 << DEBT_BITS) - 1;

    /// At least `count` buckets, all free.
    pub(crate) fn new(count: u32) -> Self {
        let sets = (count as usize).div_ceil(WAYS).next_power_of_two();
        Self { sets: (0..sets).map(|_| Set::default()).collect() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Counts a request of the prefix whose keyed hash is `name`, unless it is over the limit.
    /// `rate.burst` must be from 1 to [`Buckets::BURST_MAX`].
    #[inline]
    pub(crate) fn take(&self, name: u64, now: Tick, rate: Rate) -> bool {
        let Some(set) = self.sets.get(name as usize & (self.sets.len() - 1)) else { return true };
        let tag = (name >> (u64::BITS - TAG_BITS)) as u32;
        let Some((place, bucket)) = choose(set, tag, now, rate.per_s) else { return true };
        if bucket.debt >= rate.burst {
            return false;
        }
        place.store(Bucket { debt: bucket.debt + 1, ..bucket }.pack(), Ordering::Relaxed);
        true
    }

    /// How many are in use at `now`, if `per_s` is taken from them each second.
    pub(super) fn in_use(&self, now: Tick, per_s: u32) -> usize {
        let has_debt = |word: &&AtomicU64| {
            Bucket::unpack(word.load(Ordering::Relaxed)).drained(second(now), per_s).debt > 0
        };
        self.sets.iter().flat_map(|set| &set.0).filter(has_debt).count()
    }
}

/// The bucket of `tag`, or the one with the least debt, made `tag`'s: its place, and what it comes to
/// at `now`.
#[inline]
fn choose(set: &Set, tag: u32, now: Tick, per_s: u32) -> Option<(&AtomicU64, Bucket)> {
    let at = second(now);
    let mut least: Option<(&AtomicU64, u32)> = None;
    for place in &set.0 {
        let bucket = Bucket::unpack(place.load(Ordering::Relaxed)).drained(at, per_s);
        if bucket.tag == tag {
            return Some((place, bucket));
        }
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
