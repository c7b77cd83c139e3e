//! Blocks of lines for peer sets: a good-fit allocator whose neighbouring free blocks join.
//!
//! Plain form: a list of free blocks for each size; the first that is large enough is cut, and a
//! block that comes back joins its free neighbours. Departures:
//! 1. Memory comes in chunks of 2 MiB that never move and are addressed by a line number of 32 bits.
//! 2. Free blocks describe themselves: size and list links in their first line, size in their last,
//!    and a bit for each of these two lines in a map at the head of the chunk. Nothing is kept for
//!    blocks in use: their owners know how long they are.
//! 3. When most of it is free, chunks are marked as draining: what is freed in them is not used
//!    again, sweeps move what they meet out of them, and an empty chunk goes back to the system.

use bytemuck::{cast_mut, cast_ref};
use primitives::memory::{HUGE_LINES, LINE, Line, Region, values, values_mut};
use primitives::prefetch;

/// The number of a block's first line; 0 is no block.
pub(crate) type Block = u32;

/// Lines at the head of a chunk that hold its map of free blocks.
const MAP_LINES: u32 = (HUGE_LINES / 512) as u32;
/// The longest block.
pub(crate) const BLOCK_MAX: u32 = HUGE_LINES as u32 - MAP_LINES;
/// Blocks up to this many lines have a list for every size, longer ones eight for every doubling.
const EXACT: u32 = 64;
const CLASSES: usize = 64 + 9 * 8;
/// A chunk number is what is left of 32 bits.
const CHUNKS_MAX: usize = 1 << 17;

const _: () = assert!(HUGE_LINES == 1 << 15);
const _: () = assert!(class_of(BLOCK_MAX) < CLASSES);

/// Lines for peer sets.
#[derive(Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    lists: Lists,
    used: u64,
    touched: u64,
    released: Vec<Region>,
}

#[derive(Default)]
struct Chunk {
    region: Option<Region>,
    /// Lines in blocks.
    used: u32,
    /// Lines up to the highest that was ever in a block: what the system had to give.
    touched: u32,
    /// Draining: free blocks before this line are off the lists.
    drained: Option<u32>,
}

struct Lists {
    heads: [Block; CLASSES],
    filled: [u64; CLASSES.div_ceil(64)],
}

impl Default for Lists {
    fn default() -> Self {
        Self { heads: [0; CLASSES], filled: [0; CLASSES.div_ceil(64)] }
    }
}

/// What the first line of a free block says (in its last word, so does the last line).
#[derive(Clone, Copy)]
struct Free {
    len: u32,
    next: Block,
    previous: Block,
}

impl Arena {
    /// A block of `len` lines, which hold leftovers.
    pub(crate) fn take(&mut self, len: u32) -> Block {
        debug_assert!(len > 0);
        debug_assert!(len <= BLOCK_MAX);
        let block = self.lists.first_from(class_for(len)).unwrap_or_else(|| self.add_chunk());
        let found = self.unlink(block);
        if found > len {
            self.link(block + len, found - len);
        }
        self.count_taken(block, len);
        block
    }

    /// Gives `len` lines from `block` on back: a whole block or the end of one.
    pub(crate) fn give(&mut self, block: Block, len: u32) {
        debug_assert!(block != 0);
        debug_assert!(len > 0);
        self.used -= u64::from(len);
        let chunk = &mut self.chunks[chunk_of(block)];
        chunk.used -= len;
        if chunk.drained.is_some() {
            return;
        }
        let (mut start, mut end) = (block, block + len);
        if offset_of(end) != 0 && self.is_marked(end) {
            end += self.unlink(end);
        }
        if self.is_marked(start - 1) {
            start -= self.len_before(start);
            self.unlink(start);
        }
        self.link(start, end - start);
    }

