//! The kernel's side of rings and chunks, in plain memory, for tests.
#![allow(unsafe_code)]

use std::slice;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use crate::chunks::{CHUNK_LEN, Rings};
use crate::ring::{Consumer, Descriptor, Producer, RingLayout};

/// Chunks that there are.
pub(crate) const COUNT: u32 = 64;
/// Shorter than there are chunks, so that it is full at times.
pub(crate) const TX_LEN: u32 = 16;
/// The offset in a chunk at which a driver writes a frame, in bytes.
const FRAME_AT: u64 = 256;
/// The layout of all rings. The indices are on cache lines of their own, as the kernel's.
pub(crate) const LAYOUT: RingLayout =
    RingLayout { producer: 0, consumer: 64, flags: 128, entries: 192 };

/// The memory of rings and chunks, which both sides share.
pub(crate) struct Memory {
    pub(crate) chunks: Arc<MmapRaw>,
    rings: [Arc<MmapRaw>; 4],
}

/// The other side of the rings.
pub(crate) struct Kernel {
    pub(crate) fill: Consumer<u64>,
    pub(crate) completion: Producer<u64>,
    pub(crate) rx: Producer<Descriptor>,
    pub(crate) tx: Consumer<Descriptor>,
    chunks: Arc<MmapRaw>,
}

/// Maps `len` bytes of zeros.
pub(crate) fn zeros(len: usize) -> Arc<MmapRaw> {
    Arc::new(MmapOptions::new().len(len).map_anon().unwrap().into())
}

impl Memory {
    pub(crate) fn new() -> Self {
        let chunks = zeros(COUNT as usize * CHUNK_LEN);
        Self { chunks, rings: [(); 4].map(|()| zeros(4096)) }
    }

    /// Returns the engine's side of the rings, where it was left.
    pub(crate) fn rings(&self) -> Rings {
        let [fill, completion, rx, tx] = self.rings.each_ref().map(Arc::clone);
        Rings {
            fill: Producer::new(fill, &LAYOUT, COUNT),
            completion: Consumer::new(completion, &LAYOUT, COUNT),
            rx: Consumer::new(rx, &LAYOUT, COUNT),
            tx: Producer::new(tx, &LAYOUT, TX_LEN),
        }
    }

    pub(crate) fn kernel(&self) -> Kernel {
        let [fill, completion, rx, tx] = self.rings.each_ref().map(Arc::clone);
        Kernel {
            fill: Consumer::new(fill, &LAYOUT, COUNT),
            completion: Producer::new(completion, &LAYOUT, COUNT),
            rx: Producer::new(rx, &LAYOUT, COUNT),
            tx: Consumer::new(tx, &LAYOUT, TX_LEN),
            chunks: Arc::clone(&self.chunks),
        }
    }
}

impl Kernel {
    /// Receives a frame into a chunk of the fill ring.
    pub(crate) fn receive(&mut self, frame: &[u8]) {
        let at = self.fill.pop().expect("a chunk for the frame") + FRAME_AT;
        self.fill.release();
        assert!(at as usize + frame.len() <= self.chunks.len());
        // SAFETY: the range is within the mapping; the test's engine does not access chunks while the kernel does.
        let place = unsafe {
            let start = self.chunks.as_mut_ptr().add(at as usize);
            slice::from_raw_parts_mut(start, frame.len())
        };
        place.copy_from_slice(frame);
        assert!(self.rx.push(Descriptor { at, len: frame.len() as u32, options: 0 }));
        self.rx.publish();
    }

    /// Sends all replies, and returns their number.
    pub(crate) fn send(&mut self) -> usize {
        let mut sent = 0;
        while let Some(reply) = self.tx.pop() {
            sent += 1;
            assert!(self.completion.push(reply.at));
        }
        self.tx.release();
        self.completion.publish();
        sent
    }
}
