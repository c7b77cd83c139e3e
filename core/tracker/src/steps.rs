//! Values by ranges of addresses, of which the strongest holds where several overlap.
//!
//! Plain form: the addresses at which the value changes, sorted, and searched in halves. Departure: an index by equal
//! parts of what they span (`bench/record/2026-11-26-network-lists.md`).

use std::collections::BinaryHeap;

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
        })+
    };
}

impl_address!(u32 u64 u128);

/// A range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<A, R> {
    pub(crate) first: A,
    pub(crate) last: A,
    /// The span with the greatest rank counts where spans overlap.
    pub(crate) rank: R,
}

/// Addresses at which a value changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps<A, V> {
    /// The addresses, sorted.
    starts: Box<[A]>,
    /// The value from each of them on.
    values: Box<[V]>,
    /// For each part of what they span, the number of addresses before it; then the number of all.
    index: Box<[u32]>,
    /// A part has `1 << shift` addresses.
    shift: u32,
}

/// Addresses of which there is one part of the index, on average: so it takes a quarter or less of what they take, and
/// those of a part are in one or two cache lines.
const IN_A_PART: usize = 4;

impl<A, V> Default for Steps<A, V> {
    fn default() -> Self {
        let (starts, values, index) = Default::default();
        Self { starts, values, index, shift: 0 }
    }
}

impl<A: Address, V: Copy + PartialEq> Steps<A, V> {
    /// Returns the value that `value` makes of the greatest rank at each address, and `none` where there is no span.
    pub(crate) fn new<R: Copy + Ord>(
        mut spans: Vec<Span<A, R>>,
        none: V,
        value: impl Fn(R) -> V,
    ) -> Self {
        spans.sort_unstable_by_key(|span| span.first);
        let (mut starts, mut values) = (Vec::new(), Vec::new());
        let mut spans = spans.into_iter().peekable();
        // Spans that have begun, the greatest rank first.
        let mut open: BinaryHeap<(R, A)> = BinaryHeap::new();
        loop {
            // The value can change where the next span begins, and behind the one that counts.
            let begins = spans.peek().map(|span| span.first);
            let ends = open.peek().and_then(|(_, last)| last.next());
            let Some(at) = begins.into_iter().chain(ends).min() else { break };
            while let Some(span) = spans.next_if(|span| span.first == at) {
                open.push((span.rank, span.last));
            }
            while open.peek().is_some_and(|(_, last)| *last < at) {
                open.pop();
            }
            let found = open.peek().map_or(none, |(rank, _)| value(*rank));
            if *values.last().unwrap_or(&none) != found {
                starts.push(at);
                values.push(found);
            }
        }
        Self::indexed(starts, values)
    }

    fn indexed(starts: Vec<A>, values: Vec<V>) -> Self {
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
        Self { starts: starts.into(), values: values.into(), index: index.into(), shift }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
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
        let within = self.starts.get(from..to)?.partition_point(|start| *start <= address);
        // If the part has none at or below the address, the last one of an earlier part counts.
        self.values.get(from + within - 1).copied()
    }

    /// Iterates over the ranges, each with its first and last address and its value.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (A, A, V)> {
        let ends = self.starts.iter().skip(1).map(|next| next.previous().unwrap_or(A::MIN));
        let ranges = self.starts.iter().zip(ends.chain([A::MAX])).zip(&self.values);
        ranges.map(|((first, last), value)| (*first, last, *value))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.values) + size_of_val(&*self.index)
    }
}

#[cfg(test)]
mod tests {
    use primitives::Random;

    use super::*;

    /// Compares with a scan of spans, which are near each other and far apart, as lists have them.
    #[test]
    fn the_greatest_rank_counts() {
        let mut random = Random::new(3);
        for count in [0, 1, 2, 3, 5, 40, 400] {
            for spread in [4, 12, 28, 60, 100, 127] {
                let number = |random: &mut Random| {
                    let bits = (u128::from(random.next()) << 64) | u128::from(random.next());
                    let cluster = u128::from(random.below(3)) << 120;
                    cluster | (bits & ((1 << spread) - 1))
                };
                let mut spans: Vec<Span<u128, u32>> = Vec::new();
                for rank in 0..count {
                    let (one, other) = (number(&mut random), number(&mut random));
                    let len = if rank % 3 == 0 { other } else { other % 4 };
                    spans.push(Span { first: one, last: one.saturating_add(len), rank: rank / 2 });
                }
                let steps = Steps::new(spans.clone(), None, Some);
                assert!(steps.index.len() <= steps.starts.len().div_ceil(IN_A_PART).max(2) + 1);
                let ends: Vec<u128> = spans.iter().flat_map(|it| [it.first, it.last]).collect();
                let beside =
                    ends.iter().flat_map(|it| [it.saturating_sub(1), *it, it.saturating_add(1)]);
                let others: Vec<u128> = (0..200).map(|_| number(&mut random)).collect();
                for address in beside.chain(others).chain([u128::MIN, u128::MAX]) {
                    let around = spans.iter().filter(|it| (it.first..=it.last).contains(&address));
                    let expected = around.map(|span| span.rank).max();
                    assert_eq!(steps.find(address).flatten(), expected, "{address:x} of {count}");
                }
            }
        }
    }
}
