//! Maps that are mapped into memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use crate::bpf::{MapSpec, create_map};

/// A map whose values are mapped into memory.
pub(super) struct MappedWords<T> {
    map: OwnedFd,
    first: NonNull<T>,
}

/// A type that consists of atomic words and has no padding.
///
/// # Safety
///
/// It does.
pub(super) unsafe trait Words {}

// SAFETY: the memory is reached only by atomic words, from any thread, and unmapped by the owner.
unsafe impl<T: Words> Send for MappedWords<T> {}
// SAFETY: as above.
unsafe impl<T: Words> Sync for MappedWords<T> {}

impl<T: Words> MappedWords<T> {
    /// Creates a map and maps it. `spec` must be as long as `T`.
    pub(super) fn create(spec: &MapSpec) -> io::Result<Self> {
        assert_eq!(spec.value_len as usize * spec.entries as usize, size_of::<T>());
        let map = create_map(spec)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let first = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map, first })
    }
}

impl<T> MappedWords<T> {
    /// Returns the map.
    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Returns the memory.
    pub(super) fn view(&self) -> &T
    where
        T: Words,
    {
        // SAFETY: the mapping has the length of `T`, begins at a page, and is there as long as `self`. All
        // of it are atomic words, for which any value is valid and which others may change.
        unsafe { self.first.as_ref() }
    }
}

impl<T> Drop for MappedWords<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all references to it have ended with `self`.
        unsafe { libc::munmap(self.first.as_ptr().cast(), size_of::<T>()) };
    }
}
