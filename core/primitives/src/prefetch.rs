//! The prefetch hint.
#![allow(unsafe_code)]

use crate::memory::LINE;

/// Starts fetching the cache line in which `place` begins. A hint: returns at once.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_line(std::ptr::from_ref(place).addr());
}

/// Starts fetching all cache lines of `place`, as [`prefetch`] does the first.
#[inline(always)]
pub fn prefetch_all<T>(place: &T) {
    let start = std::ptr::from_ref(place).addr();
    let end = start + size_of::<T>();
    (start..end).step_by(LINE).for_each(prefetch_line);
    // The last line, if `place` does not begin with one.
    prefetch_line(end - 1);
}

#[inline(always)]
fn prefetch_line(address: usize) {
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
