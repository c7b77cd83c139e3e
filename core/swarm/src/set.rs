//! The peers of one role and family in one torrent.
//!
//! Plain form: an array in random order; a search looks at every entry. Departures:
//! 1. An array takes exactly the lines that it needs, so that eight bytes a peer is what a peer costs.
//! 2. Past [`Entry::DENSE_MAX`] peers the set becomes a directory of pages, each such an array. A
//!    keyed hash of the peer picks its page (linear hashing): pages split one at a time as the set
//!    grows and join one at a time as it shrinks, so no operation costs more than a page or two.
//! 3. A new entry changes places with a random one, and so does an entry that is refreshed. A run of
//!    neighbours from a random start is then a random sample, copied at the speed of memory.

mod sample;

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use primitives::Random;
use primitives::memory::{LINE, values, values_mut};
use types::TooSoon;

use crate::arena::{Arena, BLOCK_MAX, Block};
use crate::entry::Entry;
use crate::mark::Mark;
use sample::{parts, sample_dense};

/// A set: an array, or a directory of pages.
#[derive(Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct PeerSet<E> {
    raw: RawSet,
    entry: PhantomData<E>,
}

/// A set of entries of either type.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct RawSet {
    block: Block,
    /// How many peers, and [`PAGED`].
    word: u32,
}

/// Says that the block is a directory.
const PAGED: u32 = 1 << 31;

/// A page of a directory. The first of a directory is its head: `block` is the number of pages,
/// `len` the directory's lines.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PageRef {
    block: Block,
    len: u32,
}

/// Where an entry is: its page (0 in a dense set), and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    page: u32,
    at: u32,
}

/// Page references in a line.
const REFS: u32 = (LINE / size_of::<PageRef>()) as u32;
/// Tries for a start whose chance is the same for every peer.
const TRIES: u32 = 24;

impl<E> Clone for PeerSet<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for PeerSet<E> {}

impl<E> Default for PeerSet<E> {
    fn default() -> Self {
        Self { raw: RawSet::default(), entry: PhantomData }
    }
}

impl<E: Entry> PeerSet<E> {
    /// Enters a peer that is not there, and says where it is now.
    pub(crate) fn insert(
        &mut self,
        arena: &mut Arena,
        entry: E,
        hash: impl Fn(E::Key) -> u32,
        random: &mut Random,
    ) -> Place {
        if self.is_paged() {
            let page = self.page_of(arena, hash(entry.key()));
            let mut entries = self.page(arena, page);
            let at = entries.push(arena, entry, random);
            self.set_page(arena, page, entries);
            self.raw.word += 1;
            let moved = self.split_if_due(arena, entry.key(), &hash);
            return moved.unwrap_or(Place { page, at });
        }
        if self.len() < E::DENSE_MAX {
            let at = self.dense(|entries| entries.push(arena, entry, random));
            return Place { page: 0, at };
        }
        self.become_paged(arena, &hash);
        self.insert(arena, entry, hash, random)
    }

    /// Removes the entry at `place`, and gives it.
    pub(crate) fn remove(
        &mut self,
        arena: &mut Arena,
        place: Place,
        hash: impl Fn(E::Key) -> u32,
    ) -> E {
        if !self.is_paged() {
            return self.dense(|entries| entries.swap_remove(arena, place.at));
        }
        let mut entries = self.page(arena, place.page);
        let gone = entries.swap_remove(arena, place.at);
        self.set_page(arena, place.page, entries);
        self.raw.word -= 1;
        self.shrink_if_due(arena, &hash);
        gone
    }

    /// Where a peer is.
    #[inline]
    pub(crate) fn find(
        &self,
        arena: &Arena,
        key: E::Key,
        hash: impl Fn(E::Key) -> u32,
    ) -> Option<Place> {
        let page = if self.is_paged() { self.page_of(arena, hash(key)) } else { 0 };
        let entries = self.page(arena, page);
        let at = E::find(entries.slice(arena), entries.len as usize, key)?;
        Some(Place { page, at: at as u32 })
    }

