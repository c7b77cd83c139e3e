//! Atomic words, in huge pages where there are many.
//!
//! # Safety
//!
//! [`AtomicWords`] owns its [`Region`] alone and hands out nothing of it but atomic words.
#![allow(unsafe_code)]

use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{LINE, Region};

/// Zeroed 64-bit words that several threads change at once. Large arrays can be moved to huge pages.
pub struct AtomicWords(Region);

impl AtomicWords {
    /// Returns at least `len` zeroed words; 2 MiB and more are aligned to 2 MiB. Panics if `len` is 0.
    pub fn new(len: usize) -> Self {
        Self(Region::new(len.div_ceil(LINE / 8)))
    }

    /// The words, rounded up to whole cache lines.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        let (first, lines) = self.0.raw_parts();
        // SAFETY: `first` points to `lines` initialised lines that this region owns and that only this
        // function hands out; an atomic word is of the size of a plain one, and aligned no more
        // strictly than a line.
        unsafe { slice::from_raw_parts(first.as_ptr().cast(), lines * (LINE / 8)) }
    }

    /// Moves the words to huge pages, where the system supports it. A huge page takes all the memory it
    /// spans. Threads that use the same 2 MiB meanwhile wait for up to half a millisecond.
    pub fn make_huge(&self) {
        self.0.collapse();
    }

    /// Undoes [`Self::make_huge`] for pages that are touched from now on.
    pub fn make_small(&self) {
        self.0.forgo_huge();
    }

    /// Sets the words of `lines` cache lines to 0, and returns whole pages of them to the system where
    /// it supports that. Panics if there are fewer lines.
    ///
    /// The words change one by one, as if by relaxed stores.
    pub fn clear_lines(&self, lines: Range<usize>) {
        let discarded = self.0.discard(lines.clone());
        for rest in [lines.start..discarded.start, discarded.end..lines.end] {
            let words =
                self.words().iter().take(rest.end * (LINE / 8)).skip(rest.start * (LINE / 8));
            words.for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::memory::HUGE_LINES;

    /// Lines of a small and a large array. Miri has no huge pages, and takes minutes for millions of
    /// words.
    const SMALL: usize = if cfg!(miri) { 100 } else { 1000 };
    const LARGE: usize = if cfg!(miri) { 128 } else { 2 * HUGE_LINES };

    #[test]
    fn cleared_lines_are_zero_and_others_stay() {
        for (len, lines) in [(SMALL, 3..97), (LARGE, 1..LARGE - 1), (64, 5..5)] {
            let words = AtomicWords::new(len * 8);
            for is_huge in [false, true] {
                (1..).zip(words.words()).for_each(|(at, word)| word.store(at, Relaxed));
                if is_huge {
                    words.make_huge();
                }
                words.clear_lines(lines.clone());
                words.make_small();
                for (at, word) in words.words().iter().enumerate() {
                    let expected = if lines.contains(&(at / 8)) { 0 } else { at as u64 + 1 };
                    assert_eq!(word.load(Relaxed), expected, "{at} of {len} lines");
                }
            }
        }
    }

    #[test]
    fn words_are_zeroed_and_stay_where_they_are_changed() {
        for len in [1, 8, 9, (LARGE + LARGE / 2) * 8] {
            let words = AtomicWords::new(len);
            assert!(words.words().len().is_multiple_of(8) && words.words().len() >= len);
            assert!(words.words().iter().all(|word| word.load(Relaxed) == 0));
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let words = words.words().iter().enumerate().skip(thread).step_by(2);
                    scope.spawn(|| words.for_each(|(at, word)| word.store(at as u64, Relaxed)));
                }
                words.make_huge();
            });
            assert!((0..).zip(words.words()).all(|(at, word)| word.load(Relaxed) == at));
        }
    }
}