    /// Makes the block of `old` lines one of `new` lines that begins with the same values. No
    /// lines are no block.
    pub(crate) fn resize(&mut self, block: Block, old: u32, new: u32) -> Block {
        debug_assert!((block == 0) == (old == 0));
        if new <= old {
            if new < old {
                self.give(block + new, old - new);
            }
            return if new == 0 { 0 } else { block };
        }
        if old == 0 {
            return self.take(new);
        }
        if self.extend(block, old, new) {
            return block;
        }
        self.transfer(block, old, new)
    }

    /// Where a block should be while chunks drain: at the same place, or moved now.
    pub(crate) fn settle(&mut self, block: Block, len: u32) -> Block {
        if len > 0 && self.chunks[chunk_of(block)].drained.is_some() {
            return self.transfer(block, len, len);
        }
        block
    }

    /// Copies `len` bytes between two blocks that do not overlap; positions are bytes from the
    /// start of each block.
    pub(crate) fn copy(&mut self, from: (Block, usize), to: (Block, usize), len: usize) {
        let place = |(block, at): (Block, usize)| offset_of(block) as usize * LINE + at;
        let (source, target) = (place(from), place(to));
        let (source_chunk, target_chunk) = (chunk_of(from.0), chunk_of(to.0));
        if source_chunk == target_chunk {
            let bytes: &mut [u8] = values_mut(self.chunks[target_chunk].lines_mut());
            bytes.copy_within(source..source + len, target);
        } else if let Ok([a, b]) = self.chunks.get_disjoint_mut([source_chunk, target_chunk]) {
            let source = &values(a.lines())[source..source + len];
            let bytes: &mut [u8] = values_mut(b.lines_mut());
            bytes[target..target + len].copy_from_slice(source);
        }
    }

    /// The lines of a block.
    #[inline(always)]
    pub(crate) fn lines(&self, block: Block, len: u32) -> &[Line] {
        let at = offset_of(block) as usize;
        &self.chunks[chunk_of(block)].lines()[at..at + len as usize]
    }

    /// The lines of a block, to be changed.
    #[inline(always)]
    pub(crate) fn lines_mut(&mut self, block: Block, len: u32) -> &mut [Line] {
        let at = offset_of(block) as usize;
        &mut self.chunks[chunk_of(block)].lines_mut()[at..at + len as usize]
    }

    /// Fetches lines ahead of their use.
    #[inline(always)]
    pub(crate) fn prefetch(&self, block: Block, len: u32) {
        if len > 0 {
            self.lines(block, len).iter().for_each(prefetch);
        }
    }

