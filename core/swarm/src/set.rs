//! The peers of one swarm that are of one family and one role.
//!
//! Plain form: a `Vec` of peers. Departures:
//! 1. Peers lie in a block of exactly as many lines as they need; finding one is a scan.
//! 2. A large set is cut into pages, each such a block, found through a directory block. A keyed
//!    hash of the peer picks the page. Their number follows from the number of peers, and changes
//!    one page at a time (linear hashing): so nothing costs more than one page and, now and then, a
//!    copy of the directory (8 bytes a page).
//! 3. The order within a page is random and stays so: a new peer changes places with a random one, the
//!    last fills the gap of one that leaves. So any run of entries is a random sample.

use std::marker::PhantomData;

use crate::Random;
use crate::arena::{Arena, Block};
use crate::entry::Entry;
use crate::memory::{LINE, values, values_mut};
use crate::siphash::siphash;

/// Pages of the largest set: its directory fills a block. Beyond, pages get longer.
const PAGES_MAX: u32 = 240 << 10;
const _: () = assert!(directory_lines(PAGES_MAX) <= crate::arena::BLOCK_MAX);

/// Peers of one family and role: handle to what lies in a [`Pool`].
#[repr(C)]
pub(crate) struct PeerSet<E> {
    /// The peers, or the directory when there are several pages.
    block: Block,
    len: u32,
    entry: PhantomData<E>,
}

/// A page of a set: an entry of its directory.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PageRef {
    block: Block,
    len: u32,
}

/// Where a peer is in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) page: u32,
    pub(crate) at: u32,
}

/// Where the peers of all sets lie.
pub(crate) struct Pool {
    pub(crate) arena: Arena,
    pub(crate) hash_key: [u8; 16],
    /// Pages past the first of every set: what a sweep visits besides records.
    pub(crate) pages: u64,
}

impl Pool {
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        siphash::<1, 3>(&self.hash_key, bytes)
    }
}

impl<E> Clone for PeerSet<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for PeerSet<E> {}

impl<E> Default for PeerSet<E> {
    fn default() -> Self {
        Self { block: 0, len: 0, entry: PhantomData }
    }
}

impl<E: Entry> PeerSet<E> {
    /// Adds a peer that is not there.
    pub(crate) fn insert(&mut self, pool: &mut Pool, new: E, random: &mut Random) -> Place {
        debug_assert!(self.find(pool, new.key()).is_none());
        let number = self.page_of(pool, new.key());
        let mut page = self.page(pool, number);
        let lines = lines::<E>(page.len + 1);
        page.block = pool.arena.resize(page.block, self::lines::<E>(page.len), lines);
        let at = random.below(page.len + 1);
        let entries: &mut [E] = values_mut(pool.arena.lines_mut(page.block, lines));
        entries[page.len as usize] = entries[at as usize];
        entries[at as usize] = new;
        page.len += 1;
        self.set_page(pool, number, page);
        self.len += 1;
        if pages::<E>(self.len) == pages::<E>(self.len - 1) {
            return Place { page: number, at };
        }
        self.split(pool);
        let place = self.find(pool, new.key());
        debug_assert!(place.is_some());
        place.unwrap_or(Place { page: 0, at: 0 })
    }

    /// Removes and returns the peer at `place`.
    pub(crate) fn remove(&mut self, pool: &mut Pool, place: Place) -> E {
        let page = self.page(pool, place.page);
        let entries = page.entries_mut::<E>(&mut pool.arena);
        let old = entries[place.at as usize];
        let last = entries.len() - 1;
        entries[place.at as usize] = entries[last];
        self.shorten(pool, place.page, page.len - 1);
        old
    }

    /// Removes the peers of a page for which `keep` does not hold.
    pub(crate) fn retain(
        &mut self,
        pool: &mut Pool,
        number: u32,
        mut keep: impl FnMut(&E) -> bool,
    ) {
        let page = self.page(pool, number);
        let entries = page.entries_mut::<E>(&mut pool.arena);
        let mut kept = entries.len();
        for at in (0..entries.len()).rev() {
            if !keep(&entries[at]) {
                kept -= 1;
                entries[at] = entries[kept];
            }
        }
        if kept < page.len as usize {
            self.shorten(pool, number, kept as u32);
        }
    }

