//! Memory in cache lines: zeroed regions of the operating system's pages, viewed as plain values.
//!
//! # Safety
//!
//! * A [`Region`] is the only owner of its pages from `map` to `unmap`, and they never move:
//!   references into it borrow it.
//! * Pages come zeroed, so every byte is initialised.
//! * Only plain types ([`Pod`]: any bytes are a valid value, and there is no padding) are written
//!   into a [`Line`], so the bytes stay initialised.
#![allow(unsafe_code)]

use std::mem::{align_of, size_of};
use std::ptr::NonNull;
use std::slice;

use bytemuck::{Pod, Zeroable};

/// A cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

/// Bytes in a line.
pub const LINE: usize = 64;
/// Lines in a huge page (2 MiB), to which larger regions are aligned.
pub const HUGE_LINES: usize = (2 << 20) / LINE;

const _: () = assert!(size_of::<Line>() == LINE);
const _: () = assert!(align_of::<Line>() == LINE);

/// Views lines as values of another type, as many as fit.
#[inline(always)]
pub fn view<T: Pod>(lines: &[Line]) -> &[T] {
    const { assert!(size_of::<T>() > 0) };
    if LINE.is_multiple_of(size_of::<T>()) {
        return bytemuck::cast_slice(lines);
    }
    let bytes: &[u8] = bytemuck::cast_slice(lines);
    bytemuck::cast_slice(&bytes[..whole::<T>(bytes.len())])
}

/// Views lines as mutable values of another type, as many as fit.
#[inline(always)]
pub fn view_mut<T: Pod>(lines: &mut [Line]) -> &mut [T] {
    const { assert!(size_of::<T>() > 0) };
    if LINE.is_multiple_of(size_of::<T>()) {
        return bytemuck::cast_slice_mut(lines);
    }
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(lines);
    let len = whole::<T>(bytes.len());
    bytemuck::cast_slice_mut(&mut bytes[..len])
}

/// Rounds `bytes` down to whole values.
#[inline(always)]
fn whole<T>(bytes: usize) -> usize {
    bytes / size_of::<T>() * size_of::<T>()
}

/// Contiguous zeroed lines, straight from the operating system where possible. Untouched lines take
/// no memory.
pub struct Region {
    first: NonNull<Line>,
    len: usize,
    /// True if huge pages were requested.
    is_huge: bool,
}

// SAFETY: it owns plain memory, as a boxed slice does.
unsafe impl Send for Region {}
// SAFETY: as a boxed slice.
unsafe impl Sync for Region {}

impl Region {
    /// Returns a region of `len` lines. Regions of a huge page or more are aligned to one. Panics
    /// if `len` is 0.
    pub fn new(len: usize) -> Self {
        assert!(len > 0 && len <= isize::MAX as usize / LINE);
        Self { first: map(len), len, is_huge: false }
    }

    /// Returns a region in huge pages, already touched. Huge pages miss the TLB less. Takes most of
    /// a millisecond for each: call it off the request path.
    pub fn huge(len: usize) -> Self {
        let mut region = Self::new(len);
        region.advise_huge();
        for line in region.lines_mut().iter_mut().step_by(4096 / LINE) {
            *line = Line::default();
        }
        region
    }

    /// Returns true if it is in small pages. A full region should move to a huge one; a region with
    /// gaps should not, because a huge page takes all the memory it spans.
    pub fn is_small(&self) -> bool {
        !self.is_huge
    }

    /// Moves the contents to `huge`, which must have the same length, and returns the old memory. 2
    /// MiB take a quarter of a millisecond.
    pub fn move_to(&mut self, mut huge: Self) -> Self {
        huge.lines_mut().copy_from_slice(self.lines());
        std::mem::replace(self, huge)
    }

    /// Requests huge pages; the system may ignore it.
    fn advise_huge(&mut self) {
        self.is_huge = true;
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: the range is this region's own mapping; the advice does not change what it holds.
        unsafe {
            libc::madvise(self.first.as_ptr().cast(), self.len * LINE, libc::MADV_HUGEPAGE);
        }
    }

    /// Returns the lines.
    #[inline(always)]
    pub fn lines(&self) -> &[Line] {
        // SAFETY: `first` points to `len` initialised lines that this region owns.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// Returns the lines mutably.
    #[inline(always)]
    pub fn lines_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `lines`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `first` and `len` came from `map`, and nothing borrows the region any more.
        unsafe { unmap(self.first, self.len) }
    }
}

/// Maps zeroed lines. Aborts the process if the system has none, as every allocation does.
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
    // The mapping is too long by `align`: unmap what is before the first aligned line and after the
    // last one.
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

/// Unmaps lines.
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

/// Returns the bytes to map for `len` lines. From 2 MiB on these are whole huge pages, so that what
/// is trimmed around the mapping is whole pages of any size. The excess is never touched.
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

/// Unmaps lines.
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
    let align = if len >= HUGE_LINES { HUGE_LINES * LINE } else { LINE };
    match std::alloc::Layout::array::<Line>(len).and_then(|it| it.align_to(align)) {
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
    use super::*;

    /// Every line is tested; under Miri, which takes minutes for millions of words, some of them.
    const STEP: usize = if cfg!(miri) { 509 } else { 1 };

    #[test]
    fn regions_are_zeroed_aligned_and_disjoint() {
        let mut regions: Vec<_> = [1, 64, 65, HUGE_LINES, HUGE_LINES + 64, 3 * HUGE_LINES]
            .map(Region::new)
            .into_iter()
            .collect();
        for (at, region) in regions.iter_mut().enumerate() {
            let len = region.lines().len();
            assert!(region.lines().iter().step_by(STEP).all(|line| line.0 == [0; 8]));
            let align = if len >= HUGE_LINES { HUGE_LINES * LINE } else { LINE };
            assert_eq!(region.lines().as_ptr() as usize % align, 0);
            let lines = region.lines_mut().iter_mut().step_by(STEP);
            lines.for_each(|line| *line = Line([at as u64; 8]));
        }
        for (at, region) in regions.iter().enumerate() {
            let mut lines = region.lines().iter().step_by(STEP);
            assert!(lines.all(|line| line.0 == [at as u64; 8]));
        }
    }

    #[test]
    fn moving_keeps_the_contents() {
        let mut region = Region::new(HUGE_LINES);
        region.lines_mut()[7] = Line([7; 8]);
        let huge = Region::huge(HUGE_LINES);
        assert!(huge.lines().iter().step_by(STEP).all(|line| line.0 == [0; 8]));
        let old = region.move_to(huge);
        assert!(old.is_small() && !region.is_small());
        assert_eq!(region.lines()[7].0, [7; 8]);
    }

    #[test]
    fn values_fill_their_lines() {
        let mut region = Region::new(2);
        assert_eq!(view::<[u8; 20]>(region.lines()).len(), 6);
        view_mut::<[u8; 20]>(region.lines_mut())[5] = [9; 20];
        view_mut::<[u8; 8]>(region.lines_mut())[15] = [7; 8];
        assert_eq!(region.lines()[1].0[6..], [0x0909_0909_0909_0909, 0x0707_0707_0707_0707]);
        crate::prefetch(&region.lines()[1]);
    }
}
