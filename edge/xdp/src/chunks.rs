//! The life of a chunk, the memory of one frame and of the reply to it.
//!
//! ```text
//!           driver              receive              transmit
//! fill ring ──────▶ RX ring ───────────▶ in hand ───────────────▶ TX ring
//!     ▲                                     │ recycle                 │ kernel
//!     └─────────────────────────────────────┴──── completion ring ◀───┘
//! ```
//!
//! A chunk is 4 KiB. Frames come at the offset that the kernel chooses, 256 bytes. The reply's payload is
//! written at [`REPLY_AT`], its headers before it, so neither is ever copied. [`Chunk`] cannot be cloned:
//! what is in hand goes into one ring or another, and none is lost.

use super::frame::HEADERS_MAX;
use super::ring::{Consumer, Descriptor, Producer};
use net::REPLY_MAX;
use net::engine::Span;

/// Bytes of a chunk: those of a page.
pub(super) const CHUNK_LEN: usize = 4096;
/// The offset in a chunk of the room for a reply's headers.
const HEADERS_AT: usize = CHUNK_LEN / 2;
/// The offset in a chunk of the reply's payload. It is even, like that of the headers.
const REPLY_AT: usize = HEADERS_AT + HEADERS_MAX;

const _: () = assert!(REPLY_AT + REPLY_MAX <= CHUNK_LEN && REPLY_AT.is_multiple_of(2));

/// A chunk that is in none of the rings.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a chunk that goes into no ring is lost"]
pub(super) struct Chunk {
    /// Its offset in the memory of all chunks, in bytes.
    at: u32,
}

impl Chunk {
    /// Returns where the payload of a reply begins.
    pub(super) fn reply_at(&self) -> u32 {
        self.at + REPLY_AT as u32
    }

    /// Returns where a reply of `len` bytes is, with the room for its headers.
    pub(super) fn reply_frame(&self, len: usize) -> Span {
        Span { at: self.at + HEADERS_AT as u32, len: (HEADERS_MAX + len) as u16 }
    }
}

/// The four rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<Descriptor>,
    pub(super) tx: Producer<Descriptor>,
}

impl Rings {
    /// Passes all chunks to the driver. Their number is `count`.
    pub(super) fn fill_all(&mut self, count: u32) {
        (0..count).for_each(|number| self.recycle(Chunk { at: number * CHUNK_LEN as u32 }));
        self.fill.publish();
    }

    /// Continues where another process has left the rings, between two turns.
    pub(super) fn resume(&mut self) {
        self.fill.resume();
        self.completion.resume();
        self.rx.resume();
        self.tx.resume();
    }

    /// Moves chunks whose reply was sent to the fill ring.
    pub(super) fn recycle_sent(&mut self) {
        while let Some(at) = self.completion.pop() {
            self.recycle(chunk_of(at));
        }
        self.completion.release();
    }

    /// Takes the next received frame: its chunk and where it is.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<(Chunk, Span)> {
        let frame = self.rx.pop()?;
        let chunk = chunk_of(frame.at);
        let begin = frame.at as usize % CHUNK_LEN;
        // A frame that reaches into the room of the reply is longer than any that the program steers.
        let len = if begin + frame.len as usize <= HEADERS_AT { frame.len as u16 } else { 0 };
        Some((chunk, Span { at: frame.at as u32, len }))
    }

    /// Returns where the frame begins that is `ahead` frames behind the next one, if it is there.
    #[inline]
    pub(super) fn upcoming(&mut self, ahead: u32) -> Option<u32> {
        self.rx.peek(ahead).map(|frame| frame.at as u32)
    }

    /// Sends a reply that fills `frame` from offset `begin`. Returns false if the TX ring is full, and gives
    /// the chunk back to the driver then.
    #[inline]
    pub(super) fn transmit(&mut self, chunk: Chunk, frame: Span, begin: usize) -> bool {
        let at = u64::from(frame.at) + begin as u64;
        let len = u32::from(frame.len) - begin as u32;
        let is_queued = self.tx.push(Descriptor { at, len, options: 0 });
        if !is_queued {
            self.recycle(chunk);
        }
        is_queued
    }

    /// Passes a chunk back to the driver.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the chunk is in hand no more")]
    pub(super) fn recycle(&mut self, chunk: Chunk) {
        let has_room = self.fill.push(chunk.at.into());
        assert!(has_room, "the fill ring has a place for each chunk");
    }

    /// Makes everything visible to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.rx.release();
        self.fill.publish();
        self.tx.publish();
    }
}

/// Returns the chunk that an offset is in.
#[inline]
fn chunk_of(at: u64) -> Chunk {
    Chunk { at: at as u32 & !(CHUNK_LEN as u32 - 1) }
}

#[cfg(test)]
mod tests;
