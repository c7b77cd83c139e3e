//! A hash table of small rows that are found by a keyed hash: many shards, each with a lock, open
//! addressing and linear probing.
//!
//! Plain form: sharded [`hashbrown::HashTable`]s. Departures:
//! 1. A row's home is known without a lock, so that a batch prefetches all of its rows before it locks
//!    the first shard. The plain form must load its table's header and control bytes first.
//! 2. The rows of all shards lie side by side in common segments, which are large enough for huge pages
//!    where a shard alone would not be: otherwise translating a row's address takes longer than fetching
//!    the row.
//!
//! With the plain form, prefetched as well as it can be, an announce with a key takes 1.3 to 1.5 times
//! as long in process, 3 to 5 % of a response over UDP (`bench/record/2026-11-22-key-tables.md`).

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use primitives::memory::LINE;
use primitives::{AtomicWords, prefetch};

/// A value of `WORDS` words. All zeros stand for an empty row.
pub(super) trait Row<const WORDS: usize>: Copy {
    /// The key by which a row is found.
    type Key: RowKey;
    /// Number of shards, a power of two. Large enough that a shard with its part of the largest number
    /// of rows doubles within a millisecond.
    const SHARDS: usize;
    /// Rows of a shard that has any, a power of two. All shards together have 2 MiB then.
    const FIRST: usize = HUGE_PAGE / (WORDS * 8 * Self::SHARDS);

    /// Returns the row's key.
    fn key(&self) -> Self::Key;

    /// Returns the row as stored. The first word is the key's hash.
    fn to_words(self) -> [u64; WORDS];

    /// Restores a row from its words.
    fn from_words(words: [u64; WORDS]) -> Self;
}

/// A keyed hash, or something that has one.
pub(super) trait RowKey: Copy + PartialEq {
    /// Returns the bits that give shard and home row. Never 0.
    fn hash(self) -> u64;
}

/// The table, with an auxiliary value `T` for each shard.
pub(super) struct ShardedTable<R, T, const WORDS: usize> {
    shards: Box<[Shard<T>]>,
    /// Rows that each shard has: 0 or a power of two, of which at most three quarters are in use.
    /// Written under the shard's lock; read without it to prefetch a row.
    capacities: Box<[AtomicU32]>,
    /// The first rows of all shards, shard by shard; then as many again; then twice as many ...
    segments: [Segment; SEGMENTS],
    rows: PhantomData<R>,
}

/// A locked shard.
pub(super) struct LockedShard<'a, R, T, const WORDS: usize> {
    table: &'a ShardedTable<R, T, WORDS>,
    number: usize,
    state: MutexGuard<'a, State<T>>,
}

/// A row's position in its shard.
#[derive(Clone, Copy)]
pub(super) struct RowIndex(usize);

#[repr(align(64))]
#[derive(Default)]
struct Shard<T>(Mutex<State<T>>);

#[derive(Default)]
struct State<T> {
    /// Rows in use.
    len: usize,
    aux: T,
}

#[derive(Default)]
struct Segment {
    words: OnceLock<AtomicWords>,
    is_huge: AtomicBool,
}

const HUGE_PAGE: usize = 2 << 20;
/// Each doubles the table: 2^23 times its first size is more than any machine has memory for.
const SEGMENTS: usize = 24;

