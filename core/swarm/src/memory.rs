//! Memory by the cache line: zeroed areas of the operating system's pages, seen as plain values, and
//! the prefetch hint. The only file of the core that holds `unsafe`.
//!
//! # Safety
//!
//! * A [`Region`] owns its pages alone from [`map`] to [`unmap`], and they never move: references
//!   into it borrow it.
//! * Pages come zeroed, so every byte is initialised.
//! * [`Plain`] types are valid whatever their bytes are, and hold no padding: bytes that are
//!   written through one are initialised for all others.
#![allow(unsafe_code)]

use std::mem::{align_of, size_of};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use types::{InfoHash, PackedV4, PackedV6};

use crate::entry::Entry;
use crate::record::{Record, Sets};
use crate::set::{PageRef, PeerSet};

/// A cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

/// Bytes of a line.
pub(crate) const LINE: usize = 64;
/// Lines of a huge page (2 MiB), to which larger regions are aligned.
pub(crate) const HUGE_LINES: usize = (2 << 20) / LINE;

const _: () = assert!(size_of::<Line>() == LINE);
const _: () = assert!(align_of::<Line>() == LINE);

/// Values that any bytes make, without padding: what may lie in a [`Region`].
///
/// # Safety
///
/// Every bit pattern is a valid value, there is no padding, no pointer and no interior mutability,
/// and the alignment divides [`LINE`].
pub(crate) unsafe trait Plain: Copy + 'static {}

// SAFETY: eight integers.
unsafe impl Plain for Line {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: transparent over bytes.
unsafe impl Plain for InfoHash {}
// SAFETY: transparent over bytes.
unsafe impl Plain for PackedV4 {}
// SAFETY: transparent over bytes.
unsafe impl Plain for PackedV6 {}
// SAFETY: repr(C), two u32 and nothing else (the marker has no size).
unsafe impl<E: Entry> Plain for PeerSet<E> {}
// SAFETY: repr(C), two u32.
unsafe impl Plain for PageRef {}
// SAFETY: repr(C) of plain sets.
unsafe impl Plain for Sets {}
// SAFETY: repr(C) of plain fields that fill it: the sizes are asserted beside its definition.
unsafe impl Plain for Record {}
// SAFETY: an array of plain values has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The values that lie in `lines`, as many as fit.
#[inline(always)]
pub(crate) fn values<T: Plain>(lines: &[Line]) -> &[T] {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= LINE) };
    let len = size_of_val(lines) / size_of::<T>();
    // SAFETY: the lines are initialised and live as long as the result, `T` is plain, its alignment
    // divides that of a line, and `len` values do not reach past them.
    unsafe { slice::from_raw_parts(lines.as_ptr().cast(), len) }
}

/// The values that lie in `lines`, as many as fit, to be changed.
#[inline(always)]
pub(crate) fn values_mut<T: Plain>(lines: &mut [Line]) -> &mut [T] {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= LINE) };
    let len = size_of_val(lines) / size_of::<T>();
    // SAFETY: as in `values`, and the borrow is exclusive. What is written has no padding, so the
    // lines stay initialised.
    unsafe { slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), len) }
}

/// The same bytes as another type of the same size.
#[inline(always)]
pub(crate) fn cast<A: Plain, B: Plain>(value: &A) -> &B {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() >= align_of::<B>()) };
    // SAFETY: both are plain, of one size, and `B` is aligned no more strictly.
    unsafe { &*std::ptr::from_ref(value).cast() }
}

/// The same bytes as another type of the same size, to be changed.
#[inline(always)]
pub(crate) fn cast_mut<A: Plain, B: Plain>(value: &mut A) -> &mut B {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() >= align_of::<B>()) };
    // SAFETY: as in `cast`, and the borrow is exclusive.
    unsafe { &mut *std::ptr::from_mut(value).cast() }
}

/// Asks the processor to fetch the line in which `place` begins. A hint: nothing waits for it.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    let address = std::ptr::from_ref(place).addr();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing the program can see, and faults nowhere; SSE is part of x86_64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint that reads nothing the program can see, faults nowhere and changes no register or flag.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

