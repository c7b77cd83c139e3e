//! The loop of a worker, the same for all engines: receive and answer, call the handler's timer, pass blocked
//! networks to the kernel, and wait.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use primitives::IpPrefix;

use super::Handler;
use super::coalescer::{Coalescer, Next, sleep_precisely};

/// The time between idle calls. Also the longest sleep, and the longest delay until `stop` is seen.
const IDLE_PERIOD: Duration = Duration::from_millis(250);

/// Moves the datagrams of a worker. [`engine_loop`] decides when.
pub trait EngineIo {
    /// Returns true if the engine uses only what all systems have: no source filters, and no sleeps that are short
    /// enough to let datagrams gather.
    fn is_portable(&self) -> bool {
        false
    }

    /// Receives from each source once, up to a full batch, and answers. Returns what came. A source from which less
    /// than a full batch came was found empty.
    ///
    /// # Errors
    ///
    /// If a socket is unusable. Errors of single datagrams are not returned.
    fn poll_once(&mut self, handler: &mut impl Handler) -> io::Result<Round>;

    /// Sleeps until a datagram arrives or has arrived already, for at most `wait`.
    ///
    /// # Errors
    ///
    /// If the kernel cannot wait for the sockets.
    fn sleep(&mut self, wait: Duration) -> io::Result<()>;

    /// Makes the kernel drop datagrams from `networks` and no others. Portable engines do nothing.
    fn block_sources(&mut self, networks: &[IpPrefix]);

    /// Called about four times a second, after [`Handler::idle`].
    fn check(&mut self) {}

    /// Called once, before the worker ends. Serves what has arrived already, where it would be lost.
    fn finish(&mut self, handler: &mut impl Handler) {
        let _ = handler;
    }
}

/// The datagrams of one call of [`EngineIo::poll_once`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Datagrams of all batches.
    pub(super) datagrams: usize,
    /// Datagrams of the largest batch.
    pub(super) largest_batch: usize,
}

impl Round {
    /// Adds a batch, which may be empty.
    #[inline]
    pub fn add_batch(&mut self, datagrams: usize) {
        self.datagrams += datagrams;
        self.largest_batch = self.largest_batch.max(datagrams);
    }

    /// Adds the batches of another round.
    #[inline]
    pub fn add_round(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.largest_batch = self.largest_batch.max(other.largest_batch);
    }

    /// Returns whether nothing came.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.datagrams == 0
    }
}

/// Runs `engine` on this thread until `stop` is set; it returns within a quarter of a second then. The kernel drops
/// no networks any more when it returns: another process may take over the sockets.
///
/// # Errors
///
/// Those of `engine`.
pub fn engine_loop(
    engine: &mut impl EngineIo,
    handler: &mut impl Handler,
    stop: &AtomicBool,
) -> io::Result<()> {
    // Otherwise the delays are longer: that costs latency, but nothing fails.
    let _ = sleep_precisely();
    let is_portable = engine.is_portable();
    let begun = Instant::now();
    let mut coalescer = Coalescer::new(begun);
    let mut idle_at = begun + IDLE_PERIOD;
    while !stop.load(Ordering::Relaxed) {
        let round = engine.poll_once(handler)?;
        let now = Instant::now();
        if now >= idle_at {
            handler.idle();
            engine.check();
            idle_at = now + IDLE_PERIOD;
        }
        if !is_portable && let Some(networks) = handler.source_filter() {
            engine.block_sources(&networks);
        }
        match coalescer.next(now, round) {
            Next::Receive => {}
            Next::Delay(delay) if !is_portable => {
                thread::sleep(delay);
                coalescer.woke(Instant::now());
            }
            Next::Delay(_) | Next::Poll => {
                engine.sleep(idle_at - now)?;
                coalescer.woke(Instant::now());
            }
        }
    }
    engine.finish(handler);
    handler.idle();
    engine.block_sources(&[]);
    Ok(())
}