impl<R, T, const WORDS: usize> ShardedTable<R, T, WORDS>
where
    R: Row<WORDS>,
    T: Default,
{
    /// Returns an empty table. Allocates rows with the first insertion.
    pub(super) fn new() -> Self {
        const { assert!(R::SHARDS.is_power_of_two() && R::FIRST.is_power_of_two()) };
        // A shard's part of a segment is whole cache lines.
        const { assert!((R::FIRST * WORDS * 8).is_multiple_of(LINE)) };
        Self {
            shards: (0..R::SHARDS).map(|_| Shard::default()).collect(),
            capacities: (0..R::SHARDS).map(|_| AtomicU32::default()).collect(),
            segments: Default::default(),
            rows: PhantomData,
        }
    }

    /// Prefetches the shard's lock, and the home row of `key`.
    #[inline]
    pub(super) fn prefetch(&self, key: R::Key) {
        let number = shard_of::<R, WORDS>(key);
        if let Some(mask) = self.capacity(number).checked_sub(1) {
            self.shards.get(number).into_iter().for_each(prefetch);
            self.row(number, key.hash() as usize & mask).into_iter().for_each(prefetch);
        }
    }

    /// Locks the shard of `key`.
    #[inline]
    pub(super) fn lock(&self, key: R::Key) -> LockedShard<'_, R, T, WORDS> {
        self.lock_shard(shard_of::<R, WORDS>(key))
    }

    /// Locks one shard after the other.
    pub(super) fn lock_each(&self) -> impl Iterator<Item = LockedShard<'_, R, T, WORDS>> {
        (0..R::SHARDS).map(|number| self.lock_shard(number))
    }

    /// Locks a shard by its number, modulo the number of shards.
    #[inline]
    pub(super) fn lock_shard(&self, number: usize) -> LockedShard<'_, R, T, WORDS> {
        let number = number % R::SHARDS;
        LockedShard { table: self, number, state: self.shards[number].0.lock() }
    }

    /// Returns the number of rows in use. Locks each shard in turn.
    pub(super) fn len(&self) -> usize {
        self.lock_each().map(|shard| shard.len()).sum()
    }

    /// Collapses segments that most shards use into huge pages, and gives them up in segments that few
    /// use. Slow: call it off the request path.
    pub(super) fn adjust_huge_pages(&self) {
        for (number, segment) in self.segments.iter().enumerate() {
            let Some(words) = segment.words.get() else { break };
            let start = segment_start::<R, WORDS>(number);
            let is_used = |rows: &&AtomicU32| rows.load(Ordering::Relaxed) as usize > start;
            let used = self.capacities.iter().filter(is_used).count();
            if !segment.is_huge.load(Ordering::Relaxed) {
                // Every shard has its first rows early: only their number says whether they are many.
                let worth = if number == 0 { R::FIRST / 8 * 3 * R::SHARDS } else { 0 };
                if used * 2 >= R::SHARDS && self.len() >= worth {
                    segment.is_huge.store(true, Ordering::Relaxed);
                    words.make_huge();
                }
            } else if used * 8 < R::SHARDS {
                segment.is_huge.store(false, Ordering::Relaxed);
                words.make_small();
            }
        }
    }

    #[inline]
    fn capacity(&self, shard: usize) -> usize {
        self.capacities.get(shard).map_or(0, |rows| rows.load(Ordering::Relaxed) as usize)
    }

    /// Returns the words of a row, or `None` if the shard never had as many.
    #[inline]
    fn row(&self, shard: usize, at: usize) -> Option<&[AtomicU64; WORDS]> {
        // Segment 0 holds rows 0 to FIRST of each shard, segment n those from FIRST << (n - 1) on.
        let number = (at / R::FIRST).checked_ilog2().map_or(0, |number| number as usize + 1);
        let start = segment_start::<R, WORDS>(number);
        let words = self.segments.get(number)?.words.get()?.words();
        words.as_chunks().0.get(shard * segment_len::<R, WORDS>(number) + at - start)
    }
}