    /// Lines in blocks.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Lines that the system had to give.
    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Decides, when most lines are free, which chunks are emptied: those with the least in them,
    /// as long as the rest keeps a quarter free. Once for each pass of the sweep.
    pub(crate) fn plan_drain(&mut self) {
        if self.used == 0 {
            self.release_all();
        }
        let in_use = |chunk: &&mut Chunk| chunk.region.is_some() && chunk.drained.is_none();
        let mut chunks: Vec<_> = self.chunks.iter_mut().filter(in_use).collect();
        let capacity = |chunks: usize| chunks as u64 * u64::from(BLOCK_MAX);
        if self.used > capacity(chunks.len()) / 2 {
            return;
        }
        chunks.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.used));
        while chunks.len() > 1 && self.used <= capacity(chunks.len() - 1) / 4 * 3 {
            if let Some(chunk) = chunks.pop() {
                chunk.drained = Some(MAP_LINES);
            }
        }
    }

    /// Takes at most `steps` free blocks of draining chunks off the lists, and lets go of chunks
    /// that are empty.
    pub(crate) fn drain(&mut self, mut steps: u32) {
        for at in 0..self.chunks.len() {
            while let Some(from) = self.chunks[at].drained
                && from < HUGE_LINES as u32
                && steps > 0
            {
                let base = (at * HUGE_LINES) as u32;
                let next = self.next_marked(base + from);
                let next =
                    next.map_or(HUGE_LINES as u32, |free| offset_of(free) + self.unlink(free));
                self.chunks[at].drained = Some(next);
                steps -= 1;
            }
            let chunk = &mut self.chunks[at];
            if chunk.drained == Some(HUGE_LINES as u32) && chunk.used == 0 {
                self.touched -= u64::from(chunk.touched);
                self.released.extend(std::mem::take(chunk).region);
            }
        }
    }

    /// A chunk that was full and is to be moved to a huge page.
    pub(crate) fn small_chunk(&mut self) -> Option<&mut Region> {
        let full = self.chunks.iter_mut().filter(|chunk| chunk.touched == HUGE_LINES as u32);
        full.filter_map(|chunk| chunk.region.as_mut()).find(|region| region.is_small())
    }

    /// Memory to be dropped where nobody waits for it.
    pub(crate) fn released(&mut self) -> Vec<Region> {
        std::mem::take(&mut self.released)
    }

    fn release_all(&mut self) {
        debug_assert!(self.chunks.iter().all(|chunk| chunk.used == 0));
        self.released.extend(self.chunks.drain(..).filter_map(|chunk| chunk.region));
        self.lists = Lists::default();
        self.touched = 0;
    }

    /// Moves a block into one of `new` lines.
    fn transfer(&mut self, block: Block, old: u32, new: u32) -> Block {
        let moved = self.take(new);
        self.copy((block, 0), (moved, 0), old as usize * LINE);
        self.give(block, old);
        moved
    }

    /// Lengthens a block in place when what follows is free.
    fn extend(&mut self, block: Block, old: u32, new: u32) -> bool {
        let end = block + old;
        if offset_of(end) == 0 || !self.is_marked(end) || self.free(end).len < new - old {
            return false;
        }
        let found = self.unlink(end);
        let rest = found - (new - old);
        if rest > 0 {
            self.link(block + new, rest);
        }
        self.count_taken(end, new - old);
        true
    }

    fn count_taken(&mut self, block: Block, len: u32) {
        self.used += u64::from(len);
        let chunk = &mut self.chunks[chunk_of(block)];
        chunk.used += len;
        let end = offset_of(block) + len;
        if end > chunk.touched {
            self.touched += u64::from(end - chunk.touched);
            chunk.touched = end;
        }
    }

    /// A new chunk, as one free block.
    fn add_chunk(&mut self) -> Block {
        let vacant = self.chunks.iter().position(|chunk| chunk.region.is_none());
        let at = vacant.unwrap_or(self.chunks.len());
        assert!(at < CHUNKS_MAX, "256 GiB of peers in one shard");
        let chunk = Chunk { region: Some(Region::new(HUGE_LINES)), ..Chunk::default() };
        match self.chunks.get_mut(at) {
            Some(vacant) => *vacant = chunk,
            None => self.chunks.push(chunk),
        }
        let block = (at * HUGE_LINES) as u32 + MAP_LINES;
        self.link(block, BLOCK_MAX);
        block
    }

    /// Enters a free block.
    fn link(&mut self, block: Block, len: u32) {
        let class = class_of(len);
        let next = self.lists.heads[class];
        if next != 0 {
            let free = Free { previous: block, ..self.free(next) };
            self.set_free(next, free);
        }
        self.lists.heads[class] = block;
        self.lists.filled[class / 64] |= 1 << (class % 64);
        self.set_free(block, Free { len, next, previous: 0 });
        let [.., last] = &mut self.line_mut(block + len - 1).0;
        *last = len.into();
        self.mark(block, true);
        self.mark(block + len - 1, true);
    }

    /// Removes a free block from its list; returns its length.
    fn unlink(&mut self, block: Block) -> u32 {
        let Free { len, next, previous } = self.free(block);
        if next != 0 {
            let free = Free { previous, ..self.free(next) };
            self.set_free(next, free);
        }
        if previous != 0 {
            let free = Free { next, ..self.free(previous) };
            self.set_free(previous, free);
        } else {
            let class = class_of(len);
            self.lists.heads[class] = next;
            if next == 0 {
                self.lists.filled[class / 64] &= !(1 << (class % 64));
            }
        }
        self.mark(block, false);
        self.mark(block + len - 1, false);
        len
    }

    fn free(&self, block: Block) -> Free {
        let [len, links, ..] = self.lines(block, 1)[0].0;
        Free { len: len as u32, next: links as u32, previous: (links >> 32) as u32 }
    }

    fn set_free(&mut self, block: Block, free: Free) {
        let [len, links, ..] = &mut self.line_mut(block).0;
        *len = free.len.into();
        *links = u64::from(free.previous) << 32 | u64::from(free.next);
    }

    /// The length of the free block that ends before `end`.
    fn len_before(&self, end: Block) -> u32 {
        let [.., last] = self.lines(end - 1, 1)[0].0;
        last as u32
    }

    fn line_mut(&mut self, line: u32) -> &mut Line {
        &mut self.lines_mut(line, 1)[0]
    }

    /// Whether a free block begins or ends at that line.
    fn is_marked(&self, line: u32) -> bool {
        let at = offset_of(line);
        let map: &[u64; 8] = cast_ref(&self.chunks[chunk_of(line)].lines()[at as usize / 512]);
        map[at as usize / 64 % 8] & 1 << (at % 64) != 0
    }

    fn mark(&mut self, line: u32, is_free: bool) {
        let at = offset_of(line);
        let line = &mut self.chunks[chunk_of(line)].lines_mut()[at as usize / 512];
        let map: &mut [u64; 8] = cast_mut(line);
        let bit = 1 << (at % 64);
        let word = &mut map[at as usize / 64 % 8];
        *word = if is_free { *word | bit } else { *word & !bit };
    }

    /// The first marked line of a chunk from `line` on.
    fn next_marked(&self, line: u32) -> Option<u32> {
        let lines = self.chunks[chunk_of(line)].lines().get(..MAP_LINES as usize)?;
        let words: &[u64] = values(lines);
        let from = offset_of(line) as usize;
        let mut mask = u64::MAX << (from % 64);
        for (at, word) in words.iter().enumerate().skip(from / 64) {
            if word & mask != 0 {
                let bit = (at * 64) as u32 + (word & mask).trailing_zeros();
                return Some(line - offset_of(line) + bit);
            }
            mask = u64::MAX;
        }
        None
    }
}