    /// Gives the entry at `place` another mark and another place in its page; gives the old mark
    /// and the new place. If `mark` makes none of the old one, nothing is done.
    #[inline]
    pub(crate) fn refresh(
        &self,
        arena: &mut Arena,
        place: Place,
        mark: impl FnOnce(Mark) -> Result<Mark, TooSoon>,
        random: &mut Random,
    ) -> Result<(Mark, Place), TooSoon> {
        let entries = self.page(arena, place.page);
        let slice = entries.slice_mut(arena);
        let entry = &mut slice[place.at as usize];
        let old = entry.mark();
        entry.set_mark(mark(old)?);
        let at = random.below(entries.len);
        slice.swap(place.at as usize, at as usize);
        Ok((old, Place { at, ..place }))
    }

    /// How many peers there are.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.raw.word & !PAGED
    }

    /// The place of some peer of a dense set that is not empty.
    pub(crate) fn first_place(&self) -> Place {
        debug_assert!(!self.is_paged() && self.len() > 0);
        Place { page: 0, at: 0 }
    }

    /// Pages to be visited by [`PeerSet::retain`], one for a dense set.
    pub(crate) fn pages(&self, arena: &Arena) -> u32 {
        if self.is_paged() { self.head(arena).block } else { u32::from(self.len() > 0) }
    }

    /// The peers of a page.
    pub(crate) fn entries<'a>(&self, arena: &'a Arena, page: u32) -> &'a [E] {
        let page = self.page(arena, page);
        &page.slice(arena)[..page.len as usize]
    }

    /// Drops the peers of the last page; gives about the lines that they took, 0 if the set is empty.
    pub(crate) fn cut(&mut self, arena: &mut Arena) -> u32 {
        if !self.is_paged() {
            let page = self.dense_page();
            page.give(arena);
            *self = Self::default();
            return page.lines();
        }
        let PageRef { block: pages, len: lines } = self.head(arena);
        let last = self.page(arena, pages - 1);
        last.give(arena);
        if pages > 2 {
            self.raw.word -= last.len;
            self.set_ref(arena, 0, PageRef { block: pages - 1, len: lines });
        } else {
            let first = self.page(arena, 0);
            arena.give(self.raw.block, lines);
            (self.raw.block, self.raw.word) = (first.block, first.len);
        }
        last.lines() + 1
    }

    /// Keeps of a page only what `keep` wants; moves it where draining memory is left behind. Gives
    /// the number of lines that were looked at.
    pub(crate) fn retain(
        &mut self,
        arena: &mut Arena,
        page: u32,
        mut keep: impl FnMut(&E) -> bool,
        hash: impl Fn(E::Key) -> u32,
    ) -> u32 {
        let mut entries = self.page(arena, page);
        let cost = entries.lines();
        let before = entries.len;
        entries.block = arena.settle(entries.block, entries.lines());
        let mut at = 0;
        while at < entries.len {
            if keep(&entries.slice(arena)[at as usize]) {
                at += 1;
            } else {
                entries.swap_remove(arena, at);
            }
        }
        if !self.is_paged() {
            (self.raw.block, self.raw.word) = (entries.block, entries.len);
            return cost;
        }
        self.raw.word -= before - entries.len;
        self.set_page(arena, page, entries);
        if page == 0 {
            let lines = self.head(arena).len;
            self.raw.block = arena.settle(self.raw.block, lines);
        }
        self.shrink_if_due(arena, &hash);
        cost
    }

    /// Pushes `count` peers, distinct, any with the same chance, and never the one at `skip`.
    /// `count` is at most the number of peers without that one. `sample_seed` decides.
    pub(crate) fn sample(
        &self,
        arena: &Arena,
        count: u32,
        skip: Option<Place>,
        sample_seed: u64,
        mut push: impl FnMut(&[E]),
    ) {
        if count == 0 {
            return;
        }
        debug_assert!(count <= self.len() - u32::from(skip.is_some()));
        let start = self.start(arena, skip, sample_seed);
        if !self.is_paged() {
            let entries = &self.dense_page().slice(arena)[..self.len() as usize];
            let skip = skip.map(|skip| skip.at as usize);
            return sample_dense(entries, count as usize, start.at as usize, skip, push);
        }
        let pages = self.pages(arena);
        let (mut page, mut from, mut left) = (start.page, start.at, count);
        // Once round, and then the part of the first page before the start.
        for _ in 0..=pages {
            let entries = self.page(arena, page);
            let slice = &entries.slice(arena)[..entries.len as usize];
            let skip = skip.filter(|skip| skip.page == page).map(|skip| skip.at as usize);
            for part in parts(slice, from as usize, skip) {
                let part = &part[..part.len().min(left as usize)];
                if !part.is_empty() {
                    push(part);
                    left -= part.len() as u32;
                }
            }
            if left == 0 {
                return;
            }
            (page, from) = ((page + 1) % pages, 0);
        }
        debug_assert!(left == 0);
    }

    /// Fetches what a search in the set needs first: a small set's lines, or a directory's head.
    #[inline]
    pub(crate) fn prefetch(&self, arena: &Arena) {
        if self.is_paged() {
            arena.prefetch(self.raw.block, 1);
        } else {
            arena.prefetch(self.raw.block, self.dense_page().lines());
        }
    }

    /// Fetches the page that a search in a large set looks through.
    #[inline]
    pub(crate) fn prefetch_own(&self, arena: &Arena, hash: impl FnOnce() -> u32) {
        if self.is_paged() {
            let page = self.page(arena, self.page_of(arena, hash()));
            arena.prefetch(page.block, page.lines());
        }
    }

    /// Fetches what lies where the sample of `count` peers for `sample_seed` is taken from, but no more: of
    /// a large set that is a part of a page, or of two.
    #[inline]
    pub(crate) fn prefetch_sample(&self, arena: &Arena, sample_seed: u64, count: u32) {
        if self.len() == 0 || count == 0 {
            return;
        }
        let start = self.start(arena, None, sample_seed);
        let page = self.page(arena, start.page);
        let end = (start.at + count).min(page.len);
        page.prefetch(arena, start.at, end);
        let left = count - (end - start.at);
        if left > 0 {
            let next = self.page(arena, (start.page + 1) % self.pages(arena));
            next.prefetch(arena, 0, left.min(next.len));
        }
    }

    /// A peer that any has the same chance to be, but for the one at `skip`. In a large set: a
    /// random place in a random page, until there is a peer at that place.
    fn start(&self, arena: &Arena, skip: Option<Place>, sample_seed: u64) -> Place {
        let mut random = Random::new(sample_seed);
        if !self.is_paged() {
            let others = self.len() - u32::from(skip.is_some());
            let at = random.below(others);
            let after = skip.is_some_and(|skip| at >= skip.at);
            return Place { page: 0, at: at + u32::from(after) };
        }
        let pages = self.pages(arena);
        for _ in 0..TRIES {
            let page = random.below(pages);
            let place = Place { page, at: random.below(3 * E::PAGE) };
            if place.at < self.page_ref(arena, page).len && Some(place) != skip {
                return place;
            }
        }
        Place { page: random.below(pages), at: 0 }
    }

    /// Whether it is a directory of pages.
    #[inline]
    pub(crate) fn is_paged(&self) -> bool {
        self.raw.word & PAGED != 0
    }

    #[inline]
    fn dense_page(&self) -> Page<E> {
        Page { block: self.raw.block, len: self.len(), entry: PhantomData }
    }

    fn dense<T>(&mut self, change: impl FnOnce(&mut Page<E>) -> T) -> T {
        let mut page = self.dense_page();
        let result = change(&mut page);
        (self.raw.block, self.raw.word) = (page.block, page.len);
        result
    }

    fn head(&self, arena: &Arena) -> PageRef {
        values::<PageRef>(arena.lines(self.raw.block, 1))[0]
    }

    #[inline]
    fn page_ref(&self, arena: &Arena, page: u32) -> PageRef {
        let place = page + 1;
        let line = arena.lines(self.raw.block + place / REFS, 1);
        values::<PageRef>(line)[(place % REFS) as usize]
    }

    #[inline]
    fn page(&self, arena: &Arena, page: u32) -> Page<E> {
        if !self.is_paged() {
            return self.dense_page();
        }
        let PageRef { block, len } = self.page_ref(arena, page);
        Page { block, len, entry: PhantomData }
    }

    fn set_page(&self, arena: &mut Arena, page: u32, entries: Page<E>) {
        self.set_ref(arena, page + 1, PageRef { block: entries.block, len: entries.len });
    }

    fn set_ref(&self, arena: &mut Arena, place: u32, to: PageRef) {
        let line = arena.lines_mut(self.raw.block + place / REFS, 1);
        values_mut::<PageRef>(line)[(place % REFS) as usize] = to;
    }

    #[inline]
    fn page_of(&self, arena: &Arena, hash: u32) -> u32 {
        page_among(self.head(arena).block, hash)
    }

    /// From an array to a directory of two pages.
    fn become_paged(&mut self, arena: &mut Arena, hash: &impl Fn(E::Key) -> u32) {
        let dense = self.dense_page();
        let mut halves = [Page::<E>::default(); 2];
        for at in 0..dense.len {
            let entry = dense.slice(arena)[at as usize];
            let half = page_among(2, hash(entry.key()));
            halves[half as usize].append(arena, entry);
        }
        arena.give(dense.block, dense.lines());
        self.raw.block = arena.take(1);
        self.raw.word = dense.len | PAGED;
        self.set_ref(arena, 0, PageRef { block: 2, len: 1 });
        for (page, half) in (0..).zip(halves) {
            self.set_page(arena, page, half);
        }
    }

    /// Splits a page if there are too few, and says where `key` is then, if it has moved.
    fn split_if_due(
        &mut self,
        arena: &mut Arena,
        key: E::Key,
        hash: &impl Fn(E::Key) -> u32,
    ) -> Option<Place> {
        let PageRef { block: pages, len: lines } = self.head(arena);
        if self.len() <= pages * E::PAGE || !self.make_room(arena, pages, lines) {
            return None;
        }
        let victim = pages - (1 << pages.ilog2());
        let mut old = self.page(arena, victim);
        let mut new = Page::<E>::default();
        let mut at = 0;
        while at < old.len {
            let entry = old.slice(arena)[at as usize];
            if page_among(pages + 1, hash(entry.key())) == pages {
                old.swap_remove(arena, at);
                new.append(arena, entry);
            } else {
                at += 1;
            }
        }
        self.set_page(arena, victim, old);
        self.set_page(arena, pages, new);
        let lines = self.head(arena).len;
        self.set_ref(arena, 0, PageRef { block: pages + 1, len: lines });
        self.find(arena, key, hash)
    }

    /// Makes the directory long enough for one page more; false if it cannot be any longer.
    fn make_room(&mut self, arena: &mut Arena, pages: u32, lines: u32) -> bool {
        if pages + 1 < lines * REFS {
            return true;
        }
        // An eighth more, so that a directory is not copied for every few pages.
        let longer = (lines + lines / 8 + 1).min(BLOCK_MAX);
        if longer == lines {
            return false;
        }
        self.raw.block = arena.resize(self.raw.block, lines, longer);
        self.set_ref(arena, 0, PageRef { block: pages, len: longer });
        true
    }

    /// Joins the last page to the one that it was split from if there are too many, or makes a small
    /// set an array again.
    fn shrink_if_due(&mut self, arena: &mut Arena, hash: &impl Fn(E::Key) -> u32) {
        let PageRef { block: pages, len: lines } = self.head(arena);
        if self.len() <= E::DENSE_MAX / 2 {
            return self.become_dense(arena, pages, lines);
        }
        if pages <= 2 || self.len() > (pages - 1) * E::PAGE / 2 {
            return;
        }
        let last = pages - 1;
        let buddy = last - (1 << last.ilog2());
        let from = self.page(arena, last);
        let mut to = self.page(arena, buddy);
        for at in 0..from.len {
            let entry = from.slice(arena)[at as usize];
            debug_assert!(page_among(last, hash(entry.key())) == buddy);
            to.append(arena, entry);
        }
        from.give(arena);
        self.set_page(arena, buddy, to);
        let needed = (last + 1).div_ceil(REFS);
        let kept = if needed * 2 < lines { needed } else { lines };
        self.raw.block = arena.resize(self.raw.block, lines, kept);
        self.set_ref(arena, 0, PageRef { block: last, len: kept });
    }

    fn become_dense(&mut self, arena: &mut Arena, pages: u32, lines: u32) {
        let mut dense = Page::<E>::default();
        for page in 0..pages {
            let from = self.page(arena, page);
            for at in 0..from.len {
                let entry = from.slice(arena)[at as usize];
                dense.append(arena, entry);
            }
            from.give(arena);
        }
        arena.give(self.raw.block, lines);
        (self.raw.block, self.raw.word) = (dense.block, dense.len);
    }
}