/// Zeroed lines, one after the other, straight from the operating system where it lets us: what was
/// never touched costs no memory.
pub(crate) struct Region {
    first: NonNull<Line>,
    len: usize,
    /// Whether huge pages have been asked for.
    is_huge: bool,
}

// SAFETY: it owns plain memory, as a boxed slice does.
unsafe impl Send for Region {}
// SAFETY: as a boxed slice.
unsafe impl Sync for Region {}

impl Region {
    /// `len` lines, at least one. Regions of a huge page or more are aligned to it.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len > 0 && len <= isize::MAX as usize / LINE);
        Self { first: map(len), len, is_huge: false }
    }

    /// The same in huge pages, which miss the translation buffer less, and touched already. That
    /// takes most of a millisecond for each: not for where an announce waits.
    pub(crate) fn prepared(len: usize) -> Self {
        let mut region = Self::new(len);
        region.advise_huge();
        for line in region.lines_mut().iter_mut().step_by(4096 / LINE) {
            *line = Line::default();
        }
        region
    }

    /// Whether it should be moved to a prepared one, once all of it is in use: a huge page costs as
    /// much memory as it spans.
    pub(crate) fn is_small(&self) -> bool {
        !self.is_huge
    }

    /// Moves what it holds to `prepared`, which is of the same length; gives the old memory. 2 MiB
    /// take a quarter of a millisecond.
    pub(crate) fn move_to(&mut self, mut prepared: Self) -> Self {
        prepared.lines_mut().copy_from_slice(self.lines());
        std::mem::replace(self, prepared)
    }

    /// Asks for huge pages. A hint.
    fn advise_huge(&mut self) {
        self.is_huge = true;
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: the range is this region's own mapping; the advice does not change what it holds.
        unsafe {
            libc::madvise(self.first.as_ptr().cast(), self.len * LINE, libc::MADV_HUGEPAGE);
        }
    }

    /// Its lines.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &[Line] {
        // SAFETY: `first` points to `len` initialised lines that this region owns.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// Its lines, to be changed.
    #[inline(always)]
    pub(crate) fn lines_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `lines`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `first` and `len` came from `map`, and nobody borrows the region any more.
        unsafe { unmap(self.first, self.len) }
    }
}

/// Zeroed words that threads change beside each other. Where there are many, they can be in huge pages.
pub struct AtomicWords(Region);

impl AtomicWords {
    /// `len` words, at least one; from 2 MiB on they begin at a multiple of that.
    pub fn new(len: usize) -> Self {
        Self(Region::new(len.div_ceil(LINE / 8)))
    }

    /// The words, and zeroes up to the end of the last line.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        let Region { first, len, .. } = self.0;
        // SAFETY: `first` points to `len` initialised lines that this region owns, and that nobody but
        // this function gives out; an atomic word is of the size of a plain one, and aligned no more
        // strictly than a line.
        unsafe { slice::from_raw_parts(first.as_ptr().cast(), len * (LINE / 8)) }
    }

    /// Moves them to huge pages, where that can be done: each costs as much memory as it spans. Who uses
    /// the same 2 MiB meanwhile waits for half a millisecond.
    pub fn make_huge(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: the range is this region's own mapping; the advice does not change what it holds.
        unsafe {
            let (start, bytes) = (self.0.first.as_ptr().cast(), self.0.len * LINE);
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
            // Since Linux 6.1. Without it the system does the same at its leisure.
            libc::madvise(start, bytes, libc::MADV_COLLAPSE);
        }
    }
}

/// Takes zeroed lines from the system. Ends the process when there are none, as every allocation does.
#[cfg(all(unix, not(miri)))]
fn map(len: usize) -> NonNull<Line> {
    let bytes = mapped(len);
    let align = if len >= HUGE_LINES { HUGE_LINES * LINE } else { 0 };
    // SAFETY: a new private anonymous mapping touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes + align,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        exhausted(len);
    }
    // The mapping is too long by `align`; what is before the first aligned line and after the last
    // one goes back.
    let before = start.cast::<u8>().align_offset(align.max(1));
    let after = align - before;
    // SAFETY: both ranges are within the new mapping and outside the part that is kept.
    unsafe {
        if before > 0 {
            libc::munmap(start, before);
        }
        if after > 0 {
            libc::munmap(start.cast::<u8>().add(before + bytes).cast(), after);
        }
        NonNull::new(start.cast::<u8>().add(before).cast()).unwrap_or_else(|| exhausted(len))
    }
}

