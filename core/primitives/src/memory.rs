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

use std::alloc::Layout;
use std::mem::{align_of, size_of};
use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable};

/// A cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

/// Bytes in a line.
pub const LINE: usize = 64;
/// Lines in a region, which is as large as a huge page (2 MiB).
pub const HUGE_LINES: usize = REGION / LINE;
/// Bytes in a region.
const REGION: usize = 2 << 20;
/// A region, aligned to its size.
const LAYOUT: Layout = match Layout::from_size_align(REGION, REGION) {
    Ok(layout) => layout,
    Err(_) => panic!("its size is a power of two"),
};

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

/// A huge page of zeroed lines, straight from the operating system where possible. Untouched lines take
/// no memory.
pub struct Region {
    first: NonNull<[Line; HUGE_LINES]>,
}

// SAFETY: it owns plain memory, as a boxed slice does.
unsafe impl Send for Region {}
// SAFETY: as a boxed slice.
unsafe impl Sync for Region {}

impl Region {
    /// Returns a region of [`HUGE_LINES`] lines, aligned to a huge page.
    pub fn zeroed() -> Self {
        Self { first: map() }
    }

    /// Asks the system to move the region to a huge page when it finds the time, which misses the TLB less.
    /// For regions without gaps: a huge page takes all the memory that it spans.
    pub fn request_huge(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: the range is this region's own mapping; the advice does not change what it holds.
        unsafe {
            libc::madvise(self.first.as_ptr().cast(), REGION, libc::MADV_HUGEPAGE);
        }
    }

    /// Returns the lines.
    #[inline(always)]
    pub fn lines(&self) -> &[Line; HUGE_LINES] {
        // SAFETY: `first` points to initialised lines that this region owns.
        unsafe { self.first.as_ref() }
    }

    /// Returns the lines mutably.
    #[inline(always)]
    pub fn lines_mut(&mut self) -> &mut [Line; HUGE_LINES] {
        // SAFETY: as in `lines`, and the borrow is exclusive.
        unsafe { self.first.as_mut() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `first` came from `map`, and nothing borrows the region any more.
        unsafe { unmap(self.first) }
    }
}

/// Maps zeroed lines. Aborts the process if the system has none, as every allocation does.
#[cfg(all(unix, not(miri)))]
fn map() -> NonNull<[Line; HUGE_LINES]> {
    // SAFETY: a new private anonymous mapping touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            2 * REGION,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        exhausted();
    }
    // The mapping is too long: unmap what is before the first aligned line and after the last one.
    let before = start.cast::<u8>().align_offset(REGION);
    let after = REGION - before;
    // SAFETY: both ranges are within the new mapping and outside the part that is kept.
    unsafe {
        if before > 0 {
            libc::munmap(start, before);
        }
        libc::munmap(start.cast::<u8>().add(before + REGION).cast(), after);
        NonNull::new(start.cast::<u8>().add(before).cast()).unwrap_or_else(|| exhausted())
    }
}

/// Unmaps lines.
///
/// # Safety
///
/// They came from [`map`], and nothing refers to them.
#[cfg(all(unix, not(miri)))]
unsafe fn unmap(first: NonNull<[Line; HUGE_LINES]>) {
    // SAFETY: the caller owns the mapping and gives it up.
    unsafe {
        libc::munmap(first.as_ptr().cast(), REGION);
    }
}

#[cfg(not(all(unix, not(miri))))]
fn map() -> NonNull<[Line; HUGE_LINES]> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(LAYOUT) }.cast()).unwrap_or_else(|| exhausted())
}

/// Unmaps lines.
///
/// # Safety
///
/// They came from [`map`], and nothing refers to them.
#[cfg(not(all(unix, not(miri))))]
unsafe fn unmap(first: NonNull<[Line; HUGE_LINES]>) {
    // SAFETY: the caller says that `map` gave them, with this layout.
    unsafe { std::alloc::dealloc(first.as_ptr().cast(), LAYOUT) }
}

fn exhausted() -> ! {
    std::alloc::handle_alloc_error(LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line is tested; under Miri, which takes minutes for millions of words, some of them.
    const STEP: usize = if cfg!(miri) { 509 } else { 1 };

    #[test]
    fn regions_are_zeroed_aligned_and_disjoint() {
        let mut regions = [Region::zeroed(), Region::zeroed(), Region::zeroed()];
        for (at, region) in regions.iter_mut().enumerate() {
            assert!(region.lines().iter().step_by(STEP).all(|line| line.0 == [0; 8]));
            assert_eq!(region.lines().as_ptr() as usize % REGION, 0);
            let lines = region.lines_mut().iter_mut().step_by(STEP);
            lines.for_each(|line| *line = Line([at as u64; 8]));
            region.request_huge();
        }
        for (at, region) in regions.iter().enumerate() {
            let mut lines = region.lines().iter().step_by(STEP);
            assert!(lines.all(|line| line.0 == [at as u64; 8]));
        }
    }

    #[test]
    fn values_fill_their_lines() {
        let mut lines = [Line::default(); 2];
        assert_eq!(view::<[u8; 20]>(&lines).len(), 6);
        view_mut::<[u8; 20]>(&mut lines)[5] = [9; 20];
        view_mut::<[u8; 8]>(&mut lines)[15] = [7; 8];
        assert_eq!(lines[1].0[6..], [0x0909_0909_0909_0909, 0x0707_0707_0707_0707]);
        crate::prefetch(&lines[1]);
    }
}