impl Chunk {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.region.as_ref().map_or(&[], Region::lines)
    }

    #[inline(always)]
    fn lines_mut(&mut self) -> &mut [Line] {
        self.region.as_mut().map_or(&mut [], Region::lines_mut)
    }
}

impl Lists {
    /// A block of that class or of the next that has any.
    fn first_from(&self, class: usize) -> Option<Block> {
        let mut mask = u64::MAX << (class % 64);
        for (at, word) in self.filled.iter().enumerate().skip(class / 64) {
            if word & mask != 0 {
                return Some(self.heads[at * 64 + (word & mask).trailing_zeros() as usize]);
            }
            mask = u64::MAX;
        }
        None
    }
}

/// The list that a free block belongs to.
const fn class_of(len: u32) -> usize {
    if len <= EXACT {
        return len as usize - 1;
    }
    let doubling = len.ilog2();
    (EXACT + (doubling - 6) * 8 + (len >> (doubling - 3) & 7)) as usize
}

/// The first list whose blocks are all long enough.
const fn class_for(len: u32) -> usize {
    if len <= EXACT { class_of(len) } else { class_of(len + (1 << (len.ilog2() - 3)) - 1) }
}

#[inline(always)]
fn chunk_of(line: u32) -> usize {
    line as usize / HUGE_LINES
}

