//! The peers of one role and family in one torrent.
//!
//! Plain form: an array in random order; a search visits every entry. Departures:
//! 1. An array takes exactly the lines that it needs, so a v4 peer takes eight bytes.
//! 2. Past [`Entry::DENSE_MAX`] peers the set becomes a directory of pages, each such an array. A
//!    keyed hash of the peer's network, or of the peer if its address is not public, selects its
//!    page (linear hashing): pages split one at a time as the set grows and merge one at a time as
//!    it shrinks, so no operation costs more than a page or two.
//! 3. A new entry swaps places with a random one, and so does a refreshed entry. A run of
//!    neighbours from a random start is then a random sample, copied at the speed of memory.
//!
//! A thousand v4 peers take 9.6 bytes each (`bench/record/2026-11-21-store-memory.txt`). Sampling
//! 25.6 peers adds 171 ns to an announce of 279 ns; while 4 M peers expired, 10 announces took
//! longer than 1 ms (`2026-11-21-store.txt`). In a swarm of 5,000 an announce takes 3,656 instructions;
//! with an array in place of pages 14,764, and a map of positions takes 6 to 11 bytes more a peer
//! (`2026-11-23-paged-set.md`).

mod page;
mod sample;

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use primitives::Random;
use primitives::memory::{LINE, view, view_mut};

use crate::arena::{Arena, BLOCK_MAX, LineBlock};
use crate::entry::Entry;
use page::Page;
use replication::PeerMeta;

/// A set: a dense array or a directory of pages.
#[derive(Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct PeerSet<E> {
    raw: RawSet,
    entry: PhantomData<E>,
}

/// The representation of a set, the same for both families.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct RawSet {
    block: LineBlock,
    /// The number of peers, and the flag [`PAGED`].
    word: u32,
}

/// Flag: the block is a directory.
const PAGED: u32 = 1 << 31;

/// Refers to a page of a directory. The first one of a directory is its header: `block` is the
/// number of pages, `len` the directory's lines.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PageRef {
    block: LineBlock,
    len: u32,
}

/// The position of an entry: its page (0 in a dense set), and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) page: u32,
    pub(crate) at: u32,
}

