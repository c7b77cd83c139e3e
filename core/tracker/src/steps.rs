//! Values by ranges of addresses.
//!
//! Plain form: the addresses at which the value changes, sorted, and searched in halves. Departures: an index by equal
//! parts of what they span, and excerpts of wide addresses (`bench/record/2026-11-26-network-lists.md`).

/// An address of one family, as a number.
pub(crate) trait Address: Copy + Ord {
    const MIN: Self;
    const MAX: Self;

    /// Returns the address after this one, if there is one.
    fn next(self) -> Option<Self>;

    /// Returns the address before this one, if there is one.
    fn previous(self) -> Option<Self>;

    /// Returns in which part of `1 << shift` addresses from `base` on this one is, which is not below `base`.
    fn part(self, base: Self, shift: u32) -> u128;

    /// Returns the 32 bits of the distance from `base` that follow those of the part.
    fn excerpt(self, base: Self, shift: u32) -> u32;
}

macro_rules! impl_address {
    ($($number:ty)+) => {
        $(impl Address for $number {
            const MIN: Self = Self::MIN;
            const MAX: Self = Self::MAX;

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn previous(self) -> Option<Self> {
                self.checked_sub(1)
            }

            #[inline]
            fn part(self, base: Self, shift: u32) -> u128 {
                ((self - base) >> shift).into()
            }

            #[inline]
            fn excerpt(self, base: Self, shift: u32) -> u32 {
                ((self - base) >> shift.saturating_sub(32)) as u32
            }
        })+
    };
}

impl_address!(u32 u64 u128);

/// Addresses at which a value changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps<A, V> {
    /// The addresses, sorted.
    starts: Box<[A]>,
    /// The excerpt of each of them, if they are wide: most lookups need no more, so they read a quarter of the memory.
    excerpts: Box<[u32]>,
    /// The value from each of them on.
    values: Box<[V]>,
    /// For each part of the span, the number of addresses before it; then the number of all.
    index: Box<[u32]>,
    /// A part has `1 << shift` addresses.
    shift: u32,
}

/// Addresses of which there is one part of the index, on average: so it takes a quarter or less of what they take, and
/// those of a part are in one or two cache lines.
const IN_A_PART: usize = 4;

/// Returns whether addresses are so wide that excerpts of them are kept.
const fn is_wide<A>() -> bool {
    size_of::<A>() > size_of::<u64>()
}

impl<A, V> Default for Steps<A, V> {
    fn default() -> Self {
        let (starts, excerpts, values, index) = Default::default();
        Self { starts, excerpts, values, index, shift: 0 }
    }
}

impl<A: Address, V: Copy> Steps<A, V> {
    /// Takes addresses, sorted and distinct, and the value from each of them on.
    pub(crate) fn new(starts: Vec<A>, values: Vec<V>) -> Self {
        debug_assert_eq!(starts.len(), values.len());
        let (Some(first), Some(last)) = (starts.first().copied(), starts.last().copied()) else {
            return Self::default();
        };
        // Of two parts at least, none is as wide as all addresses.
        let parts_max = starts.len().div_ceil(IN_A_PART).max(2) as u128;
        let mut shift = 0;
        while last.part(first, shift) >= parts_max {
            shift += 1;
        }
        let mut index = Vec::with_capacity(starts.len().div_ceil(IN_A_PART) + 1);
        for (before, start) in (0..).zip(&starts) {
            while index.len() as u128 <= start.part(first, shift) {
                index.push(before);
            }
        }
        index.push(starts.len() as u32);
        let wide = if is_wide::<A>() { &*starts } else { &[] };
        let excerpts = wide.iter().map(|start| start.excerpt(first, shift)).collect();
        Self { starts: starts.into(), excerpts, values: values.into(), index: index.into(), shift }
    }

    /// Returns the value at an address; `None` before the first one that has a value.
    #[inline]
    pub(crate) fn find(&self, address: A) -> Option<V> {
        let first = *self.starts.first()?;
        if address < first {
            return None;
        }
        let part = address.part(first, self.shift);
        if part >= self.index.len() as u128 - 1 {
            // Behind the last start there are no parts.
            return self.values.last().copied();
        }
        let part = part as usize;
        let (from, to) = (*self.index.get(part)? as usize, *self.index.get(part + 1)? as usize);
        let upto = match is_wide::<A>() {
            true => self.search_wide(from, to, address, first)?,
            false => self.search(from, to, address)?,
        };
        // If the part has none at or below the address, the last one of an earlier part counts.
        self.values.get(upto - 1).copied()
    }

    /// Returns the number of addresses that are not above this one. `from` of them are in earlier parts; those from
    /// `to` on are in later ones.
    #[inline]
    fn search(&self, from: usize, to: usize, address: A) -> Option<usize> {
        let within = self.starts.get(from..to)?.partition_point(|start| *start <= address);
        Some(from + within)
    }

    /// Does the same by excerpts, and by the addresses themselves where these are equal.
    #[inline]
    fn search_wide(&self, from: usize, to: usize, address: A, first: A) -> Option<usize> {
        let excerpt = address.excerpt(first, self.shift);
        let excerpts = self.excerpts.get(from..to)?;
        let below = excerpts.partition_point(|other| *other < excerpt);
        if excerpts.get(below) != Some(&excerpt) {
            return Some(from + below);
        }
        let equal = excerpts.get(below..)?.partition_point(|other| *other == excerpt);
        self.search(from + below, from + below + equal, address)
    }

    /// Iterates over the ranges, each with its first and last address and its value.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (A, A, V)> {
        let ends = self.starts.iter().skip(1).map(|next| next.previous().unwrap_or(A::MIN));
        let ranges = self.starts.iter().zip(ends.chain([A::MAX])).zip(&self.values);
        ranges.map(|((first, last), value)| (*first, last, *value))
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let places = size_of_val(&*self.index) + size_of_val(&*self.excerpts);
        size_of_val(&*self.starts) + size_of_val(&*self.values) + places
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use primitives::Random;

    use super::*;

    /// Compares with a sorted map, whose addresses are near each other and far apart, as lists have them.
    #[test]
    fn finds_what_a_map_finds() {
        let mut random = Random::new(3);
        for count in [0, 1, 2, 3, 5, 40, 3000] {
            for spread in [4, 12, 28, 60, 100, 127] {
                let number = |random: &mut Random| {
                    let bits = (u128::from(random.next()) << 64) | u128::from(random.next());
                    let cluster = u128::from(random.below(3)) << 120;
                    cluster | (bits & ((1 << spread) - 1))
                };
                let map: BTreeMap<u128, u32> =
                    (0..count).map(|value| (number(&mut random), value)).collect();
                let steps =
                    Steps::new(map.keys().copied().collect(), map.values().copied().collect());
                assert!(steps.index.len() <= map.len().div_ceil(IN_A_PART).max(2) + 1);
                let known: Vec<u128> = map.keys().copied().collect();
                let beside =
                    known.iter().flat_map(|it| [it.saturating_sub(1), *it, it.saturating_add(1)]);
                let others: Vec<u128> = (0..200).map(|_| number(&mut random)).collect();
                for address in beside.chain(others).chain([u128::MIN, u128::MAX]) {
                    let expected = map.range(..=address).next_back().map(|(_, value)| *value);
                    assert_eq!(steps.find(address), expected, "{address:x} of {count}");
                }
                assert_eq!(steps.ranges().count(), map.len());
            }
        }
    }
}
