//! A hash table in many shards, each with a lock, whose rows can be prefetched.
//!
//! Rows are found by a keyed hash, so that clients cannot aim at a shard. Shards keep growth short: none
//! is large enough for its rehashing to be noticed.
//!
//! A table of our own with lock-free prefetch, in huge pages, was 16 to 65 ns faster for a key and a
//! session of an announce that takes 5,000 (`bench/record/2026-11-22-key-tables.md`): too little for 300
//! lines. Prefetching is worth its lock: without it a batch takes up to twice as long.

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use primitives::prefetch;

/// A row with its key.
pub(super) trait Row {
    /// A keyed hash, or something that has one.
    type Key: Copy + PartialEq;
    /// Number of shards, a power of two. Large enough that a shard with its part of the largest number
    /// of rows doubles within a millisecond.
    const SHARDS: usize;

    /// Returns the row's key.
    fn key(&self) -> Self::Key;

    /// Returns the bits of a key that give shard and bucket.
    fn hash(key: Self::Key) -> u64;
}

/// The table, with an auxiliary value `A` for each shard.
pub(super) struct ShardedTable<R, A>(Box<[Line<Mutex<Shard<R, A>>>]>);

/// Keeps shards on cache lines of their own.
#[repr(align(64))]
struct Line<T>(T);

/// A shard.
pub(super) struct Shard<R, A> {
    rows: HashTable<R>,
    aux: A,
}

pub(super) type LockedShard<'a, R, A> = MutexGuard<'a, Shard<R, A>>;

impl<R: Row, A: Default> ShardedTable<R, A> {
    /// Returns an empty table.
    pub(super) fn new() -> Self {
        const { assert!(R::SHARDS.is_power_of_two()) };
        let shard = |_| Line(Mutex::new(Shard { rows: HashTable::new(), aux: A::default() }));
        Self((0..R::SHARDS).map(shard).collect())
    }

    /// Prefetches the row of `key`, if it is in its home bucket. Takes the shard's lock for a moment.
    #[inline]
    pub(super) fn prefetch(&self, key: R::Key) {
        let shard = self.lock(key);
        let mask = shard.rows.num_buckets().wrapping_sub(1);
        shard.rows.get_bucket(R::hash(key) as usize & mask).into_iter().for_each(prefetch);
    }

    /// Locks the shard of `key`.
    #[inline]
    pub(super) fn lock(&self, key: R::Key) -> LockedShard<'_, R, A> {
        // Within a shard, other bits count.
        self.lock_shard((R::hash(key) >> 40) as usize)
    }

    /// Locks a shard by its number, modulo the number of shards.
    #[inline]
    pub(super) fn lock_shard(&self, number: usize) -> LockedShard<'_, R, A> {
        self.0[number % R::SHARDS].0.lock()
    }

    /// Locks one shard after the other.
    pub(super) fn lock_each(&self) -> impl Iterator<Item = LockedShard<'_, R, A>> {
        (0..R::SHARDS).map(|number| self.lock_shard(number))
    }

    /// Returns the number of rows. Locks each shard in turn.
    pub(super) fn len(&self) -> usize {
        self.lock_each().map(|shard| shard.rows.len()).sum()
    }
}

impl<R: Row, A> Shard<R, A> {
    /// Returns the shard's number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the shard's auxiliary value.
    #[inline]
    pub(super) fn aux_mut(&mut self) -> &mut A {
        &mut self.aux
    }

    /// Returns the row of `key`, and the auxiliary value.
    #[inline]
    pub(super) fn find_mut(&mut self, key: R::Key) -> Option<(&mut R, &mut A)> {
        let row = self.rows.find_mut(R::hash(key), |row| row.key() == key)?;
        Some((row, &mut self.aux))
    }

    /// Inserts a row whose key is not in the table.
    pub(super) fn insert(&mut self, row: R) {
        self.rows.insert_unique(R::hash(row.key()), row, |row| R::hash(row.key()));
    }

    /// Removes and returns the row of `key`.
    pub(super) fn remove(&mut self, key: R::Key) -> Option<R> {
        let found = self.rows.find_entry(R::hash(key), |row| row.key() == key);
        Some(found.ok()?.remove().0)
    }

    /// Removes the rows for which `is_over` holds, and passes each to `removed`. Frees memory if the
    /// shard is nearly empty.
    pub(super) fn extract_if(
        &mut self,
        is_over: impl Fn(&R) -> bool,
        mut removed: impl FnMut(&mut A, R),
    ) {
        let Self { rows, aux } = self;
        rows.extract_if(|row| is_over(row)).for_each(|row| removed(aux, row));
        if rows.len() * 8 < rows.capacity() {
            rows.shrink_to(rows.len() * 2, |row| R::hash(row.key()));
        }
    }
}