/// Page references in a cache line.
const REFS: u32 = (LINE / size_of::<PageRef>()) as u32;

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
    /// Inserts a peer that is not in the set. Returns its position.
    pub(crate) fn insert(
        &mut self,
        arena: &mut Arena,
        entry: E,
        hash: impl Fn(E::Key) -> u32,
        random: &mut Random,
    ) -> Position {
        if self.is_paged() {
            let page = self.page_of(arena, hash(entry.key()));
            let mut entries = self.page(arena, page);
            let at = entries.push(arena, entry, random);
            self.set_page(arena, page, entries);
            self.raw.word += 1;
            let moved = self.split_if_full(arena, entry.key(), &hash);
            return moved.unwrap_or(Position { page, at });
        }
        if self.len() < E::DENSE_MAX {
            let at = self.dense(|entries| entries.push(arena, entry, random));
            return Position { page: 0, at };
        }
        self.become_paged(arena, &hash);
        self.insert(arena, entry, hash, random)
    }

    /// Removes and returns the entry at `position`.
    pub(crate) fn remove(
        &mut self,
        arena: &mut Arena,
        position: Position,
        hash: impl Fn(E::Key) -> u32,
    ) -> E {
        if !self.is_paged() {
            return self.dense(|entries| entries.swap_remove(arena, position.at));
        }
        let mut entries = self.page(arena, position.page);
        let gone = entries.swap_remove(arena, position.at);
        self.set_page(arena, position.page, entries);
        self.raw.word -= 1;
        self.shrink_if_sparse(arena, &hash);
        gone
    }

    #[inline]
    pub(crate) fn find(
        &self,
        arena: &Arena,
        key: E::Key,
        hash: impl Fn(E::Key) -> u32,
    ) -> Option<Position> {
        let page = if self.is_paged() { self.page_of(arena, hash(key)) } else { 0 };
        let entries = self.page(arena, page);
        let at = E::find(entries.slice(arena), entries.len as usize, key)?;
        Some(Position { page, at: at as u32 })
    }

    /// Returns the page in which a search looks for a peer, and its peers.
    #[inline]
    pub(crate) fn page_with<'a>(
        &self,
        arena: &'a Arena,
        key: E::Key,
        hash: impl Fn(E::Key) -> u32,
    ) -> (u32, &'a [E]) {
        let page = if self.is_paged() { self.page_of(arena, hash(key)) } else { 0 };
        (page, self.entries(arena, page))
    }

    /// Replaces the metadata of the entry at `position` and moves the entry to a random place of its page. Returns
    /// its new position.
    #[inline]
    pub(crate) fn set_meta(
        &self,
        arena: &mut Arena,
        position: Position,
        meta: PeerMeta,
        random: &mut Random,
    ) -> Position {
        let entries = self.page(arena, position.page);
        let slice = entries.slice_mut(arena);
        slice[position.at as usize].set_meta(meta);
        let at = random.below(entries.len);
        slice.swap(position.at as usize, at as usize);
        Position { at, ..position }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.raw.word & !PAGED
    }

    /// Returns the position of some peer. The set must be dense and not empty.
    pub(crate) fn first_position(&self) -> Position {
        debug_assert!(!self.is_paged() && self.len() > 0);
        Position { page: 0, at: 0 }
    }

    /// Returns the number of pages that [`PeerSet::retain`] has to visit; 1 for a dense set.
    pub(crate) fn pages(&self, arena: &Arena) -> u32 {
        if self.is_paged() { self.head(arena).block } else { u32::from(self.len() > 0) }
    }

    /// Returns the page of the peers whose hash, its bits reversed, is `from`, and the highest such
    /// number of that page. In this order each page, or all of a dense set, is an interval.
    pub(crate) fn page_from(&self, arena: &Arena, from: u32) -> (u32, u32) {
        if !self.is_paged() {
            return (0, u32::MAX);
        }
        let pages = self.head(arena).block;
        let page = page_among(pages, from.reverse_bits());
        // As many bits select a page as number all pages; one less if it has yet to be split.
        let all = pages.next_power_of_two();
        let bits = all.ilog2() - u32::from(page | (all / 2) >= pages);
        (page, from | u32::MAX >> bits)
    }

    // With the hint alone it is not inlined where peers are sampled.
    #[inline(always)]
    pub(crate) fn entries<'a>(&self, arena: &'a Arena, page: u32) -> &'a [E] {
        let page = self.page(arena, page);
        &page.slice(arena)[..page.len as usize]
    }

    pub(crate) fn iter(self, arena: &Arena) -> impl Iterator<Item = &E> {
        (0..self.pages(arena)).flat_map(move |page| self.entries(arena, page))
    }

    /// Keeps the peers of a page for which `keep` returns true, and moves the page out of draining
    /// memory. Returns the number of lines visited.
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
        entries.block = arena.relocate(entries.block, entries.lines());
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
            self.raw.block = arena.relocate(self.raw.block, lines);
        }
        self.shrink_if_sparse(arena, &hash);
        cost
    }

    /// Prefetches what a search in the set reads first: a dense set's lines, or a directory's
    /// header.
    // With the hint alone it is not inlined where announces are staged.
    #[inline(always)]
    pub(crate) fn prefetch(&self, arena: &Arena) {
        if self.is_paged() {
            arena.prefetch(self.raw.block, 1);
        } else {
            arena.prefetch(self.raw.block, self.dense_page().lines());
        }
    }

    /// Prefetches the page of a paged set in which a search looks for a peer.
    #[inline]
    pub(crate) fn prefetch_page_of(&self, arena: &Arena, hash: impl FnOnce() -> u32) {
        if self.is_paged() {
            let page = self.page(arena, self.page_of(arena, hash()));
            arena.prefetch(page.block, page.lines());
        }
    }

    #[inline]
    pub(crate) fn is_paged(&self) -> bool {
        self.raw.word & PAGED != 0
    }

    #[inline]
    fn dense_page(&self) -> Page<E> {
        Page::new(self.raw.block, self.len())
    }

    fn dense<T>(&mut self, change: impl FnOnce(&mut Page<E>) -> T) -> T {
        let mut page = self.dense_page();
        let result = change(&mut page);
        (self.raw.block, self.raw.word) = (page.block, page.len);
        result
    }

    fn head(&self, arena: &Arena) -> PageRef {
        view::<PageRef>(arena.lines(self.raw.block, 1))[0]
    }

    #[inline]
    fn page_ref(&self, arena: &Arena, page: u32) -> PageRef {
        let position = page + 1;
        let line = arena.lines(self.raw.block + position / REFS, 1);
        view::<PageRef>(line)[(position % REFS) as usize]
    }

    #[inline]
    fn page(&self, arena: &Arena, page: u32) -> Page<E> {
        if !self.is_paged() {
            return self.dense_page();
        }
        let PageRef { block, len } = self.page_ref(arena, page);
        Page::new(block, len)
    }

    fn set_page(&self, arena: &mut Arena, page: u32, entries: Page<E>) {
        self.set_ref(arena, page + 1, PageRef { block: entries.block, len: entries.len });
    }

    fn set_ref(&self, arena: &mut Arena, position: u32, to: PageRef) {
        let line = arena.lines_mut(self.raw.block + position / REFS, 1);
        view_mut::<PageRef>(line)[(position % REFS) as usize] = to;
    }

    #[inline]
    fn page_of(&self, arena: &Arena, hash: u32) -> u32 {
        page_among(self.head(arena).block, hash)
    }

    /// Turns an array into a directory of two pages.
    fn become_paged(&mut self, arena: &mut Arena, hash: &impl Fn(E::Key) -> u32) {
        let dense = self.dense_page();
        let mut halves = [Page::<E>::default(); 2];
        for at in 0..dense.len {
            let entry = dense.slice(arena)[at as usize];
            let half = page_among(2, hash(entry.key()));
            halves[half as usize].append(arena, entry);
        }
        arena.free(dense.block, dense.lines());
        self.raw.block = arena.allocate(1);
        self.raw.word = dense.len | PAGED;
        self.set_ref(arena, 0, PageRef { block: 2, len: 1 });
        for (page, half) in (0..).zip(halves) {
            self.set_page(arena, page, half);
        }
    }

    /// Splits a page if pages are too full on average. Returns the position of `key` if a page was
    /// split.
    fn split_if_full(
        &mut self,
        arena: &mut Arena,
        key: E::Key,
        hash: &impl Fn(E::Key) -> u32,
    ) -> Option<Position> {
        let PageRef { block: pages, len: lines } = self.head(arena);
        if self.len() <= pages * E::PAGE_PEERS || !self.grow_directory(arena, pages, lines) {
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

    /// Makes room in the directory for one more page. Returns false if it cannot grow.
    fn grow_directory(&mut self, arena: &mut Arena, pages: u32, lines: u32) -> bool {
        if pages + 1 < lines * REFS {
            return true;
        }
        // Grow by an eighth, so that the directory is not copied for every few pages.
        let longer = (lines + lines / 8 + 1).min(BLOCK_MAX);
        if longer == lines {
            return false;
        }
        self.raw.block = arena.resize(self.raw.block, lines, longer);
        self.set_ref(arena, 0, PageRef { block: pages, len: longer });
        true
    }

    /// Merges the last page with the one it was split from if pages are too empty on average, or
    /// makes a small set dense again.
    fn shrink_if_sparse(&mut self, arena: &mut Arena, hash: &impl Fn(E::Key) -> u32) {
        let PageRef { block: pages, len: lines } = self.head(arena);
        if self.len() <= E::DENSE_MAX / 2 {
            return self.become_dense(arena, pages, lines);
        }
        if pages <= 2 || self.len() > (pages - 1) * E::PAGE_PEERS / 2 {
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
        from.free(arena);
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
            from.free(arena);
        }
        arena.free(self.raw.block, lines);
        (self.raw.block, self.raw.word) = (dense.block, dense.len);
    }
}

/// Returns the page of a hash among `pages` pages (linear hashing): as many bits as number all
/// pages, one bit less if that page does not exist yet.
#[inline]
fn page_among(pages: u32, hash: u32) -> u32 {
    let mask = pages.next_power_of_two() - 1;
    let page = hash & mask;
    if page < pages { page } else { hash & (mask >> 1) }
}
