//! Lines of memory that are found by a hash: many small tables, each with a lock and with open addressing
//! and linear probing.
//!
//! Tables of our own, because a line of one is what an announce by key waits for. What is looked for is in its
//! home or behind it, so that it can be asked for before it is needed; and a line of all tables lies next to
//! those of the others, in segments that they all grow into, so that they can have huge pages, which a table
//! alone would not fill: otherwise finding out where in memory a line is takes longer than to fetch it.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use primitives::{AtomicWords, prefetch};

/// What tables have in each line: so many words, which are zeroes where there is nothing.
pub(super) trait Line<const WORDS: usize>: Copy {
    /// What it is found by.
    type Name: Name;
    /// How many tables there are. A power of two: so many that a table with its part of the most lines
    /// that there may be doubles within a millisecond.
    const TABLES: usize;
    /// Lines of a table that has any; a power of two. All tables have 2 MiB then.
    const FIRST: usize = HUGE_PAGE / (WORDS * 8 * Self::TABLES);

    /// Its own.
    fn name(&self) -> Self::Name;

    /// The form in which it lies there. The first word is that of its name.
    fn to_words(self) -> [u64; WORDS];

    /// What has this form.
    fn from_words(words: [u64; WORDS]) -> Self;
}

/// A keyed hash.
pub(super) trait Name: Copy + PartialEq {
    /// Those of its bits that say where to look. Not 0.
    fn bits(self) -> u64;
}

/// All tables, with something that each has beside its lines.
pub(super) struct Tables<L, T, const WORDS: usize> {
    tables: Box<[Table<T>]>,
    /// How many lines each table can have: none, or a power of two, of which at most three quarters are
    /// taken. Changed by who holds its lock; others ask for the memory of a line by it, and must not wait for
    /// that of the lock.
    slots: Box<[AtomicU32]>,
    /// The first lines of all tables, table by table; then as many again; then twice as many ...
    segments: [Segment; SEGMENTS],
    lines: PhantomData<L>,
}

/// A table that is locked.
pub(super) struct Locked<'a, L, T, const WORDS: usize> {
    all: &'a Tables<L, T, WORDS>,
    number: usize,
    state: MutexGuard<'a, State<T>>,
}

/// Where in its table a line is.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

#[repr(align(64))]
#[derive(Default)]
struct Table<T>(Mutex<State<T>>);

#[derive(Default)]
struct State<T> {
    /// Lines that are taken.
    len: usize,
    with: T,
}

#[derive(Default)]
struct Segment {
    words: OnceLock<AtomicWords>,
    is_huge: AtomicBool,
}

const HUGE_PAGE: usize = 2 << 20;
/// More than anybody has lines for.
const SEGMENTS: usize = 24;

impl<L, T, const WORDS: usize> Tables<L, T, WORDS>
where
    L: Line<WORDS>,
    T: Default,
{
    pub(super) fn new() -> Self {
        const { assert!(L::TABLES.is_power_of_two() && L::FIRST.is_power_of_two()) };
        Self {
            tables: (0..L::TABLES).map(|_| Table::default()).collect(),
            slots: (0..L::TABLES).map(|_| AtomicU32::default()).collect(),
            segments: Default::default(),
            lines: PhantomData,
        }
    }

    /// Asks for the memory of a table's lock, and for that in which a line is, if it is, most likely.
    #[inline]
    pub(super) fn prefetch(&self, name: L::Name) {
        let number = number::<L, WORDS>(name);
        if let Some(last) = self.slots(number).checked_sub(1) {
            self.tables.get(number).into_iter().for_each(prefetch);
            self.slot(number, name.bits() as usize & last).into_iter().for_each(prefetch);
        }
    }

    /// Locks the table in which a line is, if it is.
    #[inline]
    pub(super) fn lock(&self, name: L::Name) -> Locked<'_, L, T, WORDS> {
        self.lock_table(number::<L, WORDS>(name))
    }

    /// Locks one table after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = Locked<'_, L, T, WORDS>> {
        (0..L::TABLES).map(|number| self.lock_table(number))
    }

    /// Locks the table of that number, counted round and round.
    #[inline]
    pub(super) fn lock_table(&self, number: usize) -> Locked<'_, L, T, WORDS> {
        let number = number % L::TABLES;
        Locked { all: self, number, state: self.tables[number].0.lock() }
    }

    /// How many lines there are.
    pub(super) fn len(&self) -> usize {
        self.each().map(|table| table.len()).sum()
    }

    /// Has those segments in huge pages that are worth them. For who can wait.
    pub(super) fn make_huge(&self) {
        let is_small = |segment: &Segment| !segment.is_huge.load(Ordering::Relaxed);
        let mut small = self.segments.iter().enumerate().filter(|(_, it)| is_small(it)).peekable();
        // Mostly there is nothing to do, and no lock worth taking.
        if small.peek().is_none_or(|(_, first)| first.words.get().is_none()) {
            return;
        }
        let len = self.len();
        for (number, segment) in small {
            // So many there are when half of the tables have grown into it.
            let worth = (L::FIRST << number) / 8 * 3 * L::TABLES;
            if let Some(words) = segment.words.get().filter(|_| len >= worth) {
                segment.is_huge.store(true, Ordering::Relaxed);
                words.make_huge();
            }
        }
    }

    #[inline]
    fn slots(&self, table: usize) -> usize {
        self.slots.get(table).map_or(0, |slots| slots.load(Ordering::Relaxed) as usize)
    }

    /// The words of a line, which is there if its table has so many.
    #[inline]
    fn slot(&self, table: usize, at: usize) -> Option<&[AtomicU64; WORDS]> {
        let number = (at / L::FIRST).checked_ilog2().map_or(0, |number| number as usize + 1);
        let start = if number == 0 { 0 } else { L::FIRST << (number - 1) };
        let words = self.segments.get(number)?.words.get()?.words();
        words.as_chunks().0.get(table * segment_len::<L, WORDS>(number) + at - start)
    }
}

