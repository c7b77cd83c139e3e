//! The journal of the swarms: peers survive a kill, a restart and a power failure.
//!
//! A journal is a directory of segments. A [`Writer`] appends two things, mixed: changes of peers as they
//! happen, and a walk over the whole store that never ends, one round in a few minutes. A reader that starts at
//! the last complete round finds everything, so older segments are deleted. [`Journal`] reads it back.
#![forbid(unsafe_code)]

mod feed;
mod status;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use swarm::{Merged, Store};
use types::Tick;

pub use feed::{BlockSink, Encoder, Feed, Step};
pub use status::{Failure, Figures, KINDS, SKIPPED, State, Status};

/// A wall clock that moves by more than this against the tracker's clock was set.
const CLOCK_STEP_MS: u64 = 10_000;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The tracker's clock.
    pub tick: Tick,
    /// Unix time, milliseconds.
    pub unix_ms: u64,
}

impl Now {
    /// Returns the unix time at tick 0, in milliseconds.
    pub fn epoch_ms(self) -> u64 {
        self.unix_ms.saturating_sub(u64::from(self.tick.0) * 1000)
    }

    /// Returns the unix time at tick 0, in minutes.
    pub fn epoch_min(self) -> u32 {
        (self.epoch_ms() / 60_000).try_into().unwrap_or(u32::MAX)
    }
}

/// Reads both clocks.
pub type Clocks = Arc<dyn Fn() -> Now + Send + Sync>;

/// What may change while a journal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a round takes.
    pub round: Duration,
    /// How often written data is forced to the disk; zero = only before segments are deleted.
    pub sync: Duration,
    /// The most bytes on the disk; 0 = unlimited. Near them, a round hurries to its end, because that
    /// frees what came before it. At them, the journal stops.
    pub bytes_max: u64,
}

/// The right to write a journal: a lock of its directory, held until it is dropped.
#[derive(Debug)]
pub struct Lock {}

impl Lock {
    /// Waits for the lock, up to `wait`. Returns `None` if another process still holds it then. Creates the
    /// directory.
    pub fn acquire(_directory: &Path, _wait: Duration) -> io::Result<Option<Self>> {
        todo!()
    }
}

/// A journal to read.
#[derive(Debug)]
pub struct Journal {}

impl Journal {
    /// Opens the journal in `directory` at the unix time `unix_ms`: reads the headers of its segments.
    /// Returns `None` if there is nothing to restore. A journal of a later version is renamed, and the log
    /// says so.
    pub fn open(_directory: &Path, _unix_ms: u64) -> io::Result<Option<Self>> {
        todo!()
    }

    /// Returns the unix time at tick 0 of the tracker that wrote it, in milliseconds.
    pub fn epoch_ms(&self) -> u64 {
        todo!()
    }

    /// Restores all into `store`, by `threads` threads, until `stop` is set. Returns what it did. The store
    /// may serve meanwhile.
    pub fn restore(
        self,
        _store: &Store,
        _clocks: &Clocks,
        _threads: usize,
        _status: &Status,
        _stop: &AtomicBool,
    ) -> Merged {
        todo!()
    }
}

/// Writes a journal.
pub struct Writer {}

impl Writer {
    /// Returns a writer for `directory`, which `lock` protects. It writes nothing yet. All who take changes
    /// of the store share `feed`.
    pub fn new(
        _directory: PathBuf,
        _lock: Lock,
        _feed: Arc<Feed>,
        _clocks: Clocks,
        _status: Arc<Status>,
    ) -> Self {
        todo!()
    }

    /// Writes until `stop` is set; then writes the last changes, lets the disk write them, releases the lock
    /// and returns. Reads `pace` a few times a second.
    pub fn run(self, _store: &Store, _pace: impl Fn() -> Pace, _stop: &AtomicBool) {
        todo!()
    }
}
