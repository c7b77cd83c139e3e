//! An array of a set: all of a dense set, or a page of a larger one.

use std::marker::PhantomData;

use primitives::Random;
use primitives::memory::{LINE, view, view_mut};

use crate::arena::{Arena, LineBlock};
use crate::entry::Entry;

/// An array of entries in lines of its own.
#[derive(Clone, Copy)]
pub(super) struct Page<E> {
    pub(super) block: LineBlock,
    pub(super) len: u32,
    entry: PhantomData<E>,
}

impl<E> Default for Page<E> {
    fn default() -> Self {
        Self { block: 0, len: 0, entry: PhantomData }
    }
}

/// Returns the lines that `len` entries take.
fn lines_of<E>(len: u32) -> u32 {
    (len as usize * size_of::<E>()).div_ceil(LINE) as u32
}

impl<E: Entry> Page<E> {
    pub(super) fn new(block: LineBlock, len: u32) -> Self {
        Self { block, len, entry: PhantomData }
    }

    pub(super) fn lines(&self) -> u32 {
        lines_of::<E>(self.len)
    }

    /// Returns the entries, and leftovers up to the end of the last line.
    #[inline]
    pub(super) fn slice<'a>(&self, arena: &'a Arena) -> &'a [E] {
        if self.len == 0 { &[] } else { view(arena.lines(self.block, self.lines())) }
    }

    #[inline]
    pub(super) fn slice_mut<'a>(&self, arena: &'a mut Arena) -> &'a mut [E] {
        if self.len == 0 { &mut [] } else { view_mut(arena.lines_mut(self.block, self.lines())) }
    }

    /// Prefetches the lines of the entries in `from..to`.
    #[inline]
    pub(super) fn prefetch(&self, arena: &Arena, from: u32, to: u32) {
        if from < to {
            let first = from as usize * size_of::<E>() / LINE;
            let lines = lines_of::<E>(to) - first as u32;
            arena.prefetch(self.block + first as u32, lines);
        }
    }

    pub(super) fn append(&mut self, arena: &mut Arena, entry: E) {
        let longer = lines_of::<E>(self.len + 1);
        self.block = arena.resize(self.block, self.lines(), longer);
        self.len += 1;
        let at = self.len as usize - 1;
        self.slice_mut(arena)[at] = entry;
    }

    /// Inserts an entry at a random place, whose entry moves to the end. Returns the place.
    pub(super) fn push(&mut self, arena: &mut Arena, entry: E, random: &mut Random) -> u32 {
        self.append(arena, entry);
        let at = random.below(self.len);
        let end = self.len as usize - 1;
        self.slice_mut(arena).swap(at as usize, end);
        at
    }

    /// Removes and returns an entry; the last one takes its place.
    pub(super) fn swap_remove(&mut self, arena: &mut Arena, at: u32) -> E {
        let end = self.len as usize - 1;
        let slice = self.slice_mut(arena);
        let gone = slice[at as usize];
        slice[at as usize] = slice[end];
        let shorter = lines_of::<E>(self.len - 1);
        self.block = arena.resize(self.block, self.lines(), shorter);
        self.len -= 1;
        gone
    }

    pub(super) fn free(self, arena: &mut Arena) {
        if self.len > 0 {
            arena.free(self.block, self.lines());
        }
    }
}