    /// Lets the peer change places with a random one of its page, so that a swarm in which nobody
    /// comes or goes is mixed all the same. Returns its new place.
    #[inline]
    pub(crate) fn shuffle(&self, pool: &mut Pool, place: Place, random: &mut Random) -> Place {
        let page = self.page(pool, place.page);
        let at = random.below(page.len);
        page.entries_mut::<E>(&mut pool.arena).swap(place.at as usize, at as usize);
        Place { at, ..place }
    }

    /// Moves what lies in draining chunks of the arena: a page, and with page 0 the directory.
    pub(crate) fn settle(&mut self, pool: &mut Pool, number: u32) {
        let count = self.pages();
        if number == 0 && count > 1 {
            self.block = pool.arena.settle(self.block, directory_lines(count));
        }
        let page = self.page(pool, number);
        let block = pool.arena.settle(page.block, lines::<E>(page.len));
        if block != page.block {
            self.set_page(pool, number, PageRef { block, ..page });
        }
    }

    /// Where the peer of that key is.
    #[inline]
    pub(crate) fn find(&self, pool: &Pool, key: E::Key) -> Option<Place> {
        let number = self.page_of(pool, key);
        let page = self.page(pool, number);
        let entries: &[E] = values(pool.arena.lines(page.block, lines::<E>(page.len)));
        let at = E::find(entries, page.len as usize, key)? as u32;
        Some(Place { page: number, at })
    }

    pub(crate) fn entry(&self, pool: &Pool, place: Place) -> E {
        self.entries(pool, place.page)[place.at as usize]
    }