impl<R, T, const WORDS: usize> LockedShard<'_, R, T, WORDS>
where
    R: Row<WORDS>,
    T: Default,
{
    /// Returns the number of rows in use.
    pub(super) fn len(&self) -> usize {
        self.state.len
    }

    /// Returns the shard's auxiliary value.
    #[inline]
    pub(super) fn aux_mut(&mut self) -> &mut T {
        &mut self.state.aux
    }

    /// Returns the row of `key` and its index.
    #[inline]
    pub(super) fn find(&self, key: R::Key) -> Option<(RowIndex, R)> {
        let mut at = key.hash() as usize & self.mask()?;
        while let Some(row) = self.read(at) {
            if row.key() == key {
                return Some((RowIndex(at), row));
            }
            at = self.next(at);
        }
        None
    }

    /// Replaces a row by another of the same key.
    #[inline]
    pub(super) fn set(&mut self, RowIndex(at): RowIndex, row: R) {
        self.write(at, row.to_words());
    }

    /// Inserts a row whose key is not in the table.
    pub(super) fn insert(&mut self, row: R) {
        let capacity = self.capacity();
        if (self.state.len + 1) * 4 > capacity * 3 {
            self.resize((capacity * 2).max(R::FIRST));
        }
        self.put(row);
    }

    /// Removes and returns the row of `key`.
    pub(super) fn remove(&mut self, key: R::Key) -> Option<R> {
        let (index, row) = self.find(key)?;
        self.remove_at(index);
        Some(row)
    }

    /// Removes a row, and closes the gap in the probe sequence behind it.
    pub(super) fn remove_at(&mut self, RowIndex(mut gap): RowIndex) {
        debug_assert!(self.read(gap).is_some(), "row {gap} is empty");
        self.state.len -= 1;
        let mut at = self.next(gap);
        while let Some(row) = self.read(at) {
            let home = self.home(row);
            // The row may move if the gap lies between its home and its position.
            if self.steps(home, gap) <= self.steps(home, at) {
                self.write(gap, row.to_words());
                gap = at;
            }
            at = self.next(at);
        }
        self.write(gap, [0; WORDS]);
    }

    /// Returns the rows with this hash, whatever else their keys hold.
    pub(super) fn rows_of(&self, hash: u64) -> impl Iterator<Item = (RowIndex, R)> {
        let mut at = self.mask().map(|mask| hash as usize & mask);
        let rows = std::iter::from_fn(move || {
            let (index, row) = (at?, self.read(at?)?);
            at = Some(self.next(index));
            Some((RowIndex(index), row))
        });
        rows.filter(move |(_, row)| row.key().hash() == hash)
    }

    /// Returns all rows in use.
    pub(super) fn rows(&self) -> impl Iterator<Item = R> {
        (0..self.capacity()).filter_map(|at| self.read(at))
    }

    /// Removes the rows for which `is_over` holds.
    pub(super) fn remove_if(&mut self, mut is_over: impl FnMut(&R) -> bool) {
        let mut at = 0;
        while at < self.capacity() {
            match self.read(at).filter(&mut is_over) {
                // Another row may move into the gap: look at the same position again.
                Some(_) => self.remove_at(RowIndex(at)),
                None => at += 1,
            }
        }
    }

    /// Halves the shard as often as it makes sense, and returns the memory to the system, if the shard
    /// is nearly empty. Takes as long as growing.
    pub(super) fn shrink_if_sparse(&mut self) {
        if self.capacity() > R::FIRST && self.state.len * 8 < self.capacity() {
            self.resize((self.state.len * 2).next_power_of_two().max(R::FIRST));
        }
    }

    fn resize(&mut self, capacity: usize) {
        // 1. Take all rows out, and leave the shard's part of the segments empty. What the shard does
        //    not need any more goes back to the system.
        let old = self.capacity();
        let rows: Vec<R> = (0..old).filter_map(|at| self.read(at)).collect();
        (0..old.min(capacity)).for_each(|at| self.write(at, [0; WORDS]));
        for (number, segment) in self.table.segments.iter().enumerate() {
            let start = segment_start::<R, WORDS>(number);
            if let Some(words) = segment.words.get()
                && (capacity..old).contains(&start)
            {
                let lines = segment_len::<R, WORDS>(number) * WORDS * 8 / LINE;
                words.clear_lines(self.number * lines..(self.number + 1) * lines);
            }
        }
        // 2. Allocate the segments that the new capacity reaches into.
        let mut end = 0;
        for (number, segment) in self.table.segments.iter().enumerate() {
            if end >= capacity {
                break;
            }
            let len = segment_len::<R, WORDS>(number);
            segment.words.get_or_init(|| AtomicWords::new(R::SHARDS * len * WORDS));
            end += len;
        }
        debug_assert!(end >= capacity, "{capacity} rows are more than all segments hold");
        // 3. Publish the capacity, and insert the rows anew.
        let capacity = capacity.min(end) as u32;
        self.table.capacities[self.number].store(capacity, Ordering::Relaxed);
        self.state.len = 0;
        rows.into_iter().for_each(|row| self.put(row));
    }

    /// Writes a row to the first empty position from its home on. There must be one.
    fn put(&mut self, row: R) {
        debug_assert!(self.state.len < self.capacity(), "the shard is full");
        let mut at = self.home(row);
        while self.read(at).is_some() {
            at = self.next(at);
        }
        self.write(at, row.to_words());
        self.state.len += 1;
    }

    #[inline]
    fn read(&self, at: usize) -> Option<R> {
        let words = self.table.row(self.number, at)?;
        // Relaxed is enough: rows are written under the lock that this shard holds.
        let is_used = words[0].load(Ordering::Relaxed) != 0;
        is_used.then(|| R::from_words(std::array::from_fn(|at| words[at].load(Ordering::Relaxed))))
    }

    #[inline]
    fn write(&self, at: usize, words: [u64; WORDS]) {
        let Some(row) = self.table.row(self.number, at) else {
            debug_assert!(false, "row {at} is not allocated");
            return;
        };
        row.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.table.capacity(self.number)
    }

    #[inline]
    fn mask(&self) -> Option<usize> {
        self.capacity().checked_sub(1)
    }

    #[inline]
    fn home(&self, row: R) -> usize {
        row.key().hash() as usize & self.capacity().wrapping_sub(1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & self.capacity().wrapping_sub(1)
    }

    #[inline]
    fn steps(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.capacity().wrapping_sub(1)
    }
}

/// Returns the shard of a key. Within a shard, other bits count.
#[inline]
fn shard_of<R: Row<WORDS>, const WORDS: usize>(key: R::Key) -> usize {
    (key.hash() >> 40) as usize % R::SHARDS
}

/// Returns the first of each shard's rows in a segment.
#[inline]
fn segment_start<R: Row<WORDS>, const WORDS: usize>(number: usize) -> usize {
    if number == 0 { 0 } else { R::FIRST << (number - 1) }
}

/// Returns the rows of each shard in a segment.
#[inline]
fn segment_len<R: Row<WORDS>, const WORDS: usize>(number: usize) -> usize {
    R::FIRST << number.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use primitives::Random;

    use super::*;

    impl RowKey for u64 {
        fn hash(self) -> u64 {
            self
        }
    }

    /// A key, and the step in which it was inserted.
    #[derive(Clone, Copy)]
    struct Inserted(u64, u32);

    impl Row<2> for Inserted {
        type Key = u64;
        const SHARDS: usize = 2;
        const FIRST: usize = 8;

        fn key(&self) -> u64 {
            self.0
        }

        fn to_words(self) -> [u64; 2] {
            [self.0, self.1.into()]
        }

        fn from_words([key, at]: [u64; 2]) -> Self {
            Self(key, at as u32)
        }
    }

    /// Keys that share their home rows, at both ends of the shards.
    #[test]
    fn agrees_with_a_map() {
        let mut random = Random::new(1);
        for keys in [5, 40, 3000] {
            let tables = ShardedTable::<Inserted, u32, 2>::new();
            let mut twin = BTreeMap::new();
            for step in 0..20_000_u32 {
                let key = u64::from(1 + random.below(keys)).wrapping_mul(u64::MAX / 3);
                tables.prefetch(key);
                let mut table = tables.lock(key);
                let found = table.find(key);
                assert_eq!(found.map(|(_, Inserted(_, at))| at), twin.get(&key).copied());
                match random.below(if step % 4000 < 2000 { 4 } else { 8 }) {
                    0 => {
                        let removed = table.remove(key).map(|Inserted(_, at)| at);
                        assert_eq!(removed, twin.remove(&key));
                    }
                    1 | 2 if found.is_none() => {
                        table.insert(Inserted(key, step));
                        twin.insert(key, step);
                    }
                    3 => {
                        if let Some((place, _)) = found {
                            table.set(place, Inserted(key, step));
                            twin.insert(key, step);
                        }
                    }
                    _ => {}
                }
                drop(table);
                assert_eq!(tables.len(), twin.len());
                if step % 1000 == 999 {
                    let (old, before) = (step - random.below(500), twin.len());
                    for mut table in tables.lock_each() {
                        let mut ended = 0;
                        table.remove_if(|Inserted(_, at)| {
                            *at < old && {
                                ended += 1;
                                true
                            }
                        });
                        *table.aux_mut() += ended;
                        table.shrink_if_sparse();
                    }
                    twin.retain(|_, at| *at >= old);
                    let ended: u32 =
                        tables.lock_each().map(|mut table| std::mem::take(table.aux_mut())).sum();
                    assert_eq!((tables.len(), ended as usize), (twin.len(), before - twin.len()));
                    tables.adjust_huge_pages();
                }
            }
            assert!(twin.keys().all(|key| tables.lock(*key).find(*key).is_some()));
        }
    }
}
