//! Random samples of a set: runs of neighbours from a random start.

use primitives::Random;

use super::{PeerSet, Position};
use crate::arena::Arena;
use crate::entry::Entry;

/// Pages of up to this many times the average are drawn in proportion to their length.
const LONG: u32 = 3;
/// Attempts to draw a uniformly random start.
const TRIES: u32 = 24;

impl<E: Entry> PeerSet<E> {
    /// Pushes `count` distinct random peers, each peer with the same probability, and never the one
    /// at `skip`. `count` must not exceed the number of other peers. Equal seeds choose equal
    /// starts.
    pub(crate) fn sample(
        &self,
        arena: &Arena,
        count: u32,
        skip: Option<Position>,
        sample_seed: u64,
        mut push: impl FnMut(&[E]),
    ) {
        if count == 0 {
            return;
        }
        debug_assert!(count <= self.len() - u32::from(skip.is_some()));
        let start = self.sample_start(arena, skip, sample_seed);
        if !self.is_paged() {
            let entries = &self.dense_page().slice(arena)[..self.len() as usize];
            let skip = skip.map(|skip| skip.at as usize);
            return sample_dense(entries, count as usize, start.at as usize, skip, push);
        }
        let pages = self.pages(arena);
        let (mut page, mut from, mut left) = (start.page, start.at, count);
        // All pages once, then the part of the first page before the start.
        for _ in 0..=pages {
            let entries = self.page(arena, page);
            let slice = &entries.slice(arena)[..entries.len as usize];
            let skip = skip.filter(|skip| skip.page == page).map(|skip| skip.at as usize);
            for part in runs(slice, from as usize, skip) {
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

    /// Prefetches exactly the lines from which `sample` takes `count` peers for `sample_seed`: of a
    /// paged set, a part of one page or two.
    #[inline]
    pub(crate) fn prefetch_sample(&self, arena: &Arena, sample_seed: u64, count: u32) {
        if self.len() == 0 || count == 0 {
            return;
        }
        let start = self.sample_start(arena, None, sample_seed);
        let page = self.page(arena, start.page);
        let end = (start.at + count).min(page.len);
        page.prefetch(arena, start.at, end);
        let left = count - (end - start.at);
        if left > 0 {
            let next = self.page(arena, (start.page + 1) % self.pages(arena));
            next.prefetch(arena, 0, left.min(next.len));
        }
    }

    /// Returns a uniformly random position other than `skip`. In a paged set: draws a page and a
    /// place in it until there is a peer at that place.
    fn sample_start(&self, arena: &Arena, skip: Option<Position>, sample_seed: u64) -> Position {
        let mut random = Random::new(sample_seed);
        if !self.is_paged() {
            let others = self.len() - u32::from(skip.is_some());
            let at = random.below(others);
            let after = skip.is_some_and(|skip| at >= skip.at);
            return Position { page: 0, at: at + u32::from(after) };
        }
        let pages = self.pages(arena);
        for _ in 0..TRIES {
            let page = random.below(pages);
            let position = Position { page, at: random.below(LONG * E::PAGE_PEERS) };
            let len = self.page_ref(arena, page).len;
            // A longer page, of a network with many peers, is as probable as one of this length.
            let position = match position.at < len && len > LONG * E::PAGE_PEERS {
                true => Position { page, at: random.below(len) },
                false => position,
            };
            if position.at < len && Some(position) != skip {
                return position;
            }
        }
        Position { page: random.below(pages), at: 0 }
    }
}

/// Pushes `count` of `entries` without the one at `skip`: from `start` to the end, then from the
/// beginning.
#[inline]
fn sample_dense<E>(
    entries: &[E],
    count: usize,
    start: usize,
    skip: Option<usize>,
    mut push: impl FnMut(&[E]),
) {
    let mut left = count;
    let head_skip = skip.filter(|skip| *skip < start);
    let runs = [runs(entries, start, skip), runs(&entries[..start], 0, head_skip)];
    for part in runs.as_flattened() {
        let part = &part[..part.len().min(left)];
        if !part.is_empty() {
            push(part);
            left -= part.len();
        }
    }
    debug_assert!(left == 0);
}

/// Returns the runs of a page from `from` to its end without the entry at `skip`.
fn runs<E>(entries: &[E], from: usize, skip: Option<usize>) -> [&[E]; 2] {
    match skip {
        Some(skip) if skip >= from => [&entries[from..skip], &entries[skip + 1..]],
        _ => [&entries[from..], &[]],
    }
}
