//! Responses that take long to make, such as full scrapes: a thread makes them, and the connection sends
//! them as fast as the client reads.

use std::io;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use types::limits;
use wire::http::StreamFraming;

/// Chunks that wait for the client.
const CHUNKS_WAITING: usize = 2;

/// A body that a thread of low priority makes, so that no announce waits.
pub struct LongBody {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// True if the response is counted as a full scrape.
    pub is_full_scrape: bool,
    /// Makes the body. It is not called for HEAD.
    pub make: MakeBody,
}

/// Frames the body and sends it in chunks, until it is complete or the receiver is gone. It runs at most two
/// chunks ahead of the client.
pub type MakeBody = Box<dyn FnOnce(StreamFraming, mpsc::Sender<Vec<u8>>) -> io::Result<()> + Send>;

/// A [`LongBody`] that is being made.
#[derive(Debug)]
pub(super) struct BodyStream {
    /// The chunks, framed.
    pub(super) chunks: mpsc::Receiver<Vec<u8>>,
    /// The thread that makes them. Its error means that the body is not complete.
    pub(super) thread: JoinHandle<io::Result<()>>,
    /// True if the response is counted as a full scrape.
    pub(super) is_full_scrape: bool,
}

impl BodyStream {
    /// Starts a thread that makes the body. Call it on a worker's thread.
    pub(super) fn start(body: LongBody, framing: StreamFraming) -> Self {
        let (sender, chunks) = mpsc::channel(CHUNKS_WAITING);
        let LongBody { is_full_scrape, make, .. } = body;
        let thread = tokio::task::spawn_blocking(move || make(framing, sender));
        Self { chunks, thread, is_full_scrape }
    }
}

/// Returns the result of a task or thread, and panics if that has.
pub(super) fn joined(result: Result<io::Result<()>, JoinError>) -> io::Result<()> {
    match result {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(io::Error::other(error)),
        },
    }
}

/// The time in which a client must read a body of any length: the time for any other response, and the
/// time that the bytes it has read take at the lowest accepted rate.
#[derive(Debug)]
pub(super) struct Pace {
    timeout_s: u32,
    blocked_s: u32,
    sent: u64,
}

impl Pace {
    pub(super) fn new(timeout_s: u32) -> Self {
        Self { timeout_s, blocked_s: 0, sent: 0 }
    }

    /// Returns the seconds in which the client must read the next chunk.
    pub(super) fn left_s(&self) -> u32 {
        let earned_s = self.sent / limits::FULL_SCRAPE_BYTES_PER_S_MIN;
        let earned_s = u32::try_from(earned_s).unwrap_or(u32::MAX);
        self.timeout_s.saturating_add(earned_s).saturating_sub(self.blocked_s)
    }

    /// Records that the client has read a chunk of `len` bytes within `seconds`.
    pub(super) fn add(&mut self, len: usize, seconds: u32) {
        self.sent += len as u64;
        self.blocked_s = self.blocked_s.saturating_add(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_earns_time_by_reading() {
        let mut pace = Pace::new(20);
        assert_eq!(pace.left_s(), 20);
        pace.add(60 * 1024, 15);
        assert_eq!(pace.left_s(), 5);
        // A megabyte a second: time accumulates.
        (0..100).for_each(|_| pace.add(1 << 20, 1));
        assert_eq!(pace.left_s(), 5 + 100 * 15);
        pace.add(0, u32::MAX);
        assert_eq!(pace.left_s(), 0);
    }
}