/// Which of `pages` pages a hash belongs to (linear hashing): as many of its bits as there are pages
/// for, one bit less where the page has not been split yet.
#[inline]
fn page_among(pages: u32, hash: u32) -> u32 {
    let mask = pages.next_power_of_two() - 1;
    let page = hash & mask;
    if page < pages { page } else { hash & (mask >> 1) }
}

/// An array of entries in lines of its own.
#[derive(Clone, Copy)]
struct Page<E> {
    block: Block,
    len: u32,
    entry: PhantomData<E>,
}

impl<E> Default for Page<E> {
    fn default() -> Self {
        Self { block: 0, len: 0, entry: PhantomData }
    }
}

/// Lines that `len` entries take.
fn lines_of<E>(len: u32) -> u32 {
    (len as usize * size_of::<E>()).div_ceil(LINE) as u32
}

impl<E: Entry> Page<E> {
    fn lines(&self) -> u32 {
        lines_of::<E>(self.len)
    }

    /// Its entries, and leftovers up to the end of the last line.
    #[inline]
    fn slice<'a>(&self, arena: &'a Arena) -> &'a [E] {
        if self.len == 0 { &[] } else { values(arena.lines(self.block, self.lines())) }
    }

    #[inline]
    fn slice_mut<'a>(&self, arena: &'a mut Arena) -> &'a mut [E] {
        if self.len == 0 { &mut [] } else { values_mut(arena.lines_mut(self.block, self.lines())) }
    }

    /// Fetches the lines of the entries from `from` up to `to`.
    #[inline]
    fn prefetch(&self, arena: &Arena, from: u32, to: u32) {
        if from < to {
            let first = from as usize * size_of::<E>() / LINE;
            let lines = lines_of::<E>(to) - first as u32;
            arena.prefetch(self.block + first as u32, lines);
        }
    }

    /// Puts an entry at the end.
    fn append(&mut self, arena: &mut Arena, entry: E) {
        let longer = lines_of::<E>(self.len + 1);
        self.block = arena.resize(self.block, self.lines(), longer);
        self.len += 1;
        let at = self.len as usize - 1;
        self.slice_mut(arena)[at] = entry;
    }

    /// Puts an entry at a random place, whose entry goes to the end.
    fn push(&mut self, arena: &mut Arena, entry: E, random: &mut Random) -> u32 {
        self.append(arena, entry);
        let at = random.below(self.len);
        let end = self.len as usize - 1;
        self.slice_mut(arena).swap(at as usize, end);
        at
    }

    /// Takes an entry out; the last one takes its place.
    fn swap_remove(&mut self, arena: &mut Arena, at: u32) -> E {
        let end = self.len as usize - 1;
        let slice = self.slice_mut(arena);
        let gone = slice[at as usize];
        slice[at as usize] = slice[end];
        let shorter = lines_of::<E>(self.len - 1);
        self.block = arena.resize(self.block, self.lines(), shorter);
        self.len -= 1;
        gone
    }

    fn give(self, arena: &mut Arena) {
        if self.len > 0 {
            arena.give(self.block, self.lines());
        }
    }
}