#[inline(always)]
fn offset_of(line: u32) -> u32 {
    line % HUGE_LINES as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::Random;

    struct Held {
        block: Block,
        len: u32,
        word: u64,
    }

    fn fill(arena: &mut Arena, held: &Held) {
        arena.lines_mut(held.block, held.len).fill(Line([held.word; 8]));
    }

    fn check(arena: &Arena, held: &Held, len: u32) {
        let lines = arena.lines(held.block, len);
        assert!(lines.iter().all(|line| line.0 == [held.word; 8]), "{}", held.block);
    }

    /// Random takes, gives and resizes; every block keeps what was written into it.
    fn churn(arena: &mut Arena, held: &mut Vec<Held>, random: &mut Random, rounds: u64, keep: u32) {
        for word in 0..rounds {
            let pick = random.below(held.len().max(1) as u32) as usize;
            if held.is_empty() || random.below(2 * keep) > held.len() as u32 {
                let len = if random.below(50) == 0 {
                    1 + random.below(3000)
                } else {
                    1 + random.below(9)
                };
                let new = Held { block: arena.take(len), len, word };
                fill(arena, &new);
                held.push(new);
            } else if random.below(2) == 0 {
                let old = held.swap_remove(pick);
                check(arena, &old, old.len);
                arena.give(old.block, old.len);
            } else {
                let old = &mut held[pick];
                let len = 1 + random.below(old.len + 4);
                old.block = arena.resize(old.block, old.len, len);
                check(arena, old, len.min(old.len));
                old.len = len;
                fill(arena, old);
            }
        }
        assert_eq!(arena.used(), held.iter().map(|held| u64::from(held.len)).sum());
        held.iter().for_each(|held| check(arena, held, held.len));
    }

    #[test]
    fn blocks_keep_their_values_and_free_neighbours_join() {
        let (mut arena, mut held) = (Arena::default(), Vec::new());
        let mut random = Random::new(3);
        churn(&mut arena, &mut held, &mut random, 20_000, 900);
        for old in held {
            arena.give(old.block, old.len);
        }
        assert_eq!(arena.used(), 0);
        for at in 0..arena.chunks.len() {
            let first = (at * HUGE_LINES) as u32 + MAP_LINES;
            assert!(arena.is_marked(first));
            assert_eq!(arena.free(first).len, BLOCK_MAX);
        }
        arena.plan_drain();
        assert_eq!(arena.touched(), 0);
        assert!(!arena.released().is_empty());
    }

    #[test]
    fn the_longest_block_fits_a_chunk() {
        let mut arena = Arena::default();
        let block = arena.take(BLOCK_MAX);
        let other = arena.take(BLOCK_MAX);
        assert_ne!(chunk_of(block), chunk_of(other));
        arena.give(block, BLOCK_MAX);
        let part = arena.take(30_720);
        assert_eq!(part, block);
    }

    #[test]
    fn draining_gives_memory_back_in_small_steps() {
        let (mut arena, mut held) = (Arena::default(), Vec::new());
        let mut random = Random::new(5);
        churn(&mut arena, &mut held, &mut random, 60_000, 20_000);
        let before = arena.touched();
        while held.len() > 1000 {
            let old = held.swap_remove(random.below(held.len() as u32) as usize);
            arena.give(old.block, old.len);
        }
        arena.plan_drain();
        for step in 0..100_000 {
            arena.drain(16);
            let at = step % held.len();
            held[at].block = arena.settle(held[at].block, held[at].len);
        }
        held.iter().for_each(|held| check(&arena, held, held.len));
        let regions = arena.chunks.iter().filter(|chunk| chunk.region.is_some()).count();
        assert!(regions as u64 * u64::from(BLOCK_MAX) <= arena.used() * 2 + u64::from(BLOCK_MAX));
        assert!(arena.touched() < before);
        churn(&mut arena, &mut held, &mut random, 20_000, 3000);
    }
}