/// Gives lines back.
///
/// # Safety
///
/// They came from [`map`] with the same `len`, and nothing refers to them.
#[cfg(all(unix, not(miri)))]
unsafe fn unmap(first: NonNull<Line>, len: usize) {
    // SAFETY: the caller owns the mapping and gives it up.
    unsafe {
        libc::munmap(first.as_ptr().cast(), mapped(len));
    }
}

/// Bytes of the mapping that holds `len` lines: from 2 MiB on whole huge pages, so that what is
/// trimmed around it is made of whole pages, whatever their size. The rest is never touched.
#[cfg(all(unix, not(miri)))]
fn mapped(len: usize) -> usize {
    if len < HUGE_LINES { len * LINE } else { len.next_multiple_of(HUGE_LINES) * LINE }
}

#[cfg(not(all(unix, not(miri))))]
fn map(len: usize) -> NonNull<Line> {
    // SAFETY: the layout is not empty, since `len` is not 0.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(len)) }.cast())
        .unwrap_or_else(|| exhausted(len))
}

/// Gives lines back.
///
/// # Safety
///
/// They came from [`map`] with the same `len`, and nothing refers to them.
#[cfg(not(all(unix, not(miri))))]
unsafe fn unmap(first: NonNull<Line>, len: usize) {
    // SAFETY: the caller says that `map` gave them, with this layout.
    unsafe { std::alloc::dealloc(first.as_ptr().cast(), layout(len)) }
}

fn layout(len: usize) -> std::alloc::Layout {
    match std::alloc::Layout::array::<Line>(len) {
        Ok(layout) => layout,
        // `Region::new` has checked that the size is below isize::MAX.
        Err(_) => unreachable!("{len} lines are no layout"),
    }
}

fn exhausted(len: usize) -> ! {
    std::alloc::handle_alloc_error(layout(len))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn regions_are_zeroed_aligned_and_their_own() {
        let mut regions: Vec<_> = [1, 64, 65, HUGE_LINES, HUGE_LINES + 64, 3 * HUGE_LINES]
            .map(Region::new)
            .into_iter()
            .collect();
        for (at, region) in regions.iter_mut().enumerate() {
            let len = region.lines().len();
            assert!(region.lines().iter().all(|line| line.0 == [0; 8]));
            let align = if len >= HUGE_LINES { HUGE_LINES * LINE } else { LINE };
            assert_eq!(region.lines().as_ptr() as usize % align, 0);
            region.lines_mut().fill(Line([at as u64; 8]));
        }
        for (at, region) in regions.iter().enumerate() {
            assert!(region.lines().iter().all(|line| line.0 == [at as u64; 8]));
        }
    }

    #[test]
    fn moving_keeps_what_was_there() {
        let mut region = Region::new(HUGE_LINES);
        region.lines_mut()[7] = Line([7; 8]);
        let prepared = Region::prepared(HUGE_LINES);
        assert!(prepared.lines().iter().all(|line| line.0 == [0; 8]));
        let old = region.move_to(prepared);
        assert!(old.is_small() && !region.is_small());
        assert_eq!(region.lines()[7].0, [7; 8]);
    }

    #[test]
    fn words_are_zeroed_and_stay_where_they_are_changed() {
        for len in [1, 8, 9, 3 * HUGE_LINES * 8] {
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

    #[test]
    fn values_fill_their_lines() {
        let mut region = Region::new(2);
        assert_eq!(values::<PackedV6>(region.lines()).len(), 6);
        values_mut::<PackedV4>(region.lines_mut())[15] = PackedV4([7; 8]);
        assert_eq!(region.lines()[1].0[7], 0x0707_0707_0707_0707);
        prefetch(&region.lines()[1]);
    }
}
