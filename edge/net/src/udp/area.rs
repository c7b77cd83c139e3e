//! The memory that the datagrams and replies of a batch are in.
//!
//! # Safety
//!
//! An area is one range of bytes that it owns or keeps mapped, and all access is checked against its
//! length. It is accessed only through `&self` and `&mut self`, so the slices that it returns obey the
//! borrow checker. The kernel writes into mapped areas, but only where it has been asked to: see
//! [`Area::mapped`].
#![allow(unsafe_code)]

use std::any::Any;
use std::ptr::{NonNull, slice_from_raw_parts_mut};
use std::sync::Arc;

/// The owner of mapped memory.
type Mapping = Arc<dyn Any + Send + Sync>;

/// A range of bytes within an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The offset of the first byte.
    pub at: u32,
    /// Bytes.
    pub len: u16,
}

/// Memory, accessed by [`Span`]s.
#[derive(Debug)]
pub struct Area {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory mapped. `None` if the area is a box of its own.
    mapping: Option<Mapping>,
}

// SAFETY: an area has sole access to its memory, like a `Box<[u8]>`.
unsafe impl Send for Area {}

impl Area {
    /// Allocates `len` bytes.
    pub(crate) fn allocate(len: usize) -> Self {
        let bytes: *mut [u8] = Box::into_raw(vec![0; len].into_boxed_slice());
        // `into_raw` never returns a null pointer.
        let start = NonNull::new(bytes.cast::<u8>()).unwrap_or(NonNull::dangling());
        Self { start, len, mapping: None }
    }

    /// Returns the `len` bytes from `start`, which stay mapped as long as `mapping` exists.
    ///
    /// # Safety
    ///
    /// Nothing else in this process accesses the memory, and the kernel writes to no part of it that is accessed
    /// through the area meanwhile.
    pub unsafe fn mapped(start: NonNull<u8>, len: usize, mapping: Mapping) -> Self {
        Self { start, len, mapping: Some(mapping) }
    }

    /// Returns the bytes of `span`.
    ///
    /// # Panics
    ///
    /// Panics if it is not in the area.
    #[inline]
    pub fn get(&self, span: Span) -> &[u8] {
        let at = self.offset(span);
        // SAFETY: `offset` has checked that the range is within the area, and `self` is borrowed.
        unsafe { NonNull::slice_from_raw_parts(self.start.add(at), span.len.into()).as_ref() }
    }

    /// Returns the bytes of `span`.
    ///
    /// # Panics
    ///
    /// As [`Area::get`].
    #[inline]
    pub fn get_mut(&mut self, span: Span) -> &mut [u8] {
        let at = self.offset(span);
        // SAFETY: as above; the borrow is exclusive.
        unsafe { NonNull::slice_from_raw_parts(self.start.add(at), span.len.into()).as_mut() }
    }

    /// Returns the bytes of `read`, and those of `write`, which must come later in the area.
    ///
    /// # Panics
    ///
    /// Panics if they are not in the area, or overlap.
    #[inline]
    pub(crate) fn get_pair(&mut self, read: Span, write: Span) -> (&[u8], &mut [u8]) {
        let (read_at, write_at) = (read.at as usize, self.offset(write));
        let (read_len, write_len) = (usize::from(read.len), usize::from(write.len));
        assert!(read_at + read_len <= write_at, "expected spans in order");
        // SAFETY: `offset` has checked that `write` is within the area, and `read` ends before it. So both
        // are, and they do not overlap. The borrow is exclusive.
        unsafe {
            (
                NonNull::slice_from_raw_parts(self.start.add(read_at), read_len).as_ref(),
                NonNull::slice_from_raw_parts(self.start.add(write_at), write_len).as_mut(),
            )
        }
    }

    /// Loads the cache line of a byte, if it is in the area.
    #[inline]
    pub fn prefetch(&self, at: u32) {
        if (at as usize) < self.len {
            primitives::prefetch(&self.get(Span { at, len: 1 })[0]);
        }
    }

    /// Returns all bytes of memory that was allocated.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn all_mut(&mut self) -> &mut [u8] {
        assert!(self.mapping.is_none(), "expected memory that is not shared");
        // SAFETY: the area is `len` bytes long; the borrow is exclusive.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }

    #[inline]
    fn offset(&self, span: Span) -> usize {
        let at = span.at as usize;
        assert!(at + usize::from(span.len) <= self.len, "expected a span within the area");
        at
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if self.mapping.is_some() {
            return;
        }
        let bytes = slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: without a mapping, the memory is the box of `allocate`, and nothing else frees it.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_checked() {
        let mut area = Area::allocate(10);
        area.get_mut(Span { at: 4, len: 6 }).copy_from_slice(b"abcdef");
        assert_eq!(area.get(Span { at: 5, len: 2 }), b"bc");
        let (read, write) = area.get_pair(Span { at: 2, len: 4 }, Span { at: 6, len: 4 });
        write.copy_from_slice(read);
        assert_eq!(area.get(Span { at: 0, len: 10 }), b"\0\0\0\0ab\0\0ab");
        let refuses = |at, len| {
            let len_of = || Area::allocate(10).get(Span { at, len }).len();
            std::panic::catch_unwind(len_of).is_err()
        };
        assert!(refuses(5, 6) && refuses(11, 0) && refuses(u32::MAX, u16::MAX) && !refuses(10, 0));
    }

    #[test]
    #[should_panic(expected = "spans in order")]
    fn overlapping_spans_are_refused() {
        Area::allocate(10).get_pair(Span { at: 0, len: 5 }, Span { at: 4, len: 5 });
    }
}
