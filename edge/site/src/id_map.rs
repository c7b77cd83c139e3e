//! A map from the numbers of a site's rows to what is known of them, as small as it can be.
//!
//! Plain form: a `HashMap<u32, V>`. Departure: values lie in a vector, and the hash table has their positions. A hash
//! table has up to twice as many places as entries; a place is 5 bytes here instead of those of a value.

use std::hash::BuildHasher;
use std::mem;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The part by which the vector grows: reallocations are rare enough, and little is in reserve.
const GROWTH: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct IdMap<V> {
    rows: Vec<(u32, V)>,
    positions: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<V> Default for IdMap<V> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            positions: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<V> IdMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&V> {
        self.at(self.position(id)?).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut V> {
        let position = self.position(id)?;
        self.rows.get_mut(position as usize).map(|(_, value)| value)
    }

    /// Makes room for an eighth more, so that no insertion waits until a table has grown.
    pub(crate) fn reserve(&mut self) {
        let more = self.rows.len() / GROWTH + 1_000;
        self.rows.reserve_exact(more);
        let Self { rows, positions, hasher } = self;
        positions.reserve(more, |position| hasher.hash_one(rows[*position as usize].0));
    }

    /// Inserts or replaces the value of a number. Returns the old one.
    pub(crate) fn insert(&mut self, id: u32, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(id) {
            return Some(mem::replace(old, value));
        }
        if self.rows.len() == self.rows.capacity() {
            self.rows.reserve_exact(self.rows.len() / GROWTH + 64);
        }
        let position = u32::try_from(self.rows.len()).expect("there are fewer rows than numbers");
        self.rows.push((id, value));
        let Self { rows, positions, hasher } = self;
        let rehash = |position: &u32| hasher.hash_one(rows[*position as usize].0);
        positions.insert_unique(hasher.hash_one(id), position, rehash);
        None
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<V> {
        let Self { rows, positions, hasher } = self;
        let is_row = |position: &u32| rows[*position as usize].0 == id;
        let found = positions.find_entry(hasher.hash_one(id), is_row).ok()?;
        let (position, _) = found.remove();
        let last = rows.len() - 1;
        // The last row takes the place of the removed one.
        if position as usize != last {
            let is_last = |other: &u32| *other as usize == last;
            let moved = positions.find_mut(hasher.hash_one(rows[last].0), is_last);
            *moved.expect("each row has a position") = position;
        }
        Some(rows.swap_remove(position as usize).1)
    }

    /// Returns the number and the value at a position. The last one takes the position of one that is removed.
    pub(crate) fn at(&self, position: u32) -> Option<(u32, &V)> {
        self.rows.get(position as usize).map(|(id, value)| (*id, value))
    }

    pub(crate) fn position(&self, id: u32) -> Option<u32> {
        let is_row = |position: &u32| self.rows[*position as usize].0 == id;
        self.positions.find(self.hasher.hash_one(id), is_row).copied()
    }

    /// Returns all numbers with their values, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        self.rows.iter().map(|(id, value)| (*id, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tracker::Random;

    use super::*;

    #[test]
    fn does_as_a_plain_map_does() {
        let mut random = Random::new(5);
        let mut map = IdMap::default();
        let mut plain = BTreeMap::new();
        for step in 0..20_000 {
            let id = random.below(500) * 7_919;
            match random.below(3) {
                0 => assert_eq!(map.remove(id), plain.remove(&id)),
                1 => assert_eq!(map.insert(id, step), plain.insert(id, step)),
                _ => assert_eq!(map.get(id), plain.get(&id)),
            }
            assert_eq!(map.len(), plain.len());
        }
        let mut rows: Vec<_> = map.iter().map(|(id, value)| (id, *value)).collect();
        rows.sort_unstable();
        assert_eq!(rows, plain.into_iter().collect::<Vec<_>>());
        assert!(rows.len() > 100, "the test has compared few rows: {}", rows.len());
    }
}
