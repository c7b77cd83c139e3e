//! Memory that is shared with the kernel: maps of the program, frames and rings of AF_XDP sockets.
//!
//! # Safety
//!
//! A mapping is made once and unmapped when it is dropped. It hands out a pointer, never a reference:
//! those who access the memory say why they may.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// Pages of a descriptor, readable and writable, shared with all who map them.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address and a length, which any thread may know.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `descriptor` from `offset`, and all of its pages at once.
    pub(super) fn new(descriptor: BorrowedFd<'_>, offset: i64, len: usize) -> io::Result<Self> {
        let (access, sharing) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: the kernel chooses an address range that is free.
        let start =
            unsafe { libc::mmap(null_mut(), len, access, sharing, descriptor.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Maps `len` bytes of zeros that are shared with nothing.
    #[cfg(test)]
    pub(super) fn of_zeros(len: usize) -> Self {
        let (access, sharing) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses an address range that is free.
        let start = unsafe { libc::mmap(null_mut(), len, access, sharing, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: NonNull::new(start.cast()).unwrap(), len }
    }

    /// Returns the address of the first byte, which is that of a page.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of `new`, and users of its address borrow `self` or share it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
