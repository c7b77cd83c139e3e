//! The journal of the swarms: peers survive a kill, a restart and a power failure.
//!
//! A journal is a directory of segments. A [`Writer`] appends two things, mixed: changes of peers as they
//! happen, and a walk over the whole store that never ends, one round in a few minutes. Whoever reads from
//! the beginning of the last complete round has everything, so older segments are deleted. [`Journal`]
//! reads it back.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use swarm::{Merged, Store};
use types::Tick;

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
}

/// Reads both clocks.
pub type Clocks = Arc<dyn Fn() -> Now + Send + Sync>;

/// What may change while a journal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long a round takes.
    pub round: Duration,
    /// How often the disk is told to write; zero = never.
    pub sync: Duration,
    /// The most bytes on the disk; 0 = unlimited. Above them rounds get longer.
    pub bytes_max: u64,
}

/// What a journal is doing, for metrics.
#[derive(Debug, Default)]
pub struct Status {}

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
    /// Opens the journal in `directory`: reads the headers of its segments. Returns `None` if there is
    /// nothing to restore. A journal of a later version is renamed, and the log says so.
    pub fn open(_directory: &Path) -> io::Result<Option<Self>> {
        todo!()
    }

    /// Returns the unix time at tick 0 of the tracker that wrote it, in milliseconds.
    pub fn epoch_ms(&self) -> u64 {
        todo!()
    }

    /// Restores all into `store`, by `threads` threads. Returns what it did.
    pub fn restore(self, _store: &Store, _clocks: &Clocks, _threads: usize, _status: &Status) -> Merged {
        todo!()
    }
}

/// Writes a journal.
pub struct Writer {}

impl Writer {
    /// Returns a writer for `directory`, which `lock` protects. It writes nothing yet.
    pub fn new(_directory: PathBuf, _lock: Lock, _clocks: Clocks, _status: Arc<Status>) -> Self {
        todo!()
    }

    /// Writes until `stop` is set; then writes the last changes and returns. Reads `pace` a few times a
    /// second.
    pub fn run(self, _store: &Store, _pace: impl Fn() -> Pace, _stop: &AtomicBool) {
        todo!()
    }
}
