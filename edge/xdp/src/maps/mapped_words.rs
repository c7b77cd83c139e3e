//! Maps that are mapped into memory.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};

use crate::bpf::{MapSpec, create_map};

/// A map whose values are mapped into memory.
pub(super) struct MappedWords<T> {
    map: OwnedFd,
    mapping: MmapRaw,
    words: PhantomData<T>,
}

/// A type that consists of atomic words and has no padding.
///
/// # Safety
///
/// The type must consist of atomic words and have no padding.
pub(super) unsafe trait Words: Send + Sync {}

impl<T: Words> MappedWords<T> {
    /// Creates a map and maps it. `spec` must be as long as `T`.
    pub(super) fn create(spec: &MapSpec) -> io::Result<Self> {
        assert_eq!(spec.value_len as usize * spec.entries as usize, size_of::<T>());
        let map = create_map(spec)?;
        let mapping = MmapOptions::new().len(size_of::<T>()).map_raw(&map)?;
        Ok(Self { map, mapping, words: PhantomData })
    }

    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    pub(super) fn view(&self) -> &T {
        // SAFETY: the mapping has the length of `T`, begins at a page, and is there as long as `self`. All
        // of it are atomic words, for which any value is valid and which others may change.
        unsafe { &*self.mapping.as_ptr().cast() }
    }
}