    pub(crate) fn entry_mut<'p>(&self, pool: &'p mut Pool, place: Place) -> &'p mut E {
        let page = self.page(pool, place.page);
        &mut page.entries_mut(&mut pool.arena)[place.at as usize]
    }

    /// Peers.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Pages, at least one.
    #[inline(always)]
    pub(crate) fn pages(&self) -> u32 {
        pages::<E>(self.len)
    }

    /// The peers of a page.
    #[inline(always)]
    pub(crate) fn entries<'p>(&self, pool: &'p Pool, number: u32) -> &'p [E] {
        let page = self.page(pool, number);
        let entries = values(pool.arena.lines(page.block, lines::<E>(page.len)));
        &entries[..page.len as usize]
    }

    /// A peer, each as likely as any other; `draws` decides, so that who knows their seed can fetch
    /// ahead what they will lead to. There must be one.
    #[inline]
    pub(crate) fn draw(&self, pool: &Pool, draws: &mut Random) -> Place {
        debug_assert!(self.len > 0);
        if self.pages() == 1 {
            return Place { page: 0, at: draws.below(self.len) };
        }
        // A page at random and a place in it: refused when the page is not that long. The limit is
        // 8/3 of the mean, past which pages hardly ever are; and what lies past it is only never
        // drawn, but still part of runs.
        for _ in 0..64 {
            let place = self.dart(draws);
            if place.at < self.page(pool, place.page).len {
                return place;
            }
        }
        let fits = |number: &u32| self.page(pool, *number).len > 0;
        Place { page: (0..self.pages()).find(fits).unwrap_or(0), at: 0 }
    }

    /// Fetches what a search for `key` and the first of `draws` look at: the peers of a small set,
    /// the directory of a larger one. True when [`Self::prefetch_pages`] has more to fetch.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool, key: Option<E::Key>, draws: Option<Random>) -> bool {
        let count = self.pages();
        if count == 1 {
            pool.arena.prefetch(self.block, lines::<E>(self.len));
            return false;
        }
        let directory = directory_lines(count);
        if directory <= DIRECTORY_PREFETCH {
            pool.arena.prefetch(self.block, directory);
            return true;
        }
        if let Some(key) = key {
            pool.arena.prefetch(self.block + self.page_of(pool, key) / PAGES_A_LINE, 1);
        }
        if let Some(mut draws) = draws {
            for _ in 0..DARTS_PREFETCH {
                pool.arena.prefetch(self.block + self.dart(&mut draws).page / PAGES_A_LINE, 1);
            }
        }
        true
    }

    /// Fetches the page of `key`, and from where `draws` lead, the pages of `count` peers.
    #[inline]
    pub(crate) fn prefetch_pages(
        &self,
        pool: &Pool,
        key: Option<E::Key>,
        draws: Option<Random>,
        count: u32,
    ) {
        if self.pages() == 1 {
            return;
        }
        if let Some(key) = key {
            let page = self.page(pool, self.page_of(pool, key));
            pool.arena.prefetch(page.block, lines::<E>(page.len));
        }
        let Some(mut draws) = draws else { return };
        let Place { page: mut number, at } = self.draw(pool, &mut draws);
        let (mut first, mut left) = (at, count);
        for _ in 0..4 {
            let page = self.page(pool, number);
            let end = page.len.min(first + left);
            if end > first {
                let (from, to) = (first as usize * size_of::<E>() / LINE, lines::<E>(end));
                pool.arena.prefetch(page.block + from as u32, to - from as u32);
                left -= end - first;
            }
            if left == 0 {
                return;
            }
            (number, first) = (if number + 1 == self.pages() { 0 } else { number + 1 }, 0);
        }
    }

    /// A page and a place that it may be too short for.
    #[inline(always)]
    fn dart(&self, draws: &mut Random) -> Place {
        let (count, dart) = (self.pages(), draws.next());
        let reach = u64::from(self.len / count) * 8 / 3 + 8;
        let scaled = |bits: u64, n: u64| ((bits & u64::from(u32::MAX)) * n >> 32) as u32;
        Place { page: scaled(dart >> 32, count.into()), at: scaled(dart, reach) }
    }

    /// The number of the page that holds `key` or would.
    #[inline(always)]
    fn page_of(&self, pool: &Pool, key: E::Key) -> u32 {
        match self.pages() {
            1 => 0,
            count => page_number(pool.hash(key.as_ref()), count),
        }
    }

    #[inline(always)]
    fn page(&self, pool: &Pool, number: u32) -> PageRef {
        self.page_of_count(pool, number, self.pages())
    }

    /// A page, where the directory is still that of `count` pages.
    #[inline(always)]
    fn page_of_count(&self, pool: &Pool, number: u32, count: u32) -> PageRef {
        debug_assert!(number < count);
        if count == 1 {
            return PageRef { block: self.block, len: self.len };
        }
        let line = pool.arena.lines(self.block + number / PAGES_A_LINE, 1);
        values::<PageRef>(line)[(number % PAGES_A_LINE) as usize]
    }

    /// Notes where a page is now. The only page of a small set is noted in the set itself, whose
    /// length is the caller's to change.
    fn set_page(&mut self, pool: &mut Pool, number: u32, page: PageRef) {
        self.set_page_of_count(pool, number, page, self.pages());
    }

    fn set_page_of_count(&mut self, pool: &mut Pool, number: u32, page: PageRef, count: u32) {
        if count == 1 {
            self.block = page.block;
            return;
        }
        let line = pool.arena.lines_mut(self.block + number / PAGES_A_LINE, 1);
        values_mut::<PageRef>(line)[(number % PAGES_A_LINE) as usize] = page;
    }

    /// Cuts a page to its first `kept` peers, and dissolves pages that are then too many.
    fn shorten(&mut self, pool: &mut Pool, number: u32, kept: u32) {
        let mut page = self.page(pool, number);
        let count = self.pages();
        let removed = page.len - kept;
        page.block = pool.arena.resize(page.block, lines::<E>(page.len), lines::<E>(kept));
        page.len = kept;
        self.set_page(pool, number, page);
        self.len -= removed;
        for last in (self.pages()..count).rev() {
            self.merge(pool, last);
        }
    }

    /// Opens page number `pages() - 1` with its share of the page it is split from.
    fn split(&mut self, pool: &mut Pool) {
        let count = self.pages();
        let (opened, split) = (count - 1, buddy(count - 1));
        self.resize_directory(pool, count - 1, count);
        let page = self.page(pool, split);
        let hash_key = pool.hash_key;
        let entries = page.entries_mut::<E>(&mut pool.arena);
        let mut kept = 0;
        for at in 0..entries.len() {
            let hash = siphash::<1, 3>(&hash_key, entries[at].key().as_ref());
            if page_number(hash, count) == split {
                entries.swap(kept, at);
                kept += 1;
            }
        }
        let kept = kept as u32;
        let moved = page.len - kept;
        let mut block = 0;
        if moved > 0 {
            block = pool.arena.take(lines::<E>(moved));
            pool.arena.copy((page.block, bytes::<E>(kept)), (block, 0), bytes::<E>(moved));
        }
        self.set_page(pool, opened, PageRef { block, len: moved });
        let block = pool.arena.resize(page.block, lines::<E>(page.len), lines::<E>(kept));
        self.set_page(pool, split, PageRef { block, len: kept });
        pool.pages += 1;
    }

    /// Dissolves the last page, number `last`, into the one it was split from.
    fn merge(&mut self, pool: &mut Pool, last: u32) {
        let count = last + 1;
        let from = self.page_of_count(pool, last, count);
        let mut into = self.page_of_count(pool, buddy(last), count);
        let len = into.len + from.len;
        into.block = pool.arena.resize(into.block, lines::<E>(into.len), lines::<E>(len));
        if from.len > 0 {
            pool.arena.copy(
                (from.block, 0),
                (into.block, bytes::<E>(into.len)),
                bytes::<E>(from.len),
            );
            pool.arena.give(from.block, lines::<E>(from.len));
        }
        into.len = len;
        self.set_page_of_count(pool, buddy(last), into, count);
        self.resize_directory(pool, count, last);
        pool.pages -= 1;
    }

    /// Makes the directory of `old` pages one of `new`: one more or one less. A single page has
    /// none.
    fn resize_directory(&mut self, pool: &mut Pool, old: u32, new: u32) {
        let (before, after) = (directory_lines(old), directory_lines(new));
        if old == 1 {
            let len = self.len;
            let only = PageRef { block: self.block, len };
            self.block = pool.arena.take(after);
            self.set_page_of_count(pool, 0, only, new);
        } else if new == 1 {
            let only = self.page_of_count(pool, 0, old);
            pool.arena.give(self.block, before);
            self.block = only.block;
        } else {
            self.block = pool.arena.resize(self.block, before, after);
        }
    }
}