impl<L, T, const WORDS: usize> Locked<'_, L, T, WORDS>
where
    L: Line<WORDS>,
    T: Default,
{
    pub(super) fn len(&self) -> usize {
        self.state.len
    }

    /// What the table has beside its lines.
    #[inline]
    pub(super) fn with(&mut self) -> &mut T {
        &mut self.state.with
    }

    #[inline]
    pub(super) fn find(&self, name: L::Name) -> Option<(Place, L)> {
        let mut at = name.bits() as usize & self.last()?;
        while let Some(line) = self.read(at) {
            if line.name() == name {
                return Some((Place(at), line));
            }
            at = self.next(at);
        }
        None
    }

    /// Puts another line of the same name in the place of one.
    #[inline]
    pub(super) fn set(&mut self, Place(at): Place, line: L) {
        self.write(at, line.to_words());
    }

    /// Adds one that is not in it.
    pub(super) fn insert(&mut self, line: L) {
        let slots = self.slots();
        if (self.state.len + 1) * 4 > slots * 3 {
            self.resize((slots * 2).max(L::FIRST));
        }
        self.put(line);
    }

    pub(super) fn remove(&mut self, name: L::Name) -> Option<L> {
        let (place, line) = self.find(name)?;
        self.take(place);
        Some(line)
    }

    /// Empties a place, and moves those up that stand behind it only because it was taken.
    pub(super) fn take(&mut self, Place(mut gap): Place) {
        self.state.len -= 1;
        let mut at = self.next(gap);
        while let Some(line) = self.read(at) {
            let home = self.home(line);
            // Steps from home to where it stands, and to the gap: it may move if the gap is on its way.
            if self.steps(home, gap) <= self.steps(home, at) {
                self.write(gap, line.to_words());
                gap = at;
            }
            at = self.next(at);
        }
        self.write(gap, [0; WORDS]);
    }

    /// Removes those that are over, and shows each.
    pub(super) fn extract(&mut self, is_over: impl Fn(&L) -> bool, mut see: impl FnMut(&mut T, L)) {
        let mut at = 0;
        while at < self.slots() {
            match self.read(at).filter(&is_over) {
                Some(line) => {
                    // Another one may have moved into the gap, which is looked at once more.
                    self.take(Place(at));
                    see(&mut self.state.with, line);
                }
                None => at += 1,
            }
        }
        if self.slots() > L::FIRST && self.state.len * 8 < self.slots() {
            self.resize((self.state.len * 2).next_power_of_two().max(L::FIRST));
        }
    }

    fn resize(&mut self, slots: usize) {
        let old = self.slots();
        let lines: Vec<L> = (0..old).filter_map(|at| self.read(at)).collect();
        (0..old).for_each(|at| self.write(at, [0; WORDS]));
        let mut end = 0;
        for (number, segment) in self.all.segments.iter().enumerate() {
            if end >= slots {
                break;
            }
            let len = segment_len::<L, WORDS>(number);
            segment.words.get_or_init(|| AtomicWords::new(L::TABLES * len * WORDS));
            end += len;
        }
        // Where memory is not for so many, which nobody has, there are no more than before.
        self.all.slots[self.number].store(slots.min(end) as u32, Ordering::Relaxed);
        self.state.len = 0;
        lines.into_iter().for_each(|line| self.put(line));
    }

    /// Puts a line into the first gap from its home on. There is one.
    fn put(&mut self, line: L) {
        let mut at = self.home(line);
        while self.read(at).is_some() {
            at = self.next(at);
        }
        self.write(at, line.to_words());
        self.state.len += 1;
    }

    #[inline]
    fn read(&self, at: usize) -> Option<L> {
        let words = self.all.slot(self.number, at)?;
        // Who holds the lock reads what was written before, under the same lock.
        let is_any = words[0].load(Ordering::Relaxed) != 0;
        is_any.then(|| L::from_words(std::array::from_fn(|at| words[at].load(Ordering::Relaxed))))
    }

    #[inline]
    fn write(&self, at: usize, words: [u64; WORDS]) {
        let Some(slot) = self.all.slot(self.number, at) else { return };
        slot.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    #[inline]
    fn slots(&self) -> usize {
        self.all.slots(self.number)
    }

    #[inline]
    fn last(&self) -> Option<usize> {
        self.slots().checked_sub(1)
    }

    #[inline]
    fn home(&self, line: L) -> usize {
        line.name().bits() as usize & self.slots().wrapping_sub(1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & self.slots().wrapping_sub(1)
    }

    #[inline]
    fn steps(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.slots().wrapping_sub(1)
    }
}

/// The table in which a line is: inside them, other bits count.
#[inline]
fn number<L: Line<WORDS>, const WORDS: usize>(name: L::Name) -> usize {
    (name.bits() >> 40) as usize % L::TABLES
}

/// Lines that each table has in a segment.
#[inline]
fn segment_len<L: Line<WORDS>, const WORDS: usize>(number: usize) -> usize {
    L::FIRST << number.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use primitives::Random;

    use super::*;

    impl Name for u64 {
        fn bits(self) -> u64 {
            self
        }
    }

    /// A name, and when it was put.
    #[derive(Clone, Copy)]
    struct Put(u64, u32);

    impl Line<2> for Put {
        type Name = u64;
        const TABLES: usize = 2;
        const FIRST: usize = 8;

        fn name(&self) -> u64 {
            self.0
        }

        fn to_words(self) -> [u64; 2] {
            [self.0, self.1.into()]
        }

        fn from_words([name, at]: [u64; 2]) -> Self {
            Self(name, at as u32)
        }
    }

    /// Names that share their homes, at both ends of the tables.
    #[test]
    fn tables_are_maps() {
        let mut random = Random::new(1);
        for names in [5, 40, 3000] {
            let tables = Tables::<Put, u32, 2>::new();
            let mut twin = BTreeMap::new();
            for step in 0..20_000_u32 {
                let name = u64::from(1 + random.below(names)).wrapping_mul(u64::MAX / 3);
                tables.prefetch(name);
                let mut table = tables.lock(name);
                let found = table.find(name);
                assert_eq!(found.map(|(_, Put(_, at))| at), twin.get(&name).copied());
                match random.below(if step % 4000 < 2000 { 4 } else { 8 }) {
                    0 => {
                        let removed = table.remove(name).map(|Put(_, at)| at);
                        assert_eq!(removed, twin.remove(&name));
                    }
                    1 | 2 if found.is_none() => {
                        table.insert(Put(name, step));
                        twin.insert(name, step);
                    }
                    3 => {
                        if let Some((place, _)) = found {
                            table.set(place, Put(name, step));
                            twin.insert(name, step);
                        }
                    }
                    _ => {}
                }
                drop(table);
                assert_eq!(tables.len(), twin.len());
                if step % 1000 == 999 {
                    let (old, before) = (step - random.below(500), twin.len());
                    for mut table in tables.each() {
                        table.extract(|Put(_, at)| *at < old, |ended, _| *ended += 1);
                    }
                    twin.retain(|_, at| *at >= old);
                    let ended: u32 =
                        tables.each().map(|mut table| std::mem::take(table.with())).sum();
                    assert_eq!((tables.len(), ended as usize), (twin.len(), before - twin.len()));
                    tables.make_huge();
                }
            }
            assert!(twin.keys().all(|name| tables.lock(*name).find(*name).is_some()));
        }
    }
}
