//! The prefetch hint.
#![allow(unsafe_code)]

/// Starts fetching the cache line in which `place` begins. A hint: returns at once.
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