impl PageRef {
    #[inline(always)]
    fn entries_mut<E: Entry>(self, arena: &mut Arena) -> &mut [E] {
        let entries = values_mut(arena.lines_mut(self.block, lines::<E>(self.len)));
        &mut entries[..self.len as usize]
    }
}

/// Directory entries in a line.
const PAGES_A_LINE: u32 = (LINE / size_of::<PageRef>()) as u32;
/// Directories up to so many lines are fetched whole, ahead of their use.
const DIRECTORY_PREFETCH: u32 = 3;
/// Draws that are fetched ahead in larger ones: more than 8/3 are seldom needed.
const DARTS_PREFETCH: u32 = 4;

/// Lines that hold `len` peers.
#[inline(always)]
fn lines<E: Entry>(len: u32) -> u32 {
    bytes::<E>(len).div_ceil(LINE) as u32
}

#[inline(always)]
fn bytes<E: Entry>(len: u32) -> usize {
    len as usize * size_of::<E>()
}

/// Pages of a set of `len` peers.
#[inline(always)]
fn pages<E: Entry>(len: u32) -> u32 {
    const { assert!(E::DENSE_MAX > E::PAGE) };
    if len <= E::DENSE_MAX { 1 } else { len.div_ceil(E::PAGE).min(PAGES_MAX) }
}

/// Lines of the directory of so many pages: rounded up to an eighth of a power of two, so that a
/// large one is not copied for every eighth page.
const fn directory_lines(pages: u32) -> u32 {
    if pages <= 1 {
        return 0;
    }
    let lines = pages.div_ceil(PAGES_A_LINE);
    lines.next_multiple_of(1 << lines.ilog2().saturating_sub(3))
}

/// The page that page number `last` was split from.
fn buddy(last: u32) -> u32 {
    debug_assert!(last > 0);
    last - (1 << last.ilog2())
}

/// The page, of `count`, of a peer with that hash: as many low bits as give a page that is there.
#[inline(always)]
fn page_number(hash: u64, count: u32) -> u32 {
    debug_assert!(count > 0);
    let half = 1u32 << count.ilog2();
    let number = hash as u32 & (half * 2 - 1);
    if number < count { number } else { number & (half - 1) }
}
