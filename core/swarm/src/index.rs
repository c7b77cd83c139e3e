//! Maps hashes of info hashes to record numbers.
//!
//! Plain form: a hash table of record numbers. Departure: the index is [`PARTS`] such tables, selected
//! by bits of the hash. A full table doubles, and reads the info hash of each of its records; announces
//! of the shard wait for that. In a shard with 400,000 torrents it takes about 0.1 ms.
//!
//! It took the place of a table that grew by small steps, with 4-byte tags and prefetches. An announce
//! takes 39 instructions fewer, and a torrent 5.7 to 11.4 bytes of the index instead of 10 to 15
//! (`bench/record/2026-11-23-index.md`).

use hashbrown::HashTable;

/// Tables in an index.
const PARTS: usize = 128;
/// The lower bits of a hash select the shard (see `store`): they are alike here.
const SHARD_BITS: u32 = 12;
/// Tables up to this size do not shrink.
const CAPACITY_MIN: usize = 28;

/// Record numbers by the keyed hash of their info hash.
pub(crate) struct Index {
    parts: Box<[HashTable<u32>; PARTS]>,
    bytes: u64,
}

impl Index {
    pub(crate) fn new() -> Self {
        let parts = Box::new([const { HashTable::new() }; PARTS]);
        Self { bytes: size_of_val(&*parts) as u64, parts }
    }

    /// Returns the first record with about that hash for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.parts[part_of(hash)].find(inner(hash), |record| is_it(*record)).copied()
    }

    /// Inserts a record. `hash_of` returns the hash of any record of the index.
    pub(crate) fn insert(&mut self, hash: u64, record: u32, hash_of: impl Fn(u32) -> u64) {
        let part = &mut self.parts[part_of(hash)];
        let before = part.allocation_size();
        part.insert_unique(inner(hash), record, |record| inner(hash_of(*record)));
        self.bytes += (part.allocation_size() - before) as u64;
    }

    /// Removes a record, which must be present. `hash_of` returns the hash of any other one.
    pub(crate) fn remove(&mut self, hash: u64, record: u32, hash_of: impl Fn(u32) -> u64) {
        let part = &mut self.parts[part_of(hash)];
        let found = part.find_entry(inner(hash), |found| *found == record);
        debug_assert!(found.is_ok());
        if let Ok(found) = found {
            found.remove();
        }
        if part.len() < part.capacity() / 4 && part.capacity() > CAPACITY_MIN {
            let before = part.allocation_size();
            part.shrink_to(part.capacity() / 2, |record| inner(hash_of(*record)));
            self.bytes -= (before - part.allocation_size()) as u64;
        }
    }

    /// Changes the number of a record, which must be present.
    pub(crate) fn renumber(&mut self, hash: u64, old: u32, new: u32) {
        let found = self.parts[part_of(hash)].find_mut(inner(hash), |found| *found == old);
        debug_assert!(found.is_some());
        found.into_iter().for_each(|found| *found = new);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[inline(always)]
fn part_of(hash: u64) -> usize {
    (hash >> SHARD_BITS) as usize % PARTS
}

/// Returns the hash for a table, which looks at the lower bits and the highest seven.
#[inline(always)]
fn inner(hash: u64) -> u64 {
    hash.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::Random;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    /// The hash of a record; those of a pair are equal.
    fn hash_of(record: u32) -> u64 {
        u64::from(record / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn find(index: &Index, record: u32) -> Option<u32> {
        index.find(hash_of(record), |found| found == record)
    }

    #[test]
    fn agrees_with_a_map_while_it_grows_and_shrinks() {
        let (mut index, mut twin) = (Index::new(), BTreeMap::<u32, ()>::new());
        let empty = index.bytes();
        let mut random = Random::new(7);
        let mut longest = 0;
        for round in 0..400_000u32 {
            let growing = round % 200_000 < 120_000;
            let visited = Cell::new(0);
            let counted_hash_of = |record| {
                visited.set(visited.get() + 1);
                hash_of(record)
            };
            let record = random.next() as u32 >> 8;
            let next = twin.range(record..).next().map(|(record, ())| *record);
            if random.below(8) < if growing { 7 } else { 1 } {
                if twin.insert(record, ()).is_none() {
                    index.insert(hash_of(record), record, counted_hash_of);
                }
            } else if let Some(record) = next {
                twin.remove(&record);
                index.remove(hash_of(record), record, counted_hash_of);
                assert_eq!(find(&index, record), None);
            }
            longest = longest.max(visited.get());
            if round % 50_000 == 49_999 {
                assert!(twin.keys().all(|record| find(&index, *record) == Some(*record)));
                let bytes = (index.bytes() - empty) as usize;
                assert!(bytes < twin.len() * 24, "{bytes} bytes for {}", twin.len());
            }
        }
        // No change visits more than a few hundredths of 90,000 records.
        assert!((100..3000).contains(&longest), "{longest}");
    }
}
