//! Rings of an AF_XDP socket: queues in memory that is shared with the kernel, one writer and one reader
//! each.
//!
//! Plain form: four FIFO queues. Departures:
//!
//! 1. Indices count on beyond the ring's length and wrap at 2^32; the entry is the index modulo the length.
//! 2. Each side keeps its own index to itself until it has written or read a batch of entries. It also
//!    keeps a copy of the other's index, and reads the shared one only when the copy says that there is
//!    nothing to do. A cache line then moves between CPUs once for a batch, not once for an entry.
//!
//! # Safety
//!
//! A [`RingMemory`] has pointers to two indices, a word of flags and entries, within memory that it keeps
//! mapped. Indices are atomic. Entries are written by one side and read by the other, never at once: those
//! between consumer and producer belong to the consumer, the others to the producer. Releasing an index
//! gives entries away, acquiring it takes them.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapRaw;

/// The kernel sets it in the flags when it sleeps until it is called.
const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// An entry of the rings of received frames and of frames to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    /// The offset of the frame in the memory of all frames.
    pub(super) at: u64,
    /// Bytes.
    pub(super) len: u32,
    pub(super) options: u32,
}

const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());

/// The offsets of the parts of a ring in its mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

#[derive(Debug)]
struct RingMemory<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// The length less one.
    mask: u32,
    /// Keeps the memory mapped.
    _mapping: Arc<MmapRaw>,
}

// SAFETY: the memory is shared with the kernel, in any case; a thread that has a ring has one side of it.
unsafe impl<T: Send> Send for RingMemory<T> {}

/// The side that writes entries, which the kernel reads.
#[derive(Debug)]
pub(super) struct Producer<T> {
    memory: RingMemory<T>,
    /// The index of the next entry that is written.
    next: u32,
    /// A copy of the consumer's index, perhaps old.
    consumed: u32,
}

/// The side that reads entries, which the kernel writes.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    memory: RingMemory<T>,
    /// The index of the next entry that is read.
    next: u32,
    /// A copy of the producer's index, perhaps old.
    produced: u32,
}

/// Entries of rings: plain numbers, for which all bits are valid.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

impl<T: Entry> RingMemory<T> {
    /// Finds a ring of `len` entries in `mapping`.
    ///
    /// # Panics
    ///
    /// Panics if it is not within the mapping, is not aligned, or its length is no power of two.
    fn new(mapping: Arc<MmapRaw>, layout: &RingLayout, len: u32) -> Self {
        assert!(len.is_power_of_two(), "expected a power of two, found {len}");
        let entries_len = len as usize * size_of::<T>();
        let start = NonNull::new(mapping.as_mut_ptr()).expect("a mapping has an address");
        let word = |at: usize| {
            assert!(at.is_multiple_of(4) && at + 4 <= mapping.len(), "an index is not in the ring");
            // SAFETY: the offset is within the mapping, and aligned, as the mapping itself is.
            unsafe { start.add(at).cast::<AtomicU32>() }
        };
        assert!(
            layout.entries.is_multiple_of(align_of::<T>())
                && layout.entries + entries_len <= mapping.len(),
            "entries are not in the ring"
        );
        // SAFETY: as above.
        let entries = unsafe { start.add(layout.entries).cast() };
        let (producer, consumer) = (word(layout.producer), word(layout.consumer));
        let flags = word(layout.flags);
        Self { producer, consumer, flags, entries, mask: len - 1, _mapping: mapping }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `new` has checked where it is; the memory stays mapped as long as `self` exists.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Returns a pointer to the entry with an index.
    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked, the index is less than the length.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }
}

impl<T: Entry> Producer<T> {
    /// Takes the producing side of the ring in `mapping`, where it was left.
    pub(super) fn new(mapping: Arc<MmapRaw>, layout: &RingLayout, len: u32) -> Self {
        let memory = RingMemory::new(mapping, layout, len);
        let next = memory.producer().load(Ordering::Acquire);
        let consumed = memory.consumer().load(Ordering::Acquire);
        Self { memory, next, consumed }
    }

    /// Continues where another process has left the ring.
    pub(super) fn resume(&mut self) {
        self.next = self.memory.producer().load(Ordering::Acquire);
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
    }

    /// Writes an entry, which the consumer sees after [`Self::publish`]. Returns false if the ring is full.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.consumed) > self.memory.mask {
            self.consumed = self.memory.consumer().load(Ordering::Acquire);
            if self.next.wrapping_sub(self.consumed) > self.memory.mask {
                return false;
            }
        }
        // SAFETY: the entry has been consumed, and is not published: it is ours.
        unsafe { self.memory.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows all entries to the consumer.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    /// Returns how many entries the consumer has not taken yet.
    #[inline]
    pub(super) fn pending(&mut self) -> u32 {
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Returns whether the kernel must be called to take entries.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.memory.needs_wakeup()
    }
}

impl<T: Entry> Consumer<T> {
    /// Takes the consuming side of the ring in `mapping`, where it was left.
    pub(super) fn new(mapping: Arc<MmapRaw>, layout: &RingLayout, len: u32) -> Self {
        let memory = RingMemory::new(mapping, layout, len);
        let next = memory.consumer().load(Ordering::Acquire);
        Self { memory, next, produced: next }
    }

    /// Continues where another process has left the ring.
    pub(super) fn resume(&mut self) {
        self.next = self.memory.consumer().load(Ordering::Acquire);
        self.produced = self.next;
    }

    /// Returns the next entry, if there is one. Its place is free for the producer after
    /// [`Self::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Returns the entry that is `ahead` entries behind the next one, if it is there.
    #[inline]
    pub(super) fn peek(&mut self, ahead: u32) -> Option<T> {
        if self.produced.wrapping_sub(self.next) <= ahead {
            self.produced = self.memory.producer().load(Ordering::Acquire);
            if self.produced.wrapping_sub(self.next) <= ahead {
                return None;
            }
        }
        // SAFETY: the entry has been published, and is not released: it is ours.
        Some(unsafe { self.memory.entry(self.next.wrapping_add(ahead)).read() })
    }

    /// Frees the places of all entries that were taken, for the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
