//! Lines of memory that are found by a hash: open addressing with linear probing.
//!
//! A table of our own, because a line of one is what an announce by key waits for: what is looked for is
//! in its home or behind it, so that the line can be asked for before it is needed.

use std::sync::atomic::{AtomicUsize, Ordering};

use swarm::prefetch_at;

/// What a table has in each line.
pub(super) trait Line {
    /// What it is found by.
    type Name: Name;

    /// Its own.
    fn name(&self) -> Self::Name;
}

/// A keyed hash.
pub(super) trait Name: Copy + PartialEq {
    /// Those of its bits that say where to look.
    fn bits(self) -> u64;

    /// Chooses one of many tables: inside them, other bits count.
    #[inline]
    fn shard(self, shards: usize) -> usize {
        (self.bits() >> 40) as usize % shards
    }
}

/// Some lines.
pub(super) struct Table<L> {
    /// A power of two, of which at most three quarters are taken; or none.
    slots: Vec<Option<L>>,
    len: usize,
}

/// What it takes to ask for a table's lines without its lock: a lock waits for what was asked for before it,
/// and so each line would wait for the one before.
#[derive(Default)]
pub(super) struct Hint {
    /// Where the slots are, and how many: those of now, or of a moment ago.
    address: AtomicUsize,
    slots: AtomicUsize,
}

const SLOTS_MIN: usize = 8;

impl<L> Default for Table<L> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

impl<L: Line> Table<L> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn find(&mut self, name: L::Name) -> Option<&mut L> {
        let at = self.position(name)?;
        self.slots.get_mut(at)?.as_mut()
    }

    pub(super) fn remove(&mut self, name: L::Name) -> Option<L> {
        let at = self.position(name)?;
        self.take(at)
    }

    /// Adds one that is not in it.
    pub(super) fn insert(&mut self, line: L) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN));
        }
        self.put(line);
    }

    /// Removes those that are over, and shows each.
    pub(super) fn extract(&mut self, is_over: impl Fn(&L) -> bool, mut see: impl FnMut(L)) {
        let mut at = 0;
        while let Some(slot) = self.slots.get(at) {
            if slot.as_ref().is_some_and(&is_over) {
                // Another one may have moved into the gap, which is looked at once more.
                self.take(at).into_iter().for_each(&mut see);
            } else {
                at += 1;
            }
        }
        if self.slots.len() > SLOTS_MIN && self.len * 8 < self.slots.len() {
            self.resize((self.len * 2).next_power_of_two().max(SLOTS_MIN));
        }
    }

    fn resize(&mut self, slots: usize) {
        let empty = std::iter::repeat_with(|| None).take(slots).collect();
        let old = std::mem::replace(&mut self.slots, empty);
        self.len = 0;
        old.into_iter().flatten().for_each(|line| self.put(line));
    }

    /// Puts a line into the first gap from its home on. There is one.
    fn put(&mut self, line: L) {
        let mut at = self.home(line.name());
        while let Some(Some(_)) = self.slots.get(at) {
            at = self.next(at);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Some(line);
            self.len += 1;
        }
    }

    /// Empties a slot, and moves those up that stand behind it only because it was taken.
    fn take(&mut self, at: usize) -> Option<L> {
        let taken = self.slots.get_mut(at)?.take()?;
        self.len -= 1;
        let (mut gap, mut at) = (at, self.next(at));
        while let Some(Some(line)) = self.slots.get(at) {
            let home = self.home(line.name());
            // Steps from home to where it stands, and to the gap: it may move if the gap is on its way.
            if self.steps(home, gap) <= self.steps(home, at) {
                self.slots.swap(gap, at);
                gap = at;
            }
            at = self.next(at);
        }
        Some(taken)
    }

    #[inline]
    fn position(&self, name: L::Name) -> Option<usize> {
        let mut at = self.home(name);
        while let Some(Some(line)) = self.slots.get(at) {
            if line.name() == name {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    fn home(&self, name: L::Name) -> usize {
        name.bits() as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn steps(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.slots.len().wrapping_sub(1)
    }
}

impl Hint {
    /// Asks for the line in which it is, most likely.
    #[inline]
    pub(super) fn prefetch<L: Line>(&self, name: L::Name) {
        let slot = name.bits() as usize & self.slots.load(Ordering::Relaxed).wrapping_sub(1);
        let offset = slot.wrapping_mul(size_of::<Option<L>>());
        prefetch_at(self.address.load(Ordering::Relaxed).wrapping_add(offset));
    }

    /// After whatever may have moved the slots.
    #[inline]
    pub(super) fn publish<L>(&self, table: &Table<L>) {
        self.address.store(table.slots.as_ptr().addr(), Ordering::Relaxed);
        self.slots.store(table.slots.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swarm::Random;

    use super::*;

    impl Name for u64 {
        fn bits(self) -> u64 {
            self
        }
    }

    /// A name, and when it was put.
    struct Put(u64, u32);

    impl Line for Put {
        type Name = u64;

        fn name(&self) -> u64 {
            self.0
        }
    }

    /// Names that share their homes, at both ends of the table.
    #[test]
    fn a_table_is_a_map() {
        let mut random = Random::new(1);
        for names in [5, 40, 3000] {
            let (mut table, mut twin) = (Table::default(), BTreeMap::new());
            for step in 0..20_000_u32 {
                let name = u64::from(random.below(names)).wrapping_mul(u64::MAX / 3);
                assert_eq!(table.find(name).map(|Put(_, at)| *at), twin.get(&name).copied());
                match random.below(if step % 4000 < 2000 { 3 } else { 6 }) {
                    0 => {
                        let removed = table.remove(name).map(|Put(_, at)| at);
                        assert_eq!(removed, twin.remove(&name));
                    }
                    1 | 2 if !twin.contains_key(&name) => {
                        table.insert(Put(name, step));
                        twin.insert(name, step);
                    }
                    _ => {}
                }
                assert_eq!(table.len(), twin.len());
                if step % 1000 == 999 {
                    let (old, mut ended) = (step - random.below(500), 0);
                    let before = twin.len();
                    table.extract(|Put(_, at)| *at < old, |_| ended += 1);
                    twin.retain(|_, at| *at >= old);
                    assert_eq!((table.len(), ended), (twin.len(), before - twin.len()));
                }
            }
            assert!(twin.keys().all(|name| table.find(*name).is_some()));
        }
    }
}
